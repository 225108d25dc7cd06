//! Which tools agents may call, with timeouts and limits.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_net::duration;
pub use bowline_sbp::approval::ApprovalsMode;
use serde::{Deserialize, Serialize};

use super::matches;

/// Tools of surfaces and of MCP servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// Tools of surfaces that agents may call, by name; `*` matches anything.
    pub surface: Vec<String>,
    /// How long a surface may take to answer a call.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The same for single tools, by name.
    pub timeouts: BTreeMap<String, Timeout>,
    /// `allow`, `ask` or `deny` by tool name; `*` matches anything. Of several matching patterns and
    /// rules the strictest counts. Without one, read-only tools of MCP servers run, and all others ask.
    pub policy: BTreeMap<String, Policy>,
    /// The same by user, agent and server, too.
    pub rules: Vec<ToolRule>,
    /// When a call that needs an approval is refused at once: `attached`, if nobody who may approve is
    /// attached; `wait`: never. `sbp.approvals` says it for one request.
    pub approvals: ApprovalsMode,
    /// How long an approval may stay undecided; then the call is denied.
    #[serde(with = "duration")]
    pub approval_timeout: Duration,
    /// A surface that disconnects during a call may reconnect within this time, and is then sent
    /// the call again with the same `call_id`. `0ms`: the call fails at once.
    #[serde(with = "duration")]
    pub wait_for_surface: Duration,
    /// Idempotent tools of surfaces, by name: a call that a crash interrupted is retried. Other
    /// interrupted calls are reported to the agent as lost.
    pub idempotent: Vec<String>,
    /// How many rounds of tool calls a turn may have before the model has to answer.
    pub max_rounds: u32,
    /// What a turn may cost, in US dollars, before the model has to answer without more tool calls.
    /// `0`: no limit.
    pub max_cost_usd: f64,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            surface: vec!["*".into()],
            timeout: Duration::from_secs(30),
            timeouts: BTreeMap::new(),
            policy: BTreeMap::new(),
            rules: Vec::new(),
            approvals: ApprovalsMode::default(),
            approval_timeout: Duration::from_secs(600),
            wait_for_surface: Duration::ZERO,
            idempotent: Vec::new(),
            max_rounds: 8,
            max_cost_usd: 0.0,
        }
    }
}

/// See [`ToolsConfig::policy`]. The strictest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Allow,
    Ask,
    Deny,
}

/// A rule for tool calls. A pattern that is missing matches everything; `*` matches any run of characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRule {
    /// The name of the session's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The name of the MCP server; `device` for tools of devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The tool, by its own name or by the name that models use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub policy: Policy,
    /// Of `ask`: another user than the one who asked for the turn has to approve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_person: bool,
}

/// A tool call, by the names that rules use.
#[derive(Debug, Clone, Copy)]
pub struct ToolUse<'a> {
    pub user: &'a str,
    pub agent: &'a str,
    /// The MCP server, and the name that models use. None: a device.
    pub server: Option<(&'a str, &'a str)>,
    /// The tool's own name.
    pub tool: &'a str,
}

impl ToolUse<'_> {
    /// Whether a pattern matches one of the tool's names. One that begins like the names that models use
    /// is for those: a tool's own name must not imitate them.
    fn is_named(&self, pattern: &str) -> bool {
        let is_full = pattern.starts_with("mcp_") || pattern.starts_with("surface_");
        let by_full_name = match self.server {
            Some((_, name)) => matches(pattern, name),
            None => matches(pattern, &format!("surface_{}", self.tool)),
        };
        by_full_name || (!is_full && matches(pattern, self.tool))
    }
}

impl ToolRule {
    fn fits(&self, call: &ToolUse<'_>) -> bool {
        let fits = |pattern: &Option<String>, name: &str| {
            pattern.as_deref().is_none_or(|pattern| matches(pattern, name))
        };
        fits(&self.user, call.user)
            && fits(&self.agent, call.agent)
            && fits(&self.server, call.server.map_or("device", |(server, _)| server))
            && self.tool.as_deref().is_none_or(|pattern| call.is_named(pattern))
    }
}

impl ToolsConfig {
    /// Whether a surface's tool may be offered to some agent of some user.
    pub fn allows(&self, tool: &str) -> bool {
        let call = ToolUse { user: "", agent: "", server: None, tool };
        let denied = |(pattern, policy): (&String, &Policy)| {
            *policy == Policy::Deny && call.is_named(pattern)
        };
        self.surface.iter().any(|pattern| matches(pattern, tool)) && !self.policy.iter().any(denied)
    }

