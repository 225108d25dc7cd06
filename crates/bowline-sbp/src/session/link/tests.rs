//! The table of the link, and what holds under loss, repetition, reordering and another receiver.

use proptest::prelude::*;

use super::*;

const PAUSE: Duration = Duration::from_millis(100);
const PACE: Pace = Pace { first: PAUSE, longest: Duration::from_secs(2) };

#[test]
fn g11_items_of_any_number_and_size_go_in_bounded_messages_and_all_go() {
    let (start, half) = (Instant::now(), MESSAGE / 2);
    let mut sender = LinkSender::new(PACE, u32::MAX);
    for (item, bytes) in [half, half, 1, 3 * MESSAGE, 1, 1].into_iter().enumerate() {
        sender.push(item, bytes, start);
    }
    let numbers = |due: Vec<(u64, usize)>| due.iter().map(|(number, _)| *number).collect();
    let mut messages: Vec<Vec<u64>> = Vec::new();
    while sender.deadline() == Some(start) {
        messages.push(numbers(sender.due(start)));
    }
    assert_eq!(messages, [vec![1, 2], vec![3], vec![4], vec![5, 6]]);
    // Again: the first ones, and the next when these have arrived.
    let mut now = start + PAUSE;
    assert_eq!(numbers(sender.due(now)), [1, 2]);
    assert!(sender.due(now).is_empty());
    sender.acknowledged(2, now);
    now = sender.deadline().unwrap().max(now);
    assert_eq!(numbers(sender.due(now)), [3]);
}

/// One that always waits as long as it may.
fn sender(items: u64, now: Instant) -> LinkSender<u64> {
    let mut sender = LinkSender::new(PACE, u32::MAX);
    for item in 1..=items {
        assert_eq!(sender.push(item * 10, 1, now), item);
    }
    sender
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
    let mut sender = sender(2, start);
    assert_eq!(sender.deadline(), Some(start));
    assert_eq!(sender.due(start), [(1, 10), (2, 20)]);
    assert_eq!((sender.due(start), sender.deadline()), (vec![], Some(start + PAUSE)));
    assert_eq!(sender.due(start + PAUSE), [(1, 10), (2, 20)]);
    sender.acknowledged(1, start + PAUSE);
    assert_eq!((sender.base(), sender.len()), (2, 1));
    let next = start + PAUSE + PAUSE * 3 / 2;
    assert_eq!((sender.due(next - MILLI), sender.due(next)), (vec![], vec![(2, 20)]));
    sender.acknowledged(2, next);
    assert_eq!((sender.base(), sender.deadline(), sender.waits_since()), (3, None, None));
}

const MILLI: Duration = Duration::from_millis(1);

/// When one item is sent in the first ten seconds, in milliseconds.
fn times(mut sender: LinkSender<u64>, start: Instant) -> Vec<u64> {
    sender.push(1, 1, start);
    let at = |ms| start + Duration::from_millis(ms);
    (0..10_000).filter(|ms| !sender.due(at(*ms)).is_empty()).collect()
}

#[test]
fn waits_double_up_to_a_bound_and_are_spread() {
    let start = Instant::now();
    let late = times(LinkSender::new(PACE, u32::MAX), start);
    assert_eq!(late, [0, 100, 300, 700, 1500, 3100, 5100, 7100, 9100]);
    let early = times(LinkSender::new(PACE, 0), start);
    assert_eq!(early, [0, 50, 150, 350, 750, 1550, 2550, 3550, 4550, 5550, 6550, 7550, 8550, 9550]);
}

#[test]
fn waits_begin_anew_when_something_is_acknowledged_or_the_other_end_is_back() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut sender = sender(2, start);
    for ms in [0, 100, 300, 700] {
        assert_eq!(sender.due(at(ms)).len(), 2, "{ms}");
    }
    sender.heard_again();
    assert_eq!(sender.deadline(), Some(at(800)));
    assert_eq!(sender.due(at(800)).len(), 2);
    assert_eq!(sender.deadline(), Some(at(1000)));
    sender.acknowledged(1, at(810));
    // It took 810 ms, as far as is known: the next one may take as long.
    assert_eq!(sender.deadline(), Some(at(800 + 810 * 3 / 2)));
    sender.acknowledged(2, at(820));
    sender.push(30, 1, at(2000));
    sender.due(at(2000));
    sender.acknowledged(3, at(2010));
    sender.push(40, 1, at(3000));
    sender.due(at(3000));
    assert_eq!(sender.deadline(), Some(at(3100)));
}

#[test]
fn what_takes_its_usual_time_is_not_sent_again() {
    let start = Instant::now();
    let mut sender = sender(1, start);
    for item in 0..20_u32 {
        let sent = start + Duration::from_secs(2) * item;
        let copies = (0..1000).filter(|ms| !sender.due(sent + MILLI * *ms).is_empty()).count();
        // The first acknowledgement shows how long they take.
        assert_eq!(copies, if item == 0 { 4 } else { 1 }, "{item}");
        sender.acknowledged(99, sent + Duration::from_secs(1));
        sender.push(1, 1, sent + Duration::from_secs(2));
    }
}

#[test]
fn a_new_message_does_not_wait_for_the_pause_of_an_older_one() {
    let start = Instant::now();
    let mut sender = sender(1, start);
    sender.due(start);
    sender.push(20, 1, start);
    assert!(sender.deadline().is_some_and(|at| at <= start));
    assert_eq!(sender.due(start), [(2, 20)]);
}

#[test]
fn an_acknowledgement_that_comes_late_or_of_nothing_changes_nothing() {
    let start = Instant::now();
    let mut sender = sender(3, start);
    sender.acknowledged(2, start);
    sender.acknowledged(1, start);
    assert_eq!((sender.base(), sender.len()), (3, 1));
    sender.acknowledged(99, start);
    assert_eq!((sender.base(), sender.len()), (4, 0));
}

#[test]
fn another_receiver_gets_everything_that_is_not_acknowledged() {
    let start = Instant::now();
    let mut sender = sender(3, start);
    sender.due(start);
    sender.acknowledged(1, start);
    sender.restart();
    assert_eq!(sender.due(start), [(2, 20), (3, 30)]);
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
    sender: LinkSender<u64>,
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
            sender: LinkSender::new(PACE, 0),
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
        let base = self.sender.base();
        let due = self.sender.due(self.now);
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
                self.sender.push(self.pushed, 1, self.now);
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
                    self.sender.acknowledged(took, self.now);
                }
            }
            Event::Lose(_) | Event::Acknowledge(_) => {}
            Event::NewOwner => {
                self.owner += 1;
                self.taken.push(Vec::new());
                self.intake = Intake::default();
                self.sender.restart();
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
            world.send(PACE.longest.as_millis() as u64 * 2);
            let left = world.messages.len();
            (0..left).for_each(|_| world.arrive_first());
            let took = world.intake.took();
            world.sender.acknowledged(took, world.now);
        }
        prop_assert!(world.sender.is_empty());
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
