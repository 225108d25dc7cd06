//! What a gateway can be told. Every field has a default that works on a laptop.
//!
//! Read from TOML, environment and flags by the binary; here are only the types, their defaults
//! and what they mean.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::tls::Tls;
use bowline_net::{duration, peer};
use bowline_sbp::id::AgentId;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;

pub mod mcp;
mod tools;
mod translate;

pub use self::mcp::Mcp;
pub use self::tools::{Policy, Timeout, ToolsConfig};
pub use self::translate::Translate;

/// The built-in agent, as a model's name.
pub const OFFLINE: &str = "bowline/offline";

/// The gateway's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen. Anything but loopback needs API keys, or `insecure`.
    pub listen: SocketAddr,
    /// Allows a public address without API keys. Anyone who reaches it can use it.
    pub insecure: bool,
    /// Certificate and key; none: plain HTTP, for this machine or a proxy.
    pub tls: Option<Tls>,
    /// The model for input that names none (`USER_MESSAGE` without `model`).
    pub default_model: String,
    /// The wire version told to surfaces that ask for none.
    pub wire_version: WireVersion,
    pub sessions: SessionsConfig,
    pub auth: Auth,
    pub http: Http,
    pub offline: Offline,
    pub memory: Memory,
    pub agents: Agents,
    pub tools: ToolsConfig,
    pub translate: Translate,
    pub mcp: Mcp,
    /// Named OpenAI-compatible servers.
    pub upstream: BTreeMap<String, Upstream>,
    /// Prices by model pattern, for `cost_usd` where the upstream does not say.
    pub prices: BTreeMap<String, Price>,
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            insecure: false,
            tls: None,
            default_model: OFFLINE.into(),
            wire_version: WireVersion::default(),
            sessions: SessionsConfig::default(),
            auth: Auth::default(),
            http: Http::default(),
            offline: Offline::default(),
            memory: Memory::default(),
            agents: Agents::default(),
            tools: ToolsConfig::default(),
            translate: Translate::default(),
            mcp: Mcp::default(),
            upstream: BTreeMap::new(),
            prices: BTreeMap::new(),
            limits: Limits::default(),
        }
    }
}

/// The two names of the same wire: `1.2`, or `0.9` as in the public repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WireVersion {
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    #[serde(rename = "0.9")]
    V0_9,
}

impl WireVersion {
    pub fn as_str(self) -> &'static str {
        match self {
            WireVersion::V1_2 => bowline_sbp::SBP_VERSION,
            WireVersion::V0_9 => bowline_sbp::SBP_VERSION_0_9,
        }
    }
}

/// Which calls become sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsConfig {
    pub mode: SessionMode,
}

/// `explicit`: only calls with an `sbp` object or a session token; others pass through
/// untouched (SBP-L1-09). `always`: every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionMode {
    #[default]
    Explicit,
    Always,
}

/// Who may use the gateway.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Keys, each as plain text (at least 20 characters) or as `sha256:<hex>`. None: only
    /// loopback is served.
    pub api_keys: Vec<String>,
    /// A file with one key a line, added to `api_keys`.
    pub api_keys_file: Option<PathBuf>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("api_keys", &self.api_keys.len())
            .field("api_keys_file", &self.api_keys_file)
            .finish()
    }
}

/// Browsers and names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Web origins that may talk to the gateway besides its own.
    pub allowed_origins: Vec<String>,
    /// Names under which a loopback gateway may be called besides localhost.
    pub allowed_hosts: Vec<String>,
    /// Networks of proxies whose `X-Forwarded-For` is believed, and which `limits.connections_per_address`
    /// does not count.
    #[serde(deserialize_with = "peer::networks")]
    pub trusted_proxies: Vec<IpNet>,
}

/// The built-in agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offline {
    /// The pause between two words.
    #[serde(with = "duration")]
    pub pace: Duration,
}

impl Default for Offline {
    fn default() -> Self {
        Self { pace: Duration::from_millis(20) }
    }
}

/// What agents keep beyond their sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// When a model is offered the tool `remember`. `asked`: when the request says
    /// `sbp.memory_retrieval: true` (and always for the built-in agent). `always`: unless the
    /// request says false; for models that can call tools. `never`.
    pub remember: Remember,
}

/// See [`Memory::remember`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    #[default]
    Asked,
    Always,
    Never,
}

/// Who sessions may be given to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agents {
    /// Agents that a handoff or an import may name; others are refused. Empty: any.
    pub known: Vec<AgentId>,
}

/// One OpenAI-compatible server.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// The base URL, as an OpenAI SDK would take it: `https://host/v1`.
    pub url: String,
    /// The environment variable that holds the key.
    pub key_env: Option<String>,
    /// The file that holds the key; read at start.
    pub key_file: Option<PathBuf>,
    /// Model names it serves; `*` stands for anything. Empty: every model no other one takes.
    pub models: Vec<String>,
    /// `auto`: stream when someone watches. `always`: stream every tracked turn, so that a
    /// surface can come in mid-sentence even to a turn that a script asked for.
    pub stream: StreamMode,
    /// How long a connection may take to come up.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long the first byte of an answer may take.
    #[serde(with = "duration")]
    pub first_byte_timeout: Duration,
    /// How long a stream may be silent.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// How often to try again, and only while not a byte of an answer has come.
    pub retries: u32,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: String::new(),
            key_env: None,
            key_file: None,
            models: Vec::new(),
            stream: StreamMode::Auto,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(60),
            retries: 2,
        }
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A URL may carry credentials.
        f.debug_struct("Upstream").field("models", &self.models).finish_non_exhaustive()
    }
}

/// See [`Upstream::stream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamMode {
    #[default]
    Auto,
    Always,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    pub output: f64,
}

/// Whether `name` fits `pattern`, where `*` stands for any run of characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_people_expect() {
        for (pattern, name, fits) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-*", "gpt-4o", true),
            ("*", "", true),
            ("*-mini", "gpt-4o-mini", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn sbp_l4_03_translation_is_off_until_a_model_is_named_and_then_by_device_and_agent() {
        let off = Translate::default();
        assert!(!off.serves("default", "mobile"));
        let on = Translate { model: "m".into(), ..off };
        for (device, served) in
            [("mobile", true), ("Voice", true), ("watch", true), ("desktop", false), ("", false)]
        {
            assert_eq!(on.serves("default", device), served, "{device}");
        }
        let some = Translate { agents: vec!["travel-*".into()], devices: vec!["*".into()], ..on };
        assert!(some.serves("travel-eu", "fridge") && !some.serves("default", "fridge"));
        assert!(!Translate { agents: Vec::new(), ..some.clone() }.serves("travel-eu", "iot"));
        assert!(!Translate { devices: Vec::new(), ..some }.serves("travel-eu", "iot"));
    }
}
