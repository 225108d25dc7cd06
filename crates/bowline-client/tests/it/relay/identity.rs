//! Whose key it is: pins, changes, approval.

use bowline_client::relay::{
    ClientClosed, ClientConfig, ClientEvent, DaemonConfig, Pins, RelayClient,
};
use bowline_sbrp::id::DaemonId;

use super::world::{FIRST, World, closed, established, event, identity};

/// Another identity under the id that the first one had: what a relay and a control plane that
/// work together could do.
async fn usurped(world: &World) -> bowline_client::relay::RelayDaemon {
    world.daemon().await.stop().await;
    world.control.hand_over(&key(1), &key(2));
    world.daemon_with(DaemonConfig::new(world.plane(), identity(2))).await
}

fn key(seed: u8) -> String {
    use base64::Engine as _;
    let bytes = *identity(seed).public().as_bytes();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test]
async fn sbrp_client_02_a_changed_key_ends_everything_until_it_is_approved() {
    let world = World::start().await;
    {
        let _daemon = world.daemon().await;
        established(&mut world.client()).await;
    }
    let _other = usurped(&world).await;
    let [old, new] = [1, 2].map(|seed| identity(seed).public().fingerprint());

    let ended = closed(&mut world.client()).await;
    assert_eq!(ended.code(), Some(0xE001));
    let ClientClosed::KeyChanged(change) = ended else { panic!("{ended:?}") };
    assert_eq!((change.pinned(), change.offered()), (old, new));
    // Not approved: nothing changed.
    assert!(matches!(closed(&mut world.client()).await, ClientClosed::KeyChanged(_)));

    let approved = world.client_config().approve(*change).unwrap();
    let session = established(&mut RelayClient::connect(approved)).await;
    assert_eq!(session.fingerprint(), new);
    // And kept: from now on the new one needs no approval.
    assert_eq!(established(&mut world.client()).await.fingerprint(), new);
}

#[tokio::test]
async fn sbrp_client_08_a_key_that_cannot_be_kept_is_said_so() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    let file = world.folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    for pins in [Pins::nowhere(), Pins::file("/proc/no/such/place/pins.json")] {
        let config = ClientConfig::new(world.plane(), DaemonId::new(FIRST), pins);
        let mut client = RelayClient::connect(config);
        let first = event(&mut client).await;
        assert!(matches!(first, ClientEvent::NotPinned(_)), "{first:?}");
        assert!(matches!(event(&mut client).await, ClientEvent::Established { .. }));
    }
}

#[tokio::test]
async fn sbrp_client_02_pins_that_cannot_be_understood_let_nobody_in() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    established(&mut world.client()).await;
    let path = world.folder.path().join("pins.json");
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(matches!(closed(&mut world.client()).await, ClientClosed::Pins(_)));
}

#[tokio::test]
async fn sbrp_client_01_what_did_not_prove_itself_is_not_pinned() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    // The relay puts a key of its own into the accept.
    let forged = *identity(9).public().as_bytes();
    world.relay.meddle(move |_, message| {
        let mut message = message.to_vec();
        if message[0] == 0x02 {
            message[13..45].copy_from_slice(&forged);
        }
        vec![message.into()]
    });
    let ended = closed(&mut world.client()).await;
    assert_eq!(ended.code(), Some(0xE002), "{ended:?}");
    assert!(!world.folder.path().join("pins.json").exists());
}
