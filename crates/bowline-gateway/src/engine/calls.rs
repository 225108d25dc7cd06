//! The tools that a model calls: how each call is to be made, and making those that are the gateway's.
//!
//! Before anything with an effect is done, the log says what is about to be done; after it, what
//! came of it, call by call (SBP-L2-14). A crash in between is found at the next start. What has a
//! result is not done again. `remember` is, because done twice it is done once, and so is a tool that
//! is declared to be like that. A call that waited for a person's permission goes on waiting. Every
//! other one is reported to the model as lost, because nobody knows what the device did.

use bowline_sbp::approval::{Approval, ApprovalState};
use bowline_sbp::bundle::LONGEST_MEMORY;
use bowline_sbp::completion::ToolCall;
use bowline_sbp::conversation::{Interrupted, interrupted};
use bowline_sbp::error::Failure;
use bowline_sbp::id::{ApprovalId, MemoryId, Seq, SessionId, TurnId};
use bowline_sbp::session::{HandOff, Packed, Permission, PlannedCall, Replanned, Work};
use bowline_store::{MemoryKind, NewMemory};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Engine;
use super::tools::{OfferedTools, REMEMBER, SURFACE};
use crate::clock;
use crate::config::Policy;
use crate::mcp::{Offered, PREFIX};
use crate::session::{BusySignal, CallJob, RoundJob, RoundReport, Workers};

const GONE: &str = "there is no such tool here now";
const LOST: &str = "the call is lost: nobody knows what came of it";
/// How far the log is looked through for what a turn has done before a restart.
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
        store_is_busy: BusySignal,
    ) -> Result<Replanned, Failure> {
        let history = self.patiently(&store_is_busy, || self.store.history(session)).await?;
        let Interrupted { calls, results } = interrupted(&history);
        let names = calls.iter().map(|(_, call)| call.name.as_str());
        let tools = OfferedTools::for_interrupted(names, &self.mcp).await;
        let calls = calls.into_iter();
        let calls = calls.map(|(n, call)| self.plan(session, turn, n, call, &tools, true));
        let calls = calls.collect();
        let read = || self.store.entries_before(session, last_seq + 1, LOOK_BACK);
        let entries = self.patiently(&store_is_busy, read).await?;
        let ours = entries.iter().filter(|entry| entry.turn_id == turn);
        let asked = ours.filter(|entry| entry.message.role() == "assistant");
        let spent_usd = asked.clone().map(|entry| entry.cost_usd).sum();
        let rounds = u32::try_from(asked.count()).unwrap_or(u32::MAX);
        Ok(Replanned { seq: last_seq - results, calls, rounds, spent_usd })
    }

    async fn call(&self, job: CallJob) -> Result<Value, String> {
        if job.tool == REMEMBER {
            return self.remember(job).await;
        }
        let Value::Object(input) = job.input else {
            return Err("the arguments are not a JSON object; call it again".into());
        };
        // After a restart its server may take a while to come up.
        let here = self.mcp.offered().await.into_iter().find(|tool| tool.name() == job.tool);
        let tool = match here {
            Some(tool) => tool,
            None => self.mcp.tool_after_all(&job.tool).await.ok_or(GONE)?,
        };
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
            return Err("`text` must be one thing, in a sentence".into());
        }
        let kind = asked.kind.as_deref().map_or(Some(MemoryKind::Semantic), MemoryKind::named);
        let memory = NewMemory {
            id: MemoryId(Uuid::now_v7()),
            kind: kind.ok_or("`kind` is semantic, episodic or procedural")?,
            text: text.to_owned(),
            session_id: Some(job.session),
            at: clock::now(),
        };
        // A memory that is full is for the model to know, and nothing to fail for.
        let kept = self.store.remember(job.agent_id, vec![memory], false).await;
        kept.map_err(|error| Failure::from(error).message)?;
        Ok(json!({"remembered": true}))
    }

    /// How a call of a model is to be made. `after_crash`: it was made before, and may have run.
    pub(super) fn plan(
        &self,
        session: SessionId,
        turn: TurnId,
        n: u32,
        call: ToolCall,
        tools: &OfferedTools,
        after_crash: bool,
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
            Some(bent) if after_crash => Some(bent.to_owned()),
            _ => tools.on_surface(&call.name).map(str::to_owned),
        };
        let (name, again, policy, work) = match device {
            _ if call.name == REMEMBER => {
                let work = Work::Task { tool: REMEMBER.to_owned(), input: input.clone() };
                (REMEMBER.to_owned(), true, Policy::Allow, work)
            }
            Some(tool) => {
                let patience = rules.timeout_of(&tool);
                // After a crash no device is here yet: that was our doing, so it gets its time to
                // return.
                let wait = if after_crash { patience } else { rules.wait_for_surface };
                let (again, policy) = (rules.is_idempotent(&tool), rules.policy_of_surface(&tool));
                let work =
                    Work::Device { tool: tool.clone(), input: input.clone(), patience, wait };
                (tool, again, policy, work)
            }
            // A server takes its time to start, and a person to agree: it is looked for later.
            None if on_server.is_some() || (after_crash && call.name.starts_with(PREFIX)) => {
                let again = on_server.is_some_and(Offered::is_idempotent);
                let work = Work::Task { tool: call.name.clone(), input: input.clone() };
                (call.name.clone(), again, rules.policy_of(&call.name), work)
            }
            None => return fixed(call, GONE),
        };
        let permission = match policy {
            Policy::Deny => return fixed(call, "this tool may not be called here"),
            Policy::Allow if after_crash && !again => return fixed(call, LOST),
            Policy::Allow => None,
            Policy::Ask => Some(self.question(session, turn, &name, input)),
        };
        PlannedCall { id: Uuid::new_v4(), n, call, work, permission, again }
    }

    /// The question whether that tool may be called with that input.
    fn question(&self, session: SessionId, turn: TurnId, tool: &str, input: Value) -> Permission {
        let created_at = clock::now();
        Permission {
            approval: Approval {
                approval_id: ApprovalId(Uuid::now_v7()),
                session_id: session,
                turn_id: turn,
                tool_name: tool.to_owned(),
                tool_input: input,
                state: ApprovalState::Pending,
                created_at,
                expires_at: created_at + self.tools.approval_timeout,
            },
        }
    }
}

/// A call of a device's tool by someone who takes no turn: an MCP host. A tool that asks first asks for
/// it, too.
pub(crate) fn planned_for_host(
    engine: &Engine,
    session: SessionId,
    tool: &str,
    input: Value,
) -> Result<PlannedCall, String> {
    let rules = &engine.tools;
    let permission = match rules.policy_of_surface(tool) {
        Policy::Deny => return Err("this tool may not be called here".into()),
        Policy::Allow => None,
        Policy::Ask => Some(engine.question(session, TurnId(Uuid::now_v7()), tool, input.clone())),
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
