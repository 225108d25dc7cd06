//! Tool calls of a model: planning each call, and running those that the gateway makes itself.
//!
//! A call is logged before it is made, and its result after, call by call (SBP-L2-14). After a
//! restart in between, the turn is planned again: a call with a result is not repeated. Which of the others
//! are made, go on or are reported to the model as lost is the machine's decision
//! (`bowline_sbp::session`): it knows whether the last owner crashed or stopped in good order.

use bowline_sbp::access::CredentialKind;
use bowline_sbp::approval::Approval;
use bowline_sbp::bundle::LONGEST_MEMORY;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::conversation::{Interrupted, interrupted};
use bowline_sbp::error::Failure;
use bowline_sbp::id::{AgentId, ApprovalId, MemoryId, Seq, SessionId, TurnId, UserId};
use bowline_sbp::session::{Commit, HandOff, Packed, Permission, PlannedCall, Replanned, Work};
use bowline_store::{MemoryKind, MemoryOwner, NewMemory};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::policy::{Ruling, ToolContext};
use super::tools::{OfferedTools, REMEMBER, SURFACE};
use super::{Engine, Identity};
use crate::clock;
use crate::config::{ApprovalsMode, Policy};
use crate::mcp::{Offered, PREFIX};
use crate::session::{BusySignal, CallJob, RoundJob, RoundReport, Workers};

const GONE: &str = "there is no such tool here now";
/// How many log entries are searched for the earlier rounds of an interrupted turn.
const LOOK_BACK: u32 = 1000;

#[async_trait::async_trait]
impl Workers for Engine {
    async fn round(&self, job: RoundJob) -> RoundReport {
        self.run_round(job).await
    }

    async fn replan(
        &self,
        session: SessionId,
        last_seq: Seq,
        turn: TurnId,
        whose: (UserId, AgentId),
        store_is_busy: BusySignal,
    ) -> Result<Replanned, Failure> {
        let history = self.patiently(&store_is_busy, || self.store.history(session)).await?;
        let messages: Vec<_> = history.entries.iter().map(|entry| &entry.message).collect();
        let Interrupted { calls, results } = interrupted(&messages);
        let names = calls.iter().map(|(_, call)| call.name.as_str());
        let tools = OfferedTools::for_interrupted(names, &self.mcp).await;
        let who = self.tool_context(whose.0, &whose.1, &store_is_busy).await?;
        let judge = || tools.clone().judged(self, &who);
        let tools = self.patiently(&store_is_busy, judge).await?;
        let calls = calls.into_iter();
        let calls = calls.map(|(n, call)| self.plan(&who, (session, turn), n, call, &tools, true));
        let calls = calls.collect();
        let read = || self.store.entries_before(session, last_seq + 1, LOOK_BACK);
        let entries = self.patiently(&store_is_busy, read).await?;
        let ours = entries.iter().filter(|entry| entry.turn_id == turn);
        let asked = ours.filter(|entry| entry.message.role() == "assistant");
        let spent_usd = asked.clone().map(|entry| entry.cost_usd).sum();
        let rounds = u32::try_from(asked.count()).unwrap_or(u32::MAX);
        Ok(Replanned { seq: last_seq - results, calls, rounds, spent_usd })
    }

    fn stored(&self, user: UserId, commit: &Commit) {
        self.record_approvals(user, commit);
    }

    async fn call(&self, job: CallJob) -> Result<Value, String> {
        if job.tool == REMEMBER {
            return self.remember(job).await;
        }
        let Value::Object(input) = job.input else {
            return Err("the arguments are not a JSON object; call it again".into());
        };
        // After a restart its MCP server may still be starting.
        let here = self.mcp.offered().await.into_iter().find(|tool| tool.name() == job.tool);
        let tool = match here {
            Some(tool) => tool,
            None => self.mcp.tool_after_all(&job.tool).await.ok_or(GONE)?,
        };
        if job.definition.is_some_and(|shown| shown != tool.pinned()) {
            return Err("the tool has changed since the call was approved; call it again".into());
        }
        tool.call(input, job.cancel.cancelled()).await
    }

    async fn pack(
        &self,
        session: SessionId,
        last_seq: Seq,
        handoff: HandOff,
    ) -> Result<Packed, Failure> {
        self.pack_handoff(session, last_seq, handoff).await
    }
}

#[derive(Deserialize)]
struct ToRemember {
    text: String,
    #[serde(default)]
    kind: Option<String>,
}

impl Engine {
    async fn remember(&self, job: CallJob) -> Result<Value, String> {
        let asked: ToRemember = serde_json::from_value(job.input).map_err(|_| {
            "remember takes {\"text\": \"…\", \"kind\": \"semantic\", \"episodic\" or \"procedural\"}"
        })?;
        let text = asked.text.trim();
        if text.is_empty() || text.len() > LONGEST_MEMORY {
            return Err("`text` must be one fact, in a sentence".into());
        }
        let kind = asked.kind.as_deref().map_or(Some(MemoryKind::Semantic), MemoryKind::named);
        let memory = NewMemory {
            id: MemoryId(Uuid::now_v7()),
            kind: kind.ok_or("`kind` is semantic, episodic or procedural")?,
            text: text.to_owned(),
            session_id: Some(job.session),
            at: clock::now(),
        };
        // A full memory is reported to the model as the result of the call; it does not fail the
        // turn.
        let of = MemoryOwner { user: job.user, agent: job.agent_id };
        let kept = self.store.remember(of, vec![memory], false).await;
        kept.map_err(|error| Failure::from(error).message)?;
        Ok(json!({"remembered": true}))
    }

