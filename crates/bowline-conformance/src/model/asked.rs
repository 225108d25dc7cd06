//! A request that the model got, and what is in it.

use bytes::Bytes;
use serde_json::Value;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The body as it came.
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

impl Asked {
    pub(super) fn read(raw: Bytes) -> Self {
        let body = serde_json::from_slice(&raw).unwrap_or_default();
        Self { raw, body }
    }

    fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Role and text of each message.
    pub(crate) fn said(&self) -> Vec<(String, String)> {
        let one = |message: &Value| {
            (message["role"].as_str().unwrap_or_default().to_owned(), text(&message["content"]))
        };
        self.messages().iter().map(one).collect()
    }

    /// How many messages contain the text.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.said().iter().filter(|(_, text)| text.contains(part)).count()
    }

    /// The names of the tools that the model is offered.
    pub(crate) fn tools(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        let name = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
        tools.iter().filter_map(name).collect()
    }

    pub(super) fn wants_stream(&self) -> bool {
        self.body["stream"] == true
    }

    /// The number of the newest script, and how often the model has called tools since.
    pub(super) fn script(&self) -> Option<(String, usize)> {
        let messages = self.messages();
        let numbers = messages.iter().map(|message| nonce(&text(&message["content"])));
        let found = numbers.enumerate().filter_map(|(at, nonce)| Some((at, nonce?))).next_back();
        let Some((at, nonce)) = found else {
            return Some((self::nonce(&text(&self.body["prompt"]))?, 0));
        };
        let calls = |message: &&Value| {
            message["role"] == "assistant"
                && message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
        };
        Some((nonce, messages[at..].iter().filter(calls).count()))
    }
}

/// The text of a content: a text, or the texts of its parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The number behind the last `script:`.
fn nonce(text: &str) -> Option<String> {
    let after = text.rsplit_once(super::script::MARK)?.1;
    let nonce: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    Some(nonce).filter(|nonce| !nonce.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(body: Value) -> Asked {
        Asked::read(body.to_string().into())
    }

    #[test]
    fn the_newest_script_counts_and_tool_calls_after_it_are_its_rounds() {
        let call = json!({ "role": "assistant", "tool_calls": [{ "id": "1" }] });
        let asked = asked(json!({ "messages": [
            { "role": "user", "content": "script:a1" },
            call,
            { "role": "user", "content": [{ "type": "text", "text": "Do it. script:b2." }] },
            call,
            { "role": "tool", "content": "done" },
        ]}));
        assert_eq!(asked.script(), Some(("b2".into(), 1)));
    }

    #[test]
    fn a_prompt_of_the_older_kind_names_its_script_too() {
        assert_eq!(asked(json!({ "prompt": "x script:c3" })).script(), Some(("c3".into(), 0)));
        assert_eq!(asked(json!({ "messages": [{ "content": "hello" }] })).script(), None);
    }

    #[test]
    fn tools_and_messages_are_read() {
        let asked = asked(json!({
            "messages": [{ "role": "user", "content": "one" }, { "role": "user", "content": null }],
            "tools": [{ "type": "function", "function": { "name": "surface_x" } }],
        }));
        assert_eq!(asked.tools(), ["surface_x"]);
        assert_eq!((asked.count("one"), asked.said().len()), (1, 2));
    }
}
