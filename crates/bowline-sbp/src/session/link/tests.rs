//! The table of the link, and what holds under loss, repetition, reordering and another receiver.

use proptest::prelude::*;

use super::*;

const PAUSE: Duration = Duration::from_millis(100);

fn outbox(items: u64, now: Instant) -> Outbox<u64> {
    let mut outbox = Outbox::new(PAUSE);
    for item in 1..=items {
        assert_eq!(outbox.push(item * 10, now), item);
    }
    outbox
}

#[test]
fn a_receiver_takes_what_the_table_says() {
    let mut intake = Intake { took: 4 };
    for (number, base, arrival) in [
        (3, 1, Arrival::Again),
        (4, 4, Arrival::Again),
        (6, 5, Arrival::Early),
        (5, 2, Arrival::Take),
        (5, 5, Arrival::Again),
        (9, 8, Arrival::Early),
        (8, 8, Arrival::Take),
        (9, 8, Arrival::Take),
    ] {
        assert_eq!(intake.arrived(number, base), arrival, "{number} of {base}");
    }
    assert_eq!(intake.took(), 9);
}

#[test]
fn a_message_is_sent_at_once_and_again_after_each_pause_until_it_is_acknowledged() {
    let start = Instant::now();
    let mut outbox = outbox(2, start);
    assert_eq!(outbox.deadline(), Some(start));
    assert_eq!(outbox.due(start), [(1, 10), (2, 20)]);
    assert_eq!((outbox.due(start), outbox.deadline()), (vec![], Some(start + PAUSE)));
    assert_eq!(outbox.due(start + PAUSE), [(1, 10), (2, 20)]);
    outbox.acknowledged(1);
    assert_eq!((outbox.base(), outbox.len()), (2, 1));
    assert_eq!(outbox.due(start + PAUSE * 2), [(2, 20)]);
    outbox.acknowledged(2);
    assert_eq!((outbox.base(), outbox.deadline(), outbox.waits_since()), (3, None, None));
}

#[test]
fn a_new_message_does_not_wait_for_the_pause_of_an_older_one() {
    let start = Instant::now();
    let mut outbox = outbox(1, start);
    outbox.due(start);
    outbox.push(20, start);
    assert!(outbox.deadline().is_some_and(|at| at <= start));
    assert_eq!(outbox.due(start), [(2, 20)]);
}

#[test]
fn an_acknowledgement_that_comes_late_or_of_nothing_changes_nothing() {
    let start = Instant::now();
    let mut outbox = outbox(3, start);
    outbox.acknowledged(2);
    outbox.acknowledged(1);
    assert_eq!((outbox.base(), outbox.len()), (3, 1));
    outbox.acknowledged(99);
    assert_eq!((outbox.base(), outbox.len()), (4, 0));
}

#[test]
fn another_receiver_gets_everything_that_is_not_acknowledged() {
    let start = Instant::now();
    let mut outbox = outbox(3, start);
    outbox.due(start);
    outbox.acknowledged(1);
    outbox.restart();
    assert_eq!(outbox.due(start), [(2, 20), (3, 30)]);
    let mut intake = Intake::default();
    assert_eq!(intake.arrived(3, 2), Arrival::Early);
    assert_eq!((intake.arrived(2, 2), intake.arrived(3, 2)), (Arrival::Take, Arrival::Take));
}

/// What happens in a schedule.
#[derive(Debug, Clone)]
enum Event {
    /// The sender has something new.
    Push,
    /// Time passes, and what is due is sent.
    Send(u64),
    /// One of the messages on their way arrives; `again`: a copy stays on its way.
    Arrive { which: usize, again: bool },
    /// One is lost.
    Lose(usize),
    /// An acknowledgement arrives.
    Acknowledge(usize),
    /// The session gets another owner.
    NewOwner,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Push),
        3 => (0..200_u64).prop_map(Event::Send),
        6 => (any::<usize>(), any::<bool>())
            .prop_map(|(which, again)| Event::Arrive { which, again }),
        2 => any::<usize>().prop_map(Event::Lose),
        3 => any::<usize>().prop_map(Event::Acknowledge),
        1 => Just(Event::NewOwner),
    ]
}

/// A sender, one owner after another, and the network between them.
struct World {
    now: Instant,
    outbox: Outbox<u64>,
    pushed: u64,
    intake: Intake,
    /// Messages on their way, to whoever is the owner when they arrive: number, base, item.
    messages: Vec<(u64, u64, u64)>,
    /// Acknowledgements on their way, with the owner that gave them.
    acknowledgements: Vec<(usize, u64)>,
    owner: usize,
    /// What each owner took, in order.
    taken: Vec<Vec<u64>>,
}

impl World {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            outbox: Outbox::new(PAUSE),
            pushed: 0,
            intake: Intake::default(),
            messages: Vec::new(),
            acknowledgements: Vec::new(),
            owner: 0,
            taken: vec![Vec::new()],
        }
    }

    fn send(&mut self, later: u64) {
        self.now += Duration::from_millis(later);
        let base = self.outbox.base();
        let due = self.outbox.due(self.now);
        self.messages.extend(due.into_iter().map(|(number, item)| (number, base, item)));
    }

    fn arrive(&mut self, which: usize, again: bool) {
        if self.messages.is_empty() {
            return;
        }
        let at = which % self.messages.len();
        let (number, base, item) = self.messages[at];
        if !again {
            self.messages.swap_remove(at);
        }
        if self.intake.arrived(number, base) == Arrival::Take {
            self.taken[self.owner].push(item);
        }
        self.acknowledgements.push((self.owner, self.intake.took()));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Push => {
                self.pushed += 1;
                self.outbox.push(self.pushed, self.now);
            }
            Event::Send(later) => self.send(later),
            Event::Arrive { which, again } => self.arrive(which, again),
            Event::Lose(which) if !self.messages.is_empty() => {
                self.messages.swap_remove(which % self.messages.len());
            }
            Event::Acknowledge(which) if !self.acknowledgements.is_empty() => {
                let at = which % self.acknowledgements.len();
                let (owner, took) = self.acknowledgements.swap_remove(at);
                // What an earlier owner says is not asked for any more.
                if owner == self.owner {
                    self.outbox.acknowledged(took);
                }
            }
            Event::Lose(_) | Event::Acknowledge(_) => {}
            Event::NewOwner => {
                self.owner += 1;
                self.taken.push(Vec::new());
                self.intake = Intake::default();
                self.outbox.restart();
            }
        }
    }
}

proptest! {
    #[test]
    fn g17_each_owner_takes_in_order_and_once_whatever_the_network_does(
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        // The network recovers: everything that was sent reaches an owner.
        for _ in 0..3 {
            world.send(PAUSE.as_millis() as u64);
            let left = world.messages.len();
            (0..left).for_each(|_| world.arrive_first());
            let took = world.intake.took();
            world.outbox.acknowledged(took);
        }
        prop_assert!(world.outbox.is_empty());
        for taken in &world.taken {
            prop_assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
        }
        let all: std::collections::BTreeSet<u64> = world.taken.iter().flatten().copied().collect();
        prop_assert_eq!(all.len() as u64, world.pushed, "nothing is skipped");
    }
}

impl World {
    /// The oldest message arrives.
    fn arrive_first(&mut self) {
        let (number, base, item) = self.messages.remove(0);
        if self.intake.arrived(number, base) == Arrival::Take {
            self.taken[self.owner].push(item);
        }
    }
}
