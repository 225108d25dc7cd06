//! Leaves out the oldest turns of a prompt that does not fit its model.
//!
//! Whole turns, with their tool calls and results, so that the rest stays a conversation. System
//! messages and the current question are never left out.
//!
//! Until the cut moves, the beginning of the prompt stays the same, and the upstream's prompt cache
//! holds. So it moves in large steps, between places that follow from the conversation and the
//! window alone: every quarter of the window, measured from the beginning with a fixed number of
//! bytes per token. The other notes of a turn and a better calibration leave the places where they
//! are, and rarely lead to another one.
//!
//! A summary of what is left out would go where the cut is: [`Trimmed::cut`].

use serde::{Deserialize, Serialize};

use super::{Measure, is_assistant, is_system};
use crate::message::Message;

/// How many steps a window has.
const STEPS: u64 = 4;
/// The bytes of a token where steps are measured.
const BYTES_PER_TOKEN: f64 = 4.0;

/// The tokens that a prompt may have.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// All that the model takes.
    pub window: u64,
    /// The part of it that is left for the conversation.
    pub budget: u64,
}

/// What was left out of a prompt: part of the `sbp` object of an answer (*ours*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeftOut {
    /// Turns that the model was not sent, the oldest ones.
    pub turns: u64,
    pub messages: u64,
}

/// A prompt that was cut.
#[derive(Debug)]
pub struct Trimmed<'a> {
    pub prompt: Vec<&'a Message>,
    /// Where in the prompt messages were left out.
    pub cut: usize,
    pub left_out: LeftOut,
}

/// Cuts a prompt to its room. None if nothing can be left out, or nothing has to be.
pub fn trim<'a>(prompt: &[&'a Message], bytes_per_token: f64, room: Room) -> Option<Trimmed<'a>> {
    let sizes: Vec<_> = prompt.iter().map(|message| Measure::of(message)).collect();
    let total: u64 = sizes.iter().map(|size| size.tokens(bytes_per_token)).sum();
    if total <= room.budget {
        return None;
    }
    let turns = turns(prompt);
    // The last turn is the question.
    let (_, older) = turns.split_last()?;
    let step = step(bytes_per_token, room);
    let (mut dropped, mut passed, mut count) = (0, 0, 0);
    for (from, to) in older {
        let before = passed / step;
        for at in (*from..*to).filter(|at| !is_system(prompt[*at])) {
            dropped += sizes[at].tokens(bytes_per_token);
            passed += sizes[at].tokens(BYTES_PER_TOKEN);
        }
        count += 1;
        if passed / step > before && total - dropped <= room.budget {
            break;
        }
    }
    let (begin, _) = *older.first()?;
    let (_, end) = older[count - 1];
    let stays = |at: usize| at < begin || at >= end || is_system(prompt[at]);
    let kept: Vec<_> = (0..prompt.len()).filter(|at| stays(*at)).map(|at| prompt[at]).collect();
    let messages = (prompt.len() - kept.len()) as u64;
    let left_out = LeftOut { turns: count as u64, messages };
    Some(Trimmed { prompt: kept, cut: begin, left_out })
}

/// The distance of two places for the cut. Less where a step would be most of the budget.
fn step(bytes_per_token: f64, room: Room) -> u64 {
    let most = room.budget as f64 * 0.75 * bytes_per_token / BYTES_PER_TOKEN;
    let mut step = room.window / STEPS;
    while step as f64 > most && step > 1 {
        step /= 2;
    }
    step.max(1)
}

