//! The built-in agent: needs no key and no network, is no language model, and says so.
//!
//! Deterministic, so that demos and tests can rely on it. It obeys a few phrases:
//! - `count to N` counts, one number a line (at most 10,000);
//! - `echo TEXT` says TEXT;
//! - `call surface tool NAME with JSON` calls the tool `surface_NAME`;
//! - `remember that TEXT` calls the tool `remember`, if it is offered;
//! - `what do you remember` repeats the memories in its prompt;
//! - anything else is answered with what it is and what it understood.

use std::time::Duration;

use bowline_sbp::error::Failure;
use bowline_sbp::message::Message;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::REMEMBERED;
use super::{Call, Chunks};

/// The model's name.
pub(crate) use crate::config::OFFLINE as NAME;
const MOST_NUMBERS: u32 = 10_000;

/// The built-in agent, speaking a word every `pace`.
#[derive(Debug)]
pub struct Offline {
    pace: Duration,
}

#[derive(Debug, PartialEq)]
enum Decision {
    Say(Vec<String>),
    CallTool { name: String, arguments: String },
}

impl Offline {
    pub fn new(pace: Duration) -> Self {
        Self { pace }
    }

    /// Answers chunk by chunk.
    pub fn answer(&self, call: &Call<'_>) -> Chunks {
        let pace = self.pace;
        let chunks = chunks(&decide(call), &call.messages, &call.model);
        Box::pin(stream::iter(chunks).enumerate().then(move |(n, chunk)| async move {
            if n > 0 && !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            Ok::<_, Failure>(Bytes::from(chunk))
        }))
    }
}

fn decide(call: &Call<'_>) -> Decision {
    let messages = &call.messages;
    let last = messages.last();
    if let Some(result) = last.filter(|message| message.role() == "tool") {
        return Decision::Say(words(&format!("The tool answered: {}", result.content())));
    }
    let asked = messages.iter().rev().find(|message| message.role() == "user");
    let asked = asked.map(|message| message.content()).unwrap_or_default();
    let asked = asked.trim();
    if let Some(n) = phrase(asked, "count to ").and_then(leading_number) {
        return Decision::Say((1..=n.min(MOST_NUMBERS)).map(|n| format!("{n}\n")).collect());
    }
    if let Some(text) = phrase(asked, "echo ") {
        return Decision::Say(words(text));
    }
    if let Some((name, arguments)) =
        phrase(asked, "call surface tool ").and_then(|rest| rest.split_once(" with "))
    {
        let arguments = arguments.trim().to_owned();
        if serde_json::from_str::<Value>(&arguments).is_ok() {
            return Decision::CallTool { name: format!("surface_{}", name.trim()), arguments };
        }
    }
    if let Some(text) = phrase(asked, "remember that ").filter(|_| offers(call, "remember")) {
        let arguments = json!({ "text": text.trim() }).to_string();
        return Decision::CallTool { name: "remember".into(), arguments };
    }
    if phrase(asked, "what do you remember").is_some() {
        let notes = call.notes.iter().map(Message::content);
        let notes: Vec<_> = notes.filter(|note| note.starts_with(REMEMBERED)).collect();
        let nothing = || "I remember nothing that has to do with this.".to_owned();
        return Decision::Say(words(
            &notes.into_iter().reduce(|a, b| a + "\n" + &b).unwrap_or_else(nothing),
        ));
    }
    let turns = messages.iter().filter(|message| message.role() == "user").count();
    Decision::Say(words(&format!(
        "I am bowline's offline agent, not a language model. You said: \"{}\" (message {turns} of \
         this conversation). Try \"count to 20\" or \"echo hello\", or configure an upstream to \
         talk to a real model.",
        shortened(asked)
    )))
}

fn offers(call: &Call<'_>, tool: &str) -> bool {
    let name = |tool: &RawValue| -> Option<String> {
        let tool: Value = serde_json::from_str(tool.get()).ok()?;
        Some(tool.pointer("/function/name")?.as_str()?.to_owned())
    };
    call.tools.iter().any(|offered| name(offered).is_some_and(|name| name == tool))
}

fn phrase<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let head = text.get(..start.len())?;
    head.eq_ignore_ascii_case(start).then(|| &text[start.len()..])
}

fn leading_number(text: &str) -> Option<u32> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

/// The answer as OpenAI-shaped chunks. Tokens are estimated at four characters each.
fn chunks(answer: &Decision, messages: &[&Message], model: &str) -> Vec<String> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({
            "id": "chatcmpl-offline", "object": "chat.completion.chunk", "created": 0,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let mut out = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    let (finish, length) = match answer {
        Decision::Say(words) => {
            out.extend(words.iter().map(|word| chunk(json!({"content": word}), None)));
            ("stop", words.iter().map(String::len).sum())
        }
        Decision::CallTool { name, arguments } => {
            let call = json!({"index": 0, "id": "call_offline_1", "type": "function",
                              "function": {"name": name, "arguments": arguments}});
            out.push(chunk(json!({ "tool_calls": [call] }), None));
            ("tool_calls", arguments.len())
        }
    };
    let mut last = chunk(json!({}), Some(finish));
    let prompt: usize = messages.iter().map(|message| message.content().len()).sum();
    let (prompt, completion) = (prompt.div_ceil(4), length.div_ceil(4));
    last["usage"] = json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    });
    out.push(last);
    out.into_iter().map(|chunk| chunk.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::completion::Assembly;

    fn reply(text: &str) -> String {
        let message = Message::text("user", text);
        let messages = vec![&message];
        let call = Call::plain(NAME.into(), Vec::new(), messages.clone(), true);
        let mut assembly = Assembly::default();
        for chunk in chunks(&decide(&call), &messages, NAME) {
            assembly.push(&chunk).unwrap();
        }
        let message: Value = serde_json::from_str(assembly.finish().message.as_json()).unwrap();
        if message["tool_calls"].is_null() {
            message["content"].as_str().unwrap().to_owned()
        } else {
            message["tool_calls"].to_string()
        }
    }

    #[test]
    fn it_obeys_its_phrases() {
        assert_eq!(reply("count to 3"), "1\n2\n3\n");
        assert_eq!(reply("Echo  hé llo "), " hé llo");
        assert!(
            reply("call surface tool camera with {\"mode\":\"photo\"}").contains("surface_camera")
        );
    }

    #[test]
    fn it_says_what_it_is() {
        assert!(reply("What is love?").starts_with("I am bowline's offline agent, not a language"));
        assert!(reply("é").contains("\"é\""));
        assert!(reply("call surface tool x with not-json").starts_with("I am bowline's"));
    }

    #[test]
    fn it_never_counts_for_ever() {
        assert_eq!(reply("count to 4000000000").lines().count(), MOST_NUMBERS as usize);
    }
}
