//! Two daemons with the same identity: the newer one stays connected, the older one waits.

use std::time::{Duration, Instant};

use super::ends::{Identity, client, daemon};
use super::plant::Plant;
use super::proxy::Break;
use super::record::{NEWS, Records};
use super::seed::{Dice, scale};
use crate::process::DEADLINE;

const REPLACED: &str = "bowline_relay_closes_total{code=\"4009\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbrp_relay_18_soak_two_daemons_of_one_identity_do_not_fight() {
    let mut dice = Dice::for_test_in("it", "sbrp_relay_18_soak");
    let plant = Plant::start(Duration::from_secs(3)).await;
    let records = Records::default();
    let identity = Identity::register(&plant.plane, 0).await;
    let first = daemon(&plant, &identity, &records, &mut dice);
    plant.until_metric("bowline_relay_connections{role=\"daemon\"}", 1).await;
    let one = client(&plant, &identity, &records, &mut dice);
    let talks = |before: u64, patience: u64| {
        let (one, records) = (&one, &records);
        async move {
            let begun = Instant::now();
            while one.record().confirmed < before + NEWS {
                assert!(begun.elapsed() < Duration::from_secs(patience), "the client is cut off");
                records.assert_right();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    talks(0, 60).await;
    let second = daemon(&plant, &identity, &records, &mut dice);
    plant.until_metric(REPLACED, 1).await;
    talks(one.record().confirmed, 60).await;
    // The first one looks every second whether it may come back.
    until_looks(&plant, 3).await;
    assert_eq!(plant.metric(REPLACED).await, 1, "nobody was replaced again");
    assert_eq!((first.record().arrivals, second.record().arrivals), (1, 1));

    // Cut the connection of whichever is connected: each cut may lead to at most two replacements.
    let cuts = scale(3, 60) as u64;
    for _ in 0..cuts {
        plant.proxy.cut_daemon(identity.id.as_str(), Break::random(&mut dice));
        tokio::time::sleep(Duration::from_millis(500 + dice.below(1500) as u64)).await;
    }
    talks(one.record().confirmed, 90).await;
    // Only one that was replaced looks again and again: by then, each has found its place.
    until_looks(&plant, 1).await;
    let settled = plant.metric(REPLACED).await;
    until_looks(&plant, 3).await;
    assert_eq!(plant.metric(REPLACED).await, settled, "they still replace each other");
    let arrivals = first.record().arrivals + second.record().arrivals;
    println!("{cuts} cuts: {arrivals} arrivals, {settled} replacements");
    assert!(settled <= 1 + 2 * cuts, "{settled} replacements for {cuts} cuts");

    // Kill the connected daemon; the waiting one connects.
    second.kill();
    talks(one.record().confirmed, 90).await;
    one.stop().await;
    first.stop().await;
    plant.until_metric("bowline_relay_pairs", 0).await;
    plant.until_metric("bowline_relay_connections", 0).await;
    records.assert_right();
}

/// Somebody looked so often from now on whether the daemon is there, and acted on what it saw.
async fn until_looks(plant: &Plant, looks: u64) {
    let (begun, before) = (Instant::now(), plant.proxy.questions());
    // The last one may still be on its way; those before it were acted on.
    while plant.proxy.questions() < before + looks + 1 {
        assert!(begun.elapsed() < DEADLINE, "nobody waits for the place");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
