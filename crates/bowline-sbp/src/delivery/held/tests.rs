//! Tests of turns that are being translated.

use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

use super::*;
use bowline_adapt::{Form, Kind};

use crate::delivery::{LiveText, Mode};
use crate::frame::TurnStatus;
use crate::id::{Seq, SessionId, TurnId};

fn turn(seq: Seq, content: &str) -> LoggedTurn {
    LoggedTurn {
        seq,
        turn_id: TurnId(Uuid::from_u128(u128::from(seq))),
        role: "assistant".into(),
        content: content.into(),
        model: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        step_count: 1,
        cost_usd: 0.0,
        status: TurnStatus::Complete,
    }
}

fn delivery(mode: Mode, delivered: Seq, head: Seq) -> Delivery {
    Delivery::new(SessionId(Uuid::nil()), mode, delivered, head).translating(true)
}

/// Offset and text of a chunk.
fn chunk(frame: &ServerFrame) -> (u64, &str) {
    match frame {
        ServerFrame::TurnChunk { offset, delta, .. } => (*offset, delta),
        other => panic!("no chunk: {other:?}"),
    }
}

#[test]
fn sbp_l4_03_a_translation_comes_in_chunks_and_counts_as_sent_with_the_last_frame() {
    let mut d = delivery(Mode::Chunks, 0, 0);
    let live = LiveText {
        turn_id: turn(2, "").turn_id,
        seq: 2,
        attempt: 1,
        from: 0,
        text: "The orig",
        step: 1,
        model: "m",
    };
    assert_eq!(d.live(live), [], "a translation needs the whole");
    d.hold(turn(2, "The original."));
    assert_eq!(d.held().unwrap().content, "The original.");
    assert_eq!(chunk(&d.translated("Kurz").unwrap()), (0, "Kurz"));
    assert_eq!(chunk(&d.translated(" gesagt.").unwrap()), (4, " gesagt."));
    assert_eq!((d.sent(), d.barrier(), d.ack(9)), (0, None, None), "half of it proves nothing");
    assert!(d.logged(turn(4, "newer")).is_empty(), "nothing newer before it");
    let (translated, frames) = d.release(true);
    assert!(translated && matches!(frames[..], [ServerFrame::TurnComplete(_)]), "{frames:?}");
    assert_eq!((d.sent(), d.held()), (2, None));
    assert_eq!(d.ack(9), Some(2));
    assert_eq!(d.logged(turn(4, "newer")).len(), 2);
}

#[test]
fn sbp_l4_03_a_translation_that_fails_gives_way_to_the_original_from_its_beginning() {
    let mut d = delivery(Mode::Chunks, 0, 0);
    d.hold(turn(2, "The original."));
    d.translated("Ku").unwrap();
    let (translated, frames) = d.release(false);
    assert!(!translated && matches!(frames[1], ServerFrame::TurnComplete(_)));
    assert_eq!(chunk(&frames[0]), (0, "The original."));
    assert_eq!(d.release(false), (false, Vec::new()), "once");
    assert_eq!(d.translated("late"), None);
}

