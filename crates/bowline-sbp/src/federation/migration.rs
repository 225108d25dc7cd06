//! The destination's half of a migration: a session comes from another gateway (SBP-L6-05, G7).
//!
//! One migration is one reservation at the origin. Its journal says how far it has come, so that it
//! goes on after a crash: `Reserving` before the origin hears of it, `Staged` together with the
//! session, which is stored but nobody's yet, and `Active` or `Dropped` at the end.
//!
//! Invariants
//! - The origin is asked to confirm only after the session was staged, and the session is active only
//!   after the origin has confirmed.
//! - A staged session is dropped only if the origin has refused, which it does for good
//!   ([`reservation`](super::reservation)): until it answers, nobody knows whose the session is.
//! - Several processes may carry out the same migration: all that they do is the same, and each change
//!   of the journal has the stage that it begins from.

use jiff::{SignedDuration, Timestamp};

use super::reservation::Refusal;
use crate::cid::Cid;

/// How far a migration has come, as its journal has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The origin may have a reservation.
    Reserving,
    /// The session is stored, and not live. The origin may have confirmed.
    Staged,
    /// The session is here.
    Active,
    /// The session is not here, and never will be by this migration.
    Dropped(Dropped),
}

/// Why a migration has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    Refused(Refusal),
    /// What the origin sent is not the reserved bundle, or cannot be stored.
    Unfit,
    /// The origin could not be reached, or the session was not free, for too long.
    GaveUp,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It begins, goes on after a crash, or has waited long enough.
    Woken,
    /// The origin has reserved that bundle.
    Reserved { cid: Cid },
    /// The origin has confirmed.
    Confirmed,
    /// The origin has refused.
    Refused(Refusal),
    /// The bundle is here, and is what was reserved.
    Fetched,
    /// The bundle is not what was reserved, or cannot be stored.
    Unfit,
    /// The origin cannot be reached, or has not answered in time. It may have heard everything.
    Unreachable,
    /// The origin has too much to do, and wants to be asked again then.
    Limited { until: Timestamp },
    /// The journal was asked to change, and is at this stage now.
    Recorded(Stage),
}

/// What is to be done. The end of it is the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Reserve,
    Fetch(Cid),
    /// In one transaction, if the journal is at the first stage: the journal is at the second. With
    /// `Staged` the session is stored, with `Active` it is live, with `Dropped` it is deleted.
    Record(Stage, Stage),
    Confirm,
    /// Try again then.
    Wait(Timestamp),
    /// Nothing more. `release`: tell the origin, once and without waiting for it.
    End {
        release: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Reserving,
    Fetching,
    Staging,
    Confirming,
    Recording { release: bool },
    Ended,
}

/// One migration, in the process that carries it out.
#[derive(Debug, Clone)]
pub struct Migration {
    stage: Stage,
    phase: Phase,
    /// How often in a row the origin could not be reached.
    failures: u32,
    gives_up_at: Timestamp,
}

impl Migration {
    /// A migration whose journal is at that stage. As long as nothing is staged, it gives up at that time.
    pub fn new(stage: Stage, gives_up_at: Timestamp) -> Self {
        Self { stage, phase: phase_of(stage), failures: 0, gives_up_at }
    }

