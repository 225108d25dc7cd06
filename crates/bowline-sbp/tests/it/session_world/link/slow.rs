//! One link over a slow bus, by time: how often each command is carried, and how late it comes.
//!
//! A bus that is slow because it has much to carry must not be given more for that. The messages by which
//! the ends know that the other one is there come once a second.

use std::time::{Duration, Instant};

use bowline_sbp::session::{Arrival, Intake, LinkSender, Pace};

use super::{PACE, Random, SEEDS, variable};

const STEP: Duration = Duration::from_millis(5);
const ACKNOWLEDGE: Duration = Duration::from_millis(50);
const CUT_OFF: Duration = Duration::from_secs(3);
const ALIVE: Duration = Duration::from_secs(1);
/// Commands are sent for so long; then time to deliver them.
const BUSY: Duration = Duration::from_secs(40);
const ALL: Duration = Duration::from_secs(90);

#[derive(Debug, Clone, Copy)]
enum Carried {
    Command { number: u64, base: u64 },
    Took(u64),
    Alive,
}

#[derive(Debug)]
struct Slow {
    random: Random,
    begun: Instant,
    now: Instant,
    latency: Duration,
    /// Of a hundred messages.
    lost: usize,
    /// Nothing arrives meanwhile.
    cut: Option<(Duration, Duration)>,
    sender: LinkSender<()>,
    intake: Intake,
    on_the_way: Vec<(Instant, Carried)>,
    /// When the last message of each direction arrives.
    last: [Instant; 2],
    acknowledge: Option<Instant>,
    heard: Instant,
    /// How often commands were carried; and those that were sent after the first acknowledgement.
    copies: Vec<u32>,
    known_from: Option<usize>,
    /// When each was taken.
    taken: Vec<Duration>,
}

impl Slow {
    fn new(seed: u64, pace: Pace, latency: Duration) -> Self {
        let now = Instant::now();
        let mut random = Random::new(seed);
        let spread = random.below(1 << 32) as u32;
        Self {
            random,
            begun: now,
            now,
            latency,
            lost: 0,
            cut: None,
            sender: LinkSender::new(pace, spread),
            intake: Intake::default(),
            on_the_way: Vec::new(),
            last: [now; 2],
            acknowledge: None,
            heard: now,
            copies: Vec::new(),
            known_from: None,
            taken: Vec::new(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.now - self.begun
    }

    fn carry(&mut self, carried: Carried) {
        let is_cut = self.cut.is_some_and(|(from, to)| (from..to).contains(&self.elapsed()));
        if is_cut || self.random.percent(self.lost) {
            return;
        }
        let percent = 80 + self.random.below(41) as u32;
        let to_owner = matches!(carried, Carried::Command { .. });
        // A bus keeps the order.
        let last = &mut self.last[usize::from(to_owner)];
        *last = (*last).max(self.now + self.latency * percent / 100);
        self.on_the_way.push((*last, carried));
    }

    fn run(&mut self) {
        let mut alive = self.now;
        while self.elapsed() < ALL {
            self.now += STEP;
            if self.elapsed() < BUSY && self.random.percent(2) {
                self.sender.push((), 1, self.now);
                self.copies.push(0);
            }
            if self.now - alive >= ALIVE {
                alive = self.now;
                self.carry(Carried::Alive);
            }
            let base = self.sender.base();
            for (number, ()) in self.sender.due(self.now) {
                self.copies[number as usize - 1] += 1;
                self.carry(Carried::Command { number, base });
            }
            if self.acknowledge.take_if(|at| *at <= self.now).is_some() {
                self.carry(Carried::Took(self.intake.took()));
            }
            let now = self.now;
            let here: Vec<_> = self.on_the_way.extract_if(.., |(at, _)| *at <= now).collect();
            here.into_iter().for_each(|(_, carried)| self.arrives(carried));
        }
    }

    fn arrives(&mut self, carried: Carried) {
        match carried {
            Carried::Command { number, base } => {
                if self.intake.arrived(number, base) == Arrival::Take {
                    self.taken.push(self.elapsed());
                }
                self.acknowledge.get_or_insert(self.now + ACKNOWLEDGE);
            }
            Carried::Took(_) | Carried::Alive => {
                if self.now - self.heard > CUT_OFF {
                    self.sender.heard_again();
                }
                self.heard = self.now;
                if let Carried::Took(took) = carried {
                    self.known_from.get_or_insert(self.copies.len());
                    self.sender.acknowledged(took, self.now);
                }
            }
        }
    }

    /// How often a command was carried, in the mean: all, and those that were sent when it was known how
    /// long acknowledgements take.
    fn carried(&self) -> (f64, f64) {
        let mean = |copies: &[u32]| copies.iter().sum::<u32>() as f64 / copies.len().max(1) as f64;
        (mean(&self.copies), mean(&self.copies[self.known_from.unwrap_or(0)..]))
    }
}

#[test]
fn g11_a_slow_bus_is_not_given_more_to_carry() {
    let seeds = variable("BOWLINE_SIM_SEEDS").unwrap_or(SEEDS).min(SEEDS);
    let fixed = Duration::from_millis(300);
    let before = Pace { first: fixed, longest: fixed };
    let (mut most, mut planted): (f64, f64) = (0.0, 0.0);
    for seed in 0..seeds {
        let latency = Duration::from_millis(Random::new(seed).below(2000) as u64 + 1);
        let mut world = Slow::new(seed, PACE, latency);
        world.run();
        assert_eq!(world.taken.len(), world.copies.len(), "schedule {seed}");
        let (all, known) = world.carried();
        assert!(all < 2.0 && known < 1.1, "{all} and {known} at {latency:?}, schedule {seed}");
        most = most.max(all);
        if seed < 10 {
            let mut world = Slow::new(seed, before, latency);
            world.run();
            planted = planted.max(world.carried().0);
        }
    }
    println!("a command is carried {most:.2} times at most; at a fixed pace {planted:.2} times");
    assert!(planted > 4.0, "a fixed pace is found");
}

#[test]
fn g17_everything_is_taken_soon_after_a_slow_and_lossy_bus_was_cut_off() {
    let seeds = variable("BOWLINE_SIM_SEEDS").unwrap_or(SEEDS).min(SEEDS);
    for seed in 0..seeds {
        let mut choose = Random::new(seed);
        let latency = Duration::from_millis(choose.below(1000) as u64 + 1);
        let mut world = Slow::new(seed, PACE, latency);
        let healed = Duration::from_secs(25);
        world.cut = Some((Duration::from_secs(10), healed));
        world.run();
        assert_eq!(world.taken.len(), world.copies.len(), "schedule {seed}");
        // The other end is heard again within a second, and then all is sent again.
        let soon = healed + ALIVE + latency * 4 + PACE.first;
        let late = world.taken.iter().find(|at| (healed..BUSY).contains(*at)).copied();
        assert!(late.is_none_or(|at| at < soon), "{late:?} at {latency:?}, schedule {seed}");
        let mut world = Slow::new(seed, PACE, latency);
        world.lost = 3;
        world.run();
        assert_eq!(world.taken.len(), world.copies.len(), "schedule {seed}");
        assert!(world.carried().0 < 8.0, "{:?}, schedule {seed}", world.carried());
    }
}