    /// What the rules say of a call, and whether it takes a second person; none if no rule fits.
    pub fn ruling(&self, call: &ToolUse<'_>) -> Option<(Policy, bool)> {
        let named = self.policy.iter().filter(|(pattern, _)| call.is_named(pattern));
        let named = named.map(|(_, policy)| (*policy, false));
        let rules = self.rules.iter().filter(|rule| rule.fits(call));
        let rules = rules.map(|rule| (rule.policy, rule.second_person));
        named.chain(rules).reduce(|a, b| (a.0.max(b.0), a.1 || b.1))
    }

    /// Whether a rule is for some users only.
    pub fn names_users(&self) -> bool {
        self.rules.iter().any(|rule| rule.user.is_some())
    }

    pub fn timeout_of(&self, tool: &str) -> Duration {
        self.timeouts.get(tool).map_or(self.timeout, |timeout| timeout.0)
    }

    pub fn is_idempotent(&self, tool: &str) -> bool {
        self.idempotent.iter().any(|pattern| matches(pattern, tool))
    }

    /// Whether a turn with this cost has reached `max_cost_usd`.
    pub fn is_spent(&self, cost_usd: f64) -> bool {
        self.max_cost_usd > 0.0 && cost_usd >= self.max_cost_usd
    }
}

/// A duration as a value of its own, such as `60s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeout(#[serde(with = "duration")] pub Duration);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_policy_that_fits_counts() {
        let policy = [("*", Policy::Ask), ("gps", Policy::Allow), ("cam*", Policy::Deny)];
        let policy = policy.map(|(pattern, policy)| (pattern.to_owned(), policy)).into();
        let tools = ToolsConfig { policy, ..ToolsConfig::default() };
        let of = |tools: &ToolsConfig, tool| {
            tools.ruling(&ToolUse { user: "ada", agent: "a", server: None, tool })
        };
        assert_eq!(of(&tools, "gps"), Some((Policy::Ask, false)));
        assert_eq!(of(&tools, "camera"), Some((Policy::Deny, false)));
        assert!(tools.allows("gps") && !tools.allows("camera"));
        let policy = [("surface_run".to_owned(), Policy::Deny)].into();
        let tools = ToolsConfig { policy, ..ToolsConfig::default() };
        assert!(!tools.allows("run"), "by the name that models have for it, too");
        assert_eq!(of(&ToolsConfig::default(), "anything"), None);
    }

    #[test]
    fn g21_a_rule_fits_by_user_agent_server_and_tool() {
        let read = |text: &str| toml::from_str::<ToolsConfig>(text).unwrap();
        let tools = read(
            "[[rules]]
             user = 'ada'
             server = 'files'
             tool = 'write*'
             policy = 'allow'
             [[rules]]
             agent = 'bank-*'
             policy = 'ask'
             second_person = true",
        );
        assert!(tools.names_users());
        let of = |user, agent, server, tool| tools.ruling(&ToolUse { user, agent, server, tool });
        let files = |tool| Some(("files", tool));
        let allow = Some((Policy::Allow, false));
        assert_eq!(of("ada", "a", files("mcp_files_write"), "write"), allow);
        assert_eq!(of("bob", "a", files("mcp_files_write"), "write"), None);
        assert_eq!(of("ada", "a", Some(("disk", "mcp_disk_write")), "write"), None);
        assert_eq!(of("ada", "a", None, "write"), None, "a device is no server of that name");
        let two = Some((Policy::Ask, true));
        assert_eq!(of("ada", "bank-1", files("mcp_files_write"), "write"), two);
        assert_eq!(of("bob", "bank-1", None, "camera"), two);
        let imitated = read("[policy]\n'mcp_files_*' = 'allow'");
        let of = |server, tool| imitated.ruling(&ToolUse { user: "", agent: "", server, tool });
        assert_eq!(of(files("mcp_files_x"), "x"), allow);
        assert_eq!(of(None, "mcp_files_x"), None);
        assert_eq!(of(Some(("other", "mcp_other_mcp_files_x")), "mcp_files_x"), None);
        let devices = read("[[rules]]\nserver = 'device'\npolicy = 'deny'");
        let of = |server| devices.ruling(&ToolUse { user: "", agent: "", server, tool: "t" });
        assert_eq!((of(None), of(files("t"))), (Some((Policy::Deny, false)), None));
        assert!(toml::from_str::<ToolsConfig>("[[rules]]\ntool = 'x'").is_err(), "no policy");
    }

    #[test]
    fn without_a_limit_nothing_is_too_expensive() {
        assert!(!ToolsConfig::default().is_spent(1e9));
        let tools = ToolsConfig { max_cost_usd: 0.5, ..ToolsConfig::default() };
        assert!(!tools.is_spent(0.49) && tools.is_spent(0.5));
    }
}
