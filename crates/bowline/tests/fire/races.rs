//! Surfaces that take one session from each other while turns are produced.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::load::Load;
use crate::reach::Session;
use crate::record::Record;
use crate::seed::{Dice, scale};
use crate::surface::{Broken, Seen, Surface, Taste};
use crate::world::World;

/// So many surfaces want the session at once.
const RIVALS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_g6_attach_detach_and_takeover_races_lose_and_reorder_nothing() {
    let mut dice = Dice::for_test("g2_g6_attach");
    let races = scale(60, 500);
    let world = World::start("0ms");
    let session = world.session().await;
    let mut load = Load::new();
    load.asks(&world, &session, dice.fork(), 20);
    load.asks(&world, &session, dice.fork(), 3);
    let places = Arc::new(Semaphore::new(RIVALS));
    let mut rivals = JoinSet::new();
    for _ in 0..races {
        // Now and then a turn is waited for, or all would be over before the second one.
        if dice.chance(50) {
            world.progress(1).await;
        }
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let (address, session) = (world.address.clone(), session.clone());
        let (record, dice) = (world.record.clone(), dice.fork());
        rivals.spawn(async move {
            let ended = race(&address, &session, &record, dice).await;
            drop(place);
            ended
        });
    }
    let ended = rivals.join_all().await;
    load.finish().await;
    let replaced = ended.iter().filter(|end| **end == Err(Broken(Some(4009)))).count();
    let left = ended.iter().filter(|end| end.is_ok()).count();
    let acknowledged = world.record.acknowledged();
    println!("{races} races, {replaced} replaced, {left} left, {acknowledged} acknowledged");
    assert!(replaced > 0, "nobody was ever replaced");
    assert_eq!(world.verdict(&[session]).await, []);
}

/// Attaches, reads a little, and leaves in some way, or is made to.
async fn race(
    address: &str,
    session: &Session,
    record: &Record,
    mut dice: Dice,
) -> Result<(), Broken> {
    let taste = if dice.chance(50) { Taste::Chunks } else { Taste::Whole };
    let mut surface = Surface::attach(address, session, taste, record).await?;
    let mut turns = dice.below(12);
    while turns > 0 {
        if let Seen::Turn { .. } = surface.next().await? {
            turns -= 1;
            if dice.chance(30) {
                surface.ack().await?;
            }
        }
    }
    match dice.below(3) {
        0 => surface.detach().await,
        1 => surface.close().await,
        _ => drop(surface),
    }
    Ok(())
}
