//! Model test: the reader against the gateway's delivery, over a connection that fails.

use super::tests::{SESSION, attached, id, logged};
use super::*;
use bowline_sbp::delivery::{Delivery, LiveText, LoggedTurn, Mode};
use proptest::prelude::*;

/// Events around one session, in any order.
#[derive(Debug, Clone)]
enum Act {
    /// The model adds text to the running turn.
    Generate(u8),
    /// The running turn is committed.
    Commit,
    /// The gateway reads its log and the live text.
    Pump,
    /// The network delivers this many frames to the surface.
    Carry(u8),
    /// The surface's acknowledgements reach the gateway.
    Acknowledge,
    /// The socket fails; frames in flight are lost in both directions.
    Break,
    /// The gateway restarts and runs the turn again, with another answer.
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (1u8..5).prop_map(Act::Generate),
        2 => Just(Act::Commit),
        4 => Just(Act::Pump),
        4 => (1u8..6).prop_map(Act::Carry),
        2 => Just(Act::Acknowledge),
        1 => Just(Act::Break),
        1 => Just(Act::Restart),
    ];
    proptest::collection::vec(act, 1..200)
}

/// A gateway, a connection, a reader and the program.
#[derive(Debug, Default)]
struct World {
    log: Vec<LoggedTurn>,
    running: String,
    delivered: Seq,
    wire: VecDeque<ServerFrame>,
    acks: Vec<Seq>,
    reader: Reader,
    showing: String,
    whole: Vec<(Seq, String)>,
}

impl World {
    fn head(&self) -> Seq {
        self.log.last().map_or(0, |turn| turn.seq)
    }

    fn attach(&mut self, mode: Mode) -> Delivery {
        self.wire = [attached()].into();
        self.acks.clear();
        Delivery::new(SESSION, mode, self.delivered, self.head())
    }

    fn pump(&mut self, d: &mut Delivery) {
        let unread: Vec<_> = self.log.iter().filter(|t| t.seq > d.sent()).cloned().collect();
        for turn in unread {
            self.wire.extend(d.logged(turn));
        }
        let seq = self.head() + 2;
        let live = LiveText {
            turn_id: id(seq),
            seq,
            attempt: 1,
            from: 0,
            text: &self.running,
            step: seq,
            model: "m",
        };
        self.wire.extend(d.live(live));
    }

    fn carry(&mut self, most: usize) {
        for frame in self.wire.drain(..most.min(self.wire.len())) {
            for step in self.reader.read(frame).unwrap() {
                match step {
                    Step::Give(Event::Chunk { text, restarted, .. }) => {
                        if restarted {
                            self.showing.clear();
                        }
                        self.showing.push_str(&text);
                    }
                    Step::Give(Event::Turn(turn)) => {
                        self.showing.clear();
                        self.whole.push((turn.seq, turn.content));
                    }
                    Step::Give(Event::Complete(done)) => {
                        self.whole.push((done.seq, std::mem::take(&mut self.showing)));
                    }
                    Step::Say(ClientFrame::Ack { seq }) => self.acks.push(seq),
                    Step::Give(_) | Step::Say(_) | Step::Settle(_) | Step::Open(_) => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn g2_g3_the_program_has_every_turn_once_in_order_whatever_breaks(
        acts in acts(), streams in any::<bool>(),
    ) {
        let mode = if streams { Mode::Chunks } else { Mode::Whole };
        let mut world = World::default();
        let mut d = world.attach(mode);
        for (n, act) in acts.into_iter().enumerate() {
            match act {
                Act::Generate(n) => world.running.extend("aé…".chars().cycle().take(n.into())),
                Act::Commit => {
                    let turn = logged(world.head() + 2, &std::mem::take(&mut world.running));
                    world.log.push(turn);
                }
                Act::Pump => world.pump(&mut d),
                Act::Carry(n) => world.carry(n.into()),
                Act::Acknowledge => for seq in std::mem::take(&mut world.acks) {
                    world.delivered = d.ack(seq).unwrap_or(world.delivered);
                },
                Act::Break => d = world.attach(mode),
                Act::Restart => {
                    d = world.attach(mode);
                    world.running = format!("a{n}");
                }
            }
        }
        // At the end the network works again.
        d = world.attach(mode);
        world.pump(&mut d);
        world.carry(usize::MAX);
        let log: Vec<_> = world.log.into_iter().map(|turn| (turn.seq, turn.content)).collect();
        prop_assert_eq!(world.whole, log);
        prop_assert_eq!(world.showing, if streams { world.running } else { String::new() });
    }
}