    /// How far it has come, as far as this process knows.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    pub fn handle(&mut self, event: Event, now: Timestamp) -> Action {
        if !matches!(event, Event::Woken | Event::Unreachable | Event::Limited { .. }) {
            self.failures = 0;
        }
        let (phase, action) = match (self.phase, event) {
            (_, Event::Recorded(stage)) => {
                // Also if another process dropped it while this one had the reservation renewed: a migration that
                // was dropped is never confirmed.
                let is_open =
                    matches!(self.phase, Phase::Recording { release: true } | Phase::Staging);
                let release = is_open && matches!(stage, Stage::Dropped(why) if leaves_open(why));
                self.stage = stage;
                self.phase = phase_of(stage);
                return self.go_on(release);
            }
            (Phase::Reserving, Event::Reserved { cid }) => (Phase::Fetching, Action::Fetch(cid)),
            (Phase::Reserving | Phase::Confirming, Event::Refused(why)) if why.passes() => {
                self.retry(Dropped::Refused(why), now)
            }
            (Phase::Reserving, Event::Refused(refusal)) => self.drop(Dropped::Refused(refusal)),
            (Phase::Reserving | Phase::Fetching | Phase::Confirming, Event::Unreachable) => {
                self.retry(Dropped::GaveUp, now)
            }
            (Phase::Reserving | Phase::Fetching | Phase::Confirming, Event::Limited { until }) => {
                match self.retry(Dropped::GaveUp, now) {
                    (phase, Action::Wait(at)) => (phase, Action::Wait(at.max(soon(until, now)))),
                    gives_up => gives_up,
                }
            }
            (Phase::Fetching, Event::Fetched) => {
                (Phase::Staging, Action::Record(Stage::Reserving, Stage::Staged))
            }
            (Phase::Fetching | Phase::Staging, Event::Unfit) => self.drop(Dropped::Unfit),
            (Phase::Confirming, Event::Confirmed) => {
                let release = false;
                (Phase::Recording { release }, Action::Record(Stage::Staged, Stage::Active))
            }
            (Phase::Confirming, Event::Refused(refusal)) => self.drop(Dropped::Refused(refusal)),
            // Or an answer to a question that is not open any more.
            (_, _) => return self.go_on(false),
        };
        self.phase = phase;
        action
    }

    /// What is done next at the present stage.
    fn go_on(&mut self, release: bool) -> Action {
        self.phase = phase_of(self.stage);
        match self.stage {
            Stage::Reserving => Action::Reserve,
            Stage::Staged => Action::Confirm,
            Stage::Active => Action::End { release: false },
            Stage::Dropped(_) => Action::End { release },
        }
    }

    /// Asks again after a while. What was fetched is fetched again: the reservation may be another's by then.
    fn retry(&mut self, why: Dropped, now: Timestamp) -> (Phase, Action) {
        if self.stage == Stage::Reserving && now >= self.gives_up_at {
            return self.drop(why);
        }
        let delay = FIRST_DELAY.saturating_mul(1 << self.failures.min(16)).min(LONGEST_DELAY);
        self.failures = self.failures.saturating_add(1);
        let at = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
        (phase_of(self.stage), Action::Wait(at))
    }

    fn drop(&self, why: Dropped) -> (Phase, Action) {
        let release = leaves_open(why);
        (Phase::Recording { release }, Action::Record(self.stage, Stage::Dropped(why)))
    }
}

/// That time, if it is not too far away.
fn soon(until: Timestamp, now: Timestamp) -> Timestamp {
    until.min(now.saturating_add(LONGEST_DELAY).unwrap_or(Timestamp::MAX))
}

/// Whether there may be something to release at the origin: not where it has refused for good.
fn leaves_open(why: Dropped) -> bool {
    !matches!(why, Dropped::Refused(refusal) if !refusal.passes())
}

/// Where a process stands that knows only the journal.
fn phase_of(stage: Stage) -> Phase {
    match stage {
        Stage::Reserving => Phase::Reserving,
        Stage::Staged => Phase::Confirming,
        Stage::Active | Stage::Dropped(_) => Phase::Ended,
    }
}

