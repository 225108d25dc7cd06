//! The daemon is away for a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::{ClientEvent, LossReason, SendError};
use bowline_sbrp::control::{Code, ControlCode, Role};

use super::world::{World, established, event, heard, lost, opened};

#[tokio::test]
async fn sbrp_daemon_05_sessions_go_on_after_the_daemons_connection_was_lost() {
    let world = World::start().await;
    let (_daemon, mut here, mut client, mut there) = world.pair().await;
    for round in 0..3 {
        there.send(vec![round]).await.unwrap();
        assert_eq!(heard(&mut here).await, [round]);
        here.send(vec![round]).await.unwrap();
        assert_eq!(heard(&mut there).await, [round]);
        world.relay.cut(Role::Daemon);
        assert!(matches!(event(&mut client).await, ClientEvent::Paused));
        assert!(matches!(event(&mut client).await, ClientEvent::Pending));
        assert!(matches!(event(&mut client).await, ClientEvent::Resumed));
    }
    there.send(b"the same keys".to_vec()).await.unwrap();
    assert_eq!(heard(&mut here).await, b"the same keys");
    assert_eq!(world.relay.clients_seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sbrp_daemon_05_ready_is_sent_for_each_session_before_anything_else() {
    let world = World::start().await;
    let (mut daemon, here, mut client, mut there) = world.pair().await;
    let mut other_client = world.client();
    let other_there = established(&mut other_client).await;
    let _other_here = opened(&mut daemon).await;
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.cut(Role::Daemon);
    assert!(matches!(event(&mut client).await, ClientEvent::Paused));
    here.send(b"from here".to_vec()).await.unwrap();
    world.relay.from_daemons.lock().unwrap().clear();
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    assert_eq!(heard(&mut there).await, b"from here");

    let mut ids = [there.id().to_wire(), other_there.id().to_wire()];
    ids.sort_unstable();
    // Signal, two bytes, the session; ready, no reason.
    let ready = |id: u64| [&[0x04, 0, 0, 0, 2][..], &id.to_be_bytes(), &[0, 0]].concat();
    let sent = world.relay.from_daemons.lock().unwrap();
    assert_eq!(sent[..2], [ready(ids[0]), ready(ids[1])]);
    assert_eq!((sent.len(), sent[2][0]), (3, 0x03), "then what waited");
}

#[tokio::test]
async fn sbrp_client_05_what_is_sent_during_a_pause_is_bounded_and_arrives_after_it() {
    let world = World::start().await;
    let (_daemon, mut here, mut client, mut there) = world.pair().await;
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.cut(Role::Daemon);
    assert!(matches!(event(&mut client).await, ClientEvent::Paused));
    let mut taken = 0u16;
    let full = loop {
        match there.try_send(taken.to_be_bytes().to_vec()) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000, "what waits has a bound");
    };
    assert_eq!(full, SendError::Full);
    // The daemon speaks, too, and hears later that it was away.
    here.send(b"from here".to_vec()).await.unwrap();
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    for n in 0..taken {
        assert_eq!(heard(&mut here).await, n.to_be_bytes());
    }
    assert_eq!(heard(&mut there).await, b"from here");
}

#[tokio::test]
async fn sbrp_relay_19_a_message_that_the_relay_discarded_ends_the_session() {
    let world = World::start().await;
    let (mut daemon, _here, mut client, there) = world.pair().await;
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.cut(Role::Daemon);
    assert!(matches!(event(&mut client).await, ClientEvent::Paused));
    // As if a message had been on its way: told once more.
    let paused = bowline_sbrp::frame::Frame::control(ControlCode::SessionPaused, Some(there.id()));
    world.relay.inject(Role::Client, paused.encode());
    let reason = lost(&mut client).await;
    assert_eq!((&reason, reason.code()), (&LossReason::Discarded, Some(0xE005)));
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    let again = established(&mut client).await;
    let mut here = opened(&mut daemon).await;
    again.send(vec![1]).await.unwrap();
    assert_eq!(heard(&mut here).await, [1]);
}

#[tokio::test]
async fn sbrp_client_05_a_grace_that_is_over_brings_a_new_session() {
    let world = World::start().await;
    world.relay.set_grace(Duration::from_millis(50));
    let (mut daemon, _here, mut client, there) = world.pair().await;
    world.relay.no_daemons.store(true, Ordering::SeqCst);
    world.relay.cut(Role::Daemon);
    assert_eq!(lost(&mut client).await, LossReason::Told(Code::Known(ControlCode::SessionExpired)));
    world.relay.no_daemons.store(false, Ordering::SeqCst);
    let again = established(&mut client).await;
    assert_ne!(again.id(), there.id());
    assert_eq!(opened(&mut daemon).await.id(), again.id());
}

#[tokio::test]
async fn sbrp_client_04_a_relay_that_restarts_is_found_again_by_both() {
    let world = World::start().await;
    let (mut daemon, _here, mut client, there) = world.pair().await;
    world.relay.restart();
    assert_eq!(lost(&mut client).await, LossReason::Broken);
    let mut again = established(&mut client).await;
    assert_ne!(again.id(), there.id());
    let mut here = opened(&mut daemon).await;
    again.send(vec![1]).await.unwrap();
    assert_eq!(heard(&mut here).await, [1]);
    here.send(vec![2]).await.unwrap();
    assert_eq!(heard(&mut again).await, [2]);
}
