//! What a tool call needs: nothing, a person's yes, or it is denied.
//!
//! Rules of the configuration come first. Without one, read-only tools of configured MCP servers run, and
//! everything else asks (G21). A server's tool whose definition is another one than the pinned one
//! asks in any case, and shows what changed.

use bowline_sbp::approval::DefinitionChange;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::{AgentId, SessionId, UserId};

use super::Engine;
use super::tools::OfferedTools;
use crate::config::{Policy, ToolUse};
use crate::mcp::PREFIX;
use crate::session::BusySignal;

/// Whose tool calls are judged, by the names that rules use.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolContext {
    user: String,
    agent: String,
}

/// What a call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) policy: Policy,
    pub(super) second_person: bool,
    /// No rule says so.
    pub(super) by_default: bool,
    pub(super) changed: Option<DefinitionChange>,
}

impl Engine {
    /// The names of a session's user and agent. The user's is looked up only if a rule needs it.
    pub(super) async fn tool_context(
        &self,
        user: UserId,
        agent: &AgentId,
        busy: &BusySignal,
    ) -> Result<ToolContext, Failure> {
        let mut context = ToolContext { user: String::new(), agent: agent.as_str().to_owned() };
        if self.tools.names_users() {
            let users = self.patiently(busy, || self.store.users()).await?;
            let found = users.into_iter().find(|known| known.id == user);
            context.user = found.map(|user| user.name).unwrap_or_default();
        }
        Ok(context)
    }

    /// The same of a stored session.
    pub(crate) async fn tools_of_session(&self, id: SessionId) -> Result<ToolContext, Failure> {
        let gone = || Failure::new(Code::SessionNotFound, "there is no such session here");
        let session = self.store.session(id).await?.ok_or_else(gone)?;
        self.tool_context(session.user, &session.agent_id, &BusySignal::none()).await
    }

    /// Logs which tools ask for an approval: for the first start of a version in which they do. Starts the
    /// MCP servers, whose tools are not known before.
    pub(crate) async fn tell_what_asks(&self) {
        let offered = self.mcp.offered_after_all().await;
        let tools = OfferedTools::of_servers(offered);
        let asks = |name: &&str| {
            let ruling = self.ruling_on_server(&ToolContext::default(), name, &tools);
            ruling.policy == Policy::Ask
        };
        let names: Vec<_> = tools.server_names().filter(asks).collect();
        tracing::warn!(
            tools = %names.join(" "),
            "from this version on a person is asked before these tools of MCP servers are called, and \
             before tools of devices are: allow what should run unasked by [[tools.rules]], see \
             docs/tools.md"
        );
    }

    /// What a call of a device's tool needs.
    pub(super) fn ruling_on_device(&self, who: &ToolContext, tool: &str) -> Ruling {
        let call = ToolUse { user: &who.user, agent: &who.agent, server: None, tool };
        let rule = self.tools.ruling(&call);
        Ruling {
            policy: rule.map_or(Policy::Ask, |(policy, _)| policy),
            second_person: rule.is_some_and(|(_, second_person)| second_person),
            by_default: rule.is_none(),
            changed: None,
        }
    }

    /// What a call of a server's tool needs, by the name that models use.
    pub(super) fn ruling_on_server(
        &self,
        who: &ToolContext,
        name: &str,
        tools: &OfferedTools,
    ) -> Ruling {
        let offered = tools.on_server(name);
        // The names of servers have no `_`.
        let by_name = || name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let place = offered.map(|offered| offered.place()).or_else(by_name);
        let (server, tool) = place.unwrap_or(("", name));
        let call =
            ToolUse { user: &who.user, agent: &who.agent, server: Some((server, name)), tool };
        let rule = self.tools.ruling(&call);
        let default = match offered.is_some_and(|offered| offered.is_read_only()) {
            true => Policy::Allow,
            false => Policy::Ask,
        };
        let changed = tools.change_of(name).cloned();
        let policy = rule.map_or(default, |(policy, _)| policy);
        Ruling {
            policy: if changed.is_some() { policy.max(Policy::Ask) } else { policy },
            second_person: rule.is_some_and(|(_, second_person)| second_person),
            by_default: rule.is_none(),
            changed,
        }
    }
}
