//! One model call: reads the model's answer and publishes its text as it arrives.

use bowline_sbp::completion::{Answer, Assembly, ToolCall, as_chunk};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::frame::TurnStatus;
use bytes::Bytes;
use futures_util::StreamExt;

use super::round::Round;
use super::tools::OfferedTools;
use crate::model::{Call, Chunks, Model, Reply};

/// How many times larger than its text a streamed answer may be: every word comes in a JSON chunk.
const CHUNK_OVERHEAD: usize = 64;

/// What a model produced before it finished, was cancelled, or failed.
pub(super) struct Generated {
    /// The turn so far, this round included.
    pub(super) assembly: Assembly,
    /// The completion as the model sent it, if it is the whole answer of the turn.
    pub(super) verbatim: Option<Answer>,
    /// Calls of tools that the gateway runs.
    pub(super) calls: Vec<ToolCall>,
    pub(super) status: TurnStatus,
    /// Why it is not complete.
    pub(super) failure: Option<Failure>,
    /// The last chunk, held back until the turn is committed.
    pub(super) held: Option<Bytes>,
}

impl Generated {
    fn complete(assembly: Assembly) -> Self {
        Self {
            assembly,
            verbatim: None,
            calls: Vec::new(),
            status: TurnStatus::Complete,
            failure: None,
            held: None,
        }
    }

    /// The tokens of the prompt, as the server counted them; 0 if it did not.
    pub(super) fn prompt_tokens(&self) -> u64 {
        match &self.verbatim {
            Some(answer) => answer.usage.prompt_tokens,
            None => self.assembly.usage().prompt_tokens,
        }
    }

    /// Cancelled or interrupted: the partial text is kept, tool calls are dropped, because they may
    /// be incomplete and will get no result. The status is never `complete` (SBP-L1-13).
    fn stopped(mut assembly: Assembly, failure: Option<Failure>) -> Self {
        assembly.take_calls(|_| true);
        let cut = failure.is_some();
        let status = if cut { TurnStatus::Interrupted } else { TurnStatus::Cancelled };
        Self { status, failure, ..Self::complete(assembly) }
    }
}

