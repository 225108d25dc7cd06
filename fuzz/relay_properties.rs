//! What must hold for any bytes that reach the control plane. The fuzzer looks for bytes for which
//! it does not; the crate's tests try some thousands with the stable compiler.

use bowline_sbrp::api::{
    DeviceEntry, LONGEST_ID, LONGEST_NAME, MOST_DEVICES, OpenDeviceSession, OpenSession, Register,
    SetDevices,
};
use bowline_sbrp::identity::IdentityKey;

/// A request's body is refused, or says something within bounds, the same when it is said again.
pub(super) fn control_body(bytes: &[u8]) -> bool {
    let opened = OpenSession::read(bytes);
    if let Ok(asked) = &opened {
        assert!((1..=LONGEST_ID).contains(&asked.daemon_id.len()));
        let again = serde_json::to_vec(asked).expect("a text serialises");
        assert_eq!(OpenSession::read(&again).as_ref(), Ok(asked));
    }
    let of_devices = set_devices(bytes) | device_session(bytes);
    let Ok(asked) = Register::read(bytes) else { return opened.is_ok() || of_devices };
    assert_eq!(IdentityKey::from_bytes(asked.identity.as_bytes()), Ok(asked.identity), "a fit key");
    if let Some(name) = &asked.name {
        assert!((1..=LONGEST_NAME).contains(&name.chars().count()), "{name}");
        assert!(!name.contains(char::is_control), "{name:?}");
    }
    let said = Register {
        api_key: asked.api_key.clone(),
        identity_public_key: base64url(asked.identity.as_bytes()),
        name: asked.name.clone(),
        resumable: asked.resumable,
        process: asked.process.clone(),
    };
    let said = serde_json::to_vec(&said).expect("texts serialise");
    let again = Register::read(&said).expect("what was understood can be said again");
    assert_eq!(again.identity, asked.identity);
    assert_eq!(
        (again.api_key, again.name, again.resumable, again.process),
        (asked.api_key, asked.name, asked.resumable, asked.process)
    );
    true
}

fn set_devices(bytes: &[u8]) -> bool {
    let Ok(devices) = SetDevices::read(bytes) else { return false };
    assert!(devices.len() <= MOST_DEVICES);
    let said = SetDevices { devices: devices.iter().map(DeviceEntry::from).collect() };
    let said = serde_json::to_vec(&said).expect("texts and numbers serialise");
    assert_eq!(SetDevices::read(&said), Ok(devices));
    true
}

fn device_session(bytes: &[u8]) -> bool {
    let Ok(Some(asked)) = OpenDeviceSession::read(bytes) else { return false };
    assert!((1..=LONGEST_ID).contains(&asked.daemon.as_str().len()));
    let said = serde_json::to_vec(&OpenDeviceSession::from(&asked)).expect("texts serialise");
    assert_eq!(OpenDeviceSession::read(&said), Ok(Some(asked)));
    true
}

/// By hand, so that the property does not lean on the library that it tries.
fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let group = |three: &[u8]| {
        let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - three.len()));
        let digits = (0..=three.len()).map(move |n| DIGITS[(word >> (18 - 6 * n)) as usize & 63]);
        digits.map(char::from).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