const FIRST_DELAY: SignedDuration = SignedDuration::from_millis(100);
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// What a new process does, event by event.
    fn goes(stage: Stage, events: &[Event]) -> Vec<Action> {
        let mut migration = Migration::new(stage, at(100));
        events.iter().map(|event| migration.handle(*event, at(0))).collect()
    }

    const DROPPED: Stage = Stage::Dropped(Dropped::Unfit);

    #[test]
    fn sbp_l6_05_a_session_is_stored_then_confirmed_then_active() {
        let cid = Cid::of_bytes(b"bundle");
        let events = [
            Event::Woken,
            Event::Reserved { cid },
            Event::Fetched,
            Event::Recorded(Stage::Staged),
            Event::Confirmed,
            Event::Recorded(Stage::Active),
        ];
        let actions = [
            Action::Reserve,
            Action::Fetch(cid),
            Action::Record(Stage::Reserving, Stage::Staged),
            Action::Confirm,
            Action::Record(Stage::Staged, Stage::Active),
            Action::End { release: false },
        ];
        assert_eq!(goes(Stage::Reserving, &events), actions);
    }

    #[test]
    fn sbp_l6_05_after_a_crash_the_journal_says_where_to_go_on() {
        for (stage, action) in [
            (Stage::Reserving, Action::Reserve),
            (Stage::Staged, Action::Confirm),
            (Stage::Active, Action::End { release: false }),
            (DROPPED, Action::End { release: false }),
        ] {
            assert_eq!(goes(stage, &[Event::Woken]), [action]);
        }
    }

    #[test]
    fn g7_what_is_staged_is_dropped_only_if_the_origin_has_refused() {
        let mut migration = Migration::new(Stage::Staged, at(100));
        assert_eq!(migration.handle(Event::Woken, at(0)), Action::Confirm);
        let mut now = at(0);
        for _ in 0..50 {
            let Action::Wait(then) = migration.handle(Event::Unreachable, now) else {
                panic!("the origin has not answered");
            };
            assert!(then > now && then <= now + LONGEST_DELAY);
            now = then;
            assert_eq!(migration.handle(Event::Woken, now), Action::Confirm);
        }
        let dropped = Stage::Dropped(Dropped::Refused(Refusal::Ended));
        let refused = migration.handle(Event::Refused(Refusal::Ended), now);
        assert_eq!(refused, Action::Record(Stage::Staged, dropped));
        let recorded = migration.handle(Event::Recorded(dropped), now);
        assert_eq!(recorded, Action::End { release: false });
    }

    #[test]
    fn sbp_l6_05_before_that_it_gives_up_in_time_and_says_so() {
        for (event, why) in [
            (Event::Unreachable, Dropped::GaveUp),
            (Event::Refused(Refusal::Working), Dropped::Refused(Refusal::Working)),
            (Event::Refused(Refusal::Reserved), Dropped::Refused(Refusal::Reserved)),
        ] {
            let mut migration = Migration::new(Stage::Reserving, at(100));
            assert!(matches!(migration.handle(event, at(99)), Action::Wait(_)));
            let dropped = Stage::Dropped(why);
            let gives_up = migration.handle(event, at(100));
            assert_eq!(gives_up, Action::Record(Stage::Reserving, dropped));
            let recorded = migration.handle(Event::Recorded(dropped), at(100));
            assert_eq!(recorded, Action::End { release: true });
        }
    }

    #[test]
    fn sbp_l6_06_a_bundle_that_is_not_what_was_reserved_is_not_stored() {
        let cid = Cid::of_bytes(b"bundle");
        let events =
            [Event::Woken, Event::Reserved { cid }, Event::Unfit, Event::Recorded(DROPPED)];
        let actions = [
            Action::Reserve,
            Action::Fetch(cid),
            Action::Record(Stage::Reserving, DROPPED),
            Action::End { release: true },
        ];
        assert_eq!(goes(Stage::Reserving, &events), actions);
    }

    #[test]
    fn sbp_l6_05_what_another_process_has_dropped_is_released_by_the_one_that_fetched() {
        let cid = Cid::of_bytes(b"bundle");
        for (why, release) in [(Dropped::GaveUp, true), (Dropped::Refused(Refusal::Ended), false)] {
            let dropped = Event::Recorded(Stage::Dropped(why));
            let events = [Event::Woken, Event::Reserved { cid }, Event::Fetched, dropped];
            let last = goes(Stage::Reserving, &events).pop();
            assert_eq!(last, Some(Action::End { release }), "{why:?}");
        }
    }

    #[test]
    fn sbp_l6_05_an_origin_that_has_too_much_to_do_is_asked_again_when_it_says() {
        let cid = Cid::of_bytes(b"bundle");
        for (until, asked) in [(7, 7), (1_000, 30)] {
            let limited = Event::Limited { until: at(until) };
            let events = [Event::Woken, Event::Reserved { cid }, limited, Event::Woken];
            let actions = goes(Stage::Reserving, &events);
            assert_eq!(actions[2..], [Action::Wait(at(asked)), Action::Reserve]);
            let confirming = goes(Stage::Staged, &[Event::Woken, limited, Event::Woken]);
            assert_eq!(confirming[1..], [Action::Wait(at(asked)), Action::Confirm]);
        }
        let mut migration = Migration::new(Stage::Reserving, at(100));
        let late = migration.handle(Event::Limited { until: at(200) }, at(100));
        let dropped = Stage::Dropped(Dropped::GaveUp);
        assert_eq!(late, Action::Record(Stage::Reserving, dropped), "not for ever");
    }

    #[test]
    fn sbp_l6_05_another_process_may_have_come_further() {
        let cid = Cid::of_bytes(b"bundle");
        let events = [
            Event::Woken,
            Event::Reserved { cid },
            Event::Unreachable,
            Event::Woken,
            Event::Reserved { cid },
            Event::Fetched,
            Event::Recorded(Stage::Active),
        ];
        let last = goes(Stage::Reserving, &events).pop();
        assert_eq!(last, Some(Action::End { release: false }));
    }
}
