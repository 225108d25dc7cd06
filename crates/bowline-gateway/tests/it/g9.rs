//! G9: every tool call ends once and in time, whatever devices do, and leaks nothing.
//!
//! Short by default; `BOWLINE_SOAK=1` makes it ten thousand calls. Device behaviour is random, but
//! planned per call, so the allowed outcomes of each call are known. Only calls that are never
//! answered wait for a timeout.

mod device;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bowline_gateway::AtWork;
use bowline_gateway::config::{Config, Timeout};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::device::{Device, Heard};
use self::plan::{End, HASTY, LARGEST_MESSAGE, Plan, QUICK};
use crate::bench::{Bench, Session, eventually, turn};
use crate::garbage::Chance;
use crate::upstream::MockUpstream;

/// Sessions at once, on each of two gateways.
const PARALLEL: usize = 8;
/// Turns per session before the next session is created.
const TURNS: usize = 16;
/// A growth in memory beyond this in the second half of a soak is a leak: 7 KiB a call.
const MOST_GROWTH: usize = 32 << 20;

fn is_soak() -> bool {
    std::env::var_os("BOWLINE_SOAK").is_some()
}

fn seed() -> u64 {
    let seed = match std::env::var("BOWLINE_SEED") {
        Ok(text) => text.parse().expect("BOWLINE_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into(),
    };
    let soak = if is_soak() { "BOWLINE_SOAK=1 " } else { "" };
    println!(
        "replay: BOWLINE_SEED={seed} {soak}cargo test -p bowline-gateway --test it g9_soak -- --nocapture"
    );
    seed
}

/// Counts of calls by outcome.
#[derive(Debug, Default)]
struct Tally {
    ends: [usize; End::ALL.len()],
    /// Calls that a device was sent a second time.
    again: usize,
}

impl Tally {
    fn calls(&self) -> usize {
        self.ends.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        self.ends.iter_mut().zip(other.ends).for_each(|(sum, n)| *sum += n);
        self.again += other.again;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g9_soak_every_call_ends_once_and_in_time_whatever_devices_do() {
    let (seed, calls) = (seed(), if is_soak() { 10_000 } else { 500 });
    let upstream = Arc::new(MockUpstream::start().await);
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let mut benches = Vec::new();
    for waits in [false, true] {
        let bench = Bench::before_with(&upstream, |config| settings(config, waits)).await;
        benches.push((Arc::new(bench), waits));
    }

    let mut tally = Tally::default();
    let mut memory = vec![resident()];
    for half in 0..2 {
        let each = calls / 2 / (2 * PARALLEL) + 1;
        tally.add(&run(&benches, &upstream, seed.wrapping_add(half), each).await);
        memory.push(resident());
    }
    println!(
        "{tally:?}; resident {} MiB",
        memory.iter().map(|m| (m >> 20).to_string()).collect::<Vec<_>>().join(", ")
    );
    assert!(tally.calls() >= calls, "{tally:?}");
    assert!(tally.again > 0 && tally.ends.iter().all(|n| *n > 0), "all of it happened: {tally:?}");

    // Nothing stays of those who have gone.
    for (bench, _) in benches {
        let at_rest = async || bench.gateway.at_work() == AtWork::default();
        eventually(&format!("at rest: {:?}", bench.gateway.at_work()), at_rest).await;
        let bench = Arc::into_inner(bench).expect("nobody else has it");
        drop(bench.http);
        bench.gateway.stop().await;
    }
    eventually("all tasks ended", async || alive() <= before).await;
    // Other tests share the process in a short run.
    if is_soak() {
        assert!(memory[2].saturating_sub(memory[1]) < MOST_GROWTH, "{memory:?}");
    }
}

fn settings(config: &mut Config, waits: bool) {
    config.tools.timeouts.insert("quick".into(), Timeout(QUICK));
    config.tools.timeouts.insert("hasty".into(), Timeout(HASTY));
    config.tools.wait_for_surface = if waits { QUICK } else { Default::default() };
    config.limits.surface_message = LARGEST_MESSAGE;
    config.limits.history_memory = 1 << 20;
}

/// Runs that many calls in each of many concurrent sessions.
async fn run(
    benches: &[(Arc<Bench>, bool)],
    upstream: &Arc<MockUpstream>,
    seed: u64,
    calls: usize,
) -> Tally {
    let mut workers = JoinSet::new();
    for (bench, waits) in benches {
        let heard = Arc::default();
        for n in 0..PARALLEL {
            let worker = Worker {
                bench: Arc::clone(bench),
                upstream: Arc::clone(upstream),
                waits: *waits,
                heard: Arc::clone(&heard),
                seed: mixed(seed ^ ((n as u64) << 1) ^ u64::from(*waits)),
            };
            workers.spawn(worker.work(calls));
        }
    }
    let mut tally = Tally::default();
    while let Some(done) = workers.join_next().await {
        tally.add(&done.unwrap());
    }
    tally
}

/// Mixes the seed, so that neighbouring seeds give different choices.
fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

struct Worker {
    bench: Arc<Bench>,
    upstream: Arc<MockUpstream>,
    waits: bool,
    heard: Arc<Heard>,
    seed: u64,
}

impl Worker {
    async fn work(self, calls: usize) -> Tally {
        let mut chance = Chance(self.seed);
        let mut tally = Tally::default();
        while tally.calls() < calls {
            let session = self.bench.session().await;
            let own = Chance(mixed(chance.next(1 << 30) as u64));
            let (bench, heard) = (Arc::clone(&self.bench), Arc::clone(&self.heard));
            let mut device = Device::new(bench, session.clone(), heard, own);
            let mut plans = Vec::new();
            let mut planned = 0;
            while plans.len() < TURNS && tally.calls() + planned < calls {
                let plan = Plan::new(&mut chance, calls, self.waits);
                planned += plan.calls.len();
                self.turn(&session, &mut device, plans.len(), &plan).await;
                plans.push(plan);
            }
            tally.add(&self.checked(&session, &plans).await);
            tally.again += device.again;
        }
        tally
    }

    async fn turn(&self, session: &Session, device: &mut Device, number: usize, plan: &Plan) {
        device.prepare(number, plan.clone()).await;
        let begun = Instant::now();
        let over = CancellationToken::new();
        let asked = async {
            let said = self.bench.chat(turn(session, "calls", &plan.script(number))).await;
            over.cancel();
            (said, begun.elapsed())
        };
        let ((said, took), ()) = tokio::join!(asked, device.serve(&over));
        assert_eq!(said.status, 200, "{}", said.text);
        assert!(took < plan.deadline(), "{took:?} for {plan:?}");
        self.upstream.forget();
    }

    /// Checks that the log has exactly one allowed result for each call.
    async fn checked(&self, session: &Session, plans: &[Plan]) -> Tally {
        let mut tally = Tally::default();
        let log = self.bench.entries(session).await;
        let turns: Vec<_> = log.split(|entry| entry["message"]["role"] == "user").skip(1).collect();
        assert_eq!(turns.len(), plans.len(), "{log:?}");
        for (number, (plan, entries)) in plans.iter().zip(turns).enumerate() {
            let of_role = |role: &'static str| {
                entries.iter().map(|entry| &entry["message"]).filter(move |m| m["role"] == role)
            };
            let called: Vec<_> =
                of_role("assistant").filter_map(|m| m["tool_calls"].as_array()).collect();
            assert_eq!(called.iter().map(|c| c.len()).collect::<Vec<_>>(), [plan.calls.len()]);
            let mut results = BTreeMap::new();
            for message in of_role("tool") {
                let text = |name: &str| message[name].as_str().unwrap();
                let n = text("tool_call_id").strip_prefix("call_").unwrap().parse().unwrap();
                let before = results.insert(n, text("content"));
                assert_eq!(before, None, "call {n} of turn {number} has two results: {entries:?}");
            }
            let numbers: Vec<usize> = results.keys().copied().collect();
            assert_eq!(numbers, (0..plan.calls.len()).collect::<Vec<_>>(), "{entries:?}");
            for (n, content) in &results {
                let end = plan.end(number, *n, content).unwrap_or_else(|why| panic!("{why}"));
                tally.ends[end as usize] += 1;
            }
            self.same_as_said(entries, &results);
        }
        tally
    }

    /// The model saw the same results as the log.
    fn same_as_said(&self, entries: &[Value], results: &BTreeMap<usize, &str>) {
        let last = entries.last().unwrap();
        if last["status"] == "complete" {
            let seen: Vec<_> = results.values().copied().collect();
            assert_eq!(last["message"]["content"], seen.join(" | "));
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
