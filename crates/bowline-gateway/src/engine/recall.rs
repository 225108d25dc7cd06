//! The agent's memories that match the question of a turn.

use std::collections::BTreeSet;

use bowline_sbp::message::Message;
use bowline_store::{Memory, MemoryKind, MemoryOwner, TurnMemories};

use super::round::Round;
use crate::model::REMEMBERED;

/// The most memories that go into one turn, and the most bytes of them.
const MOST_MEMORIES: u32 = 16;
const MOST_BYTES: usize = 8 << 10;
/// The first line of the system message with procedures: rules and steps that the agent follows.
const RULES: &str = "How you do things (rules and steps that you follow):";
/// The most words of a question that are searched for.
const MOST_WORDS: usize = 64;

impl Round<'_> {
    /// Memories as system messages for the model: procedures first, then facts and events. An error
    /// is logged and the turn goes on without them.
    pub(super) async fn recalled(&self) -> Vec<Message> {
        if !self.request.recall {
            return Vec::new();
        }
        match self.look_through_memory().await {
            Ok(notes) => notes,
            Err(error) => {
                tracing::warn!(%error, "cannot search the agent's memory");
                Vec::new()
            }
        }
    }

    async fn look_through_memory(&self) -> bowline_store::Result<Vec<Message>> {
        let (store, agent) = (&self.engine.store, self.agent());
        let of = MemoryOwner { user: self.job.user, agent: agent.clone() };
        let question = self.request.question();
        let words = question.as_deref().map(words).unwrap_or_default();
        let found = store.memories_for_turn(of, words, MOST_MEMORIES).await?;
        let TurnMemories { rules, matching, newest } = found;
        let mut notes: Vec<_> = note(RULES, rules.into_iter()).into_iter().collect();
        if question.is_some() {
            // The newest facts are added even if they do not match.
            let facts = newest.into_iter().filter(|memory| memory.kind == MemoryKind::Semantic);
            let matching =
                matching.into_iter().filter(|memory| memory.kind != MemoryKind::Procedural);
            notes.extend(note(REMEMBERED, matching.chain(facts)));
        }
        Ok(notes)
    }
}

fn note(begins: &str, memories: impl Iterator<Item = Memory>) -> Option<Message> {
    let mut text = String::from(begins);
    let mut seen = BTreeSet::new();
    for memory in memories {
        if seen.len() == MOST_MEMORIES as usize {
            break;
        }
        // A memory that does not fit is skipped; shorter ones may still fit.
        if text.len() + memory.text.len() > MOST_BYTES || !seen.insert(memory.id) {
            continue;
        }
        let when = match memory.kind {
            MemoryKind::Semantic | MemoryKind::Procedural => String::new(),
            MemoryKind::Episodic => format!("{}: ", memory.created_at.strftime("%Y-%m-%d")),
        };
        // One line each, so that a memory cannot imitate another section of the prompt.
        let line = memory.text.split_whitespace().collect::<Vec<_>>().join(" ");
        text.push_str(&format!("\n- {when}{line}"));
    }
    (!seen.is_empty()).then(|| Message::text("system", &text))
}

/// The distinct words of a text, in order.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| seen.insert(word.clone()))
        .take(MOST_WORDS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::id::MemoryId;
    use jiff::Timestamp;

    #[test]
    fn words_are_taken_apart_and_counted_once() {
        assert_eq!(words("Was heißt das? \"das\" — DAS Öl!"), ["was", "heißt", "das", "öl"]);
        assert!(words("… !").is_empty());
        assert_eq!(words(&(0..999).map(|n| format!("w{n} ")).collect::<String>()).len(), 64);
    }

    #[test]
    fn g11_a_note_is_bounded_and_says_a_thing_once() {
        let memory = |n: u128, text: &str| Memory {
            id: MemoryId(uuid::Uuid::from_u128(n)),
            kind: if n == 1 { MemoryKind::Episodic } else { MemoryKind::Semantic },
            text: text.into(),
            session_id: None,
            created_at: Timestamp::UNIX_EPOCH,
        };
        let same = [memory(1, "We moved."), memory(2, "Tea."), memory(1, "We moved.")];
        let note = note(REMEMBERED, same.into_iter()).unwrap().content();
        assert!(note.ends_with("\n- 1970-01-01: We moved.\n- Tea."), "{note}");
        let many = (0..99).map(|n| memory(n, &"x".repeat(1000)));
        assert!(super::note(REMEMBERED, many).unwrap().content().len() <= MOST_BYTES);
        assert!(super::note(REMEMBERED, std::iter::empty()).is_none());
    }
}
