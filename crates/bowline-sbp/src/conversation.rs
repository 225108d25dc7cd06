//! The message order that upstreams require: every tool call is followed by its results.
//!
//! The log may have another order. A fork in the middle of a turn, a restart, a bundle or a handoff
//! can leave a call without a result, or other messages between the two; upstreams then reject
//! every request with this history. The log is not changed: only the messages sent are reordered.

use std::borrow::Cow;

use crate::completion::ToolCall;
use crate::message::Message;

/// Sent in place of a missing tool result.
const LOST: &str = r#"{"error":"the result of this call was lost"}"#;

/// The messages in an order that upstreams accept. Without tool calls nothing is copied.
pub fn in_order<'a>(
    messages: impl Iterator<Item = &'a Message> + Clone + 'a,
) -> Box<dyn Iterator<Item = Cow<'a, Message>> + 'a> {
    if !messages.clone().any(Message::may_call) {
        return Box::new(messages.map(Cow::Borrowed));
    }
    Box::new(sorted(&messages.collect::<Vec<_>>()).into_iter())
}

/// Tool calls at the end of a conversation, not all of which have a result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// The calls without a result, each with its index in the message that made them.
    pub calls: Vec<(u32, ToolCall)>,
    /// How many results follow the message that made the calls.
    pub results: u64,
}

/// The unanswered tool calls at the end of a conversation that was interrupted.
pub fn interrupted(messages: &[Message]) -> Interrupted {
    let answers = messages.iter().rev().take_while(|message| message.role() == "tool").count();
    let (before, results) = messages.split_at(messages.len() - answers);
    let Some(calling) = before.last().filter(|message| message.role() == "assistant") else {
        return Interrupted::default();
    };
    let mut answered: Vec<_> = results.iter().filter_map(ToolCall::answered_by).collect();
    let mut calls = Vec::new();
    for (n, call) in (0..).zip(ToolCall::all_of(calling)) {
        match answered.iter().position(|id| *id == call.id) {
            Some(at) => drop(answered.swap_remove(at)),
            None => calls.push((n, call)),
        }
    }
    Interrupted { calls, results: answers as u64 }
}

fn sorted<'a>(messages: &[&'a Message]) -> Vec<Cow<'a, Message>> {
    let mut out = Vec::with_capacity(messages.len());
    let mut told = vec![false; messages.len()];
    for (at, message) in messages.iter().enumerate() {
        if told[at] {
            continue;
        }
        // A result without its call would be rejected: it is sent as a user message.
        if message.role() == "tool" {
            out.push(Cow::Owned(Message::text("user", &format!("[tool] {}", message.content()))));
            continue;
        }
        out.push(Cow::Borrowed(*message));
        if !message.may_call() || message.role() != "assistant" {
            continue;
        }
        for call in ToolCall::all_of(message) {
            // Its result, if it comes before the next assistant message.
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
    fn calls_that_were_cut_off_are_found_by_their_place() {
        let cut = |messages: &[Message]| {
            let Interrupted { calls, results } = interrupted(messages);
            let calls: Vec<_> = calls.into_iter().map(|(n, call)| (n, call.id)).collect();
            (calls, results)
        };
        let left = |all: &[(u32, &str)]| all.iter().map(|(n, id)| (*n, id.to_string())).collect();
        let said = Message::text("user", "go");
        assert_eq!(cut(&[]), (Vec::new(), 0));
        assert_eq!(cut(&[said.clone(), Message::text("assistant", "hm")]), (Vec::new(), 0));
        let calls = calling(&["1", "2", "3"]);
        assert_eq!(
            cut(&[said.clone(), calls.clone(), result("2")]),
            (left(&[(0, "1"), (2, "3")]), 1)
        );
        assert_eq!(cut(&[calls, result("2"), result("3"), result("1")]), (Vec::new(), 3));
        // A model may give two calls the same id: they are distinguished by their index.
        assert_eq!(cut(&[calling(&["x", "x"]), result("x")]), (left(&[(1, "x")]), 1));
    }

    #[test]
    fn a_result_without_a_call_is_a_note() {
        let said = [result("x"), calling(&["1"]), result("1"), result("1")];
        assert_eq!(told(&said), ["user:[tool] x", "assistant:", "tool:1", "user:[tool] 1"]);
    }
}
