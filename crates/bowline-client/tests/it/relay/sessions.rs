//! Sessions from their beginning to their end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::{
    ClientClosed, ClientConfig, ClientEvent, ControlError, LivenessConfig, LossReason, RelayClient,
    SendError, SessionEnd,
};
use bowline_sbrp::control::{Code, ControlCode, Role, SdkCode};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::sealed::MAX_PLAINTEXT;

use super::control::plane_at;
use super::world::{World, closed, established, event, heard, lost, opened, until};
use crate::gateway::within;

#[tokio::test]
async fn sbrp_crypto_01_messages_go_both_ways_and_the_relay_cannot_read_them() {
    let world = World::start().await;
    let (_daemon, mut here, _client, mut there) = world.pair().await;
    assert_eq!(here.id(), there.id());
    assert_eq!(here.fingerprint(), there.fingerprint());
    for n in 0..100u8 {
        there.send([b"canary", &[n][..]].concat()).await.unwrap();
        here.send([b"canary", &[n][..]].concat()).await.unwrap();
    }
    let long = vec![7; MAX_PLAINTEXT];
    there.send(long.clone()).await.unwrap();
    for n in 0..100u8 {
        assert_eq!(heard(&mut here).await, [b"canary", &[n][..]].concat());
        assert_eq!(heard(&mut there).await, [b"canary", &[n][..]].concat());
    }
    assert_eq!(heard(&mut here).await, long);
    let passed = world.relay.passed.lock().unwrap();
    assert!(passed.len() > 2 * 100 * 6 && !passed.windows(6).any(|six| six == b"canary"));
}

#[tokio::test]
async fn sbrp_daemon_03_a_client_that_leaves_ends_its_session_after_its_last_word() {
    let world = World::start().await;
    let (_daemon, mut here, _client, there) = world.pair().await;
    for n in 0..20 {
        there.send(vec![n]).await.unwrap();
    }
    drop(there);
    for n in 0..20 {
        assert_eq!(heard(&mut here).await, [n]);
    }
    assert_eq!(within("the end", here.recv()).await, None);
    assert_eq!(here.end(), Some(SessionEnd::Left));
    assert_eq!(here.send(vec![1]).await, Err(SendError::Ended(SessionEnd::Left)));
}

#[tokio::test]
async fn sbrp_client_04_a_session_that_is_dropped_or_closed_is_followed_by_a_new_one() {
    let world = World::start().await;
    let (mut daemon, here, mut client, mut there) = world.pair().await;
    let first = there.id();
    drop(here);
    assert_eq!(within("the end", there.recv()).await, None);
    let expired = LossReason::Told(Code::Known(ControlCode::SessionExpired));
    assert_eq!(there.end(), Some(SessionEnd::Lost(expired.clone())));
    assert_eq!(lost(&mut client).await, expired);
    let again = established(&mut client).await;
    assert_ne!(again.id(), first);
    assert_eq!(opened(&mut daemon).await.id(), again.id());
}

#[tokio::test]
async fn sbrp_relay_13_a_client_waits_for_a_daemon_that_is_offline() {
    let world = World::start().await;
    world.daemon().await.stop().await;
    let mut client = world.client();
    let offline = LossReason::Told(Code::Known(ControlCode::DaemonOffline));
    assert_eq!(lost(&mut client).await, offline);
    assert_eq!(offline.code(), Some(0x0202));
    let _daemon = world.daemon().await;
    established(&mut client).await;
}

#[tokio::test]
async fn what_no_wait_can_mend_ends_the_client() {
    let world = World::start().await;
    let unknown = ClientConfig::new(world.plane(), DaemonId::new("none"), "none", world.known());
    let end = closed(&mut RelayClient::connect(unknown)).await;
    assert!(matches!(end, ClientClosed::Control(ControlError::Refused { status: 404, .. })));
    let plane = plane_at(world.control.port, "wrong");
    let stranger = ClientConfig::new(plane, DaemonId::new("none"), "none", world.known());
    let end = closed(&mut RelayClient::connect(stranger)).await;
    assert!(matches!(end, ClientClosed::Control(ControlError::Refused { status: 401, .. })));
}

