//! Counts what an answer that passes through has used.
//!
//! Nothing of it is stored, so no commit counts it. The answer goes on as it is: only its beginning and
//! its end are looked at, where servers put `usage`. If there is none, it is estimated.

use std::sync::Arc;

use axum::http::StatusCode;
use bowline_sbp::budget::Spender;
use bowline_sbp::completion::Usage;
use bowline_sbp::error::{Code, Failure};
use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;

use crate::engine::Engine;

/// How much of the beginning and of the end of an answer is looked at. A part of a stream that has the
/// usage is smaller.
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

/// Counts when it is dropped: at the end of the answer, or when its caller hung up, also before the
/// answer began: the server works on it all the same.
#[derive(Debug)]
pub(super) struct Meter {
    engine: Arc<Engine>,
    spender: Option<Spender>,
    model: String,
    estimate: Estimate,
    sent: u64,
    /// The request went out, and was not refused.
    counts: bool,
    // Copies: a part of an answer keeps the whole buffer that it was read into.
    head: Vec<u8>,
    tail: Vec<u8>,
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
            counts: false,
            head: Vec::new(),
            tail: Vec::new(),
            received: 0,
            events: 0,
        }
    }

    /// The request goes out. From now on it counts, unless it is refused.
    pub(super) fn asks(&mut self) {
        self.counts = true;
    }

    /// No answer came. Only what never reached the server costs nothing.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.counts &= failure.code != Code::Unavailable;
    }

    /// The body of the request did not come to its end, so the server cannot have worked on it.
    pub(super) fn broke_off(&mut self) {
        self.counts = false;
    }

    /// The answer begins. What was refused costs nothing.
    pub(super) fn began(&mut self, status: StatusCode) {
        self.counts = status.is_success();
    }

    /// The next part of the answer.
    pub(super) fn see(&mut self, part: &Bytes) {
        let room = TAIL.saturating_sub(self.head.len());
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        keep_last(&mut self.tail, part);
        self.received += part.len() as u64;
        self.events += memmem::find_iter(part, b"data: {").count() as u64;
    }

    fn usage(&self) -> Usage {
        let said = usage_in(&self.tail).or_else(|| usage_in(&self.head));
        said.unwrap_or_else(|| self.estimated())
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
        if let Some(spender) = self.spender.take().filter(|_| self.counts) {
            let usage = self.usage();
            self.engine.count_call(spender, &self.model, &usage);
        }
    }
}

/// Appends a part, and keeps the last [`TAIL`] bytes.
fn keep_last(tail: &mut Vec<u8>, part: &[u8]) {
    let part = &part[part.len().saturating_sub(TAIL)..];
    let over = (tail.len() + part.len()).saturating_sub(TAIL);
    tail.drain(..over);
    tail.extend_from_slice(part);
}

/// The last `usage` in these bytes that says something.
fn usage_in(mut bytes: &[u8]) -> Option<Usage> {
    // A loop: an answer may have as many of them as it likes.
    while let Some(at) = memmem::rfind(bytes, b"\"usage\"") {
        if let Some(usage) = reported(&bytes[at + 7..]) {
            return Some(usage);
        }
        bytes = &bytes[..at];
    }
    None
}

/// What stands after the name `"usage"`.
fn reported(bytes: &[u8]) -> Option<Usage> {
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
    let rest = bytes.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Reported>();
    let said = values.next()?.ok()?;
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

    #[test]
    fn g11_an_answer_full_of_usage_is_searched_without_recursion() {
        let first = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
        let many = r#""usage":x "usage" "#.repeat(200_000);
        assert_eq!(tokens(&format!("{first}{many}")), Some((1, 2)));
    }

    #[test]
    fn g11_only_the_last_bytes_of_an_answer_are_kept() {
        let mut tail = Vec::new();
        keep_last(&mut tail, b"abc");
        keep_last(&mut tail, b"de");
        assert_eq!(tail, b"abcde");
        keep_last(&mut tail, &[b'x'; TAIL - 1]);
        assert_eq!((tail.len(), &tail[..2]), (TAIL, &b"ex"[..]));
        let long: Vec<u8> = (0..3 * TAIL).map(|n| n as u8).collect();
        keep_last(&mut tail, &long);
        assert_eq!(tail, long[2 * TAIL..]);
    }
}
