//! Faults that were planted: the checker reports each, and the same run without it is clean.

use std::collections::BTreeSet;
use std::path::Path;

use bowline_checker::{Anomaly, Kind, Loss};

use crate::caller::{Caller, Way};
use crate::proxy::{self, Loses};
use crate::reach::Session;
use crate::surface::{Surface, Taste};
use crate::world::World;

async fn say(caller: &Caller, session: &Session, count: usize) {
    for _ in 0..count {
        caller.ask(&session.id, "planted", Way::Whole).await;
    }
}

fn losses(anomalies: &[Anomaly]) -> Vec<Loss> {
    let loss = |anomaly: &Anomaly| match anomaly {
        Anomaly::Lost { loss, .. } => Some(*loss),
        _ => None,
    };
    anomalies.iter().filter_map(loss).collect()
}

/// Six turns wait; a surface drains them through a proxy that loses some.
async fn drained_through(loses: Loses) -> Vec<Anomaly> {
    let world = World::start("0ms");
    let session = world.session().await;
    say(&world.caller(), &session, 6).await;
    let address = proxy::before(&world.address, &session, loses).await;
    let attached = Surface::attach(&address, &session, Taste::Whole, &world.record).await;
    let mut surface = attached.unwrap();
    world.drain(&session, &mut surface).await;
    surface.catch_up().await.unwrap();
    surface.detach().await;
    world.verdict(&[session]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_a_queue_that_is_cleared_when_sent_is_caught() {
    assert_eq!(drained_through(|_| false).await, []);
    let all = drained_through(|_| true).await;
    let never = (1..=6).map(|n| Loss::NeverDelivered { seq: 2 * n });
    assert_eq!(losses(&all), never.collect::<Vec<_>>());
    let tail = drained_through(|n| n > 4).await;
    assert_eq!(losses(&tail), [10, 12].map(|seq| Loss::NeverDelivered { seq }));
}

/// A surface is attached, and then turns are produced; the proxy loses some of them.
async fn live_through(loses: Loses) -> Vec<Anomaly> {
    let world = World::start("0ms");
    let session = world.session().await;
    let address = proxy::before(&world.address, &session, loses).await;
    let attached = Surface::attach(&address, &session, Taste::Whole, &world.record).await;
    let mut surface = attached.unwrap();
    say(&world.caller(), &session, 4).await;
    world.drain(&session, &mut surface).await;
    surface.catch_up().await.unwrap();
    surface.ack().await.unwrap();
    surface.catch_up().await.unwrap();
    surface.detach().await;
    world.verdict(&[session]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_a_live_path_that_begins_too_late_is_caught() {
    assert_eq!(live_through(|_| false).await, []);
    let late = live_through(|n| n == 1).await;
    let [Loss::Skipped { seq: 2, at: 4, .. }] = losses(&late)[..] else { panic!("{late:?}") };
}

/// Five turns, a crash, five more, a crash; `power_cut`: the later five had not reached the disk.
async fn crashed(power_cut: bool) -> Vec<Anomaly> {
    let mut world = World::start("0ms");
    let (session, caller) = (world.session().await, world.caller());
    say(&caller, &session, 5).await;
    let copy = tempfile::tempdir().unwrap();
    world.crash(|data| copy_files(data, copy.path()));
    say(&caller, &session, 5).await;
    world.crash(|data| {
        if power_cut {
            copy_files(copy.path(), data);
        }
    });
    world.verdict(&[session]).await
}

/// Makes `to` hold exactly the files of `from`.
fn copy_files(from: &Path, to: &Path) {
    let names = |folder: &Path| -> BTreeSet<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    for name in names(to) {
        std::fs::remove_file(to.join(name)).unwrap();
    }
    for name in names(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_a_store_that_acknowledges_before_the_disk_has_it_is_caught() {
    assert_eq!(crashed(false).await, []);
    let cut = crashed(true).await;
    assert_eq!(losses(&cut), [Loss::NotInLog; 5]);
    assert!(cut.iter().all(|anomaly| anomaly.kind() == Kind::Lost), "{cut:?}");
}
