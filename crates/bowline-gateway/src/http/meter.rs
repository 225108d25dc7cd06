//! Counts what an answer that passes through has used.
//!
//! Nothing of it is stored, so no commit counts it. The answer goes on as it is: only its beginning and
//! its end are looked at, where servers put `usage`. If there is none, it is estimated.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::StatusCode;
use bowline_sbp::budget::Spender;
use bowline_sbp::completion::Usage;
use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;

use crate::engine::Engine;

/// How much of the end of an answer is looked at. A part of a stream that has the usage is smaller.
const TAIL: usize = 16 << 10;
/// A token of text has about so many bytes.
const BYTES_PER_TOKEN: u64 = 4;

/// What is counted if the server does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Estimate {
    /// Prompt and answer.
    Chat,
    /// The prompt: the answer is no text.
    Prompt,
    /// Only that a model was asked.
    Nothing,
}

/// Counts when it is dropped: at the end of the answer, or when its caller hung up.
#[derive(Debug)]
pub(super) struct Meter {
    engine: Arc<Engine>,
    spender: Option<Spender>,
    model: String,
    estimate: Estimate,
    sent: u64,
    answered: bool,
    head: Option<Bytes>,
    tail: VecDeque<Bytes>,
    in_tail: usize,
    received: u64,
    events: u64,
}

impl Meter {
    /// `sent`: the bytes of the request.
    pub(super) fn new(
        engine: &Arc<Engine>,
        spender: Spender,
        model: String,
        estimate: Estimate,
        sent: usize,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            spender: Some(spender),
            model,
            estimate,
            sent: sent as u64,
            answered: false,
            head: None,
            tail: VecDeque::new(),
            in_tail: 0,
            received: 0,
            events: 0,
        }
    }

    /// The answer begins. What was refused costs nothing.
    pub(super) fn began(&mut self, status: StatusCode) {
        self.answered = status.is_success();
    }

    /// The next part of the answer.
    pub(super) fn see(&mut self, part: &Bytes) {
        self.head.get_or_insert_with(|| part.clone());
        self.received += part.len() as u64;
        self.events += memmem::find_iter(part, b"data: {").count() as u64;
        self.in_tail += part.len();
        self.tail.push_back(part.clone());
        while let Some(first) = self.tail.front()
            && self.in_tail - first.len() >= TAIL
        {
            self.in_tail -= first.len();
            self.tail.pop_front();
        }
    }

    fn usage(&self) -> Usage {
        let tail: Vec<u8> = self.tail.iter().flatten().copied().collect();
        let head = || self.head.as_deref().and_then(usage_in);
        usage_in(&tail).or_else(head).unwrap_or_else(|| self.estimated())
    }

    fn estimated(&self) -> Usage {
        let prompt_tokens = self.sent / BYTES_PER_TOKEN;
        // Servers send about one event for a token.
        let said = if self.events > 0 { self.events } else { self.received / BYTES_PER_TOKEN };
        let (prompt_tokens, completion_tokens) = match self.estimate {
            Estimate::Chat => (prompt_tokens, said),
            Estimate::Prompt => (prompt_tokens, 0),
            Estimate::Nothing => (0, 0),
        };
        Usage { prompt_tokens, completion_tokens, ..Usage::default() }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(spender) = self.spender.take().filter(|_| self.answered) {
            let usage = self.usage();
            self.engine.count_call(spender, &self.model, &usage);
        }
    }
}

/// The last `usage` in these bytes that says something.
fn usage_in(bytes: &[u8]) -> Option<Usage> {
    /// By either of the names that OpenAI's API has for them.
    #[derive(Deserialize)]
    struct Reported {
        #[serde(default, alias = "input_tokens")]
        prompt_tokens: u64,
        #[serde(default, alias = "output_tokens")]
        completion_tokens: u64,
        #[serde(default)]
        total_tokens: u64,
        cost: Option<f64>,
    }
    let at = memmem::rfind(bytes, b"\"usage\"")?;
    let rest = bytes[at + 7..].trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Reported>();
    let Some(Ok(said)) = values.next() else { return usage_in(&bytes[..at]) };
    let Reported { prompt_tokens, completion_tokens, total_tokens, cost } = said;
    Some(Usage { prompt_tokens, completion_tokens, total_tokens, cost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Option<(u64, u64)> {
        usage_in(text.as_bytes()).map(|usage| (usage.prompt_tokens, usage.completion_tokens))
    }

    #[test]
    fn usage_is_found_in_answers_streams_and_under_both_names() {
        let whole =
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"x":{"y":1}}}"#;
        assert_eq!(tokens(whole), Some((3, 4)));
        let stream = "data: {\"usage\":null,\"choices\":[]}\n\ndata: {\"choices\":[],\"usage\" : \
                      {\"prompt_tokens\":5,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n";
        assert_eq!(tokens(stream), Some((5, 6)));
        let after = r#"{"usage":{"prompt_tokens":1,"total_tokens":1},"x":{"usage":null}}"#;
        assert_eq!(tokens(after), Some((1, 0)));
        assert_eq!(tokens(r#"{"usage":{"input_tokens":7,"output_tokens":8}}"#), Some((7, 8)));
        for none in ["", "{}", r#"{"usage":null}"#, r#"{"usage":{"prompt_tokens":1"#, "\"usage\""] {
            assert_eq!(tokens(none), None, "{none}");
        }
    }
}