#[tokio::test]
async fn a_control_plane_that_is_away_is_asked_again() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    world.control.broken.store(503, Ordering::SeqCst);
    let mut client = world.client();
    assert!(matches!(lost(&mut client).await, LossReason::Control(ControlError::Refused { .. })));
    world.control.broken.store(0, Ordering::SeqCst);
    established(&mut client).await;
}

#[tokio::test]
async fn sbrp_client_06_a_handshake_that_is_not_answered_ends_after_its_time() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    // Accepts are held back; everything else passes.
    world.relay.meddle(|_, message| if message[0] == 0x02 { vec![] } else { vec![message] });
    let mut client = world.client();
    until("the handshake", || !world.relay.passed.lock().unwrap().is_empty()).await;
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let Some(ClientEvent::Lost { reason, .. }) = client.next().await else { panic!("not lost") };
    assert_eq!(
        (&reason, reason.code()),
        (&LossReason::Sdk(SdkCode::HandshakeTimeout), Some(0xE003))
    );
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(25) && waited < Duration::from_secs(31), "{waited:?}");
}

#[tokio::test]
async fn an_idle_connection_is_pinged_and_kept() {
    let world = World::start().await;
    let watch = LivenessConfig::new(Duration::from_millis(10), Duration::from_secs(45));
    let _daemon = world.daemon().await;
    let mut config = world.client_config();
    config.liveness = watch;
    let mut client = RelayClient::connect(config);
    let there = established(&mut client).await;
    until("pings", || world.relay.pings.load(Ordering::SeqCst) > 5).await;
    assert_eq!(there.end(), None);
}

#[tokio::test]
async fn a_relay_that_falls_silent_is_taken_for_lost_at_both_ends() {
    let world = World::start().await;
    let watch = LivenessConfig::new(Duration::from_millis(500), Duration::from_secs(5));
    let mut config = world.daemon_config();
    config.liveness = watch;
    let mut daemon = world.daemon_with(config).await;
    let mut config = world.client_config();
    config.liveness = watch;
    let mut client = RelayClient::connect(config);
    let _there = established(&mut client).await;
    world.relay.mute.store(true, Ordering::SeqCst);
    assert_eq!(lost(&mut client).await, LossReason::Silent);
    let daemons = async {
        loop {
            if let Some(bowline_client::relay::DaemonEvent::Lost { reason, .. }) =
                daemon.next().await
            {
                return reason;
            }
        }
    };
    assert_eq!(within("the daemon's loss", daemons).await, LossReason::Silent);
}

#[tokio::test]
async fn sbrp_client_07_what_a_relay_makes_up_ends_the_connection_and_no_more() {
    let world = World::start().await;
    let (_daemon, _here, mut client, there) = world.pair().await;
    let first = there.id();
    world.relay.inject(Role::Client, vec![0x55; 20].into());
    assert!(matches!(lost(&mut client).await, LossReason::Garbled(_)));
    assert_ne!(established(&mut client).await.id(), first);
}

#[tokio::test]
async fn closing_a_client_ends_its_session_and_says_so() {
    let world = World::start().await;
    let (_daemon, mut here, client, mut there) = world.pair().await;
    client.close().await;
    assert_eq!((there.recv().await, there.end()), (None, Some(SessionEnd::Here)));
    assert_eq!(within("the end", here.recv()).await, None);
    let mut client = world.client();
    established(&mut client).await;
    drop(client);
}

#[tokio::test]
async fn events_tell_where_and_whether_for_the_first_time() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    let host = format!("127.0.0.1:{}", world.relay.port);
    for expected in [true, false] {
        let mut client = world.client();
        let ClientEvent::Established { relay, first_use, .. } = event(&mut client).await else {
            panic!("not established")
        };
        assert_eq!((relay, first_use), (host.clone(), expected));
    }
}
