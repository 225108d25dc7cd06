use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

fn turn_id(n: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(n)))
}

fn logged(seq: Seq, content: &str) -> LoggedTurn {
    LoggedTurn {
        seq,
        turn_id: turn_id(seq),
        role: "assistant".into(),
        content: content.into(),
        model: None,
        created_at: Timestamp::UNIX_EPOCH,
        step_count: seq / 2,
        cost_usd: 0.0,
        status: TurnStatus::Complete,
    }
}

fn live(seq: Seq, attempt: u32, text: &str) -> LiveText<'_> {
    LiveText { turn_id: turn_id(seq), seq, attempt, from: 0, text, step: seq / 2, model: "m" }
}

fn delivery(mode: Mode, delivered: Seq, head: Seq) -> Delivery {
    Delivery::new(SessionId(Uuid::nil()), mode, delivered, head)
}

#[test]
fn sbp_l2_06_a_turn_is_confirmed_only_by_the_pong_of_a_later_barrier() {
    let mut d = delivery(Mode::Chunks, 0, 4);
    d.logged(logged(2, "a"));
    let first = d.barrier().unwrap();
    assert_eq!(d.barrier(), None, "nothing new to prove");
    d.logged(logged(4, "b"));
    assert_eq!(d.pong(&first), Some(2), "the second turn is not proven by the first barrier");
    let second = d.barrier().unwrap();
    assert_eq!(d.pong(&[9; 8]), None, "a pong nobody asked for");
    assert_eq!(d.pong(b"short"), None);
    assert_eq!(d.pong(&second), Some(4));
    assert_eq!(d.pong(&second), None, "a pong counts once");
}

#[test]
fn g5_pongs_are_cumulative_and_acks_cannot_overreach() {
    let mut d = delivery(Mode::Chunks, 0, 9);
    for seq in [2, 4, 6] {
        d.logged(logged(seq, "x"));
        d.barrier().unwrap();
    }
    assert_eq!(d.pong(&2u64.to_be_bytes()), Some(4));
    assert_eq!(d.pong(&1u64.to_be_bytes()), None);
    assert_eq!(d.ack(1_000_000), Some(6));
    assert_eq!(d.ack(3), None, "never back");
}

#[test]
fn sbp_l2_05_pending_turns_come_whole_and_live_ones_in_chunks() {
    let mut d = delivery(Mode::Chunks, 0, 2);
    assert!(matches!(d.logged(logged(2, "old"))[..], [ServerFrame::TetherTurn(_)]));
    assert!(matches!(
        d.logged(logged(4, "new"))[..],
        [ServerFrame::TurnChunk { offset: 0, .. }, ServerFrame::TurnComplete(_)]
    ));
    assert!(d.logged(logged(4, "new")).is_empty(), "once per attachment");
}

#[test]
fn sbp_l2_08_a_surface_that_comes_mid_sentence_gets_what_exists_then_the_rest() {
    let mut d = delivery(Mode::Chunks, 0, 1);
    let frames = d.live(live(2, 1, "Hé"));
    let [ServerFrame::TurnChunk { delta, offset: 0, .. }] = &frames[..] else { panic!() };
    assert_eq!(delta, "Hé");
    assert_eq!(d.live(live(2, 1, "Hé")), [], "nothing new");
    let frames = d.logged(logged(2, "Héllo"));
    let [ServerFrame::TurnChunk { delta, offset, .. }, ServerFrame::TurnComplete(_)] = &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!((delta.as_str(), *offset), ("llo", 3));
}

#[test]
fn sbp_l2_09_a_surface_without_streaming_gets_whole_turns_only() {
    let mut d = delivery(Mode::Whole, 0, 0);
    assert_eq!(d.live(live(2, 1, "abc")), []);
    assert!(matches!(d.logged(logged(2, "abcd"))[..], [ServerFrame::TetherTurn(_)]));
}

#[test]
fn sbp_l1_13_a_turn_that_is_run_again_is_said_to_be_and_starts_over() {
    let mut d = delivery(Mode::Chunks, 0, 1);
    d.live(live(2, 1, "first try"));
    let frames = d.live(live(2, 2, "second"));
    let [ServerFrame::TurnRestarted { .. }, ServerFrame::TurnChunk { delta, offset: 0, .. }] =
        &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!(delta, "second");
    // A surface that reconnects in the middle may have text of the earlier run.
    let mut back = delivery(Mode::Chunks, 0, 1);
    assert!(matches!(back.live(live(2, 2, "sec"))[0], ServerFrame::TurnRestarted { .. }));
    assert!(matches!(back.live(live(2, 2, "second"))[..], [ServerFrame::TurnChunk { .. }]));
}

#[test]
fn g18_an_answer_is_never_joined_to_the_beginning_of_another() {
    let mut d = delivery(Mode::Chunks, 0, 1);
    d.live(live(2, 1, "abc"));
    let frames = d.logged(logged(2, "xyz and more"));
    let [
        ServerFrame::TurnRestarted { .. },
        ServerFrame::TurnChunk { delta, offset: 0, .. },
        ServerFrame::TurnComplete(_),
    ] = &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!(delta, "xyz and more");
}

#[test]
fn sbp_l2_21_with_explicit_acks_a_pong_proves_nothing() {
    let mut d = delivery(Mode::Chunks, 0, 2).acked_explicitly(true);
    d.logged(logged(2, "a"));
    let ping = d.barrier().unwrap();
    assert_eq!(d.pong(&ping), None);
    assert_eq!(d.ack(2), Some(2));
}

