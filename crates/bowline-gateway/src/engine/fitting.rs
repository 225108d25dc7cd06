//! A model call whose prompt fits: the oldest turns are left out where the conversation is longer
//! than the model takes. The log stays whole.
//!
//! What a server refuses or counts is learned for all callers ([`Windows`](crate::model::Windows)). A
//! refusal whose words are in the request itself is not: the server may only quote its caller.

use bowline_sbp::completion::Assembly;
use bowline_sbp::context::{Measure, Room, Trimmed, trim};
use bowline_sbp::error::Failure;
use bowline_sbp::message::Message;
use serde_json::Value;

use super::generate::{Generated, failed};
use super::round::Round;
use super::tools::OfferedTools;
use crate::config::ContextPolicy;
use crate::model::{Call, Model, RefusedPrompt, Window};

/// How often a prompt that was refused as too long is cut further.
const TRIES: u32 = 4;

impl Round<'_> {
    /// Calls the model. A prompt that is known to be too long is cut before; one that its server
    /// refuses as too long is cut and sent again.
    pub(super) async fn generate_fitting(
        &mut self,
        model: &Model,
        mut call: Call<'_>,
        assembly: Assembly,
        tools: &OfferedTools,
    ) -> Result<Generated, Failure> {
        let windows = &self.engine.windows;
        let trims = windows.config().policy == ContextPolicy::Trim;
        let whole = std::mem::take(&mut call.messages);
        let mut window = windows.of(&call.model);
        let mut cut = if trims { fitting(&call, &whole, window) } else { None };
        let mut tries = 0;
        loop {
            tries += 1;
            self.left_out = cut.as_ref().map(|trimmed| trimmed.left_out);
            let sent = cut.map_or_else(|| whole.clone(), |trimmed| trimmed.prompt);
            let mut fitted = Call { messages: sent.clone(), ..call.clone() };
            self.sent_tokens = (beside(&call) + size(&sent)).tokens(window.bytes_per_token);
            fitted.blobs = self.blobs(model.references(&fitted)).await?;
            let failure = match self.generate(model, fitted, assembly.clone(), tools).await {
                Err(failure) if failure.is_context_overflow() => failure,
                Ok(said) => {
                    windows.accepted(&call.model, said.prompt_tokens());
                    // The tokens of an image say nothing about those of text.
                    if said.prompt_tokens() > 0 && !sent.iter().any(|message| message.may_refer()) {
                        let size = beside(&call) + size(&sent);
                        windows.counted(&call.model, size, said.prompt_tokens());
                    }
                    return Ok(said);
                }
                failed => return failed,
            };
            let prompt = beside(&call) + size(&sent);
            let refusal =
                RefusedPrompt { limit: failure.context_limit(), prompt, answer: answer(&call) };
            let quoted = failure.overflow_words().is_some_and(|words| holds(&call, &sent, words));
            let failure = if quoted { failure } else { failure.as_context_overflow() };
            // What earlier rounds said is kept.
            if !trims || tries == TRIES || !refusal.may_help() {
                return failed(assembly, failure);
            }
            window = window.after(&refusal);
            if !quoted {
                windows.refused(&call.model, &refusal);
                let known = windows.of(&call.model).tokens;
                window.tokens = window.tokens.min(known.or(window.tokens));
            }
            let is_shorter = |trimmed: &Trimmed<'_>| trimmed.prompt.len() < sent.len();
            let shorter = |window: Window| fitting(&call, &whole, window).filter(is_shorter);
            cut = match tries + 1 < TRIES {
                true => shorter(window).or_else(|| {
                    window = window.below(prompt);
                    shorter(window)
                }),
                // The last try is the question alone.
                false => trim(&whole, window.bytes_per_token, Room { window: 0, budget: 0 })
                    .filter(is_shorter),
            };
            // Nothing more can be left out: the server's refusal stands.
            if cut.is_none() {
                return failed(assembly, failure);
            }
        }
    }
}

