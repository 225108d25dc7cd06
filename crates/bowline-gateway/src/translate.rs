//! The Contextual Translation Pipeline: a second pass over an answer, by a model, for the device
//! it is delivered to (SBP-L4-03).
//!
//! Apart, because it is optional: it may be slow, fail or be off, and the answer is still
//! delivered. A pass is a task that streams the model's text to the surface's loop, which only
//! decides when to give up. The stored turn is never changed.
//!
//! Invariants
//! - A pass ends: after `first_token` without any text, after `timeout` in any case, or when its
//!   surface disconnects. Ending it aborts the model call.
//! - At most `passes` run at once in the whole gateway.
//! - A surface without translations needs only a pointer of memory for them.
//! - Every pass is counted once, by how it ended.

use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::budget::Spender;
use bowline_sbp::completion::{Answer, Assembly, as_chunk};
use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::error::Code;
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::id::AgentId;
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::translate::Brief;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::config::Translate;
use crate::engine::Engine;
use crate::meters;
use crate::model::{Call, Chunks, Model, Models, Reply};

/// Pieces of text that wait for a busy surface; when it is full, reading from the model pauses.
const PIECES: usize = 16;
/// How long to wait for the usage chunk after the end of the text.
const AFTERMATH: Duration = Duration::from_secs(1);
/// How many times larger than its text a streamed answer may be: every word comes in a JSON chunk.
const CHUNK_OVERHEAD: usize = 64;

/// The translations of a gateway.
#[derive(Debug)]
pub(crate) struct Translation {
    settings: Arc<Translate>,
    places: Arc<Semaphore>,
}

/// `translate.model` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("translate.model is `{model}`, and no upstream serves it")]
pub struct BadTranslator {
    pub model: String,
}

impl Translation {
    pub(crate) fn new(settings: &Translate, models: &Models) -> Result<Self, BadTranslator> {
        let model = &settings.model;
        // The built-in agent is no language model, so it cannot translate.
        if !model.is_empty() && !matches!(models.route(model), Ok(Model::Upstream(_))) {
            return Err(BadTranslator { model: model.clone() });
        }
        let places = settings.passes.min(Semaphore::MAX_PERMITS);
        Ok(Self { settings: Arc::new(settings.clone()), places: Arc::new(Semaphore::new(places)) })
    }

    /// Whether turns are translated for this surface, in a session of this agent.
    pub(crate) fn serves(&self, agent: &AgentId, surface: &SurfaceContext) -> bool {
        self.settings.serves(agent.as_str(), surface.device_type.as_str())
    }

    pub(crate) fn translator(
        &self,
        agent: &AgentId,
        surface: &SurfaceContext,
    ) -> Option<Box<Translator>> {
        let serves = self.serves(agent, surface);
        serves.then(|| Box::new(Translator { brief: Brief::of(surface), pass: None }))
    }
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassEnd {
    Ok,
    /// The model failed, or said nothing usable.
    Failed,
    /// It took too long.
    Slow,
    /// It was not begun: too many passes were running.
    Busy,
    /// It was not begun: the budget of its surface's user or key is used up.
    OverBudget,
    /// The surface did not need it any more.
    Dropped,
}

impl PassEnd {
    fn as_str(self) -> &'static str {
        match self {
            PassEnd::Ok => "ok",
            PassEnd::Failed => "failed",
            PassEnd::Slow => "slow",
            PassEnd::Busy => "busy",
            PassEnd::OverBudget => "over_budget",
            PassEnd::Dropped => "dropped",
        }
    }

    /// The outcome of a pass whose text could not be used.
    pub(crate) fn or_failed(self) -> Self {
        if self == PassEnd::Ok { PassEnd::Failed } else { self }
    }
}

/// The output of a pass.
#[derive(Debug)]
pub(crate) enum Translated {
    More(String),
    End(PassEnd),
}

/// The translations of one surface, one at a time.
#[derive(Debug)]
pub(crate) struct Translator {
    brief: Brief,
    pass: Option<Pass>,
}

/// A running pass. Dropping it aborts it.
#[derive(Debug)]
struct Pass {
    said: mpsc::Receiver<Translated>,
    begun: Instant,
    outcome: PassEnd,
    _task: AbortOnDropHandle<()>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        meters::translation(self.outcome.as_str());
        meters::translation_took(self.begun.elapsed());
    }
}

