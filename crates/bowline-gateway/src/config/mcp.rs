//! `[mcp.servers.<name>]`: the configuration of an MCP server.
//!
//! Checked once, at the start: a mistake fails the start with an explanation, not a turn later.
//! Values of variables and headers are secrets; nothing here prints them.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_net::duration;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::matches;

/// The MCP servers whose tools agents may use (SBP-L5-06).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mcp {
    /// By name: letters, digits and `-`. The name is part of the tool names that models see.
    pub servers: BTreeMap<String, McpServerConfig>,
}

/// One MCP server: a program to be started (`command`), or an address (`url`).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServerConfig {
    /// Whether it is used at all.
    pub enabled: bool,
    /// The program; MCP messages go over its stdin and stdout.
    pub command: Option<String>,
    pub args: Vec<String>,
    /// Environment variables of the program. A value `env:NAME` is read from the gateway's variable
    /// NAME.
    pub env: BTreeMap<String, String>,
    /// Environment variables of the gateway that are passed to the program. Of the others only a
    /// few that most programs need are passed, such as PATH and HOME.
    pub env_from: Vec<String>,
    /// The URL of a streamable HTTP server: `https://host/mcp`.
    pub url: Option<String>,
    /// Headers of every request to it. A value `env:NAME` is read from the gateway's variable NAME.
    pub headers: BTreeMap<String, String>,
    /// Its tools that agents may call, by the server's names; `*` matches anything.
    pub tools: Vec<String>,
    /// Idempotent tools: a call that a crash interrupted is retried. Tools that the server itself
    /// declares idempotent or read-only are included.
    pub idempotent: Vec<String>,
    /// Whether models get two tools to list and read its resources. Default: false.
    pub resources: bool,
    /// How long a call may take without an answer or a progress notification.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How long a call may take in all, however much progress its server reports. A smaller value
    /// than `timeout` counts as that.
    #[serde(with = "duration")]
    pub max_timeout: Duration,
}

impl Default for McpServerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            env_from: Vec::new(),
            url: None,
            headers: BTreeMap::new(),
            tools: vec!["*".into()],
            idempotent: Vec::new(),
            resources: false,
            timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(600),
        }
    }
}

impl std::fmt::Debug for McpServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments, variables, headers and addresses may carry credentials.
        f.debug_struct("Server")
            .field("enabled", &self.enabled)
            .field("tools", &self.tools)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl McpServerConfig {
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| matches(pattern, tool))
    }

    /// The longest that a call may take.
    pub(crate) fn longest_call(&self) -> Duration {
        self.max_timeout.max(self.timeout)
    }

    pub(crate) fn is_idempotent(&self, tool: &str) -> bool {
        self.idempotent.iter().any(|pattern| matches(pattern, tool))
    }
}

/// A server that cannot be used as configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("mcp.servers.{name}: {reason}")]
pub struct BadServer {
    pub name: String,
    pub reason: String,
}

/// How a server is reached, with all environment variables resolved.
#[derive(Clone)]
pub(crate) enum McpTransport {
    Program { command: String, args: Vec<String>, env: Vec<(String, String)> },
    Address { url: Url, headers: HeaderMap },
}

impl std::fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            McpTransport::Program { .. } => "Program(…)",
            McpTransport::Address { .. } => "Address(…)",
        })
    }
}

/// Variables that most programs need. None of them is a secret.
const ALWAYS: [&str; 9] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];
const LONGEST_NAME: usize = 24;

