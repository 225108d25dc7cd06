//! The two legs of a tool call, measured by timestamps in the messages.
//!
//! The mock puts its send time into the call; the device puts the duration of that leg and its own
//! send time into the result; the mock puts both durations into its final answer, which the caller
//! parses. All timestamps are from the wall clock of one machine, and no process keeps state.

use std::time::Duration;

use serde_json::{Value, json};

use crate::chunk::chunk;
use crate::load::since_epoch;

/// The model that calls the device's tool [`TOOL`].
pub(crate) const TOOLS: &str = "bench-tools";
pub(crate) const TOOL: &str = "clock";

/// The durations of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Legs {
    /// From the upstream to the device.
    pub(crate) out: Duration,
    /// From the device back to the upstream.
    pub(crate) back: Duration,
}

/// The model's answer: the tool call or, once it has the result, the durations.
pub(crate) fn answer(messages: &[Value], received: Duration) -> String {
    let last = messages.last().filter(|message| message["role"] == "tool");
    let Some(said) = last.and_then(|message| message["content"].as_str()) else {
        let arguments = json!({ "sent": since_epoch().as_nanos().to_string() }).to_string();
        let call = json!([{ "index": 0, "id": "call_1", "type": "function",
                            "function": { "name": format!("surface_{TOOL}"), "arguments": arguments } }]);
        let delta = json!({ "role": "assistant", "content": null, "tool_calls": call });
        let choice = json!([{ "index": 0, "delta": delta, "finish_reason": "tool_calls" }]);
        let event = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                            "model": TOOLS, "choices": choice });
        return format!("data: {event}\n\ndata: [DONE]\n\n");
    };
    let back = pair(said).map(|(_, sent)| received.saturating_sub(sent)).unwrap_or_default();
    let out = pair(said).map(|(out, _)| out).unwrap_or_default();
    let words = format!("{} {}", out.as_nanos(), back.as_nanos());
    format!("{}data: [DONE]\n\n", chunk(&words, "\"stop\""))
}

/// The device's result of a call that arrived at `received`.
pub(crate) fn result(call: &Value, received: Duration) -> Option<Value> {
    let sent: u64 = call["tool_input"]["sent"].as_str()?.parse().ok()?;
    let out = received.saturating_sub(Duration::from_nanos(sent)).as_nanos();
    let words = format!("{out} {}", since_epoch().as_nanos());
    Some(json!({ "type": "TOOL_RESULT", "call_id": call["call_id"], "result": words }))
}

/// Parses the durations in the model's final answer.
pub(crate) fn read(words: &str) -> Option<Legs> {
    pair(words).map(|(out, back)| Legs { out, back })
}

fn pair(words: &str) -> Option<(Duration, Duration)> {
    let (first, second) = words.split_once(' ')?;
    let nanos = |text: &str| text.parse().ok().map(Duration::from_nanos);
    Some((nanos(first)?, nanos(second)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_legs_come_back_to_whoever_asked() {
        let said = answer(&[json!({ "role": "user", "content": "go" })], since_epoch());
        let event = said.strip_prefix("data: ").unwrap().split("\n\n").next().unwrap();
        let event: Value = serde_json::from_str(event).unwrap();
        let function = &event["choices"][0]["delta"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "surface_clock");
        let input: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        let sent = Duration::from_nanos(input["sent"].as_str().unwrap().parse().unwrap());
        let call = json!({ "call_id": "c", "tool_input": input });
        let result = result(&call, sent + Duration::from_nanos(7)).unwrap();
        let words = result["result"].as_str().unwrap();
        let (out, answered) = pair(words).unwrap();
        assert_eq!(out, Duration::from_nanos(7));
        let tool = json!({ "role": "tool", "content": words });
        let said = answer(&[tool], answered + Duration::from_nanos(9));
        assert!(said.contains("\"content\":\"7 9\""), "{said}");
        let legs = read("7 9").unwrap();
        assert_eq!((legs.out.as_nanos(), legs.back.as_nanos()), (7, 9));
    }
}
