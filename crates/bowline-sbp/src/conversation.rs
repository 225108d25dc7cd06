//! A conversation as model servers take it: every call of a tool is followed by its results.
//!
//! A log may hold it otherwise. A fork in the middle of a turn, a restart, a bundle or a handoff can
//! leave a call without a result, or put something between the two; servers then refuse the whole
//! conversation, for ever. Nothing is changed in the log: this is how it is told.

use std::borrow::Cow;

use crate::completion::ToolCall;
use crate::message::Message;

/// What stands in for a result that never came.
const LOST: &str = r#"{"error":"the result of this call was lost"}"#;

/// The messages in an order that servers take. Costs nothing where no tool was called.
pub fn in_order<'a>(
    messages: impl Iterator<Item = &'a Message> + Clone + 'a,
) -> Box<dyn Iterator<Item = Cow<'a, Message>> + 'a> {
    if !messages.clone().any(Message::may_call) {
        return Box::new(messages.map(Cow::Borrowed));
    }
    Box::new(sorted(&messages.collect::<Vec<_>>()).into_iter())
}

fn sorted<'a>(messages: &[&'a Message]) -> Vec<Cow<'a, Message>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut told = vec![false; messages.len()];
    for (at, message) in messages.iter().enumerate() {
        if told[at] {
            continue;
        }
        // A result whose call is not here has nothing to answer.
        if message.role() == "tool" {
            out.push(Cow::Owned(Message::text("user", &format!("[tool] {}", message.content()))));
            continue;
        }
        out.push(Cow::Borrowed(*message));
        if !message.may_call() || message.role() != "assistant" {
            continue;
        }
        for call in ToolCall::all_of(message) {
            // Its result, if it comes before the agent speaks again.
            let later = messages.iter().enumerate().skip(at + 1);
            let until = later.take_while(|(_, later)| later.role() != "assistant");
            let found = until
                .filter(|(n, later)| !told[*n] && later.role() == "tool")
                .find(|(_, later)| ToolCall::answered_by(later).as_deref() == Some(&call.id))
                .map(|(n, _)| n);
            match found {
                Some(n) => {
                    told[n] = true;
                    out.push(Cow::Borrowed(messages[n]));
                }
                None => out.push(Cow::Owned(call.result(LOST))),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calling(ids: &[&str]) -> Message {
        let calls: Vec<_> = ids
            .iter()
            .map(|id| ToolCall { id: id.to_string(), name: "f".into(), arguments: "{}".into() })
            .collect();
        ToolCall::message(&calls)
    }

    fn result(id: &str) -> Message {
        ToolCall { id: id.into(), name: String::new(), arguments: String::new() }.result(id)
    }

    fn told(messages: &[Message]) -> Vec<String> {
        in_order(messages.iter()).map(|m| format!("{}:{}", m.role(), m.content())).collect()
    }

    #[test]
    fn a_conversation_without_tools_is_told_as_it_is() {
        let said = [Message::text("user", "a"), Message::text("assistant", "b")];
        assert_eq!(told(&said), ["user:a", "assistant:b"]);
        assert!(in_order(said.iter()).all(|message| matches!(message, Cow::Borrowed(_))));
    }

    #[test]
    fn results_stand_behind_their_calls_and_missing_ones_are_said_to_be_lost() {
        let lost = format!("tool:{LOST}");
        let said = [
            calling(&["1", "2", "3"]),
            Message::text("system", "handed over"),
            result("2"),
            result("1"),
            Message::text("user", "and?"),
            calling(&["4"]),
        ];
        assert_eq!(
            told(&said),
            [
                "assistant:",
                "tool:1",
                "tool:2",
                &lost,
                "system:handed over",
                "user:and?",
                "assistant:",
                &lost
            ]
        );
    }

    #[test]
    fn a_result_without_a_call_is_a_note() {
        let said = [result("x"), calling(&["1"]), result("1"), result("1")];
        assert_eq!(told(&said), ["user:[tool] x", "assistant:", "tool:1", "user:[tool] 1"]);
    }
}
