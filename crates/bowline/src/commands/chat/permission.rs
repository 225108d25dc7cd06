//! Permission for tool calls: asked for, answered, and remembered as long as the chat lasts.

use std::time::{Duration, Instant};

use bowline_sbp::approval::Approval;
use serde_json::Value;

use super::Chat;
use super::questions::{Permission, Question};

/// A call of a tool of this machine that is allowed as long as the chat lasts. What the gateway asks is
/// remembered there.
#[derive(Debug, PartialEq)]
pub(super) struct AllowedCall {
    tool: String,
    input: Value,
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
                    self.always.push(AllowedCall { tool: tool.clone(), input: input.clone() });
                }
                self.start(call_id, tool, input, until);
            }
            Question::Call { call_id, .. } => {
                let no = Err("the user does not allow this".into());
                // An error means that the surface is closed; its `Closed` event says why.
                let _ = self.surface.answer(call_id, no).await;
            }
            Question::Approval(id) => {
                let always = verdict == Permission::Always;
                if let Err(refused) = self.surface.decide(id, yes, always).await {
                    self.view.note(&refused.to_string());
                }
            }
            Question::Gone => {}
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
        let rule = AllowedCall { tool: tool.clone(), input: input.clone() };
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

    /// The gateway asks whether a tool may be called.
    pub(super) fn approve(&mut self, approval: &Approval) {
        // Without input to answer it, the approval is left to other surfaces.
        if self.input.is_none() {
            return;
        }
        self.questions.ask(Question::Approval(approval.approval_id), &words(approval));
    }
}

/// What the gateway asks, for a person.
fn words(approval: &Approval) -> String {
    let Approval { tool_name, tool_input, device, changed, second_person, .. } = approval;
    let on = device.as_deref().map_or_else(String::new, |device| format!(" on {device}"));
    let mut words = format!("the agent wants to use {tool_name}{on}: {tool_input}");
    if let Some(changed) = changed {
        words += &format!(
            "\nwhat is said of this tool has changed\n  before: {}\n  now: {}",
            changed.before, changed.now
        );
    }
    if *second_person {
        words += "\nit takes the approval of another user than the one who asked";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g21_a_person_is_shown_device_input_and_what_changed() {
        let approval: Approval = serde_json::from_value(serde_json::json!({
            "approval_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f", "state": "pending",
            "session_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f",
            "turn_id": "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f", "tool_name": "camera",
            "tool_input": { "zoom": 2 }, "device": "phone", "second_person": true,
            "changed": { "before": "takes a photo", "now": "takes a film" },
            "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T00:10:00Z",
        }))
        .unwrap();
        let words = words(&approval);
        assert!(words.starts_with("the agent wants to use camera on phone: {\"zoom\":2}"));
        assert!(words.contains("before: takes a photo") && words.contains("now: takes a film"));
        assert!(words.contains("another user"), "{words}");
    }
}
