//! What happens to the networks, and what is transferred meanwhile.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::hosts::{Device, Hosts};
use super::link::Shape;
use super::transfer::{Transfer, Way};
use crate::process::DEADLINE;

const KB: u64 = 1000;

/// A scenario says what it saw, or what went wrong.
type Outcome = Result<String, String>;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Its speed is reported, so nothing else runs beside it.
    pub(crate) alone: bool,
    run: fn() -> Outcome,
}

pub(crate) fn all() -> Vec<Scenario> {
    let together = |name, run| Scenario { name, alone: false, run };
    vec![
        Scenario { name: "far", alone: true, run: far },
        together("lossy", lossy),
        together("slow_home", slow_home),
        together("slow_phone", slow_phone),
        together("very_slow_down", || very_slow(Way::Down)),
        together("very_slow_up", || very_slow(Way::Up)),
        together("phone_dead_8s", || dead(End::Phone, 8)),
        together("phone_dead_long", || dead(End::Phone, soak_or(60, 20))),
        together("home_dead_8s", || dead(End::Home, 8)),
        together("home_dead_long", || dead(End::Home, soak_or(60, 20))),
        together("phone_asleep", || asleep(soak_or(60, 20))),
    ]
}

impl Scenario {
    /// Runs it, and prints what came of it.
    pub(crate) fn passes(&self) -> bool {
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(self.run));
        let took = begun.elapsed().as_secs_f32();
        let (word, said) = match &outcome {
            Ok(Ok(said)) => ("ok", said.as_str()),
            Ok(Err(said)) => ("FAILED", said.as_str()),
            Err(_) => ("FAILED", "panicked"),
        };
        println!("network {}: {word} in {took:.1} s: {said}", self.name);
        word == "ok"
    }
}

fn soak_or(soak: u64, short: u64) -> u64 {
    if std::env::var_os("BOWLINE_SOAK").is_some() { soak } else { short }
}

/// The home uploads at 80 KB/s, or 150: four devices, two downloads each.
fn slow_home() -> Outcome {
    let (rate, seconds) = (soak_or(150, 80) * KB, soak_or(70, 45));
    let hosts = Hosts::start(4);
    hosts.home_link.shape(Shape::rate(rate), Shape::rate(1000 * KB));
    let devices: Vec<_> = (0..4).map(|number| hosts.connect(number)).collect();
    let plan: Vec<_> = (0..8).map(|n| (&devices[n % 4], Way::Down, rate * seconds / 8)).collect();
    transfer(&hosts, &plan, 4 * seconds, |_| {})?.steady()
}

/// The phone uploads at 30 KB/s: four uploads.
fn slow_phone() -> Outcome {
    let (rate, seconds) = (30 * KB, soak_or(90, 50));
    let hosts = Hosts::start(1);
    hosts.phone_link.shape(Shape::rate(rate), Shape::rate(300 * KB));
    let device = hosts.connect(0);
    let plan = [(&device, Way::Up, rate * seconds / 4); 4];
    transfer(&hosts, &plan, 4 * seconds, |_| {})?.steady()
}

/// The phone's link has 5 KB/s each way.
fn very_slow(way: Way) -> Outcome {
    let (rate, seconds) = (5 * KB, soak_or(80, 40));
    let hosts = Hosts::start(1);
    hosts.phone_link.both(Shape::rate(rate));
    let device = hosts.connect(0);
    transfer(&hosts, &[(&device, way, rate * seconds)], 4 * seconds, |_| {})?.steady()
}

/// A round trip takes 100 ms: 50 from home to the relay and back, and 50 to the phone.
fn far() -> Outcome {
    let bytes = soak_or(100_000_000, 20_000_000);
    let hosts = Hosts::start(1);
    let shape = Shape { delay: Duration::from_millis(25), ..Shape::default() };
    hosts.home_link.both(shape);
    hosts.phone_link.both(shape);
    let device = hosts.connect(0);
    let down = transfer(&hosts, &[(&device, Way::Down, bytes)], 100, |_| {})?.steady()?;
    let up = transfer(&hosts, &[(&device, Way::Up, bytes)], 100, |_| {})?.steady()?;
    Ok(format!("down {down}, up {up}"))
}

