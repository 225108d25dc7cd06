//! Answers of the model as OpenAI's servers write them.

use serde_json::{Map, Value, json};

use super::act::Act;
use super::asked::Asked;

/// The bytes of one answer, piece by piece.
#[derive(Debug)]
pub(super) struct Reply {
    id: String,
    model: String,
    /// The names of the offered tools.
    tools: Vec<String>,
    calls: usize,
    counts_tokens: bool,
}

impl Reply {
    pub(super) fn to(asked: &Asked) -> Self {
        Self {
            id: format!("chatcmpl-{}", uuid::Uuid::new_v4().simple()),
            model: asked.body["model"].as_str().unwrap_or("conformance").to_owned(),
            tools: asked.tools(),
            calls: 0,
            counts_tokens: asked.body["stream_options"]["include_usage"] == true,
        }
    }

    /// A chunk of a stream that says or calls something; nothing for other acts.
    pub(super) fn chunk(&mut self, act: &Act) -> Option<String> {
        let delta = match act {
            Act::Say(text) => json!({ "content": text }),
            Act::Call { tool, input } => {
                let mut call = self.call(tool, input);
                call["index"] = json!(self.calls - 1);
                json!({ "tool_calls": [call] })
            }
            Act::Hold | Act::BreakOff | Act::Fail(_) => return None,
        };
        Some(self.event(delta, Value::Null))
    }

    /// The first chunk of a stream.
    pub(super) fn begin(&self) -> String {
        self.event(json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// The end of a stream.
    pub(super) fn end(&self) -> String {
        let mut end = self.event(json!({}), self.finish().into());
        if self.counts_tokens {
            let mut last = self.envelope("chat.completion.chunk");
            last.insert("choices".into(), json!([]));
            last.insert("usage".into(), usage());
            end += &event(&Value::Object(last));
        }
        end + "data: [DONE]\n\n"
    }

    /// An answer in one piece.
    pub(super) fn whole(&mut self, acts: &[Act]) -> String {
        let mut text = String::new();
        let mut calls = Vec::new();
        for act in acts {
            match act {
                Act::Say(said) => text += said,
                Act::Call { tool, input } => calls.push(self.call(tool, input)),
                Act::Hold | Act::BreakOff | Act::Fail(_) => {}
            }
        }
        let mut message = json!({ "role": "assistant", "content": text });
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
            if text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let choice = json!({ "index": 0, "message": message, "finish_reason": self.finish() });
        let mut whole = self.envelope("chat.completion");
        whole.insert("choices".into(), json!([choice]));
        whole.insert("usage".into(), usage());
        Value::Object(whole).to_string()
    }

    fn call(&mut self, tool: &str, input: &Value) -> Value {
        self.calls += 1;
        let offered = self.tools.iter().find(|name| name.contains(tool));
        let name = offered.map_or(tool, String::as_str);
        json!({
            "id": format!("call_{}_{}", self.calls, &self.id[9..17]),
            "type": "function",
            "function": { "name": name, "arguments": input.to_string() },
        })
    }

    fn finish(&self) -> &'static str {
        if self.calls == 0 { "stop" } else { "tool_calls" }
    }

    fn envelope(&self, object: &str) -> Map<String, Value> {
        let mut envelope = Map::new();
        envelope.insert("id".into(), self.id.as_str().into());
        envelope.insert("object".into(), object.into());
        envelope.insert("created".into(), 1.into());
        envelope.insert("model".into(), self.model.as_str().into());
        envelope
    }

    fn event(&self, delta: Value, finish: Value) -> String {
        let mut chunk = self.envelope("chat.completion.chunk");
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        chunk.insert("choices".into(), json!([choice]));
        event(&Value::Object(chunk))
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn usage() -> Value {
    json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: Value) -> Reply {
        Reply::to(&Asked::read(body.to_string().into()))
    }

    #[test]
    fn a_call_takes_the_offered_name() {
        let tools = json!([{ "function": { "name": "surface_media_capture" } }]);
        let mut reply = reply(json!({ "model": "m", "tools": tools }));
        let acts = [Act::call("capture", json!({ "n": 1 })), Act::call("other", json!({}))];
        let whole: Value = serde_json::from_str(&reply.whole(&acts)).unwrap();
        let calls = &whole["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls[0]["function"]["name"], "surface_media_capture");
        assert_eq!(calls[1]["function"]["name"], "other");
        assert_ne!(calls[0]["id"], calls[1]["id"]);
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    }

    #[test]
    fn a_stream_counts_tokens_for_those_who_ask() {
        let asks = json!({ "stream_options": { "include_usage": true } });
        assert!(reply(asks).end().contains("total_tokens"));
        let end = reply(json!({})).end();
        assert!(end.ends_with("data: [DONE]\n\n") && !end.contains("total_tokens"), "{end}");
    }
}
