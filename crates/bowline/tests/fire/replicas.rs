//! Three replicas whose parts die, stop, sleep and lose each other, under load.

use std::time::{Duration, Instant};

use bowline_checker::Status;

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

/// Programs that ask, and devices that come and go, at all replicas.
async fn under_load(world: &Installation, dice: &mut Dice) -> (Load, Vec<Session>, Opened) {
    let (mut load, mut sessions) = (Load::new(), Vec::new());
    for _ in 0..3 {
        let session = world.session().await;
        load.asks(world, &session, dice.fork(), 40);
        load.asks(world, &session, dice.fork(), 10);
        load.roams(world, &session, dice.fork());
        sessions.push(session);
    }
    let opened = load.opens(world, dice.fork());
    (load, sessions, opened)
}

/// Ends the load, and compares what everybody was told with what is there.
async fn judge(world: &Installation, load: Load, mut sessions: Vec<Session>, opened: Opened) {
    load.finish().await;
    sessions.extend(std::mem::take(&mut *opened.lock().unwrap()));
    let anomalies = world.verdict(&sessions).await;
    let given_up = world.record.with(|history| {
        let entries = history.logs.values().flat_map(|log| &log.entries);
        entries.filter(|entry| entry.status == Status::Interrupted).count()
    });
    println!(
        "{} acknowledged in {} sessions, {given_up} given up after two",
        world.record.acknowledged(),
        sessions.len()
    );
    assert_eq!(anomalies, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g19_kill_9_of_replicas_loses_reorders_alters_and_repeats_nothing() {
    let mut dice = Dice::for_test("g2_g19_kill_9_of_replicas");
    let world = Installation::start("1ms").await;
    let (load, sessions, opened) = under_load(&world, &mut dice).await;
    for _ in 0..scale(12, 200) {
        world.progress(1 + dice.below(20)).await;
        tokio::time::sleep(Duration::from_millis(dice.below(2000) as u64)).await;
        Fault::Kill.happen(&world, &mut dice, Duration::ZERO).await;
    }
    judge(&world, load, sessions, opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one of its clients was seen to wait for ever at the end; not found out why"]
async fn g2_g19_lost_servers_and_networks_lose_nothing_and_heal_by_themselves() {
    let mut dice = Dice::for_test("g2_g19_lost_servers");
    let world = Installation::start("1ms").await;
    let (load, sessions, opened) = under_load(&world, &mut dice).await;
    let length = Duration::from_secs(scale(6, 30) as u64);
    for _ in 0..scale(1, 10) {
        for fault in Fault::ALL {
            let begun = Instant::now();
            fault.happen(&world, &mut dice, length).await;
            let over = Instant::now();
            // Everybody is served again, the replica that had the fault, too.
            world.progress(20).await;
            println!("{fault:?}: {:?}, then {:?} until it healed", over - begun, over.elapsed());
        }
    }
    judge(&world, load, sessions, opened).await;
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
