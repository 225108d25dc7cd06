//! The message order that upstreams require: every tool call is followed by its results.
//!
//! The log may have another order. A fork in the middle of a turn, a restart, a bundle or a handoff
//! can leave a call without a result, or other messages between the two; upstreams then reject
//! every request with this history. The log is not changed: only the messages sent are reordered.
//!
//! Upstreams accept images only in user messages, so the images of tool results follow the results
//! of their round in a message of their own, for a model that reads images.

use std::borrow::Cow;

use serde_json::json;

use crate::completion::ToolCall;
use crate::message::Message;
use crate::tool_result::{Image, images, without_images};

/// Sent in place of a missing tool result.
const LOST: &str = r#"{"error":"the result of this call was lost"}"#;

/// Said before the images of tool results.
const SHOWN: &str = "The images of the tool results above, in their order:";

/// The messages in an order that upstreams accept. Without tool calls nothing is copied. Images of
/// tool results are sent up to `most` bytes, the newest first; of the others, only their text.
pub fn in_order<'a>(
    messages: impl Iterator<Item = &'a Message> + Clone + 'a,
    most: usize,
) -> Box<dyn Iterator<Item = Cow<'a, Message>> + 'a> {
    let mut all = messages.clone();
    if !all.any(|message| message.may_call() || message.may_have_images()) {
        return Box::new(messages.map(Cow::Borrowed));
    }
    Box::new(with_images(sorted(&messages.collect::<Vec<_>>()), most).into_iter())
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
pub fn interrupted(messages: &[&Message]) -> Interrupted {
    let answers = messages.iter().rev().take_while(|message| message.role() == "tool").count();
    let (before, results) = messages.split_at(messages.len() - answers);
    let Some(calling) = before.last().filter(|message| message.role() == "assistant") else {
        return Interrupted::default();
    };
    let mut answered: Vec<_> =
        results.iter().filter_map(|result| ToolCall::answered_by(result)).collect();
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

/// Moves the images of tool results to a user message after the results of the same round.
fn with_images(messages: Vec<Cow<'_, Message>>, mut left: usize) -> Vec<Cow<'_, Message>> {
    if !messages.iter().any(|message| message.may_have_images()) {
        return messages;
    }
    // From the end, because the newest images count most.
    let newest_first: Vec<_> = messages
        .into_iter()
        .rev()
        .map(|message| {
            let found = images(&message);
            if found.is_empty() {
                return (message, Vec::new());
            }
            let size: usize = found.iter().map(Image::size).sum();
            let shown = if size <= left { found } else { Vec::new() };
            left -= if shown.is_empty() { 0 } else { size };
            (Cow::Owned(without_images(&message).into_owned()), shown)
        })
        .collect();
    let mut out = Vec::with_capacity(newest_first.len() + 1);
    let mut round = Vec::new();
    for (message, shown) in newest_first.into_iter().rev() {
        if message.role() != "tool" && !round.is_empty() {
            out.push(Cow::Owned(showing(&std::mem::take(&mut round))));
        }
        round.extend(shown);
        out.push(message);
    }
    if !round.is_empty() {
        out.push(Cow::Owned(showing(&round)));
    }
    out
}

/// The user message with the images of the tool results before it.
fn showing(images: &[Image]) -> Message {
    let mut parts = vec![json!({"type": "text", "text": SHOWN})];
    parts.extend(images.iter().map(Image::part));
    Message::made(&json!({"role": "user", "content": parts}))
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
        in_order(messages.iter(), 0).map(|m| format!("{}:{}", m.role(), m.content())).collect()
    }

    #[test]
    fn a_conversation_without_tools_is_told_as_it_is() {
        let said = [Message::text("user", "a"), Message::text("assistant", "b")];
        assert_eq!(told(&said), ["user:a", "assistant:b"]);
        assert!(in_order(said.iter(), 0).all(|message| matches!(message, Cow::Borrowed(_))));
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
            let messages: Vec<_> = messages.iter().collect();
            let Interrupted { calls, results } = interrupted(&messages);
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

    /// A result with an image of 9 bytes.
    fn picture(id: &str) -> Message {
        const PNG: &str = "iVBORw0KGgoA";
        let call = ToolCall { id: id.into(), name: String::new(), arguments: String::new() };
        let image = json!({"type": "image", "mimeType": "image/png", "data": PNG});
        let result = json!({"content": [{"type": "text", "text": id}, image]});
        call.result_of(crate::tool_result::content(Ok(result), 99))
    }

    /// The conversation, with the number of images for messages that show some.
    fn seen(messages: &[Message], most: usize) -> Vec<String> {
        let all = in_order(messages.iter(), most);
        all.map(|m| match m.as_json().matches("data:image/png;base64,iVBORw0KGgoA").count() {
            0 => format!("{}:{}", m.role(), m.content()),
            shown => format!("{}:{shown} images", m.role()),
        })
        .collect()
    }

    #[test]
    fn sbp_l5_06_images_follow_the_results_of_their_round_in_a_user_message() {
        let said = [
            calling(&["1", "2", "3"]),
            picture("1"),
            result("2"),
            picture("3"),
            Message::text("assistant", "I see."),
            calling(&["4"]),
            picture("4"),
        ];
        let line = "[image: image/png, 9 bytes]";
        let results = |id: &str| format!("tool:{id}\n{line}");
        let (one, three, four) = (results("1"), results("3"), results("4"));
        assert_eq!(
            seen(&said, 99),
            [
                "assistant:",
                &one,
                "tool:2",
                &three,
                "user:2 images",
                "assistant:I see.",
                "assistant:",
                &four,
                "user:1 images",
            ]
        );
        let text = seen(&said, 0);
        assert!(text.iter().all(|said| !said.ends_with("images")), "a model that reads text");
        assert_eq!(text.len(), said.len());
        let in_order = in_order(said.iter(), 0).map(|m| m.as_json().to_owned());
        assert!(in_order.into_iter().all(|json| !json.contains("iVBOR")));
    }

    #[test]
    fn g11_images_beyond_the_bound_of_a_prompt_are_only_named_the_oldest_first() {
        let said =
            [calling(&["1", "2"]), picture("1"), picture("2"), calling(&["3"]), picture("3")];
        let shown = |most| {
            let all = seen(&said, most).into_iter();
            all.filter(|said| said.ends_with("images")).collect::<Vec<_>>()
        };
        assert_eq!(shown(27), ["user:2 images", "user:1 images"]);
        assert_eq!(shown(26), ["user:1 images", "user:1 images"]);
        assert_eq!(shown(9), ["user:1 images"]);
        assert_eq!(seen(&said, 9).last().unwrap(), "user:1 images");
        assert_eq!(shown(8), [""; 0]);
    }

    #[test]
    fn an_image_without_its_call_is_named_in_a_note() {
        assert_eq!(seen(&[picture("1")], 99), ["user:[tool] 1\n[image: image/png, 9 bytes]"]);
    }
}