impl McpTransport {
    /// Checks the configuration; `variable` looks up the gateway's environment.
    pub(crate) fn read(
        name: &str,
        server: &McpServerConfig,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadServer> {
        let bad = |reason: String| BadServer { name: name.to_owned(), reason };
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(usable) {
            let reason = format!("a name is 1 to {LONGEST_NAME} letters, digits and `-`");
            return Err(bad(reason));
        }
        let resolved = |value: &str| match value.strip_prefix("env:") {
            Some(from) => variable(from)
                .ok_or_else(|| bad(format!("the environment variable {from} is not set"))),
            None => Ok(value.to_owned()),
        };
        match (&server.command, &server.url) {
            (Some(command), None) => {
                let mut env = BTreeMap::new();
                let passed =
                    ALWAYS.iter().copied().chain(server.env_from.iter().map(String::as_str));
                for from in passed {
                    env.extend(variable(from).map(|value| (from.to_owned(), value)));
                }
                for (name, value) in &server.env {
                    env.insert(name.clone(), resolved(value)?);
                }
                let (command, args) = (command.clone(), server.args.clone());
                Ok(McpTransport::Program { command, args, env: env.into_iter().collect() })
            }
            (None, Some(url)) => {
                let url =
                    Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                let url =
                    url.ok_or_else(|| bad("`url` is written like https://host/mcp".into()))?;
                let mut headers = HeaderMap::new();
                for (header, value) in &server.headers {
                    let value = resolved(value)?;
                    let pair = header.parse::<HeaderName>().ok().zip(value.parse().ok());
                    let (header, mut value): (_, HeaderValue) =
                        pair.ok_or_else(|| bad(format!("`headers.{header}` cannot be a header")))?;
                    value.set_sensitive(true);
                    headers.insert(header, value);
                }
                Ok(McpTransport::Address { url, headers })
            }
            (Some(_), Some(_)) => Err(bad("it has both `command` and `url`; keep one".into())),
            (None, None) => Err(bad("it needs a `command` or a `url`".into())),
        }
    }

    /// The transport's name in the health report.
    pub(crate) fn transport(&self) -> &'static str {
        match self {
            McpTransport::Program { .. } => "stdio",
            McpTransport::Address { .. } => "http",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> McpServerConfig {
        McpServerConfig { command: Some("uvx".into()), ..McpServerConfig::default() }
    }

    fn variable(name: &str) -> Option<String> {
        match name {
            "PATH" => Some("/bin".into()),
            "TOKEN" => Some("s3cret".into()),
            _ => None,
        }
    }

    #[test]
    fn a_program_gets_what_it_was_given_and_nothing_else_of_ours() {
        let mut server = program();
        server.env = BTreeMap::from([
            ("MODE".into(), "fast".into()),
            ("API_KEY".into(), "env:TOKEN".into()),
        ]);
        let McpTransport::Program { env, .. } = McpTransport::read("a", &server, variable).unwrap()
        else {
            panic!("a program");
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(env, [pair("API_KEY", "s3cret"), pair("MODE", "fast"), pair("PATH", "/bin")]);
        server.env_from = vec!["TOKEN".into(), "NOT_SET".into()];
        let McpTransport::Program { env, .. } = McpTransport::read("a", &server, variable).unwrap()
        else {
            panic!("a program");
        };
        assert!(env.contains(&pair("TOKEN", "s3cret")) && env.len() == 4);
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        let reason = |name: &str, server: &McpServerConfig| {
            McpTransport::read(name, server, variable).unwrap_err().to_string()
        };
        let mut server = McpServerConfig::default();
        assert!(reason("a", &server).contains("needs a `command` or a `url`"));
        assert!(reason("two words", &program()).contains("letters, digits"));
        assert!(reason("a_b", &program()).contains("letters, digits"), "`_` ends the name");
        server.url = Some("ftp://host".into());
        assert!(reason("a", &server).contains("https://host/mcp"));
        server.url = Some("https://user:hunter22@host/mcp".into());
        server.headers.insert("Authorization".into(), "env:NOT_SET".into());
        assert!(reason("a", &server).contains("NOT_SET is not set"));
        server.headers.insert("Authorization".into(), "s3cret\n".into());
        assert_eq!(
            reason("a", &server),
            "mcp.servers.a: `headers.Authorization` cannot be a header"
        );
        server.headers.insert("Authorization".into(), "env:TOKEN".into());
        let place = McpTransport::read("a", &server, variable).unwrap();
        let shown = format!("{server:?} {place:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("hunter22"), "{shown}");
        server.command = Some("x".into());
        assert!(reason("a", &server).contains("both"));
    }
}
