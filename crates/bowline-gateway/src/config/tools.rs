//! Which tools agents may call, with timeouts and limits.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_net::duration;
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
    /// `allow`, `ask` or `deny` by tool name; `*` matches anything. Of several matching patterns
    /// the strictest counts; a tool that matches none is allowed.
    pub policy: BTreeMap<String, Policy>,
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

impl ToolsConfig {
    /// Whether a surface's tool may be offered at all.
    pub fn allows(&self, tool: &str) -> bool {
        self.surface.iter().any(|pattern| matches(pattern, tool))
            && self.policy_of_surface(tool) != Policy::Deny
    }

    /// The policy of a tool, by the name that models use.
    pub fn policy_of(&self, tool: &str) -> Policy {
        let fitting = self.policy.iter().filter(|(pattern, _)| matches(pattern, tool));
        fitting.map(|(_, policy)| *policy).max().unwrap_or_default()
    }

    /// The policy of a surface's tool, by its own name and by the name that models use.
    pub fn policy_of_surface(&self, tool: &str) -> Policy {
        self.policy_of(tool).max(self.policy_of(&format!("surface_{tool}")))
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
        assert_eq!(tools.policy_of("gps"), Policy::Ask);
        assert_eq!(tools.policy_of("camera"), Policy::Deny);
        assert!(tools.allows("gps") && !tools.allows("camera"));
        assert_eq!(tools.policy_of_surface("camera"), Policy::Deny);
        let policy = [("surface_run".to_owned(), Policy::Deny)].into();
        let tools = ToolsConfig { policy, ..ToolsConfig::default() };
        assert!(!tools.allows("run"), "by the name that models have for it, too");
        assert_eq!(ToolsConfig::default().policy_of("anything"), Policy::Allow);
    }

    #[test]
    fn without_a_limit_nothing_is_too_expensive() {
        assert!(!ToolsConfig::default().is_spent(1e9));
        let tools = ToolsConfig { max_cost_usd: 0.5, ..ToolsConfig::default() };
        assert!(!tools.is_spent(0.49) && tools.is_spent(0.5));
    }
}