    /// Plans how a model's call is made. `replanned`: it was planned before a restart, and may have run.
    pub(super) fn plan(
        &self,
        who: &ToolContext,
        (session, turn): (SessionId, TurnId),
        n: u32,
        call: ToolCall,
        tools: &OfferedTools,
        replanned: bool,
    ) -> PlannedCall {
        let fixed = |call: ToolCall, why: &str| PlannedCall {
            id: Uuid::new_v4(),
            n,
            call,
            work: Work::Known(Err(why.to_owned())),
            permission: None,
            again: false,
        };
        let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
        let Ok(input) = serde_json::from_str::<Value>(arguments) else {
            return fixed(call, "the arguments are not JSON; call it again");
        };
        let on_server = tools.on_server(&call.name);
        let rules = &self.tools;
        let device = match call.name.strip_prefix(SURFACE) {
            Some(bent) if replanned => Some(bent.to_owned()),
            _ => tools.on_surface(&call.name).map(str::to_owned),
        };
        let (name, again, ruling, work) = match device {
            _ if call.name == REMEMBER => {
                let work = Work::Task { tool: REMEMBER.to_owned(), input };
                return PlannedCall {
                    id: Uuid::new_v4(),
                    n,
                    call,
                    work,
                    permission: None,
                    again: true,
                };
            }
            Some(tool) => {
                let patience = rules.timeout_of(&tool);
                // After a restart no device is attached yet: it gets the tool's whole timeout to
                // reconnect.
                let wait = if replanned { patience } else { rules.wait_for_surface };
                let (again, ruling) =
                    (rules.is_idempotent(&tool), self.ruling_on_device(who, &tool));
                let work =
                    Work::Device { tool: tool.clone(), input: input.clone(), patience, wait };
                (tool, again, ruling, work)
            }
            // Looked up only when the call is made: the server may still be starting, and an
            // approval takes time.
            None if on_server.is_some() || (replanned && call.name.starts_with(PREFIX)) => {
                let again = on_server.is_some_and(Offered::is_idempotent);
                let work = Work::Task { tool: call.name.clone(), input: input.clone() };
                (call.name.clone(), again, self.ruling_on_server(who, &call.name, tools), work)
            }
            None => return fixed(call, GONE),
        };
        let permission = match ruling.policy {
            Policy::Deny => return fixed(call, "this tool may not be called here"),
            Policy::Allow => None,
            Policy::Ask => {
                let definition = on_server.map(Offered::pinned).unwrap_or_default();
                let question = self.question((session, turn), &name, input, ruling);
                Some(Permission { definition, replanned, ..question })
            }
        };
        PlannedCall { id: Uuid::new_v4(), n, call, work, permission, again }
    }

    /// The approval request for a call of this tool with this input.
    fn question(
        &self,
        (session, turn): (SessionId, TurnId),
        tool: &str,
        input: Value,
        ruling: Ruling,
    ) -> Permission {
        let (id, created_at) = (ApprovalId(Uuid::now_v7()), clock::now());
        Permission {
            definition: String::new(),
            replanned: false,
            unless_device_asks: ruling.by_default,
            wait: self.tools.approvals == ApprovalsMode::Wait,
            approval: Approval {
                expires_at: created_at + self.tools.approval_timeout,
                changed: ruling.changed,
                second_person: ruling.second_person,
                ..Approval::new(id, session, turn, tool.to_owned(), input, created_at)
            },
        }
    }
}

/// A call of a device's tool outside a turn, by an MCP host. The tool's policy applies: it may need
/// an approval.
pub(crate) fn planned_for_host(
    engine: &Engine,
    identity: &Identity,
    (session, who): (SessionId, &ToolContext),
    tool: &str,
    input: Value,
) -> Result<PlannedCall, String> {
    let rules = &engine.tools;
    let ruling = engine.ruling_on_device(who, tool);
    let permission = match ruling.policy {
        Policy::Deny => return Err("this tool may not be called here".into()),
        Policy::Allow => None,
        Policy::Ask => {
            let turn = TurnId(Uuid::now_v7());
            let mut question = engine.question((session, turn), tool, input.clone(), ruling);
            question.approval.asked_by = Some(identity.user());
            // A person at their own terminal may have the same `local.key` as a host on it.
            let kind = &identity.credential.kind;
            if matches!(kind, CredentialKind::Key(_) | CredentialKind::Configured) {
                question.approval.asked_with = Some(kind.record());
            }
            Some(question)
        }
    };
    let (patience, wait) = (rules.timeout_of(tool), rules.wait_for_surface);
    Ok(PlannedCall {
        id: Uuid::new_v4(),
        n: 0,
        call: ToolCall { id: String::new(), name: tool.to_owned(), arguments: String::new() },
        work: Work::Device { tool: tool.to_owned(), input, patience, wait },
        permission,
        again: true,
    })
}