/// Each packet is lost with a chance of 2 %, and takes 25 ms one way.
fn lossy() -> Outcome {
    let bytes = soak_or(20_000_000, 2_000_000);
    let hosts = Hosts::start(1);
    let delay = Duration::from_millis(25);
    hosts.phone_link.both(Shape { delay, loss: 0.02, ..Shape::default() });
    let device = hosts.connect(0);
    let plan = [(&device, Way::Down, bytes), (&device, Way::Up, bytes)];
    transfer(&hosts, &plan, 300, |_| {})?.steady()
}

#[derive(Debug, Clone, Copy)]
enum End {
    Home,
    Phone,
}

/// A link drops every packet for this many seconds, while bytes go both ways.
fn dead(end: End, seconds: u64) -> Outcome {
    let hosts = Hosts::start(1);
    let shape = Shape::rate(300 * KB);
    let link = match end {
        End::Home => &hosts.home_link,
        End::Phone => &hosts.phone_link,
    };
    link.both(shape);
    let device = hosts.connect(0);
    let plan = [(&device, Way::Down, 2_000_000), (&device, Way::Up, 2_000_000)];
    transfer(&hosts, &plan, 120 + 2 * seconds, |moved| {
        moved.until_begun();
        link.dead_for(Duration::from_secs(seconds), shape);
    })
    .map(|seen| seen.to_string())
}

/// The phone sleeps for this many seconds: its process stands still, and its network with it.
fn asleep(seconds: u64) -> Outcome {
    let hosts = Hosts::start(1);
    let shape = Shape::rate(300 * KB);
    hosts.phone_link.both(shape);
    let device = hosts.connect(0);
    let plan = [(&device, Way::Down, 2_000_000), (&device, Way::Up, 2_000_000)];
    transfer(&hosts, &plan, 120 + 2 * seconds, |moved| {
        moved.until_begun();
        device.connect.signal("STOP");
        std::thread::sleep(Duration::from_secs(seconds));
        device.connect.signal("CONT");
    })
    .map(|seen| seen.to_string())
}

/// How far the transfers are.
struct Moved<'a> {
    down: &'a AtomicU64,
    up: &'a AtomicU64,
}

impl Moved<'_> {
    /// Waits until bytes go in both directions.
    fn until_begun(&self) {
        let begun = Instant::now();
        while self.down.load(Relaxed).min(self.up.load(Relaxed)) < 200_000 {
            assert!(begun.elapsed() < DEADLINE, "the transfers do not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Transfers that ended well.
struct Seen {
    bytes: u64,
    took: Duration,
    /// Connections to the relay that were lost meanwhile; the tunnel went on without a reset.
    losses: Vec<String>,
}

impl Seen {
    /// A network that is slow, far or lossy works: no connection over it may be given up.
    fn steady(self) -> Outcome {
        match self.losses.is_empty() {
            true => Ok(self.to_string()),
            false => Err(format!("{self}:\n{}", self.losses.join("\n"))),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, took, losses } = self;
        let took = took.as_secs_f64();
        write!(f, "{bytes} bytes in {took:.1} s, {:.3} MB/s, ", *bytes as f64 / took / 1e6)?;
        write!(f, "{} connections to the relay lost", losses.len())
    }
}

/// Runs all transfers at once, and something meanwhile; each has to end within `patience` seconds.
fn transfer(
    hosts: &Hosts,
    plan: &[(&Device, Way, u64)],
    patience: u64,
    meanwhile: impl FnOnce(&Moved<'_>),
) -> Result<Seen, String> {
    let (down, begun) = (AtomicU64::new(0), Instant::now());
    let patience = Duration::from_secs(patience);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = (1..)
            .zip(plan)
            .map(|(seed, &(device, way, length))| {
                let stream = hosts.dial(device.address);
                let down = &down;
                let transfer = Transfer { way, length, seed };
                scope.spawn(move || transfer.run(stream, patience, down))
            })
            .collect();
        meanwhile(&Moved { down: &down, up: &hosts.service.received });
        running.into_iter().filter_map(|run| run.join().unwrap().err()).collect()
    });
    let took = begun.elapsed();
    let devices: Vec<_> = plan.iter().map(|(device, ..)| *device).collect();
    let losses = hosts.losses(&devices);
    if !wrong.is_empty() {
        return Err([wrong, losses].concat().join("\n"));
    }
    Ok(Seen { bytes: plan.iter().map(|(.., length)| length).sum(), took, losses })
}
