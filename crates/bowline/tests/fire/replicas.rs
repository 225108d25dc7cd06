//! Three replicas whose parts die, stop, sleep and lose each other, under load.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bowline_checker::{Event, History, Status, ToolStep};

use crate::installation::{Installation, REPLICAS};
use crate::load::{Load, Opened};
use crate::reach::{Reach, Session};
use crate::seed::{Dice, scale};
use crate::surface::{Broken, Seen, Taste};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A replica is killed, and started again.
    Kill,
    /// It is stopped in good order, and started again.
    Stop,
    /// It does nothing for longer than its lease, and wakes up.
    Sleep,
    /// One replica does not reach PostgreSQL, Redis, or both.
    NoPostgres,
    NoRedis,
    Alone,
    /// A server is killed, and started again; Redis with an empty memory.
    PostgresKilled,
    RedisKilled,
    /// A server does nothing for a while.
    PostgresSleeps,
    RedisSleeps,
}

impl Fault {
    const ALL: [Self; 10] = [
        Self::Kill,
        Self::Stop,
        Self::Sleep,
        Self::NoPostgres,
        Self::NoRedis,
        Self::Alone,
        Self::PostgresKilled,
        Self::RedisKilled,
        Self::PostgresSleeps,
        Self::RedisSleeps,
    ];

    async fn happen(self, world: &Installation, dice: &mut Dice, length: Duration) {
        let replica = world.replica(dice.below(REPLICAS));
        match self {
            Self::Kill => tokio::task::block_in_place(|| {
                replica.kill();
                replica.start();
            }),
            Self::Stop => tokio::task::block_in_place(|| {
                replica.stop();
                replica.start();
            }),
            Self::Sleep => {
                replica.signal("STOP");
                tokio::time::sleep(length).await;
                replica.signal("CONT");
            }
            Self::NoPostgres | Self::NoRedis | Self::Alone => {
                let mut ways = Vec::new();
                if self != Self::NoRedis {
                    ways.push(&replica.to_postgres);
                }
                if self != Self::NoPostgres {
                    ways.push(&replica.to_redis);
                }
                ways.iter().for_each(|way| way.cut());
                tokio::time::sleep(length).await;
                ways.iter().for_each(|way| way.mend());
            }
            Self::PostgresKilled => tokio::task::block_in_place(|| {
                let mut postgres = world.postgres.lock().unwrap();
                postgres.kill().unwrap();
                postgres.restart().unwrap();
            }),
            Self::RedisKilled => tokio::task::block_in_place(|| {
                let mut redis = world.redis.lock().unwrap();
                redis.kill().unwrap();
                redis.restart().unwrap();
            }),
            Self::PostgresSleeps => {
                world.postgres.lock().unwrap().signal("STOP").unwrap();
                tokio::time::sleep(length).await;
                world.postgres.lock().unwrap().signal("CONT").unwrap();
            }
            Self::RedisSleeps => {
                world.redis.lock().unwrap().signal("STOP").unwrap();
                tokio::time::sleep(length).await;
                world.redis.lock().unwrap().signal("CONT").unwrap();
            }
        }
    }
}

/// Turns that were run twice and not a third time. There may be none.
const GIVEN_UP: &str = "given up";

/// Everything that clients do, at all replicas.
struct Busy {
    load: Load,
    sessions: Vec<Session>,
    /// Sessions that come to be under load.
    opened: [Opened; 2],
}

impl Busy {
    async fn start(world: &Installation, dice: &mut Dice) -> Self {
        let (mut load, mut sessions) = (Load::new(), Vec::new());
        for _ in 0..3 {
            let session = world.session().await;
            load.asks(world, &session, dice.fork(), 40);
            load.asks(world, &session, dice.fork(), 10);
            load.roams(world, &session, dice.fork());
            sessions.push(session);
        }
        load.cancels(world, &sessions[0], dice.fork());
        load.joins(world, &sessions[1], dice.fork());
        let with_tools = world.session().await;
        load.calls_tools(world, &with_tools, dice);
        sessions.push(with_tools);
        let opened = [load.opens(world, dice.fork()), load.imports(world, dice.fork())];
        Self { load, sessions, opened }
    }

    /// Ends the load, and compares what everybody was told with what is there.
    async fn judge(self, world: &Installation) {
        let Self { load, mut sessions, opened } = self;
        load.finish().await;
        for opened in opened {
            sessions.extend(std::mem::take(&mut *opened.lock().unwrap()));
        }
        let anomalies = world.verdict(&sessions).await;
        let amounts = world.record.with(|history| amounts(history));
        println!("{amounts:?}");
        let nothing = amounts.iter().find(|(what, count)| **count == 0 && **what != GIVEN_UP);
        assert_eq!(nothing, None, "the load was no load");
        assert_eq!(anomalies, []);
    }
}

