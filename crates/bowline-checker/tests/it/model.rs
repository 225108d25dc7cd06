//! A gateway without a mistake, in memory: any schedule gives a history without an anomaly.

use bowline_checker::{
    Attachment, Entry, EntryKind, History, Log, Outcome, Received, Route, Status, check,
};
use proptest::prelude::*;

pub(crate) const SESSIONS: usize = 2;

/// One step of a schedule. The numbers choose among what is there.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Answer {
        session: usize,
    },
    Accept {
        session: usize,
    },
    Refuse {
        session: usize,
    },
    /// No answer, and then perhaps the same message again.
    Break {
        session: usize,
        stored: bool,
        again: bool,
    },
    /// Interrupted twice, given up, and run anew under the same key.
    GiveUp {
        session: usize,
    },
    Attach {
        session: usize,
    },
    Deliver {
        session: usize,
        most: usize,
    },
    Confirm {
        session: usize,
    },
    Crash,
}

pub(crate) fn schedule() -> impl Strategy<Value = Vec<Step>> {
    let session = 0..SESSIONS;
    let step = prop_oneof![
        4 => session.clone().prop_map(|session| Step::Answer { session }),
        2 => session.clone().prop_map(|session| Step::Accept { session }),
        1 => session.clone().prop_map(|session| Step::Refuse { session }),
        2 => (session.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(session, stored, again)| Step::Break { session, stored, again }),
        1 => session.clone().prop_map(|session| Step::GiveUp { session }),
        3 => session.clone().prop_map(|session| Step::Attach { session }),
        3 => (session.clone(), 1..4usize)
            .prop_map(|(session, most)| Step::Deliver { session, most }),
        2 => session.prop_map(|session| Step::Confirm { session }),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Runs the schedule, drains every session, and gives what was seen.
pub(crate) fn run(steps: &[Step]) -> History {
    let mut gateway = Gateway::default();
    steps.iter().for_each(|step| gateway.step(step));
    for session in 0..SESSIONS {
        gateway.attach(session);
        gateway.deliver(session, usize::MAX);
        gateway.confirm(session);
        let entries = gateway.logs[session].clone();
        gateway.history.ended(&name(session), Log { entries, drained: true });
    }
    gateway.history
}

pub(crate) fn name(session: usize) -> String {
    format!("session {session}")
}

#[derive(Default)]
struct Gateway {
    history: History,
    logs: [Vec<Entry>; SESSIONS],
    attached: [Option<Attachment>; SESSIONS],
    /// Up to where the attached surface was sent turns.
    sent: [u64; SESSIONS],
    confirmed: [u64; SESSIONS],
    counter: usize,
}

impl Gateway {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Answer { session } => {
                let (ask, text) = self.ask(session);
                let outcome = self.store(session, &text);
                self.history.told(ask, outcome);
            }
            Step::Accept { session } => {
                let (ask, text) = self.ask(session);
                let Outcome::Answered { turn_id, .. } = self.store(session, &text) else { return };
                self.history.told(ask, Outcome::Accepted { turn_id });
            }
            Step::Refuse { session } => {
                let (ask, _) = self.ask(session);
                self.history.told(ask, Outcome::Refused);
            }
            Step::Break { session, stored, again } => {
                let (ask, text) = self.ask(session);
                let before = stored.then(|| self.store(session, &text));
                self.history.told(ask, Outcome::Unknown);
                if again {
                    let outcome = before.unwrap_or_else(|| self.store(session, &text));
                    self.history.told(ask, outcome);
                }
            }
            Step::GiveUp { session } => {
                let (ask, text) = self.ask(session);
                self.store(session, &text);
                let note = self.logs[session].last_mut().unwrap();
                (note.kind, note.status) = (EntryKind::Note, Status::Interrupted);
                self.history.told(ask, Outcome::Unknown);
                let outcome = self.answer(session, &text);
                self.history.told(ask, outcome);
            }
            Step::Attach { session } => self.attach(session),
            Step::Deliver { session, most } => self.deliver(session, most),
            Step::Confirm { session } => self.confirm(session),
            Step::Crash => {
                self.attached = Default::default();
                self.history.restarted();
            }
        }
    }

    fn ask(&mut self, session: usize) -> (bowline_checker::Ask, String) {
        self.counter += 1;
        let text = format!("question {}", self.counter);
        (self.history.asked(session as u32, &name(session), &text), text)
    }

    fn store(&mut self, session: usize, text: &str) -> Outcome {
        self.append(session, self.counter + 1, EntryKind::Message, text);
        self.answer(session, text)
    }

    fn answer(&mut self, session: usize, text: &str) -> Outcome {
        self.counter += 1;
        let content = format!("answer to {text}");
        self.append(session, self.counter, EntryKind::Turn, &content);
        let seq = self.logs[session].len() as u64;
        Outcome::Answered { seq, turn_id: format!("turn {}", self.counter), content }
    }

    fn append(&mut self, session: usize, turn: usize, kind: EntryKind, content: &str) {
        let log = &mut self.logs[session];
        log.push(Entry {
            seq: log.len() as u64 + 1,
            turn_id: format!("turn {turn}"),
            kind,
            content: content.into(),
            status: Status::Complete,
            tethered: kind != EntryKind::Message,
            tools: Vec::new(),
        });
    }

    fn attach(&mut self, session: usize) {
        let attachment = self.history.attaching(&name(session));
        self.history.attached(attachment);
        self.attached[session] = Some(attachment);
        self.sent[session] = self.confirmed[session];
    }

    fn deliver(&mut self, session: usize, most: usize) {
        let Some(attachment) = self.attached[session] else { return };
        let after = self.sent[session];
        let pending = self.logs[session].iter().filter(|e| e.is_reply() && e.seq > after);
        for entry in pending.take(most) {
            self.sent[session] = entry.seq;
            let turn = Received {
                seq: entry.seq,
                turn_id: entry.turn_id.clone(),
                content: entry.content.clone(),
                route: Route::Tether,
            };
            self.history.received(attachment, turn);
        }
    }

    fn confirm(&mut self, session: usize) {
        let Some(attachment) = self.attached[session] else { return };
        self.confirmed[session] = self.sent[session];
        self.history.confirmed(attachment, self.sent[session]);
    }
}

proptest! {
    #[test]
    fn a_gateway_without_a_mistake_has_no_anomaly(steps in schedule()) {
        prop_assert_eq!(check(&run(&steps)), []);
    }
}
