//! A gateway that the session may move to: a journal for each migration, which survives every crash, and the
//! processes that carry migrations out.

use bowline_sbp::federation::migration::{Action, Event, Migration, Stage};
use bowline_sbp::federation::{GatewayId, ReservationId};
use bowline_sbp::id::Seq;
use jiff::{SignedDuration, Timestamp};

use super::network::{Answer, Body, Packet, Request};
use super::{Planted, World};

const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

#[derive(Debug)]
pub(super) struct Destination {
    pub(super) id: GatewayId,
    pub(super) journals: Vec<Journal>,
    processes: Vec<Process>,
    up: bool,
    /// No more memories fit: an import that writes some is refused.
    full: bool,
    serial: u64,
}

#[derive(Debug)]
pub(super) struct Journal {
    id: ReservationId,
    token: usize,
    pub(super) stage: Stage,
    /// The last entry of the stored session.
    pub(super) staged: Option<Seq>,
    /// Its import is to write memories, too.
    with_memory: bool,
}

#[derive(Debug)]
struct Process {
    serial: u64,
    journal: usize,
    migration: Migration,
    fetched: Option<Seq>,
    questions: u64,
    waits: Waits,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Waits {
    /// This is to be done next.
    Do(Action),
    /// For the answer to its last question.
    Answer,
    Until(Timestamp),
}

impl Destination {
    pub(super) fn new(id: &str) -> Self {
        let id = id.parse().unwrap();
        Self { id, journals: Vec::new(), processes: Vec::new(), up: true, full: false, serial: 0 }
    }

    pub(super) fn rests(&self) -> bool {
        self.processes.is_empty()
    }
}

impl World {
    /// Somebody shows a roaming token.
    pub(super) fn arrive(&mut self, at: usize) {
        let destination = &self.destinations[at];
        let open = |journal: &Journal| !matches!(journal.stage, Stage::Dropped(_));
        match destination.journals.iter().rposition(open) {
            _ if !destination.up => {}
            None => {
                let token = self.random.below(2);
                self.begin(at, token);
            }
            // Another process carries the same migration out: the request came again, elsewhere.
            Some(journal) if self.random.percent(30) => {
                self.tally.add("second process");
                self.start(at, journal);
            }
            Some(_) => {}
        }
    }

    /// The journal is written first, then the origin hears of the reservation.
    pub(super) fn begin(&mut self, at: usize, token: usize) {
        let id = ReservationId(self.random.uuid());
        let with_memory = !self.calm && self.random.percent(30);
        let destination = &mut self.destinations[at];
        let stage = Stage::Reserving;
        destination.journals.push(Journal { id, token, stage, staged: None, with_memory });
        let journal = destination.journals.len() - 1;
        self.start(at, journal);
    }

    fn start(&mut self, at: usize, journal: usize) {
        let now = self.now;
        let destination = &mut self.destinations[at];
        destination.serial += 1;
        let stage = destination.journals[journal].stage;
        let mut migration = Migration::new(stage, now.saturating_add(PATIENCE).unwrap());
        let action = migration.handle(Event::Woken, now);
        destination.processes.push(Process {
            serial: destination.serial,
            journal,
            migration,
            fetched: None,
            questions: 0,
            waits: Waits::Do(action),
        });
    }

    /// Other requests fill the memory of the agent, or make room in it.
    pub(super) fn fill(&mut self, at: usize) {
        self.destinations[at].full = self.random.percent(60);
    }

    pub(super) fn crash_destination(&mut self, at: usize) {
        let destination = &mut self.destinations[at];
        if std::mem::take(&mut destination.up) && !destination.processes.is_empty() {
            self.tally.add("destination crashed");
            let id = &self.destinations[at].id;
            self.say(|| format!("{id} crashes"));
        }
        self.destinations[at].processes.clear();
    }

    pub(super) fn recover(&mut self, at: usize) {
        self.origin.up = true;
        if !self.destinations[at].up {
            self.start_processes(at);
        }
    }

    /// All migrations that have not ended go on.
    pub(super) fn start_processes(&mut self, at: usize) {
        self.destinations[at].up = true;
        for journal in 0..self.destinations[at].journals.len() {
            match self.destinations[at].journals[journal].stage {
                Stage::Reserving => self.tally.add("resumed reserving"),
                Stage::Staged => self.tally.add("resumed staged"),
                Stage::Active | Stage::Dropped(_) => continue,
            }
            self.start(at, journal);
        }
    }

    /// One process waits no longer for its answer.
    pub(super) fn time_out(&mut self, at: usize) {
        let processes = self.destinations[at].processes.len();
        if processes == 0 {
            return;
        }
        let process = self.random.below(processes);
        if self.destinations[at].processes[process].waits == Waits::Answer {
            self.tally.add("timed out");
            let until = self.now.saturating_add(SignedDuration::from_secs(5)).unwrap();
            let event = match self.random.percent(20) {
                true => Event::Limited { until },
                false => Event::Unreachable,
            };
            self.feed(at, process, event);
        }
    }

    /// One process takes its next step.
    pub(super) fn work(&mut self, at: usize) {
        let processes = self.destinations[at].processes.len();
        if processes > 0 {
            let process = self.random.below(processes);
            let _worked = self.step_process(at, process);
        }
    }

