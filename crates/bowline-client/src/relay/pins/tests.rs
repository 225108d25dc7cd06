//! What every store of pins promises.

use bowline_sbrp::frame::Frame;
use bowline_sbrp::handshake::{AwaitAccept, Ephemeral, answer};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::IdentitySecret;
use zeroize::Zeroizing;

use super::*;

/// Only a handshake produces a verified identity.
fn proven(seed: u8, daemon: &DaemonId) -> VerifiedIdentity {
    let session = SessionId::from_wire(1).unwrap();
    let ephemeral = |byte| Ephemeral::from_random(Zeroizing::new([byte; 32]));
    let (waiting, init) = AwaitAccept::start(session, daemon.clone(), ephemeral(1));
    let Frame::HandshakeInit { payload, .. } = init else { panic!("{init:?}") };
    let secret = IdentitySecret::from_seed(&[seed; 32]);
    let done = answer(session, &payload, daemon, &secret, ephemeral(2)).unwrap();
    let Frame::HandshakeAccept { payload, .. } = done.accept else { panic!() };
    waiting.accept(&payload, &Trust::FirstUse).unwrap().identity
}

fn contract(pins: &dyn PinStore) {
    let (home, other) = (DaemonId::new("d-1"), DaemonId::new("d-2"));
    let (one, two) = (proven(1, &home), proven(2, &home));
    let fingerprint = |identity: &VerifiedIdentity| identity.key().fingerprint();

    assert_eq!(pins.trust("home", &home), Ok(Trust::FirstUse));
    pins.keep("home", &home, &one, false).unwrap();
    assert_eq!(pins.trust("home", &home), Ok(Trust::Key(*one.key())));
    pins.keep("home", &home, &one, false).unwrap();
    assert_eq!(pins.trust("work", &home), Ok(Trust::FirstUse), "a pin belongs to its name");

    let led_elsewhere = |offered_key| {
        KnownError::OtherDaemon(OtherDaemon {
            pinned: home.clone(),
            pinned_key: fingerprint(&one),
            offered: other.clone(),
            offered_key,
        })
    };
    assert_eq!(pins.trust("home", &other), Err(led_elsewhere(None)));
    let moved = pins.keep("home", &other, &proven(2, &other), false);
    assert_eq!(moved, Err(led_elsewhere(Some(fingerprint(&two)))));
    let changed = pins.keep("home", &home, &two, false);
    assert!(matches!(changed, Err(KnownError::OtherDaemon(_))), "{changed:?}");
    assert_eq!(pins.trust("home", &home), Ok(Trust::Key(*one.key())), "nothing was changed");

    pins.keep("home", &other, &proven(2, &other), true).unwrap();
    assert_eq!(pins.trust("home", &other), Ok(Trust::Key(*two.key())));
}

#[test]
fn sbrp_client_01_pins_in_memory_keep_the_promises() {
    let pins = MemoryPins::new();
    contract(&pins.clone());
    assert!(pins.trust("home", &DaemonId::new("d-1")).is_err(), "clones share them");
}

#[cfg(feature = "files")]
#[test]
fn sbrp_client_01_pins_in_a_file_keep_the_promises() {
    let folder = tempfile::tempdir().unwrap();
    contract(&crate::relay::KnownDaemons::file(folder.path().join("known.json")));
}
