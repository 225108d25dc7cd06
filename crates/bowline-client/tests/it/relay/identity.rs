//! Whose key it is: pins, changes, approval.

use bowline_client::relay::tunnel::{DeviceIdentity, TunnelClient, TunnelClosed};
use bowline_client::relay::{
    ClientClosed, ClientConfig, ClientEvent, DaemonConfig, KnownDaemons, KnownError, RelayClient,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::pairing::PairingCode;

use super::world::{FIRST, World, closed, established, event, identity, opened};
use crate::gateway::within;

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
    assert_eq!((change.pinned, change.offered), (old, new));
    // Not approved: nothing changed.
    assert!(matches!(closed(&mut world.client()).await, ClientClosed::KeyChanged(_)));

    let approved = world.client_config().vouched_for(change.offered);
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
    for known in [KnownDaemons::nowhere(), KnownDaemons::file("/proc/no/such/place/known.json")] {
        let config = ClientConfig::new(world.plane(), DaemonId::new(FIRST), "home", known);
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
    let path = world.folder.path().join("known.json");
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(matches!(closed(&mut world.client()).await, ClientClosed::Known(_)));
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
    assert!(!world.folder.path().join("known.json").exists());
}

/// An operator of the control plane lets a name lead to a daemon of its own.
#[tokio::test]
async fn g22_a_name_that_leads_to_another_daemon_id_is_refused_before_anything_is_said() {
    let world = World::start().await;
    {
        let _daemon = world.daemon().await;
        established(&mut world.client()).await;
    }
    let mut impostor = world.daemon_with(DaemonConfig::new(world.plane(), identity(2))).await;
    let swapped =
        || ClientConfig::new(world.plane(), DaemonId::new("daemon-2"), "home", world.known());
    let ended = closed(&mut RelayClient::connect(swapped())).await;
    let ClientClosed::Known(KnownError::OtherDaemon(other)) = ended else { panic!("{ended:?}") };
    assert_eq!(other.pinned_key, identity(1).public().fingerprint());
    assert_eq!((other.pinned.as_str(), other.offered.as_str()), (FIRST, "daemon-2"));
    // With a fingerprint that a person vouches for, only that key is taken.
    let wrong = swapped().vouched_for(identity(3).public().fingerprint());
    let ended = closed(&mut RelayClient::connect(wrong)).await;
    assert!(matches!(ended, ClientClosed::KeyChanged(_)), "{ended:?}");
    // The impostor shook hands, and heard nothing.
    assert_eq!(opened(&mut impostor).await.recv().await, None);
    let right = swapped().vouched_for(identity(2).public().fingerprint());
    established(&mut RelayClient::connect(right)).await;
    established(&mut RelayClient::connect(swapped())).await;
}

#[tokio::test]
async fn sbrp_client_01_a_vouched_fingerprint_is_pinned_without_a_first_use() {
    let world = World::start().await;
    let _daemon = world.daemon().await;
    let right = identity(1).public().fingerprint();
    let config = world.client_config().vouched_for(right);
    let told = event(&mut RelayClient::connect(config)).await;
    let ClientEvent::Established { first_use, identity: proven, .. } = told else { panic!() };
    assert!(!first_use && proven.key().fingerprint() == right);
    assert!(world.known().look_up("home").unwrap().is_some());
}

/// Relay and control plane together put a daemon of their own in the place of the one that shows a code.
#[tokio::test]
async fn g22_a_pairing_code_tells_an_impostor_nothing() {
    let world = World::start().await;
    let mut impostor = usurped(&world).await;
    let identity_in_the_code = identity(1).public().fingerprint();
    let config = world.client_config().vouched_for(identity_in_the_code);
    let who = DeviceIdentity::Pairing {
        device: std::sync::Arc::new(identity(7)),
        code: PairingCode::from_random([3; 16]),
        name: "phone".into(),
    };
    let refused = within("the refusal", TunnelClient::connect(config, who).connected()).await;
    let Err(TunnelClosed::Client(ClientClosed::KeyChanged(change))) = refused else { panic!() };
    assert_eq!(change.offered, identity(2).public().fingerprint());
    assert_eq!(opened(&mut impostor).await.recv().await, None, "nothing was said to it");
    assert!(world.known().look_up("home").unwrap().is_none(), "and nothing is pinned");
}