    /// Every process takes a step. Returns whether any could.
    pub(super) fn all_work(&mut self, at: usize) -> bool {
        let mut worked = false;
        for process in (0..self.destinations[at].processes.len()).rev() {
            worked |= self.step_process(at, process);
        }
        worked
    }

    fn step_process(&mut self, at: usize, process: usize) -> bool {
        match self.destinations[at].processes[process].waits {
            Waits::Do(action) => self.carry_out_at(at, process, action),
            Waits::Until(then) if then <= self.now => self.feed(at, process, Event::Woken),
            // In calm every request is answered, but for those of earlier.
            Waits::Answer if self.calm && !self.network.waits() => {
                self.feed(at, process, Event::Unreachable);
            }
            Waits::Answer | Waits::Until(_) => return false,
        }
        true
    }

    fn carry_out_at(&mut self, at: usize, process: usize, action: Action) {
        let id = self.destinations[at].id.clone();
        self.say(|| format!("{id} does {action:?}"));
        let staged = self.planted == Some(Planted::ConfirmsUnstaged);
        match action {
            Action::Reserve => {
                let this = &self.destinations[at];
                let token = this.journals[this.processes[process].journal].token;
                self.ask(at, process, Request::Reserve(token));
            }
            Action::Fetch(_) => self.ask(at, process, Request::Fetch),
            Action::Confirm => self.ask(at, process, Request::Confirm),
            Action::Record(from, to) => {
                if staged && to == Stage::Staged {
                    self.ask(at, process, Request::Confirm);
                }
                if !self.calm && self.random.percent(4) {
                    self.tally.add("destination crashed before a write");
                    return self.crash_destination(at);
                }
                let stage = self.record(at, process, from, to);
                if !self.calm && self.random.percent(6) {
                    self.tally.add("destination crashed after a write");
                    return self.crash_destination(at);
                }
                let event = stage.map_or(Event::Unfit, Event::Recorded);
                self.feed(at, process, event);
            }
            Action::Wait(then) => {
                self.destinations[at].processes[process].waits = Waits::Until(then)
            }
            Action::End { release } => {
                if release {
                    self.ask(at, process, Request::Release);
                }
                let _ended = self.destinations[at].processes.swap_remove(process);
            }
        }
    }

    /// The stage at which the journal is then; none if the store refuses to import that.
    fn record(&mut self, at: usize, process: usize, from: Stage, to: Stage) -> Option<Stage> {
        let destination = &mut self.destinations[at];
        let Process { journal, fetched, .. } = destination.processes[process];
        let full = destination.full;
        let journal = &mut destination.journals[journal];
        match to {
            _ if journal.stage != from || !full || !journal.with_memory => {}
            Stage::Staged => {
                self.tally.add("refused to store");
                return None;
            }
            Stage::Active if self.planted == Some(Planted::RefusesConfirmed) => {
                return Some(journal.stage);
            }
            Stage::Active => {
                self.tally.add("active without its memories");
                journal.with_memory = false;
            }
            Stage::Reserving | Stage::Dropped(_) => {}
        }
        if journal.stage == from || self.planted == Some(Planted::OverwritesJournal) {
            journal.stage = to;
            match to {
                Stage::Staged => journal.staged = fetched,
                Stage::Dropped(_) => journal.staged = None,
                Stage::Reserving | Stage::Active => {}
            }
            if to == Stage::Dropped(bowline_sbp::federation::migration::Dropped::GaveUp) {
                self.tally.add("gave up");
            }
            if to == Stage::Staged && self.planted == Some(Planted::ActivatesStaged) {
                journal.stage = Stage::Active;
            }
        }
        Some(journal.stage)
    }

    fn ask(&mut self, at: usize, process: usize, request: Request) {
        let destination = &mut self.destinations[at];
        let this = &mut destination.processes[process];
        this.questions += 1;
        this.waits = Waits::Answer;
        self.network.send(Packet {
            destination: at,
            reservation: destination.journals[this.journal].id,
            process: this.serial,
            question: this.questions,
            body: Body::Request(request),
        });
    }

    pub(super) fn destination_hears(&mut self, packet: Packet, answer: Answer) {
        let destination = &mut self.destinations[packet.destination];
        let mut all = destination.processes.iter_mut();
        let Some(at) = all.position(|process| {
            process.serial == packet.process
                && process.questions == packet.question
                && process.waits == Waits::Answer
        }) else {
            return;
        };
        let event = match answer {
            Answer::Reserved(cid) => Event::Reserved { cid },
            Answer::Bundle(_, true) => {
                self.tally.add("unfit bundle");
                Event::Unfit
            }
            Answer::Bundle(seq, false) => {
                destination.processes[at].fetched = Some(seq);
                Event::Fetched
            }
            Answer::Confirmed => Event::Confirmed,
            Answer::Released => return,
            Answer::Refused(why) => Event::Refused(why),
        };
        self.feed(packet.destination, at, event);
    }

    fn feed(&mut self, at: usize, process: usize, event: Event) {
        let now = self.now;
        let planted = self.planted;
        let process = &mut self.destinations[at].processes[process];
        let drops = planted == Some(Planted::DropsUnanswered)
            && event == Event::Unreachable
            && process.migration.stage() == Stage::Staged;
        let action = if drops {
            let why = bowline_sbp::federation::migration::Dropped::GaveUp;
            Action::Record(Stage::Staged, Stage::Dropped(why))
        } else {
            process.migration.handle(event, now)
        };
        process.waits = Waits::Do(action);
    }
}