#[test]
fn sbp_l4_03_what_was_pending_and_what_does_not_stream_comes_whole() {
    for (mode, head) in [(Mode::Chunks, 2), (Mode::Whole, 0)] {
        let mut d = delivery(mode, 0, head);
        d.hold(turn(2, "The original."));
        assert_eq!(d.translated("Kurz"), None);
        assert_eq!(d.translated(" gesagt."), None);
        let (translated, frames) = d.release(true);
        let [ServerFrame::TetherTurn(whole)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!((translated, whole.content.as_str()), (true, "Kurz gesagt."));
        d.hold(turn(4, "Another."));
        d.translated("An");
        let (translated, frames) = d.release(false);
        assert_eq!((translated, frames.len()), (false, if mode == Mode::Whole { 1 } else { 2 }));
    }
}

#[test]
fn sbp_l4_03_a_model_that_does_not_obey_is_put_into_the_form_all_the_same() {
    let form = Form { kind: Kind::Plain { images: false }, limit: Some(8) };
    for mode in [Mode::Chunks, Mode::Whole] {
        let mut d = delivery(mode, 0, 0).in_form(Some(form.clone()));
        d.hold(turn(2, "The original."));
        let mut frames: Vec<_> = d.translated("# A **bold** title.\n\n").into_iter().collect();
        frames.extend(d.translated("| far | too | long | for | a | watch |\n"));
        frames.extend(d.release(true).1);
        let shown: String = frames
            .iter()
            .map(|frame| match frame {
                ServerFrame::TurnChunk { delta, .. } => delta.as_str(),
                ServerFrame::TetherTurn(turn) => turn.content.as_str(),
                _ => "",
            })
            .collect();
        assert_eq!(shown, "A bold title. …", "{mode:?}");
    }
}

#[test]
fn a_translation_that_leaves_nothing_to_show_is_none() {
    let form = Some(Form { kind: Kind::Plain { images: false }, limit: None });
    for (mode, said) in [(Mode::Chunks, "---\n"), (Mode::Whole, "---\n"), (Mode::Whole, "")] {
        let mut d = delivery(mode, 0, 0).in_form(form.clone());
        d.hold(turn(2, "The original."));
        d.translated(said);
        let (translated, frames) = d.release(true);
        assert!(!translated && !frames.is_empty(), "{mode:?} {said:?}");
    }
}

/// Events around a surface whose turns are translated, in any order.
#[derive(Debug, Clone)]
enum Step {
    Commit,
    /// The log is read; its newest turn is held, if nothing is.
    Pump,
    /// The translation goes on, or ends well, or fails.
    More,
    Complete,
    Fail,
    /// The surface answers every ping so far.
    Answer,
    /// The socket fails; what was not confirmed is sent again.
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Commit),
        4 => Just(Step::Pump),
        4 => Just(Step::More),
        2 => Just(Step::Complete),
        2 => Just(Step::Fail),
        2 => Just(Step::Answer),
        1 => Just(Step::Break),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A surface, which reads everything at once.
#[derive(Debug, Default)]
struct Reader {
    partial: BTreeMap<TurnId, String>,
    got: BTreeMap<Seq, String>,
    last: Seq,
}

impl Reader {
    fn read(&mut self, frames: impl IntoIterator<Item = ServerFrame>) -> Result<(), TestCaseError> {
        for frame in frames {
            let (seq, text) = match frame {
                ServerFrame::TurnChunk { chunk_id, delta, offset, .. } => {
                    let text = self.partial.entry(chunk_id).or_default();
                    prop_assert!(offset as usize <= text.len(), "no gap in a stream");
                    text.truncate(offset as usize);
                    text.push_str(&delta);
                    continue;
                }
                ServerFrame::TurnComplete(done) => (done.seq, self.partial[&done.chunk_id].clone()),
                ServerFrame::TetherTurn(turn) => (turn.seq, turn.content),
                other => return Err(TestCaseError::fail(format!("unexpected {other:?}"))),
            };
            prop_assert!(seq > self.last, "in order");
            self.last = seq;
            self.got.insert(seq, text);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn g2_no_schedule_of_translations_and_drops_loses_reorders_or_mixes_turns(
        steps in steps(), whole in any::<bool>(),
    ) {
        let mode = if whole { Mode::Whole } else { Mode::Chunks };
        let mut log: Vec<LoggedTurn> = Vec::new();
        let (mut confirmed, mut reader) = (0, Reader::default());
        let mut pings: Vec<[u8; 8]> = Vec::new();
        let mut d = delivery(mode, 0, 0);
        let pump = |d: &mut Delivery, log: &[LoggedTurn]| {
            let mut out = Vec::new();
            if d.held().is_none() {
                let mut unread: Vec<_> =
                    log.iter().filter(|t| t.seq > d.sent()).cloned().collect();
                let newest = unread.pop();
                unread.into_iter().for_each(|turn| out.extend(d.logged(turn)));
                newest.into_iter().for_each(|turn| d.hold(turn));
            }
            out
        };
        for step in steps.into_iter().chain([Step::Fail, Step::Pump, Step::Fail]) {
            let frames = match step {
                Step::Commit => {
                    let seq = 2 * (log.len() as Seq + 1);
                    log.push(turn(seq, &format!("original {seq}")));
                    Vec::new()
                }
                Step::Pump => pump(&mut d, &log),
                Step::More => d.translated("tr").into_iter().collect(),
                Step::Complete => d.release(true).1,
                Step::Fail => d.release(false).1,
                Step::Answer => {
                    for ping in std::mem::take(&mut pings) {
                        let seq: Option<Seq> = d.pong(&ping);
                        prop_assert!(seq.is_none_or(|seq| reader.got.contains_key(&seq)));
                        confirmed = seq.unwrap_or(confirmed);
                    }
                    Vec::new()
                }
                Step::Break => {
                    (pings, reader.last) = (Vec::new(), confirmed);
                    d = delivery(mode, confirmed, log.last().map_or(0, |t| t.seq));
                    Vec::new()
                }
            };
            reader.read(frames)?;
            pings.extend(d.barrier());
        }
        for turn in &log {
            let got = reader.got.get(&turn.seq).map_or("", String::as_str);
            let translated = !got.is_empty() && got.replace("tr", "").is_empty();
            prop_assert!(got == turn.content || translated, "{} {got:?}", turn.seq);
        }
    }
}
