//! Tools that the gateway runs for a model, and what is put on record around them.
//!
//! Before anything with an effect is done, the log says what is about to be done; after it, what
//! came of it (SBP-L2-14). A crash in between is found at the next start, and the call is made
//! again: what `remember` does twice, it does once.

use std::sync::Arc;

use bowline_sbp::completion::{ToolCall, Usage};
use bowline_sbp::error::Code;
use bowline_sbp::id::{MemoryId, SnapshotId};
use bowline_sbp::message::Message;
use bowline_store::{Advance, EntryKind, MemoryKind, NewEntry, NewMemory, SnapshotKind};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::histories::History;
use super::request::TurnRequest;
use super::run::Run;
use crate::clock;
use crate::config::Remember;
use crate::hub::Failure;
use crate::model::Model;

/// The longest text of one memory, in bytes.
pub(crate) const LONGEST_MEMORY: usize = 4096;

const REMEMBER: &str = "remember";

/// The gateway's tools that a model is offered in this turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools {
    remember: bool,
}

impl Tools {
    pub(super) fn offered(request: &TurnRequest, model: &Model, memory: Remember) -> Self {
        let wanted = match memory {
            Remember::Never => false,
            Remember::Always => true,
            // Not every model takes tools, so they are offered to those who are known to.
            Remember::Asked => request.remember || matches!(model, Model::Offline(_)),
        };
        Self { remember: wanted && request.recall && !request.speaks_of_tool(REMEMBER) }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.remember
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.remember && name == REMEMBER
    }

    /// As a model's server wants to be told of them.
    pub(super) fn definitions(&self) -> Arc<[Box<RawValue>]> {
        let remember = json!({"type": "function", "function": {
            "name": REMEMBER,
            "description": "Keep something for later conversations: a fact, or what happened.",
            "parameters": {"type": "object", "required": ["text"], "properties": {
                "text": {"type": "string", "description": "One thing, in a sentence of its own."},
                "kind": {"type": "string", "enum": ["semantic", "episodic"],
                         "description": "semantic: a fact. episodic: something that happened."},
            }},
        }});
        let all = self.remember.then(|| to_raw_value(&remember).expect("JSON serialises"));
        all.into_iter().collect()
    }
}

#[derive(Deserialize)]
struct ToRemember {
    text: String,
    #[serde(default)]
    kind: Option<String>,
}

impl Run<'_> {
    /// Puts on record what is about to be done.
    pub(super) async fn log_calls(
        &mut self,
        calls: &[ToolCall],
        usage: Usage,
        history: &mut History,
    ) -> Result<(), Failure> {
        let cost_usd = self.engine.models.cost(&self.request.model, &usage);
        self.spent_usd += cost_usd;
        let message = ToolCall::message(calls);
        let call = NewEntry {
            model: Some(self.request.model.clone()),
            cost_usd,
            agent_id: self.request.agent_id.clone(),
            ..NewEntry::new(EntryKind::Action, message.clone())
        };
        let mut entries = self.take_new();
        entries.push(call);
        self.advance(entries, SnapshotKind::PreAction, Vec::new()).await?;
        history.push(message.hidden());
        Ok(())
    }

    /// Runs the tools, and puts on record what came of it.
    pub(super) async fn act(
        &mut self,
        calls: Vec<ToolCall>,
        history: &mut History,
    ) -> Result<(), Failure> {
        let mut memories = Vec::new();
        let results: Vec<_> = calls
            .iter()
            .map(|call| {
                let result = match self.to_remember(call) {
                    Ok(memory) => {
                        memories.push(memory);
                        json!({"remembered": true})
                    }
                    Err(why) => json!({ "error": why }),
                };
                call.result(&result.to_string())
            })
            .collect();
        let done = self.log_results(&results, memories).await;
        let results = match done {
            // The agent's memory is full: that is for the model to know, and nothing to fail for.
            Err(full) if full.code == Code::InvalidRequest => {
                let why = json!({ "error": full.message }).to_string();
                let results: Vec<_> = calls.iter().map(|call| call.result(&why)).collect();
                self.log_results(&results, Vec::new()).await?;
                results
            }
            done => done.map(|()| results)?,
        };
        results.into_iter().for_each(|message| history.push(message.hidden()));
        Ok(())
    }

    async fn log_results(
        &mut self,
        results: &[Message],
        memories: Vec<NewMemory>,
    ) -> Result<(), Failure> {
        let entries = results.iter().cloned();
        let entries = entries.map(|message| NewEntry::new(EntryKind::Action, message));
        self.advance(entries.collect(), SnapshotKind::PostAction, memories).await
    }

    fn to_remember(&self, call: &ToolCall) -> Result<NewMemory, &'static str> {
        let asked: ToRemember = serde_json::from_str(&call.arguments).map_err(
            |_| "remember takes {\"text\": \"…\", \"kind\": \"semantic\" or \"episodic\"}",
        )?;
        let text = asked.text.trim();
        if text.is_empty() || text.len() > LONGEST_MEMORY {
            return Err("`text` must be one thing, in a sentence");
        }
        let kind = asked.kind.as_deref().map_or(Some(MemoryKind::Semantic), MemoryKind::named);
        Ok(NewMemory {
            id: MemoryId(Uuid::now_v7()),
            kind: kind.ok_or("`kind` is semantic or episodic")?,
            text: text.to_owned(),
            session_id: Some(self.session.id),
            at: clock::now(),
        })
    }

    async fn advance(
        &mut self,
        entries: Vec<NewEntry>,
        kind: SnapshotKind,
        memories: Vec<NewMemory>,
    ) -> Result<(), Failure> {
        let advance = Advance {
            turn_id: self.turn.id,
            owner: self.engine.instance,
            entries,
            snapshot: (kind, SnapshotId(Uuid::now_v7())),
            memories: Some((self.agent().clone(), memories)).filter(|(_, all)| !all.is_empty()),
            at: clock::now(),
        };
        let write = || self.engine.store.advance_turn(advance.clone());
        self.session = self.engine.patiently(self.turn, write).await?;
        self.advanced = true;
        self.turn.set_seq(self.session.last_seq + 1);
        Ok(())
    }
}
