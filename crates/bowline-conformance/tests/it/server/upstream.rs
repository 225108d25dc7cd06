//! Asks the model, always as a stream.

use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use super::State;

/// What the model said.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) calls: Vec<Value>,
    pub(crate) finish: String,
    /// Whether it came to its end.
    pub(crate) whole: bool,
}

/// Asks, and hands each piece of text on.
pub(crate) async fn ask(state: &State, body: &Value, mut piece: impl FnMut(&str)) -> Option<Said> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let request = state.http.post(format!("{}/chat/completions", state.upstream)).json(&body);
    let answer = request.send().await.ok().filter(|answer| answer.status().is_success())?;
    let mut stream = answer.bytes_stream();
    let (mut said, mut buffer) = (Said::default(), Vec::new());
    while let Some(Ok(bytes)) = stream.next().await {
        buffer.extend_from_slice(&bytes);
        while let Some(end) = buffer.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event).trim().to_owned();
            read(event.trim_start_matches("data: "), &mut said, &mut piece);
        }
    }
    Some(said)
}

fn read(event: &str, said: &mut Said, piece: &mut impl FnMut(&str)) {
    if event == "[DONE]" {
        said.whole = true;
        return;
    }
    let chunk: Value = serde_json::from_str(event).unwrap_or_default();
    let choice = &chunk["choices"][0];
    if let Some(text) = choice["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
        said.text += text;
        piece(text);
    }
    for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
        // The suite's model never splits a call.
        let mut call: Map<String, Value> = call.as_object().cloned().unwrap_or_default();
        call.remove("index");
        said.calls.push(Value::Object(call));
    }
    if let Some(finish) = choice["finish_reason"].as_str() {
        said.finish = finish.to_owned();
    }
}