/// The part of the prompt that fits; none if all of it does, or nothing is known.
fn fitting<'a>(call: &Call<'_>, prompt: &[&'a Message], known: Window) -> Option<Trimmed<'a>> {
    let (window, bytes_per_token) = (known.tokens?, known.bytes_per_token);
    let budget = known.for_prompt(answer(call))?;
    let budget = budget.saturating_sub(beside(call).tokens(bytes_per_token));
    trim(prompt, bytes_per_token, Room { window, budget })
}

/// The most tokens of the answer, if the caller said so.
fn answer(call: &Call<'_>) -> Option<u64> {
    let asked = ["max_completion_tokens", "max_tokens"];
    let answer = call.params.iter().find(|(name, _)| asked.contains(&name.as_str()));
    answer.and_then(|(_, value)| value.get().parse().ok())
}

/// What goes with the conversation: notes and tools.
fn beside(call: &Call<'_>) -> Measure {
    let ours = call.tools.iter().map(|tool| tool.get().len()).sum::<usize>();
    let theirs = call.params.iter().find(|(name, _)| name == "tools");
    let tools = ours + theirs.map_or(0, |(_, tools)| tools.get().len());
    Measure::text(tools) + call.notes.iter().map(Measure::of).sum()
}

fn size(prompt: &[&Message]) -> Measure {
    prompt.iter().map(|message| Measure::of(message)).sum()
}

/// Whether the request holds these words, in lower case.
fn holds(call: &Call<'_>, sent: &[&Message], words: &str) -> bool {
    let said = |text: &str| text.to_lowercase().contains(words);
    // Letters may be written as escapes. What cannot be read may hold anything.
    let holds = |json: &str| {
        serde_json::from_str::<Value>(json).map_or(true, |value| said(&value.to_string()))
    };
    said(&call.model)
        || call.params.iter().any(|(name, value)| said(name) || holds(value.get()))
        || call.tools.iter().any(|tool| holds(tool.get()))
        || sent.iter().copied().chain(&call.notes).any(|message| holds(&message.for_servers()))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn words_of_the_request_are_found_however_they_are_written() {
        let hello = Message::text("user", "hello");
        let call = |params| Call::plain("m".into(), params, Vec::new(), false);
        let words = "prompt too long";
        assert!(!holds(&call(vec![("user".into(), raw("\"x\""))]), &[&hello], words));
        for params in [
            vec![("user".into(), raw(r#""Prompt TOO long""#))],
            vec![("user".into(), raw(r#"{"x":["pr\u006fmpt too long"]}"#))],
            vec![("prompt too long".into(), raw("1"))],
            vec![("user".into(), raw(r#""\ud800 pr\u006fmpt too long""#))],
        ] {
            assert!(holds(&call(params), &[&hello], words));
        }
        for (role, content) in [("Prompt too long", "x"), ("user", r"\ud800 pr\u006fmpt too long")]
        {
            let message = raw(&format!(r#"{{"role":"{role}","content":"{content}"}}"#));
            let message = Message::read(message).unwrap();
            assert!(holds(&call(vec![]), &[&hello, &message], words));
        }
        assert!(holds(&Call { model: "Prompt too long".into(), ..call(vec![]) }, &[], words));
    }

    #[test]
    fn tools_and_notes_are_part_of_the_prompt() {
        let mut call = Call::plain("m".into(), vec![], Vec::new(), false);
        assert_eq!(beside(&call), Measure::default());
        let note = Message::text("system", "n");
        call.params = vec![("tools".into(), raw("[1234]")), ("max_tokens".into(), raw("77"))];
        call.tools = [raw("{\"t\":1}")].into();
        call.notes = vec![note.clone()];
        assert_eq!(beside(&call), Measure::text(6 + 7) + Measure::of(&note));
        assert_eq!(answer(&call), Some(77));
    }
}
