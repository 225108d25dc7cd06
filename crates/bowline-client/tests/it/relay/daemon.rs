//! The daemon among others: replaced, stopped, flooded.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::{
    DaemonClosed, DaemonConfig, DaemonEvent, LossReason, RelayDaemon, SessionEnd, load_or_create,
};
use bowline_sbrp::control::{Code, ControlCode};
use bowline_sbrp::frame::{Reason, Signal};

use super::control::plane_at;
use super::world::{World, established, heard, identity, lost, online, opened, until};
use crate::gateway::within;

async fn told<T>(daemon: &mut RelayDaemon, pick: impl Fn(DaemonEvent) -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = pick(daemon.next().await.unwrap()) {
                return found;
            }
        }
    };
    within("the daemon's news", looking).await
}

#[tokio::test]
async fn sbrp_relay_18_a_replaced_daemon_does_not_fight_and_comes_back_when_the_other_is_gone() {
    // With a close code that says so, and with one that says nothing.
    for code in [4009, 1000] {
        let world = World::start().await;
        world.relay.replaced_code.store(code, Ordering::SeqCst);
        let mut config = world.daemon_config();
        config.replaced_wait = Duration::from_millis(20);
        let mut older = world.daemon_with(config).await;
        let mut client = world.client();
        let _there = established(&mut client).await;
        let mut here = opened(&mut older).await;
        let newer = world.daemon().await;
        let replaced = |event| matches!(event, DaemonEvent::Replaced { .. }).then_some(());
        told(&mut older, replaced).await;
        assert_eq!(
            (within("the end", here.recv()).await, here.end()),
            (None, Some(SessionEnd::Left))
        );
        // It looks again and again, and stays away.
        let looked = world.control.lists.load(Ordering::SeqCst);
        until("looks", || world.control.lists.load(Ordering::SeqCst) > looked + 5).await;
        assert_eq!(world.relay.daemons_seen.load(Ordering::SeqCst), 2, "nobody fights");
        newer.stop().await;
        online(&mut older).await;
        assert_eq!(world.relay.daemons_seen.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn sbrp_daemon_05_a_process_that_starts_anew_ends_the_sessions_it_cannot_know_at_once() {
    let world = World::start().await;
    let (_old, _here, mut client, there) = world.pair().await;
    // As after a crash: the same identity, nothing remembered. The grace is longer than this test.
    let mut new = world.daemon().await;
    assert_eq!(lost(&mut client).await, LossReason::Told(Code::Known(ControlCode::SessionExpired)));
    let again = established(&mut client).await;
    assert_ne!(again.id(), there.id());
    assert_eq!(opened(&mut new).await.id(), again.id());
    // It has no ids to close: the relay ended them, because the token does not resume.
    assert_eq!(*world.relay.signals.lock().unwrap(), []);
}

#[tokio::test]
async fn sbrp_daemon_05_close_is_sent_for_a_session_that_cannot_go_on() {
    let world = World::start().await;
    let mut config = world.daemon_config();
    config.replaced_wait = Duration::from_millis(20);
    let mut older = world.daemon_with(config).await;
    let mut client = world.client();
    let there = established(&mut client).await;
    let _here = opened(&mut older).await;
    // Another process with the same identity, and gone again: the session was not kept.
    let newer = world.daemon().await;
    let replaced = |event| matches!(event, DaemonEvent::Replaced { .. }).then_some(());
    told(&mut older, replaced).await;
    newer.stop().await;
    world.relay.from_daemons.lock().unwrap().clear();
    online(&mut older).await;
    // Signal, two bytes, the session; close, state_lost.
    let close =
        [&[0x04, 0, 0, 0, 2][..], &there.id().to_wire().to_be_bytes(), &[0x01, 0x01]].concat();
    until("a signal", || {
        world.relay.from_daemons.lock().unwrap().first() == Some(&close.clone().into())
    })
    .await;
    assert_ne!(established(&mut client).await.id(), there.id());
}

#[tokio::test]
async fn sbrp_relay_18_a_replaced_daemon_does_not_fight_when_nobody_knows_who_is_there() {
    let world = World::start().await;
    world.control.blind.store(true, Ordering::SeqCst);
    let mut config = world.daemon_config();
    config.replaced_wait = Duration::from_millis(20);
    let mut older = world.daemon_with(config).await;
    let newer = world.daemon().await;
    let replaced = |event| matches!(event, DaemonEvent::Replaced { .. }).then_some(());
    told(&mut older, replaced).await;
    let looked = world.control.lists.load(Ordering::SeqCst);
    until("looks", || world.control.lists.load(Ordering::SeqCst) > looked + 5).await;
    assert_eq!(world.relay.daemons_seen.load(Ordering::SeqCst), 2, "it stays away");
    newer.stop().await;
    // It cannot know that, and goes to see in the end.
    online(&mut older).await;
    assert!(world.control.lists.load(Ordering::SeqCst) >= 20);
}

#[tokio::test]
async fn sbrp_daemon_06_a_stop_closes_every_session_as_shutdown() {
    let world = World::start().await;
    let (mut daemon, mut here, mut client, _there) = world.pair().await;
    let mut second = world.client();
    let _other_there = established(&mut second).await;
    let mut other = opened(&mut daemon).await;
    daemon.stop().await;
    for session in [&mut here, &mut other] {
        assert_eq!(within("the end", session.recv()).await, None);
        assert!(session.end().is_some());
    }
    for client in [&mut client, &mut second] {
        assert_eq!(lost(client).await, LossReason::Told(Code::Known(ControlCode::SessionExpired)));
    }
    let shutdown = Signal::close(Reason::Shutdown);
    assert_eq!(*world.relay.signals.lock().unwrap(), [shutdown, shutdown]);
}

#[tokio::test]
async fn sbrp_daemon_02_a_session_that_nobody_reads_is_closed_and_holds_up_no_other() {
    let world = World::start().await;
    let (mut daemon, here, mut client, there) = world.pair().await;
    let mut other_client = world.client();
    let mut other_there = established(&mut other_client).await;
    let mut other_here = opened(&mut daemon).await;
    let flood = tokio::spawn(async move {
        while there.send(vec![0; 60_000]).await.is_ok() {}
        there.end()
    });
    until("the end", || here.end().is_some()).await;
    assert_eq!(here.end(), Some(SessionEnd::Lost(LossReason::Unread)));
    let expired = LossReason::Told(Code::Known(ControlCode::SessionExpired));
    assert_eq!(
        within("the flood's end", flood).await.unwrap(),
        Some(SessionEnd::Lost(expired.clone()))
    );
    assert_eq!(lost(&mut client).await, expired);
    assert_eq!(*world.relay.signals.lock().unwrap(), [Signal::close(Reason::Policy)]);
    other_there.send(vec![1]).await.unwrap();
    assert_eq!(heard(&mut other_here).await, [1]);
    other_here.send(vec![2]).await.unwrap();
    assert_eq!(heard(&mut other_there).await, [2]);
}

#[tokio::test]
async fn a_client_whose_program_does_not_read_goes_on_when_it_reads_again() {
    let world = World::start().await;
    let (_daemon, here, _client, mut there) = world.pair().await;
    let sending = tokio::spawn(async move {
        for n in 0..60u8 {
            here.send(vec![n; 60_000]).await.unwrap();
        }
        here
    });
    // Past what waits to be read there: the rest waits at the relay.
    until("more than fits", || world.relay.passed.lock().unwrap().len() > 2 << 20).await;
    for n in 0..60 {
        assert_eq!(heard(&mut there).await, vec![n; 60_000]);
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn sbrp_daemon_02_more_clients_than_allowed_are_turned_away() {
    let world = World::start().await;
    let mut config = world.daemon_config();
    config.most_sessions = 1;
    let _daemon = world.daemon_with(config).await;
    let mut first = world.client();
    let kept = established(&mut first).await;
    let mut second = world.client();
    assert_eq!(lost(&mut second).await, LossReason::Told(Code::Known(ControlCode::SessionExpired)));
    drop(kept);
    drop(first);
    established(&mut second).await;
}

#[tokio::test]
async fn sbrp_daemon_07_the_presence_token_is_renewed_before_it_ends() {
    let world = World::start().await;
    world.control.token_life.store(1, Ordering::SeqCst);
    let mut daemon = world.daemon().await;
    until("renewals", || world.control.renewals.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(world.relay.daemons_seen.load(Ordering::SeqCst), 1, "the connection stays");
    world.relay.restart();
    online(&mut daemon).await;
}

#[tokio::test]
async fn a_daemon_whose_key_is_wrong_says_so_and_stops() {
    let world = World::start().await;
    let plane = plane_at(world.control.port, "wrong");
    let mut daemon = RelayDaemon::start(DaemonConfig::new(plane, identity(1)));
    let closed = told(&mut daemon, |event| match event {
        DaemonEvent::Closed(closed) => Some(closed),
        _ => None,
    });
    let closed = closed.await;
    assert!(matches!(closed, DaemonClosed::Control(_)), "{closed:?}");
    assert!(daemon.next().await.is_none());
}

#[tokio::test]
async fn sbrp_daemon_01_the_identity_of_a_file_is_the_one_registered() {
    let world = World::start().await;
    let path = world.folder.path().join("identity");
    let fingerprint = load_or_create(&path).unwrap().public().fingerprint();
    for _ in 0..2 {
        let config = DaemonConfig::new(world.plane(), load_or_create(&path).unwrap());
        let _daemon = world.daemon_with(config).await;
        let session = established(&mut world.client()).await;
        assert_eq!(session.fingerprint(), fingerprint);
    }
    assert_eq!(world.plane().daemons().await.unwrap().len(), 1);
}