/// How much of what there was.
fn amounts(history: &History) -> BTreeMap<&'static str, usize> {
    let entries = || history.logs.values().flat_map(|log| &log.entries);
    let ended_as = |status| entries().filter(|entry| entry.status == status).count();
    let called = |step: &&ToolStep| matches!(step, ToolStep::Called { .. });
    let events = |is: fn(&Event) -> bool| history.events.iter().filter(|it| is(it)).count();
    let owners: HashSet<_> = history.writes.iter().map(|it| (&it.session, it.fence)).collect();
    BTreeMap::from([
        ("acknowledged", history.acknowledged()),
        ("sessions", history.logs.len()),
        ("cancelled", ended_as(Status::Cancelled)),
        (GIVEN_UP, ended_as(Status::Interrupted)),
        ("calls by agents", entries().flat_map(|entry| &entry.tools).filter(called).count()),
        ("calls by hosts", events(|it| matches!(it, Event::Calling { .. }))),
        ("answers of devices", events(|it| matches!(it, Event::Returning { .. }))),
        ("tokens", history.imports.len()),
        ("writes", history.writes.len()),
        ("owners", owners.len()),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g19_kill_9_of_replicas_loses_reorders_alters_and_repeats_nothing() {
    let mut dice = Dice::for_test("g2_g19_kill_9_of_replicas");
    let world = Installation::start("1ms").await;
    let busy = Busy::start(&world, &mut dice).await;
    for _ in 0..scale(12, 200) {
        world.progress(1 + dice.below(20)).await;
        let pause = scale(0, 1000) + dice.below(2000);
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        Fault::Kill.happen(&world, &mut dice, Duration::ZERO).await;
    }
    busy.judge(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g19_lost_servers_and_networks_lose_nothing_and_heal_by_themselves() {
    let mut dice = Dice::for_test("g2_g19_lost_servers");
    let world = Installation::start("1ms").await;
    let busy = Busy::start(&world, &mut dice).await;
    let length = Duration::from_secs(scale(6, 30) as u64);
    for _ in 0..scale(1, 2) {
        for fault in Fault::ALL {
            let begun = Instant::now();
            fault.happen(&world, &mut dice, length).await;
            let over = Instant::now();
            // Everybody is served again, at the replica that had the fault, too.
            world.healed().await;
            let healed = over.elapsed();
            world.progress(20).await;
            println!("{fault:?}: {:?}, then {healed:?} until it healed", over - begun);
        }
    }
    busy.judge(&world).await;
}

/// Turns run at a replica, watched by surfaces there, when it is stopped for longer than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_a_replica_that_slept_writes_nothing_when_it_wakes_and_closes_its_surfaces_with_1012() {
    let mut dice = Dice::for_test("g19_a_replica_that_slept");
    let world = Installation::start("20ms").await;
    let sleeper = world.replica(0);
    let awake = world.reach_at(1);
    let (mut load, mut sessions, mut surfaces) = (Load::new(), Vec::new(), Vec::new());
    for _ in 0..4 {
        let session = awake.session().await;
        // The first to write owns the session.
        let at_sleeper = world.reach_at(0).attach(&session, Taste::Chunks).await;
        surfaces.push(at_sleeper.unwrap());
        load.asks(&awake, &session, dice.fork(), 60);
        sessions.push(session);
    }
    world.progress(8).await;
    let before = sleeper.id_when_ready().await;
    sleeper.signal("STOP");
    tokio::time::sleep(Duration::from_secs(scale(6, 60) as u64)).await;
    world.progress(8).await;
    let written = world.writes_of(&before);
    assert!(written > 0, "it owned nothing");
    sleeper.signal("CONT");
    for surface in &mut surfaces {
        let end = loop {
            if let Err(end) = surface.next().await {
                break end;
            }
        };
        assert_eq!(end, Broken(Some(1012)));
    }
    world.healed().await;
    assert_ne!(sleeper.id_when_ready().await, before, "it goes on under another id");
    assert_eq!(world.writes_of(&before), written, "it wrote after it woke");
    load.finish().await;
    assert_eq!(world.verdict(&sessions).await, []);
}

/// A person at noon: the agent speaks all the time, and all replicas are restarted one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_a_rolling_restart_loses_nothing_in_the_middle_of_a_sentence() {
    let mut dice = Dice::for_test("g16_a_rolling_restart");
    let world = Installation::start("20ms").await;
    let session = world.session().await;
    let mut load = Load::new();
    load.asks(&world, &session, dice.fork(), 60);
    let mut gaps = Vec::new();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let watcher = tokio::spawn({
        let (reach, session) = (Reach::clone(&world), session.clone());
        async move {
            let mut heard = Instant::now();
            while !*stopped.borrow() {
                let attached = reach.attach(&session, Taste::Chunks).await;
                let Ok(mut surface) = attached else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                loop {
                    tokio::select! {
                        seen = surface.next() => match seen {
                            Ok(Seen::Chunk { .. } | Seen::Turn { .. }) => {
                                gaps.push(heard.elapsed());
                                heard = Instant::now();
                            }
                            Ok(_) => {}
                            Err(Broken(_)) => break,
                        },
                        _ = stopped.changed() => break,
                    }
                }
            }
            gaps
        }
    });
    for _ in 0..scale(1, 10) {
        for number in 0..REPLICAS {
            world.progress(2).await;
            tokio::task::block_in_place(|| {
                world.replica(number).stop();
                world.replica(number).start();
            });
        }
    }
    world.progress(2).await;
    stop.send_replace(true);
    let gaps = watcher.await.unwrap();
    println!("longest silence: {:?} of {} pieces", gaps.iter().max().unwrap(), gaps.len());
    load.finish().await;
    assert_eq!(world.verdict(&[session]).await, []);
}