/// The turns of a prompt as ranges: each from its questions to the end of its answer. The first may
/// begin with an answer: callers cut off what is before.
fn turns(prompt: &[&Message]) -> Vec<(usize, usize)> {
    let mut turns = Vec::new();
    let mut from = None;
    let mut answered = false;
    for (at, message) in prompt.iter().enumerate() {
        let asks = !is_assistant(message) && message.role() != "tool" && !is_system(message);
        if asks && answered || from.is_none() && !is_system(message) {
            turns.extend(from.map(|from| (from, at)));
            from = Some(at);
            answered = false;
        }
        answered |= is_assistant(message);
    }
    turns.extend(from.map(|from| (from, prompt.len())));
    turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn conversation(turns: usize, size: usize) -> Vec<Message> {
        let mut all = vec![Message::text("system", "be brief")];
        for n in 0..turns {
            all.push(Message::text("user", &format!("question {n} {}", "x".repeat(size))));
            if n % 3 == 0 {
                let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}"#;
                let result = r#"{"role":"tool","tool_call_id":"c","content":"r"}"#;
                let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
                all.push(Message::read(raw(call)).unwrap());
                all.push(Message::read(raw(result)).unwrap());
            }
            all.push(Message::text("assistant", &format!("answer {n}")));
        }
        all.push(Message::text("user", "and now?"));
        all
    }

    fn tokens(prompt: &[&Message]) -> u64 {
        prompt.iter().map(|message| Measure::of(message).tokens(4.0)).sum()
    }

    fn room(budget: u64) -> Room {
        Room { window: budget, budget }
    }

    #[test]
    fn what_fits_is_left_as_it_is_and_a_question_alone_cannot_be_cut() {
        let all = conversation(3, 10);
        let all: Vec<_> = all.iter().collect();
        assert!(trim(&all, 4.0, room(100_000)).is_none());
        assert!(trim(&[all[0], all[all.len() - 1]], 4.0, room(1)).is_none());
    }

    #[test]
    fn the_cut_moves_in_large_steps() {
        let mut cuts = Vec::new();
        for turns in 20..80 {
            let all = conversation(turns, 100);
            let all: Vec<_> = all.iter().collect();
            let cut = trim(&all, 4.0, room(2000)).map_or(0, |trimmed| trimmed.left_out.turns);
            cuts.push(cut);
        }
        assert!(cuts.is_sorted(), "{cuts:?}");
        let mut steps = cuts.clone();
        steps.dedup();
        // A turn is some 50 tokens, a step 500.
        assert!(steps.len() <= 8 && steps.len() >= 3, "{steps:?}");
    }

    #[test]
    fn notes_of_another_length_and_a_new_calibration_rarely_move_the_cut() {
        let window = 4000;
        // From one turn to the next: the same direction, back and forth, a slow wave.
        let drifts: [fn(usize) -> f64; 3] = [
            |_| 1.01,
            |n| if n % 2 == 0 { 1.01 } else { 1.0 / 1.01 },
            |n| 1.0 + 0.01 * (n as f64 / 5.0).sin(),
        ];
        for (n, drift) in drifts.into_iter().enumerate() {
            let (mut cuts, mut bytes_per_token) = (Vec::new(), 4.0);
            for turns in 400..500 {
                let all = conversation(turns, 200);
                let all: Vec<_> = all.iter().collect();
                bytes_per_token *= drift(turns);
                let notes = (turns as u64 * 7919) % 60;
                let budget = window / 8 * 7 - notes;
                let trimmed = trim(&all, bytes_per_token, Room { window, budget }).unwrap();
                let sent: u64 =
                    trimmed.prompt.iter().map(|m| Measure::of(m).tokens(bytes_per_token)).sum();
                assert!(sent <= budget && sent > window / 4, "{sent}");
                cuts.push(trimmed.left_out.turns);
            }
            cuts.dedup();
            assert!(cuts.len() < 20, "{n}: {cuts:?}");
        }
    }

    #[test]
    fn a_small_part_of_a_window_and_small_tokens_are_used_nevertheless() {
        let all = conversation(200, 100);
        let all: Vec<_> = all.iter().collect();
        for (bytes_per_token, room) in [
            (4.0, Room { window: 8000, budget: 1000 }),
            (1.0, Room { window: 8000, budget: 7000 }),
            (1.0, Room { window: 8000, budget: 1500 }),
        ] {
            let trimmed = trim(&all, bytes_per_token, room).unwrap();
            let sent = trimmed.prompt.iter().map(|m| Measure::of(m).tokens(bytes_per_token));
            let sent: u64 = sent.sum();
            assert!(sent <= room.budget && sent > room.budget / 8, "{room:?}: {sent}");
        }
    }

    proptest! {
        #[test]
        fn whole_old_turns_go_and_the_rest_stays(turns in 1..40usize, size in 1..400usize, budget in 50..4000u64) {
            let all = conversation(turns, size);
            let all: Vec<_> = all.iter().collect();
            let Some(Trimmed { prompt, cut, left_out }) = trim(&all, 4.0, room(budget)) else {
                return Ok(());
            };
            prop_assert_eq!(prompt[0].role(), "system");
            prop_assert_eq!(prompt.last().unwrap().content(), "and now?");
            prop_assert_eq!(prompt.len() as u64 + left_out.messages, all.len() as u64);
            prop_assert!(prompt[cut].role() == "user", "a turn begins with its question");
            // What is left is the end of what was there.
            let tail = &all[all.len() - (prompt.len() - cut)..];
            prop_assert!(prompt[cut..].iter().zip(tail).all(|(a, b)| std::ptr::eq(*a, *b)));
            let all_old_turns = left_out.turns == turns as u64;
            prop_assert!(tokens(&prompt) <= budget || all_old_turns);
        }
    }
}
