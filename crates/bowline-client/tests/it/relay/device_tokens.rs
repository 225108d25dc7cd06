//! A paired device gets its session tokens with its own key, without the owner's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_client::relay::{ClientClosed, ClientConfig, ControlError, ControlPlane, RelayClient};
use bowline_sbrp::api::DeviceKey;
use bowline_sbrp::id::{DaemonId, SessionId};

use super::control::plane_at;
use super::world::{FIRST, World, closed, established, heard, identity, opened};

const PHONE: u8 = 101;

fn device(world: &World, seed: u8) -> ControlPlane {
    device_at(world.control.port, seed)
}

fn device_at(port: u16, seed: u8) -> ControlPlane {
    let base = format!("http://127.0.0.1:{port}").parse().unwrap();
    ControlPlane::for_device(base, Arc::new(identity(seed))).unwrap()
}

fn entry(seed: u8, expires_at: Option<u64>) -> DeviceKey {
    DeviceKey { key: identity(seed).public(), expires_at }
}

/// The first daemon, with the phone as its device.
async fn paired(world: &World) -> DaemonId {
    let made = world.plane().register(&identity(1).public(), None, true).await.unwrap();
    let daemon = DaemonId::new(made.daemon_id);
    world.plane().set_devices(&daemon, &[entry(PHONE, None)]).await.unwrap();
    daemon
}

#[tokio::test]
async fn sbrp_peer_01_a_device_opens_sessions_with_its_own_key() {
    let world = World::start().await;
    let daemon = paired(&world).await;
    let opened = device(&world, PHONE).open_session(&daemon).await.unwrap();
    assert!(opened.session_id.parse::<SessionId>().is_ok());
    assert_eq!(world.control.signed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sbrp_peer_01_a_device_reaches_its_daemon_without_the_owners_key() {
    let world = World::start().await;
    let mut daemon = world.daemon().await;
    world.plane().set_devices(&DaemonId::new(FIRST), &[entry(PHONE, None)]).await.unwrap();
    let control = device(&world, PHONE);
    let config = ClientConfig::new(control, DaemonId::new(FIRST), "home", world.known());
    let mut client = RelayClient::connect(config);
    let there = established(&mut client).await;
    let mut here = opened(&mut daemon).await;
    there.send(b"hello".to_vec()).await.unwrap();
    assert_eq!(heard(&mut here).await, b"hello");
}

#[tokio::test]
async fn the_devices_of_a_daemon_are_set_as_a_whole() {
    let world = World::start().await;
    let daemon = paired(&world).await;
    let devices = [entry(102, Some(1_900_000_000)), entry(103, None)];
    world.plane().set_devices(&daemon, &devices).await.unwrap();
    let stored = world.control.devices.lock().unwrap()[daemon.as_str()].clone();
    assert_eq!(stored.len(), 2);
    assert!(devices.iter().all(|one| stored.contains(one)));
    let refused = device(&world, PHONE).open_session(&daemon).await.unwrap_err();
    assert!(refused.is_unknown_device(), "{refused:?}");
    device(&world, 103).open_session(&daemon).await.unwrap();
    world.plane().set_devices(&daemon, &[]).await.unwrap();
    assert!(device(&world, 103).open_session(&daemon).await.unwrap_err().is_unknown_device());
}

#[tokio::test]
async fn an_unknown_device_is_told_apart_from_a_wrong_key() {
    let world = World::start().await;
    let daemon = paired(&world).await;
    let unknown = device(&world, 102).open_session(&daemon).await.unwrap_err();
    assert!(unknown.is_unknown_device() && !unknown.may_pass(), "{unknown:?}");
    let nobody = plane_at(world.control.port, "another-key");
    let wrong = nobody.open_session(&daemon).await.unwrap_err();
    assert!(!wrong.is_unknown_device() && !wrong.may_pass(), "{wrong:?}");
    world.control.broken.store(503, Ordering::SeqCst);
    let broken = device(&world, PHONE).open_session(&daemon).await.unwrap_err();
    assert!(!broken.is_unknown_device() && broken.may_pass(), "{broken:?}");

    world.control.broken.store(0, Ordering::SeqCst);
    let config = ClientConfig::new(device(&world, 102), daemon, "home", world.known());
    let end = closed(&mut RelayClient::connect(config)).await;
    assert!(matches!(end, ClientClosed::Control(error) if error.is_unknown_device()));
}

#[tokio::test]
async fn a_device_with_a_wrong_clock_signs_again_and_remembers() {
    let world = World::start().await;
    let daemon = paired(&world).await;
    let day = Duration::from_secs(24 * 3600).as_secs() as i64;
    let phone = device(&world, PHONE);
    let mut requests = 0;
    for ahead in [day, -day, 0] {
        world.control.ahead.store(ahead, Ordering::SeqCst);
        phone.open_session(&daemon).await.unwrap();
        requests += 2;
        assert_eq!(world.control.signed.load(Ordering::SeqCst), requests, "{ahead}");
        phone.clone().open_session(&daemon).await.unwrap();
        requests += 1;
        assert_eq!(world.control.signed.load(Ordering::SeqCst), requests, "remembered");
    }
    let unknown = device(&world, 102);
    world.control.ahead.store(day, Ordering::SeqCst);
    assert!(unknown.open_session(&daemon).await.unwrap_err().is_unknown_device());
}

#[tokio::test]
async fn a_control_plane_that_refuses_its_own_time_is_not_asked_for_ever() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let mut requests = 0;
        for now in [7, u64::MAX] {
            let (mut stream, _) = listener.accept().await.unwrap();
            super::control::request(&mut stream).await.unwrap();
            requests += 1;
            let body = format!(r#"{{"error":{{"code":"clock_skew","message":"x","now":{now}}}}}"#);
            let answer = format!(
                "HTTP/1.1 401 X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes()).await.unwrap();
        }
        requests
    });
    let refused = device_at(port, PHONE).open_session(&DaemonId::new("d")).await.map(drop);
    assert_eq!(refused, Err(ControlError::ClockSkew { now: u64::MAX }));
    assert_eq!(serving.await.unwrap(), 2);
}

#[tokio::test]
async fn a_device_cannot_do_what_needs_the_owners_key() {
    let world = World::start().await;
    let daemon = paired(&world).await;
    let phone = device(&world, PHONE);
    let needs_key = Err(ControlError::NeedsKey);
    assert_eq!(phone.register(&identity(2).public(), None, true).await.map(drop), needs_key);
    assert_eq!(phone.renew(&daemon).await.map(drop), needs_key);
    assert_eq!(phone.daemons().await.map(drop), needs_key);
    assert_eq!(phone.rename(&daemon, "mine").await, needs_key);
    assert_eq!(phone.revoke(&daemon).await, needs_key);
    assert_eq!(phone.set_devices(&daemon, &[entry(PHONE, None)]).await, needs_key);
    assert!(!ControlError::NeedsKey.may_pass());
}
