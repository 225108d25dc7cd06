//! A polite stop under load, and everyone coming back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::load::Load;
use crate::process::DEADLINE;
use crate::reach::Session;
use crate::record::Record;
use crate::seed::{Dice, scale};
use crate::surface::{Broken, Surface, Taste};
use crate::world::World;

/// G16.
const LONGEST_STOP: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_sigterm_under_load_says_1012_and_loses_nothing() {
    let mut dice = Dice::for_test("g16_sigterm_under_load");
    let mut world = World::start("1ms");
    for round in 0..scale(2, 20) {
        let mut load = Load::new();
        let mut sessions = Vec::new();
        let mut surfaces = JoinSet::new();
        let (ready, mut all_ready) = mpsc::channel(1);
        for _ in 0..4 {
            let session = world.session().await;
            load.asks(&world, &session, dice.fork(), 30);
            load.asks(&world, &session, dice.fork(), 30);
            let mut surface = world.attach(&session, Taste::Chunks).await.unwrap();
            let ready = ready.clone();
            surfaces.spawn(async move {
                surface.turn().await.unwrap();
                drop(ready);
                loop {
                    if let Err(Broken(code)) = surface.next().await {
                        return code;
                    }
                }
            });
            sessions.push(session);
        }
        drop(ready);
        assert_eq!(all_ready.recv().await, None::<()>, "every surface has a turn by now");
        tokio::time::sleep(Duration::from_millis(dice.below(50) as u64)).await;
        let took = world.stop();
        assert!(took < LONGEST_STOP, "{took:?}");
        assert_eq!(surfaces.join_all().await, [Some(1012); 4]);
        world.restart(|_| {});
        load.finish().await;
        println!("round {round}: stopped in {took:?}, {} taken up so far", world.recovered);
        assert_eq!(world.verdict(&sessions).await, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_every_surface_is_back_within_60_s_of_a_restart() {
    let mut dice = Dice::for_test("g16_every_surface");
    let count = scale(200, 5000);
    let mut world = World::start("0ms");
    let (here, mut arrivals) = mpsc::channel(count);
    let doors = Arc::new(Semaphore::new(64));
    let mut surfaces = JoinSet::new();
    for _ in 0..count {
        let session = world.session().await;
        let (address, record) = (world.address.clone(), world.record.clone());
        let (here, doors, dice) = (here.clone(), Arc::clone(&doors), dice.fork());
        surfaces.spawn(async move {
            let mut surface = come(&address, &session, &record, &doors, dice.into()).await;
            here.send(()).await.unwrap();
            let end = loop {
                if let Err(end) = surface.next().await {
                    break end;
                }
            };
            let back = come(&address, &session, &record, &doors, None).await;
            here.send(()).await.unwrap();
            (end, back)
        });
    }
    for _ in 0..count {
        arrivals.recv().await.unwrap();
    }
    let took = world.stop();
    assert!(took < LONGEST_STOP, "{took:?}");
    world.restart(|_| {});
    let begun = std::time::Instant::now();
    let all = async {
        for _ in 0..count {
            arrivals.recv().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("all are back within 60 s");
    println!("{count} surfaces: stopped in {took:?}, back in {:?}", begun.elapsed());
    for (end, _) in surfaces.join_all().await {
        assert_eq!(end, Broken(Some(1012)));
    }
}

/// Knocks until it is let in, not all at once.
async fn come(
    address: &str,
    session: &Session,
    record: &Record,
    doors: &Semaphore,
    dice: Option<Dice>,
) -> Surface {
    let pause = dice.map_or(25, |mut dice| dice.below(50) as u64);
    loop {
        let place = doors.acquire().await.unwrap();
        let attached = Surface::attach(address, session, Taste::Chunks, record).await;
        drop(place);
        if let Ok(surface) = attached {
            return surface;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}