#[test]
fn sbp_l2_20_questions_come_in_their_place_and_once() {
    let mut d = delivery(Mode::Chunks, 0, 4);
    let question = |seq| LoggedQuestion {
        seq,
        turn_id: turn_id(seq + 1),
        content: "why?".into(),
        author: None,
        created_at: Timestamp::UNIX_EPOCH,
    };
    assert!(matches!(d.question(question(1)), Some(ServerFrame::UserTurn { .. })));
    assert_eq!(d.question(question(1)), None, "once");
    assert_eq!(d.logged(logged(2, "because")).len(), 1);
    assert!(d.question(question(3)).is_some());
}

/// Events around one session, in any order.
#[derive(Debug, Clone)]
enum Step {
    /// The model adds text to the running turn.
    Generate(u8),
    /// The running turn is committed.
    Commit,
    /// The gateway wakes the surface's pump, which reads the log and the live text.
    Pump,
    /// The network delivers this many of the frames in flight.
    Carry(u8),
    /// The surface answers the pings it got.
    Answer,
    /// The socket fails: frames in flight are lost. The next attach starts from the store.
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u8..5).prop_map(Step::Generate),
        2 => Just(Step::Commit),
        4 => Just(Step::Pump),
        3 => (1u8..6).prop_map(Step::Carry),
        2 => Just(Step::Answer),
        1 => Just(Step::Break),
    ];
    proptest::collection::vec(step, 1..200)
}

/// In flight to the surface.
#[derive(Debug)]
enum Sent {
    Frame(Box<ServerFrame>),
    Ping([u8; 8]),
}

impl Sent {
    fn frame(frame: ServerFrame) -> Self {
        Sent::Frame(Box::new(frame))
    }
}

#[derive(Debug, Default)]
struct World {
    log: Vec<LoggedTurn>,
    running: String,
    delivered: Seq,
    wire: VecDeque<Sent>,
    pings: Vec<[u8; 8]>,
    /// What the surface received, over all its attachments.
    held: BTreeMap<Seq, String>,
    partial: BTreeMap<TurnId, String>,
    last_in_attachment: Seq,
}

impl World {
    fn head(&self) -> Seq {
        self.log.last().map_or(0, |t| t.seq)
    }

    fn pump(&mut self, d: &mut Delivery) {
        let unread: Vec<_> = self.log.iter().filter(|t| t.seq > d.sent()).cloned().collect();
        for turn in unread {
            self.wire.extend(d.logged(turn).into_iter().map(Sent::frame));
        }
        let seq = self.head() + 2;
        self.wire.extend(d.live(live(seq, 1, &self.running)).into_iter().map(Sent::frame));
        self.wire.extend(d.barrier().map(Sent::Ping));
    }

    fn receive(&mut self, frame: ServerFrame) -> Result<(), TestCaseError> {
        match frame {
            ServerFrame::TetherTurn(turn) => {
                prop_assert!(turn.seq > self.last_in_attachment, "strictly increasing");
                self.last_in_attachment = turn.seq;
                self.held.insert(turn.seq, turn.content);
            }
            ServerFrame::TurnChunk { chunk_id, delta, offset, .. } => {
                let text = self.partial.entry(chunk_id).or_default();
                prop_assert!(offset as usize <= text.len(), "no gap in a stream");
                text.truncate(offset as usize);
                text.push_str(&delta);
            }
            ServerFrame::TurnComplete(done) => {
                prop_assert!(done.seq > self.last_in_attachment, "strictly increasing");
                self.last_in_attachment = done.seq;
                self.held.insert(done.seq, self.partial[&done.chunk_id].clone());
            }
            other => prop_assert!(false, "unexpected {other:?}"),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn g2_no_schedule_of_turns_drops_and_pongs_loses_or_alters_a_turn(
        steps in steps(), whole in any::<bool>(),
    ) {
        let mode = if whole { Mode::Whole } else { Mode::Chunks };
        let mut world = World::default();
        let mut d = delivery(mode, 0, 0);
        for step in steps {
            match step {
                Step::Generate(n) => {
                    world.running.extend("aé…".chars().cycle().take(n.into()));
                }
                Step::Commit => {
                    let seq = world.head() + 2;
                    let text = std::mem::take(&mut world.running);
                    world.log.push(logged(seq, &text));
                }
                Step::Pump => world.pump(&mut d),
                Step::Carry(n) => for _ in 0..n {
                    match world.wire.pop_front() {
                        Some(Sent::Frame(frame)) => world.receive(*frame)?,
                        Some(Sent::Ping(payload)) => world.pings.push(payload),
                        None => break,
                    }
                },
                Step::Answer => for payload in std::mem::take(&mut world.pings) {
                    if let Some(seq) = d.pong(&payload) {
                        prop_assert!(seq > world.delivered, "the cursor never moves back");
                        for turn in world.log.iter().filter(|t| t.seq <= seq) {
                            prop_assert_eq!(world.held.get(&turn.seq), Some(&turn.content));
                        }
                        world.delivered = seq;
                    }
                },
                Step::Break => {
                    world.wire.clear();
                    world.pings.clear();
                    world.last_in_attachment = world.delivered;
                    d = delivery(mode, world.delivered, world.head());
                }
            }
        }
        // Once the network works again, the surface has everything, byte for byte.
        world.pump(&mut d);
        while let Some(sent) = world.wire.pop_front() {
            if let Sent::Frame(frame) = sent {
                world.receive(*frame)?;
            }
        }
        for turn in &world.log {
            prop_assert_eq!(world.held.get(&turn.seq), Some(&turn.content));
        }
    }
}
