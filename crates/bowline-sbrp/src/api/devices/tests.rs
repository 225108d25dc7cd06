use serde_json::json;

use super::*;
use crate::identity::IdentitySecret;

fn key(seed: u8) -> IdentityKey {
    IdentitySecret::from_seed(&[seed; 32]).public()
}

fn spelled(seed: u8) -> String {
    URL_SAFE_NO_PAD.encode(key(seed).as_bytes())
}

fn set(devices: Value) -> Result<Vec<DeviceKey>, BadBody> {
    SetDevices::read(json!({ "devices": devices }).to_string().as_bytes())
}

#[test]
fn a_set_of_devices_is_read_and_written() {
    let devices = [
        DeviceKey { key: key(1), expires_at: None },
        DeviceKey { key: key(2), expires_at: Some(1_900_000_000) },
    ];
    let said = SetDevices { devices: devices.iter().map(DeviceEntry::from).collect() };
    let said = serde_json::to_value(said).unwrap();
    let expected = json!({ "devices": [
        { "publicKey": spelled(1) },
        { "publicKey": spelled(2), "expiresAt": 1_900_000_000 },
    ] });
    assert_eq!(said, expected);
    let mut read = SetDevices::read(said.to_string().as_bytes()).unwrap();
    read.sort_by_key(|device| device.expires_at);
    assert_eq!(read, devices);
    assert_eq!(set(json!([])), Ok(vec![]));
}

#[test]
fn a_key_that_is_named_twice_counts_once_until_the_later_time() {
    let entry = |at: Value| json!({ "publicKey": spelled(1), "expiresAt": at });
    let until = |devices: Value| set(devices).unwrap().iter().map(|d| d.expires_at).collect();
    let one: Vec<_> = until(json!([entry(json!(5)), entry(json!(9)), entry(json!(7))]));
    assert_eq!(one, [Some(9)]);
    let one: Vec<_> = until(json!([entry(json!(5)), entry(Value::Null)]));
    assert_eq!(one, [None]);
}

#[test]
fn g11_a_daemon_has_a_bounded_number_of_devices() {
    let entry = |seed: usize| json!({ "publicKey": spelled(seed as u8) });
    let many = |count: usize| set((0..count).map(entry).collect());
    assert_eq!(many(MOST_DEVICES).unwrap().len(), MOST_DEVICES);
    assert_eq!(many(MOST_DEVICES + 1), Err(BadBody::TooManyDevices));
}

#[test]
fn sbrp_crypto_03_a_weak_key_is_no_device() {
    let mut one = [0; 32];
    one[0] = 1;
    for weak in [[0; 32], one] {
        let weak = URL_SAFE_NO_PAD.encode(weak);
        assert_eq!(set(json!([{ "publicKey": weak }])), Err(BadBody::DeviceKey));
        let device = json!({ "publicKey": weak, "signedAt": 1, "signature": "A".repeat(86) });
        assert_eq!(open(json!({ "daemonId": "d", "device": device })), Err(BadBody::DeviceKey));
    }
}

#[test]
fn what_makes_no_sense_of_a_device_is_refused_by_its_reason() {
    let entry = |at: Value| set(json!([{ "publicKey": spelled(1), "expiresAt": at }]));
    assert_eq!(entry(json!(1_700_000_000_000_u64)), Err(BadBody::ExpiresAt), "milliseconds");
    assert_eq!(entry(json!(u64::MAX)), Err(BadBody::ExpiresAt));
    assert_eq!(entry(json!(-1)), Err(BadBody::Fields));
    assert_eq!(set(json!([{ "publicKey": "AAAA" }])), Err(BadBody::DeviceKey));
    assert_eq!(set(json!([{}])), Err(BadBody::Fields));
    assert_eq!(set(json!({})), Err(BadBody::Fields));
    assert_eq!(SetDevices::read(b"{}"), Err(BadBody::Fields));
    assert_eq!(SetDevices::read(b"[]"), Err(BadBody::NotAnObject));
}

fn open(body: Value) -> Result<Option<DeviceRequest>, BadBody> {
    OpenDeviceSession::read(body.to_string().as_bytes())
}

fn signed() -> Value {
    let device = IdentitySecret::from_seed(&[1; 32]);
    let request = DeviceRequest::sign(&device, &DaemonId::new("d"), 7);
    serde_json::to_value(OpenDeviceSession::from(&request)).unwrap()
}

#[test]
fn a_devices_request_is_read_and_written() {
    let request = open(signed()).unwrap().unwrap();
    assert_eq!((request.daemon.as_str(), request.key, request.signed_at), ("d", key(1), 7));
    assert_eq!(serde_json::to_value(OpenDeviceSession::from(&request)).unwrap(), signed());
    assert!(request.verify(7).is_ok());
}

#[test]
fn a_body_that_names_no_device_is_none() {
    for body in ["", "[]", "{}", "{\"daemonId\":\"d\"}", "{\"device\":null}", "{"] {
        assert_eq!(OpenDeviceSession::read(body.as_bytes()), Ok(None), "{body}");
    }
}

#[test]
fn a_request_that_is_no_devices_is_refused_by_its_reason() {
    let with = |name: &str, value: Value| {
        let mut body = signed();
        body["device"][name] = value;
        open(body).err()
    };
    assert_eq!(with("publicKey", json!("AAAA")), Some(BadBody::DeviceKey));
    assert_eq!(with("signature", json!("AAAA")), Some(BadBody::Signature));
    assert_eq!(with("signature", json!("é".repeat(43))), Some(BadBody::Signature));
    assert_eq!(with("signature", json!("A".repeat(10_000))), Some(BadBody::Signature));
    assert_eq!(with("signedAt", json!("now")), Some(BadBody::Fields));
    assert_eq!(with("signedAt", Value::Null), Some(BadBody::Fields));
    let mut body = signed();
    body["daemonId"] = json!("x".repeat(LONGEST_ID + 1));
    assert_eq!(open(body), Err(BadBody::DaemonId));
    assert_eq!(open(json!({ "daemonId": "d", "device": [] })), Err(BadBody::Fields));
}

#[test]
fn sbrp_crypto_10_a_devices_request_shows_no_signature() {
    let body = signed();
    let wire: OpenDeviceSession = serde_json::from_value(body.clone()).unwrap();
    let shown = format!("{wire:?} {:?}", open(body).unwrap());
    assert!(!shown.contains(&wire.device.signature) && !shown.contains("signature"), "{shown}");
}
