use super::*;
use serde_json::{Value, json};

fn identity(n: u8) -> GatewayIdentity {
    GatewayIdentity::from_seed(&[n; 32])
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn manifest(n: u8) -> Manifest {
    let url: BaseUrl = "https://a.example".parse().unwrap();
    Manifest {
        gateway_id: "a".parse().unwrap(),
        gateway_name: "Gateway A".into(),
        role: Role::Gateway,
        key: identity(n).public(),
        endpoints: Endpoints::of_gateway(&url),
        url,
        issued_at: 1_000,
        previous: Vec::new(),
    }
}

/// The same manifest with another member, signed again.
fn with(n: u8, name: &str, value: Value) -> String {
    let mut object = serde_json::to_value(Wire::from(&manifest(n))).unwrap();
    object[name] = value;
    signed_object::sign(&object, Purpose::Manifest, &identity(n))
}

#[test]
fn sbp_l6_01_a_manifest_has_the_fields_of_the_protocol_and_is_read_as_it_was_written() {
    let text = manifest(1).sign(&identity(1));
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object["sbp_version"], "1.2");
    assert_eq!(object["gateway_id"], "a");
    assert_eq!(object["gateway_name"], "Gateway A");
    assert_eq!(object["role"], "gateway");
    assert_eq!(object["federation"], true);
    assert_eq!(object["public_key"], json!(identity(1).public().to_spki()));
    assert_eq!(
        object["endpoints"],
        json!({
            "ws": "wss://a.example/v1/sbp/ws/{session_id}",
            "export": "https://a.example/v1/sbp/sessions/{session_id}/export",
            "import": "https://a.example/v1/sbp/sessions/import",
            "bundle": "https://a.example/v1/sbp/bundles/{bundle_cid}",
        })
    );
    assert_eq!(Manifest::read(text.as_bytes()), Ok(manifest(1)));
}

#[test]
fn sbp_l6_01_a_tracker_shows_its_registry_alone() {
    let url: BaseUrl = "https://t.example".parse().unwrap();
    let endpoints = serde_json::to_value(Endpoints::of_tracker(&url)).unwrap();
    assert_eq!(endpoints, json!({"registry": "https://t.example/v1/sbp/registry"}));
}

#[test]
fn sbp_l6_06_a_manifest_that_another_key_signed_or_that_was_changed_is_refused() {
    let forged = manifest(1);
    let forged = signed_object::sign(&Wire::from(&forged), Purpose::Manifest, &identity(2));
    assert_eq!(Manifest::read(forged.as_bytes()), Err(ManifestError::Signature));
    let text = manifest(1).sign(&identity(1));
    let changed = text.replace("https://a.example/v1/sbp/b", "https://b.example/v1/sbp/b");
    assert_eq!(Manifest::read(changed.as_bytes()), Err(ManifestError::Signature));
    let added = text.replacen('{', "{\"x\": 1, ", 1);
    assert_eq!(Manifest::read(added.as_bytes()), Err(ManifestError::Signature));
}

#[test]
fn sbp_l6_01_unknown_members_are_ignored_and_signed() {
    let text = with(1, "x", json!({"y": [1, 2.50]}));
    assert_eq!(Manifest::read(text.as_bytes()), Ok(manifest(1)));
    let changed = text.replace("2.5", "2.6");
    assert_eq!(Manifest::read(changed.as_bytes()), Err(ManifestError::Signature));
}

#[test]
fn sbp_l6_06_a_manifest_without_what_it_must_say_is_refused() {
    for (name, value) in [
        ("gateway_id", json!("A")),
        ("gateway_id", Value::Null),
        ("gateway_name", json!("a\nb")),
        ("gateway_name", json!("n".repeat(129))),
        ("role", json!("king")),
        ("federation", json!(false)),
        ("public_key", json!("AAAA")),
        ("public_key", json!(identity(1).public().to_string())),
        ("url", json!("ftp://a.example")),
        ("issued_at", json!("now")),
        ("issued_at", json!(1.5)),
        ("previous", json!("x")),
        ("pad", json!("x".repeat(LARGEST_MANIFEST))),
    ] {
        let text = with(1, name, value.clone());
        let read = Manifest::read(text.as_bytes());
        assert_eq!(read, Err(ManifestError::Unreadable), "{name}: {value}");
    }
    for text in ["", "[]", "null", "{}", "<html>"] {
        assert_eq!(Manifest::read(text.as_bytes()), Err(ManifestError::Unreadable), "{text}");
    }
}

#[test]
fn sbp_l6_01_a_pin_decides_whose_manifest_it_is() {
    let (id, other) = ("a".parse().unwrap(), "b".parse().unwrap());
    let pin = |n: u8, issued_at| Pin { key: identity(n).public(), issued_at };
    let mine = manifest(1);
    let trust = |expected, pin: Option<Pin>| mine.trust(expected, pin.as_ref(), at(1_000));
    assert_eq!(trust(None, None), Ok(Trust::FirstUse));
    assert_eq!(trust(Some(&id), Some(pin(1, 0))), Ok(Trust::Pinned));
    assert_eq!(trust(Some(&id), Some(pin(1, 1_000))), Ok(Trust::Pinned));
    assert_eq!(trust(Some(&id), Some(pin(1, 1_300))), Ok(Trust::Pinned), "another replica's clock");
    assert_eq!(trust(Some(&id), Some(pin(1, 1_301))), Err(ManifestError::Older));
    assert_eq!(
        trust(Some(&other), None),
        Err(ManifestError::OtherGateway { expected: other.clone(), shown: id.clone() })
    );
    let (pinned, shown) = (identity(2).public().fingerprint(), mine.key.fingerprint());
    assert_eq!(trust(None, Some(pin(2, 0))), Err(ManifestError::KeyChanged { pinned, shown }));
    assert_eq!(mine.trust(None, None, at(700)), Ok(Trust::FirstUse));
    assert_eq!(mine.trust(None, None, at(699)), Err(ManifestError::Future));
    assert_eq!(mine.pin(), pin(1, 1_000));
}

#[test]
fn sbp_l6_01_who_pinned_the_old_key_takes_the_new_one_that_it_signed() {
    let id = "a".parse().unwrap();
    let statement = PreviousKey::sign(&identity(1), &id, &identity(2).public(), at(5_000));
    let rotated = Manifest { previous: vec![statement], issued_at: 2_000, ..manifest(2) };
    let rotated = Manifest::read(rotated.sign(&identity(2)).as_bytes()).unwrap();
    let pin = Pin { key: identity(1).public(), issued_at: 1_000 };
    assert_eq!(rotated.trust(Some(&id), Some(&pin), at(2_000)), Ok(Trust::Rotated));
    let late = rotated.trust(Some(&id), Some(&pin), at(5_000));
    assert!(matches!(late, Err(ManifestError::KeyChanged { .. })), "{late:?}");
    let stranger = Pin { key: identity(3).public(), issued_at: 0 };
    let refused = rotated.trust(Some(&id), Some(&stranger), at(2_000));
    assert!(matches!(refused, Err(ManifestError::KeyChanged { .. })), "{refused:?}");
    // Whoever has the old key alone cannot go back.
    let old = Manifest { issued_at: 3_000, ..manifest(1) };
    let back = old.trust(Some(&id), Some(&rotated.pin()), at(3_000));
    assert!(matches!(back, Err(ManifestError::KeyChanged { .. })), "{back:?}");
}