impl Translator {
    /// Begins a pass over the turn, unless the turn needs none or too many passes are running.
    pub(crate) fn begin(
        &mut self,
        translation: &Translation,
        engine: &Arc<Engine>,
        spender: Spender,
        turn: &LoggedTurn,
    ) -> bool {
        let whole = turn.role == "assistant" && turn.status == TurnStatus::Complete;
        if !whole || self.brief.fits(&turn.content) {
            return false;
        }
        let Ok(place) = Arc::clone(&translation.places).try_acquire_owned() else {
            meters::translation(PassEnd::Busy.as_str());
            return false;
        };
        let (engine, settings) = (Arc::clone(engine), Arc::clone(&translation.settings));
        let messages = self.brief.messages(&turn.content);
        let params = self.params(&settings);
        let (say, said) = mpsc::channel(PIECES);
        let task = tokio::spawn(async move {
            let name = settings.model.clone();
            let call = Call::plain(name, params, messages.iter().collect(), true);
            let outcome = pass(&engine, spender, &settings, call, &say).await;
            // The permit is released before the end is reported, so that the next pass can begin at
            // once.
            drop(place);
            let _ = say.send(Translated::End(outcome)).await;
        });
        self.pass = Some(Pass {
            said,
            begun: Instant::now(),
            outcome: PassEnd::Dropped,
            _task: AbortOnDropHandle::new(task),
        });
        true
    }

    /// Records how the pass ended, if there is one.
    pub(crate) fn ended(&mut self, outcome: PassEnd) {
        if let Some(mut pass) = self.pass.take() {
            pass.outcome = outcome;
        }
    }

    fn params(&self, settings: &Translate) -> Vec<(String, Box<RawValue>)> {
        let tokens = self.brief.max_tokens().map(|tokens| {
            ("max_tokens".to_owned(), to_raw_value(&tokens).expect("a number serialises"))
        });
        let name = to_raw_value(&settings.model).expect("a string serialises");
        std::iter::once(("model".to_owned(), name)).chain(tokens).collect()
    }
}

/// The next output of the surface's pass; `None` if there is no pass. Cancel-safe.
pub(crate) async fn next(translator: &mut Option<Box<Translator>>) -> Option<Translated> {
    let pass = translator.as_mut()?.pass.as_mut()?;
    // The task ended without reporting its end: it panicked.
    Some(pass.said.recv().await.unwrap_or(Translated::End(PassEnd::Failed)))
}

/// Calls the model and forwards its text.
async fn pass(
    engine: &Engine,
    spender: Spender,
    settings: &Translate,
    call: Call<'_>,
    say: &mpsc::Sender<Translated>,
) -> PassEnd {
    let begun = Instant::now();
    let last = begun + settings.timeout;
    let first = last.min(begun + settings.first_token);
    let Ok(model) = engine.models.route(&settings.model) else { return PassEnd::Failed };
    match engine.check_model_call(&spender).await {
        Err(failure) if failure.is_out_of_quota() => return PassEnd::OverBudget,
        Err(failure) => return failed(failure.code),
        Ok(()) => {}
    }
    let mut assembly = Assembly::default();
    let mut chunks = match timeout_at(first, model.call(call)).await {
        Err(_) => return PassEnd::Slow,
        Ok(Err(failure)) => return failed(failure.code),
        Ok(Ok(Reply::Chunks(chunks))) => chunks,
        Ok(Ok(Reply::Whole(completion))) => match at_once(completion, &mut assembly) {
            Some(chunks) => chunks,
            None => return failed(Code::Upstream),
        },
    };
    let mut received = 0;
    loop {
        let by = match assembly.text().is_empty() {
            _ if assembly.has_finished() => Instant::now() + AFTERMATH,
            true => first,
            false => last,
        };
        let chunk = match timeout_at(by, chunks.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => break,
            // The text is complete; only the usage is unknown.
            _ if assembly.has_finished() => break,
            Ok(Some(Err(failure))) => return failed(failure.code),
            Err(_) => return PassEnd::Slow,
        };
        let silent = assembly.text().is_empty();
        let read = std::str::from_utf8(&chunk).ok().and_then(|text| assembly.push(text).ok());
        let Some(added) = read else { return failed(Code::Upstream) };
        received += chunk.len();
        let limit = engine.limits.answer;
        if assembly.text().len() > limit || received > limit.saturating_mul(CHUNK_OVERHEAD) {
            return failed(Code::Upstream);
        }
        if added.text.is_empty() {
            continue;
        }
        if silent {
            meters::translation_began(begun.elapsed());
        }
        if say.send(Translated::More(added.text)).await.is_err() {
            return PassEnd::Dropped;
        }
    }
    // A truncated translation is not used: the formatting rules, which replace it, lose text only
    // at the end.
    let usable = assembly.ended_well() && !assembly.text().trim().is_empty();
    let answer = assembly.finish();
    let model = answer.model.as_deref().unwrap_or(&settings.model);
    meters::translation_cost(&answer.usage, engine.models.cost(model, &answer.usage));
    engine.count_call(spender, model, &answer.usage);
    if usable { PassEnd::Ok } else { failed(Code::Upstream) }
}

/// An answer that was not streamed, as a stream of one chunk.
fn at_once(completion: String, assembly: &mut Assembly) -> Option<Chunks> {
    let chunk = Bytes::from(as_chunk(&completion)?);
    assembly.count(Answer::read(completion).ok()?.usage);
    Some(Box::pin(stream::iter([Ok(chunk)])))
}

/// A server's error message may quote the conversation: only the error code is logged.
fn failed(code: Code) -> PassEnd {
    tracing::warn!(code = code.as_str(), "a translation failed");
    PassEnd::Failed
}
