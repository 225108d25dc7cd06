//! kill -9 at random moments, under load.

use std::time::Duration;

use bowline_checker::Status;

use crate::load::Load;
use crate::seed::{Dice, scale};
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g4_kill_9_at_random_moments_loses_alters_and_repeats_nothing() {
    let mut dice = Dice::for_test("g2_g4_kill_9");
    let kills = scale(8, 200);
    let mut world = World::start("1ms");
    let mut sessions = Vec::new();
    let mut load = Load::new();
    for _ in 0..3 {
        let session = world.session().await;
        load.asks(&world, &session, dice.fork(), 40);
        load.asks(&world, &session, dice.fork(), 10);
        load.roams(&world, &session, dice.fork());
        sessions.push(session);
    }
    let opened = load.opens(&world, dice.fork());
    let mut killed = 0;
    // A run that never interrupted a turn has shown nothing: then it goes on.
    while killed < kills || world.recovered == 0 {
        // Often soon after the start, where unfinished turns are being taken up.
        if dice.chance(75) {
            world.progress(1 + dice.below(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(dice.below(80) as u64)).await;
        world.crash(|_| {});
        killed += 1;
    }
    load.finish().await;
    let opened = std::mem::take(&mut *opened.lock().unwrap());
    let new = opened.len();
    sessions.extend(opened);
    let anomalies = world.verdict(&sessions).await;
    let acknowledged = world.record.acknowledged();
    let given_up = world.record.with(|history| {
        let entries = history.logs.values().flat_map(|log| &log.entries);
        entries.filter(|entry| entry.status == Status::Interrupted).count()
    });
    println!(
        "{killed} kills, {acknowledged} acknowledged, {new} new sessions, {} taken up, {given_up} \
         given up after two",
        world.recovered
    );
    assert!(acknowledged > killed / 2 && new > 0, "the load was no load");
    assert_eq!(anomalies, []);
}
