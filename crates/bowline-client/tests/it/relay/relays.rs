//! More than one relay: a daemon goes where it can be, and tunnels go with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::tunnel::Forwarding;
use bowline_client::relay::{DaemonEvent, LossReason};
use bowline_sbrp::control::Role;
use bowline_sbrp::frame::{Reason, Signal};

use super::forwarding::{Port, echo, round_trip};
use super::wire::Relay;
use super::world::{FIRST, World, online, until};
use crate::gateway::within;

/// A world with a second relay, and a control plane that counts epochs.
async fn two_relays() -> (World, Arc<Relay>) {
    let world = World::start().await;
    let second = Relay::start().await;
    *world.control.second.lock().unwrap() = Some(Arc::clone(&second));
    world.control.epoch.store(1, Ordering::SeqCst);
    (world, second)
}

#[tokio::test]
async fn a_daemon_whose_relay_is_away_goes_to_another_and_connections_go_on() {
    let (world, second) = two_relays().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    let epoch = world.control.epoch.load(Ordering::SeqCst);
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.restart();
    until("the daemon at the other relay", || second.is_online(FIRST)).await;
    assert!(world.control.epoch.load(Ordering::SeqCst) > epoch, "a move is another presence");
    round_trip(&mut tcp, b"after").await;
    port.told("continued").await;
    // And back, when that one is away.
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    second.no_daemons.store(true, Ordering::SeqCst);
    second.restart();
    until("the daemon at the first relay", || world.relay.is_online(FIRST)).await;
    round_trip(&mut tcp, b"again").await;
}

#[tokio::test]
async fn a_daemon_that_is_sent_away_asks_for_another_relay_before_it_comes_back() {
    let (world, second) = two_relays().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    let seen = world.relay.daemons_seen.load(Ordering::SeqCst);
    world.relay.close(Role::Daemon, 1012);
    until("the daemon at the other relay", || second.is_online(FIRST)).await;
    assert_eq!(world.relay.daemons_seen.load(Ordering::SeqCst), seen, "it did not try again");
    world.relay.close(Role::Client, 1012);
    round_trip(&mut tcp, b"after").await;
}

#[tokio::test]
async fn a_daemon_that_was_moved_without_learning_it_follows_within_seconds() {
    let (world, second) = two_relays().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    world.control.loses_moves.store(true, Ordering::SeqCst);
    let seen = world.relay.daemons_seen.load(Ordering::SeqCst);
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.restart();
    until("the move", || world.control.at_second.load(Ordering::SeqCst)).await;
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    // It goes back to where it was, because it has heard of nothing else.
    until("the daemon at the first relay", || {
        world.relay.daemons_seen.load(Ordering::SeqCst) > seen
    })
    .await;
    // Its token is good for an hour.
    until("the daemon at the other relay", || second.is_online(FIRST)).await;
    until("nobody at the first relay", || !world.relay.is_online(FIRST)).await;
    round_trip(&mut tcp, b"after").await;
}

#[tokio::test]
async fn a_daemon_whose_assignment_changes_takes_its_clients_along_at_once() {
    let (world, second) = two_relays().await;
    // Nobody waits for the end of the grace.
    world.relay.set_grace(Duration::from_secs(3600));
    world.control.token_life.store(1, Ordering::SeqCst);
    let _daemon = world.serving(Some(echo().await)).await;
    let port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    world.control.at_second.store(true, Ordering::SeqCst);
    world.control.next_epoch();
    until("the daemon at the other relay", || second.is_online(FIRST)).await;
    until("nobody at the first relay", || !world.relay.is_online(FIRST)).await;
    assert_eq!(*world.relay.signals.lock().unwrap(), [Signal::close(Reason::Shutdown)]);
    round_trip(&mut tcp, b"after").await;
    // The same relay and another epoch: clients of the new one would not be paired with the old one.
    let seen = second.daemons_seen.load(Ordering::SeqCst);
    world.control.next_epoch();
    until("another connection", || second.daemons_seen.load(Ordering::SeqCst) > seen).await;
    round_trip(&mut tcp, b"again").await;
}

#[tokio::test]
async fn sbrp_daemon_05_a_plain_reconnect_keeps_relay_epoch_and_sessions() {
    let (world, second) = two_relays().await;
    let _daemon = world.serving(Some(echo().await)).await;
    let mut port = Port::open(&world, Forwarding::default()).await;
    let mut tcp = port.connect().await;
    round_trip(&mut tcp, b"before").await;
    let epoch = world.control.epoch.load(Ordering::SeqCst);
    world.relay.cut(Role::Daemon);
    port.told("paused").await;
    port.told("resumed").await;
    round_trip(&mut tcp, b"after").await;
    assert_eq!(world.control.epoch.load(Ordering::SeqCst), epoch);
    assert_eq!(world.relay.clients_seen.load(Ordering::SeqCst), 1, "the same session");
    assert_eq!(second.daemons_seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn sbrp_relay_18_a_daemon_replaced_at_another_relay_learns_it_and_steps_aside() {
    let (world, second) = two_relays().await;
    world.control.token_life.store(1, Ordering::SeqCst);
    let mut config = world.daemon_config();
    config.replaced_wait = Duration::from_millis(20);
    let mut older = world.daemon_with(config).await;
    // The newer process cannot reach the first relay: nobody there replaces the older one.
    world.control.at_second.store(true, Ordering::SeqCst);
    let newer = world.daemon().await;
    assert!(second.is_online(FIRST) && world.relay.is_online(FIRST));
    let reason = within("the end of the older one", async {
        loop {
            if let DaemonEvent::Lost { reason, .. } = older.next().await.unwrap() {
                return reason;
            }
        }
    });
    assert_eq!(reason.await, LossReason::Replaced);
    until("the older one away", || !world.relay.is_online(FIRST)).await;
    let seen = second.daemons_seen.load(Ordering::SeqCst);
    let looked = world.control.lists.load(Ordering::SeqCst);
    until("looks", || world.control.lists.load(Ordering::SeqCst) > looked + 5).await;
    assert_eq!(second.daemons_seen.load(Ordering::SeqCst), seen, "nobody fights");
    newer.stop().await;
    online(&mut older).await;
    assert!(second.is_online(FIRST));
}
