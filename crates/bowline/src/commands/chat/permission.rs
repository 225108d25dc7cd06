//! Permission for tool calls: asked for, answered, and remembered as long as the chat lasts.

use std::time::{Duration, Instant};

use bowline_sbp::approval::Approval;
use bowline_sbp::id::ApprovalId;
use serde_json::Value;

use super::Chat;
use super::questions::{Permission, Question};
use crate::terminal::one_line;

/// A question that is answered with yes as long as the chat lasts.
#[derive(Debug, PartialEq)]
pub(super) enum AlwaysRule {
    /// Every call of a tool of the gateway.
    Tool(String),
    /// The same call of a tool of this machine.
    Call { tool: String, input: Value },
}

impl Chat {
    /// The user answered a permission prompt.
    pub(super) async fn answered(&mut self, question: Question, verdict: Permission) {
        let yes = verdict != Permission::No;
        match question {
            Question::Call { until, .. } if until.is_some_and(|until| Instant::now() > until) => {
                self.view.note("too late: the tool call has timed out");
            }
            Question::Call { call_id, tool, input, until } if yes => {
                if verdict == Permission::Always {
                    self.always.push(AlwaysRule::Call { tool: tool.clone(), input: input.clone() });
                }
                self.start(call_id, tool, input, until);
            }
            Question::Call { call_id, .. } => {
                let no = Err("the user does not allow this".into());
                // An error means that the surface is closed; its `Closed` event says why.
                let _ = self.surface.answer(call_id, no).await;
            }
            Question::Approval(id) => {
                if verdict == Permission::Always
                    && let Some(tool) = self.approvals.get(&id)
                {
                    self.always.push(AlwaysRule::Tool(tool.clone()));
                }
                self.decide(id, yes).await;
            }
            Question::Gone => {}
        }
    }

    async fn decide(&mut self, approval: ApprovalId, yes: bool) {
        if let Err(refused) = self.surface.decide(approval, yes).await {
            self.view.note(&refused.to_string());
        }
    }

    /// The agent calls a tool of this machine. Asks for permission first if the tool needs it;
    /// without a terminal such a call is denied.
    pub(super) fn called(
        &mut self,
        call_id: String,
        tool: String,
        input: Value,
        timeout: Option<Duration>,
    ) {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let rule = AlwaysRule::Call { tool: tool.clone(), input: input.clone() };
        match self.tools.question(&tool, &input) {
            None => self.start(call_id, tool, input, until),
            Some(_) if self.always.contains(&rule) => self.start(call_id, tool, input, until),
            Some(_) if self.input.is_none() => {
                let (tell, nobody) = (self.tell.clone(), Err("no user is there to approve".into()));
                tokio::spawn(async move { tell.send((call_id, nobody)).await });
            }
            Some(words) => {
                self.questions.ask(Question::Call { call_id, tool, input, until }, &words);
            }
        }
    }

    /// Runs a tool call in its own task, so that the chat stays responsive.
    fn start(&mut self, call_id: String, tool: String, input: Value, until: Option<Instant>) {
        let (tools, tell) = (self.tools.clone(), self.tell.clone());
        tokio::spawn(async move {
            let outcome = tools.call(&tool, input, until).await;
            let _ = tell.send((call_id, outcome)).await;
        });
    }

    pub(super) async fn approve(&mut self, approval: &Approval) {
        // Without input to answer it, the approval is left to other surfaces.
        if self.input.is_none() {
            return;
        }
        let (id, tool) = (approval.approval_id, &approval.tool_name);
        if self.always.contains(&AlwaysRule::Tool(tool.clone())) {
            let input = one_line(&approval.tool_input.to_string());
            self.view.note(&format!("{tool} {input}: allowed, as you said"));
            return self.decide(id, true).await;
        }
        self.approvals.insert(id, tool.clone());
        let words = format!("the agent wants to use {tool}: {}", approval.tool_input);
        self.questions.ask(Question::Approval(id), &words);
    }
}
