//! The gateway's configuration. Every field has a default that works on a laptop.
//!
//! The binary reads it from TOML, environment and flags; here are only the types, their defaults
//! and their meaning.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_net::tls::Tls;
use bowline_net::{DoorConfig, duration, listen, peer};
use bowline_sbp::id::AgentId;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;

mod audit;
mod budgets;
mod context;
mod federation;
pub mod mcp;
mod tokens;
mod tools;
mod translate;

pub use self::audit::AuditConfig;
pub use self::budgets::{BudgetsConfig, DefaultLimits};
pub use self::context::{ContextConfig, ContextPolicy};
pub use self::federation::{BadFederation, FederationConfig, PeerConfig, TrackerPeerConfig};
pub use self::mcp::Mcp;
pub use self::tokens::{SecretsConfig, TokensConfig};
pub use self::tools::{ApprovalsMode, Policy, Timeout, ToolRule, ToolUse, ToolsConfig};
pub use self::translate::Translate;

/// The built-in agent, as a model's name.
pub const OFFLINE: &str = "bowline/offline";

/// Paths of OpenAI's API under which a server keeps what it is sent.
pub const STATEFUL_PATHS: [&str; 9] = [
    "/v1/assistants",
    "/v1/batches",
    "/v1/conversations",
    "/v1/files",
    "/v1/fine_tuning",
    "/v1/responses",
    "/v1/threads",
    "/v1/uploads",
    "/v1/vector_stores",
];

/// The gateway's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address to listen on. Anything but loopback needs `tls` or `behind_proxy`, and API keys or
    /// users; or `insecure`.
    #[serde(deserialize_with = "listen::deserialize")]
    pub listen: SocketAddr,
    /// Allows a public address without TLS and without API keys. Anyone who reaches it can use it.
    pub insecure: bool,
    /// Certificate and key. Without them: plain HTTP, for loopback or behind a proxy.
    pub tls: Option<Tls>,
    /// Addresses and networks of the proxies in front of the gateway, which end TLS. Their `Forwarded`
    /// and `X-Forwarded-For` are trusted, and `limits.connections_per_address` does not count them.
    /// On a public address without `tls` nobody else may connect, unless `insecure` is set.
    #[serde(deserialize_with = "peer::networks")]
    pub behind_proxy: Vec<IpNet>,
    /// The model for messages that name none (`USER_MESSAGE` without `model`).
    pub default_model: String,
    /// The wire version reported to surfaces that request none.
    pub wire_version: WireVersion,
    pub sessions: SessionsConfig,
    pub auth: Auth,
    pub access: AccessConfig,
    pub secrets: SecretsConfig,
    pub tokens: TokensConfig,
    pub http: Http,
    pub offline: Offline,
    pub memory: Memory,
    pub agents: Agents,
    pub tools: ToolsConfig,
    pub translate: Translate,
    pub mcp: Mcp,
    pub context: ContextConfig,
    pub budgets: BudgetsConfig,
    pub audit: AuditConfig,
    pub federation: FederationConfig,
    /// Named OpenAI-compatible servers.
    pub upstream: BTreeMap<String, Upstream>,
    /// Prices by model pattern, for `cost_usd` if the upstream reports no cost.
    pub prices: BTreeMap<String, Price>,
    pub limits: Limits,
    /// The profile of the protocol's public test suite; see [`Config::certified`]. Loopback only.
    #[serde(skip)]
    pub certify: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            insecure: false,
            tls: None,
            behind_proxy: Vec::new(),
            default_model: OFFLINE.into(),
            wire_version: WireVersion::default(),
            sessions: SessionsConfig::default(),
            auth: Auth::default(),
            access: AccessConfig::default(),
            secrets: SecretsConfig::default(),
            tokens: TokensConfig::default(),
            http: Http::default(),
            offline: Offline::default(),
            memory: Memory::default(),
            agents: Agents::default(),
            tools: ToolsConfig::default(),
            translate: Translate::default(),
            mcp: Mcp::default(),
            context: ContextConfig::default(),
            budgets: BudgetsConfig::default(),
            audit: AuditConfig::default(),
            federation: FederationConfig::default(),
            upstream: BTreeMap::new(),
            prices: BTreeMap::new(),
            limits: Limits::default(),
            certify: false,
        }
    }
}