impl Round<'_> {
    /// Calls the model and reads until it finishes, fails, or the turn is cancelled. Continues the
    /// assembly of earlier rounds.
    pub(super) async fn generate(
        &self,
        model: &Model,
        call: Call<'_>,
        assembly: Assembly,
        tools: &OfferedTools,
    ) -> Result<Generated, Failure> {
        let reply = tokio::select! {
            reply = model.call(call) => reply,
            () = self.job.cancel.cancelled() => return Ok(Generated::stopped(assembly, None)),
        };
        match reply {
            Ok(Reply::Chunks(chunks)) => self.listen(chunks, assembly, tools).await,
            Ok(Reply::Whole(completion)) => self.whole(completion, assembly, tools),
            // A shorter prompt may help, whatever earlier rounds said.
            Err(failure) if failure.is_context_overflow() => Err(failure),
            Err(failure) => failed(assembly, failure),
        }
    }

    async fn listen(
        &self,
        mut chunks: Chunks,
        mut assembly: Assembly,
        tools: &OfferedTools,
    ) -> Result<Generated, Failure> {
        let hide_usage = !self.request.wants_usage();
        let mut begun = assembly.has_begun();
        let mut received = 0;
        // Chunks that may belong to calls that the caller must not see, or that finish the answer.
        let mut tail = Vec::new();
        let mut withheld = String::new();
        loop {
            let next = tokio::select! {
                next = chunks.next() => next,
                () = self.job.cancel.cancelled() => {
                    self.say_beside_calls(&assembly, &withheld);
                    return Ok(Generated::stopped(assembly, None));
                }
            };
            let chunk = match next {
                None => break,
                Some(Ok(chunk)) => chunk,
                // The finishing chunk has arrived: nothing of the answer is missing.
                Some(Err(_)) if assembly.has_finished() => break,
                Some(Err(failure)) if received == 0 && failure.is_context_overflow() => {
                    return Err(failure);
                }
                Some(Err(failure)) => {
                    self.say_beside_calls(&assembly, &withheld);
                    return failed(assembly, failure);
                }
            };
            let read = std::str::from_utf8(&chunk).ok().and_then(|text| assembly.push(text).ok());
            let Some(added) = read else {
                let failure = nonsense("a chunk is not valid JSON");
                return failed(assembly, failure);
            };
            received += chunk.len();
            let limit = self.engine.limits.answer;
            if assembly.text().len() > limit || received > limit.saturating_mul(CHUNK_OVERHEAD) {
                let failure = Failure::new(Code::Upstream, "the answer is over the size limit");
                return Ok(Generated::stopped(assembly, Some(failure)));
            }
            begun = true;
            // The usage chunk was requested by the gateway, not by the caller.
            if hide_usage && !added.speaks {
                continue;
            }
            // From the finishing chunk on, the last chunk is held back: it will carry `sbp`. From a
            // tool call on that may be the gateway's, all chunks are.
            let calls = !tools.is_empty() && added.calls;
            let ready = if tail.is_empty() && !assembly.has_finished() && !calls {
                Some(chunk)
            } else {
                tail.push(chunk);
                if !tools.is_empty() {
                    withheld.push_str(&added.text);
                }
                (tools.is_empty() && tail.len() > 1).then(|| tail.remove(0))
            };
            // Chunks are kept only if the caller streams.
            self.publish(ready.filter(|_| self.request.stream), &added.text);
        }
        if !begun {
            return Err(nonsense("it is empty"));
        }
        let calls = assembly.take_calls(|name| tools.has(name));
        if !calls.is_empty() {
            self.say_beside_calls(&assembly, &withheld);
        }
        let held = match (calls.is_empty(), assembly.has_calls()) {
            (true, _) => {
                let held = tail.pop();
                let rest = tail.into_iter().filter(|_| self.request.stream);
                rest.for_each(|chunk| self.publish(Some(chunk), ""));
                held
            }
            (false, true) => Some(Bytes::from(assembly.calls_as_chunk())),
            (false, false) => None,
        };
        Ok(Generated { calls, held, ..Generated::complete(assembly) })
    }

    /// Handles an answer that was not streamed.
    fn whole(
        &self,
        completion: String,
        mut assembly: Assembly,
        tools: &OfferedTools,
    ) -> Result<Generated, Failure> {
        let answer = match Answer::read(completion) {
            Ok(answer) => answer,
            Err(error) => return failed(assembly, nonsense(error)),
        };
        let text = answer.message.content();
        self.publish(None, &text);
        if tools.is_empty() && !assembly.has_begun() {
            let held = self.request.stream.then(|| as_chunk(&answer.completion)).flatten();
            let held = held.map(Bytes::from);
            return Ok(Generated { verbatim: Some(answer), held, ..Generated::complete(assembly) });
        }
        let fresh = !assembly.has_begun();
        let chunk = as_chunk(&answer.completion).ok_or_else(|| nonsense("it has no choices"))?;
        assembly.push(&chunk).map_err(nonsense)?;
        assembly.count(answer.usage);
        let calls = assembly.take_calls(|name| tools.has(name));
        if !calls.is_empty() {
            self.say_beside_calls(&assembly, &text);
        }
        let last = Some(chunk).filter(|_| self.request.stream);
        let held = match (calls.is_empty(), assembly.has_calls()) {
            (true, _) => last.map(Bytes::from),
            (false, true) => Some(Bytes::from(assembly.calls_as_chunk())),
            (false, false) => None,
        };
        let verbatim = Some(answer).filter(|_| fresh && calls.is_empty());
        Ok(Generated { verbatim, calls, held, ..Generated::complete(assembly) })
    }

    /// Publishes the text of withheld chunks: the caller must not see the gateway's tool calls, but
    /// must see the text that came with them.
    fn say_beside_calls(&self, assembly: &Assembly, text: &str) {
        if !text.is_empty() && self.request.stream {
            self.text().push(Some(Bytes::from(assembly.text_as_chunk(text))), "");
        }
    }

    fn publish(&self, chunk: Option<Bytes>, text: &str) {
        if chunk.is_some() || !text.is_empty() {
            self.text().push(chunk, text);
        }
    }
}

/// A failure before any text of the turn is an error; after that, the partial text is kept.
pub(super) fn failed(assembly: Assembly, failure: Failure) -> Result<Generated, Failure> {
    if !assembly.text().is_empty() {
        return Ok(Generated::stopped(assembly, Some(failure)));
    }
    Err(failure)
}

fn nonsense(what: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Upstream, format!("the upstream's answer cannot be read: {what}"))
}