impl Config {
    /// The settings as the protocol's public test suite needs them: wire 0.9, a session for every call,
    /// all tools that a surface declares, and the suite's test endpoint. No setting of its own: it
    /// belongs to a run, not to a configuration.
    #[must_use]
    pub fn certified(mut self) -> Self {
        self.certify = true;
        self.wire_version = WireVersion::V0_9;
        self.sessions.mode = SessionMode::Always;
        self.tools.surface = vec!["*".into()];
        self.tools.policy = BTreeMap::from([("*".into(), Policy::Allow)]);
        self.tools.rules.clear();
        self
    }

    /// Where the gateway listens, and what is between it and its clients.
    pub(crate) fn door(&self) -> DoorConfig {
        let older = &self.http.trusted_proxies;
        DoorConfig {
            address: self.listen,
            tls: self.tls.clone(),
            behind_proxy: self.behind_proxy.iter().chain(older).copied().collect(),
            insecure: self.insecure,
        }
    }
}

/// The two version numbers of the same wire protocol: `1.2`, or `0.9` as in the public repository.
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

/// Which requests belong to sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsConfig {
    pub mode: SessionMode,
}

/// `explicit`: only requests with an `sbp` object or a session token; others are passed through
/// unchanged (SBP-L1-09). `always`: every request.
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
    /// API keys, each as plain text (at least 20 characters) or as `sha256:<hex>`. Empty: no key is
    /// needed, and only loopback is served.
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

/// Whether callers on the gateway's own machine need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    pub loopback: Loopback,
}

/// `auto`: they need none while no API key is configured and no user was ever added. `open`: they
/// never need one. `closed`: they always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loopback {
    #[default]
    Auto,
    Open,
    Closed,
}

/// Allowed web origins, host names and proxies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Web origins (`Origin`) whose pages may call the gateway besides its own. `null`: pages
    /// without an origin. `*`: every page; only with API keys.
    pub allowed_origins: Vec<String>,
    /// Host names (`Host`) that a gateway on loopback accepts besides localhost.
    pub allowed_hosts: Vec<String>,
    /// The same as `behind_proxy`, as it was called before; both count.
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

/// Agents' memories, which outlive their sessions.
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

/// Which agents sessions may be assigned to.
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
    /// The base URL, as for an OpenAI SDK: `https://host/v1`.
    pub url: String,
    /// The environment variable that holds the key.
    pub key_env: Option<String>,
    /// The file that holds the key; read at start.
    pub key_file: Option<PathBuf>,
    /// Model names it serves; `*` matches anything. Empty: every model that no other upstream
    /// serves.
    pub models: Vec<String>,
    /// Which of [`STATEFUL_PATHS`] are passed on to it. All callers of the gateway share what is
    /// stored there. Each path may have one upstream. Empty: none, they are refused.
    pub stateful_paths: Vec<String>,
    /// Models that read images, `*` matches anything: they get the images of tool results. Others get
    /// a line of text for each. Default: none.
    pub vision: Vec<String>,
    /// `auto`: stream if the caller streams or a surface watches. `always`: stream every turn of a
    /// session, so that a surface that attaches later sees the text of a running turn.
    pub stream: StreamMode,
    /// How long connecting may take.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// How long the first byte of a response may take.
    #[serde(with = "duration")]
    pub first_byte_timeout: Duration,
    /// How long a stream may send nothing.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// How often to retry; only before the first byte of a response.
    pub retries: u32,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: String::new(),
            key_env: None,
            key_file: None,
            models: Vec::new(),
            stateful_paths: Vec::new(),
            vision: Vec::new(),
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

/// Whether `name` matches `pattern`, where `*` matches any run of characters.
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
