//! Signed bundles (SBP-L3-16).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_pyjson::{Object, Value};

use super::{canonical, contents, sealed};
use crate::bundle::{BundleSignature, Contents, OpenError, Opened, RequiredSignature, Sealed};
use crate::cid::Cid;
use crate::error::{Code, Failure};
use crate::gateway_key::GatewayIdentity;

fn identity() -> GatewayIdentity {
    GatewayIdentity::from_seed(&[7; 32])
}

fn signed() -> Sealed {
    contents().seal_signed(&identity())
}

/// The signed bundle after an edit, sealed again.
fn edited(edit: impl FnOnce(&mut Object<'_>)) -> String {
    let Sealed { text, .. } = signed();
    let mut bundle = Value::parse(&text).unwrap();
    edit(bundle.as_object_mut().unwrap());
    sealed(&bundle.to_json())
}

/// The object that holds the signature.
fn place<'b, 't>(bundle: &'b mut Object<'t>) -> &'b mut Object<'t> {
    let metadata = bundle.get_mut("metadata").unwrap();
    metadata.get_mut("bowline").unwrap().as_object_mut().unwrap()
}

fn of(text: &str) -> BundleSignature {
    Opened::read(text).unwrap().signature
}

#[test]
fn sbp_l3_16_a_signed_bundle_is_one_by_its_content_id() {
    let Sealed { cid, text, .. } = signed();
    // As any server does that knows nothing of signatures (SBP-L3-04).
    let bundle = Value::parse(&text).unwrap();
    assert_eq!(Cid::of_bundle(&bundle), cid);
    assert_eq!(bundle.get("bundle_cid").unwrap().as_str(), Some(cid.to_string().as_str()));
    assert_eq!(of(&text), BundleSignature::Signed(identity().public()));
    assert_eq!(of(&contents().seal().text), BundleSignature::Unsigned);
}

#[test]
fn sbp_l3_16_a_bundle_that_was_edited_and_sealed_again_is_broken_or_unsigned() {
    assert_eq!(of(&edited(|_| ())), BundleSignature::Signed(identity().public()));
    let broken = [
        edited(|bundle| drop(bundle.insert("label", "another"))),
        edited(|bundle| drop(bundle.insert("more", 1u64))),
        edited(|bundle| drop(bundle.insert("memory", Value::Null))),
        edited(|bundle| drop(bundle.remove("state_snapshot"))),
        edited(|bundle| drop(place(bundle).insert("more", 1u64))),
        edited(|bundle| {
            let metadata = bundle.get_mut("metadata").unwrap().as_object_mut().unwrap();
            metadata.insert("export_id", "f");
        }),
        edited(|bundle| {
            let messages = bundle.get_mut("messages").unwrap().as_array_mut().unwrap();
            messages.pop();
        }),
    ];
    for text in broken {
        assert_eq!(of(&text), BundleSignature::Broken, "{text}");
        let refused = Contents::open(&text).unwrap_err();
        assert_eq!(refused, OpenError::BrokenSignature);
        assert_eq!(Failure::from(refused).code, Code::TokenIntegrity);
    }
    let removed = edited(|bundle| drop(place(bundle).remove("signature")));
    assert_eq!(of(&removed), BundleSignature::Unsigned);
}

#[test]
fn sbp_l3_16_a_signature_in_any_other_form_is_broken() {
    let other = GatewayIdentity::from_seed(&[8; 32]).public().to_string();
    let weak = "A".repeat(43);
    for (field, value) in [
        ("alg", Value::from("none")),
        ("alg", Value::Null),
        ("key", Value::from(other)),
        ("key", Value::from(weak)),
        ("key", Value::from(7u64)),
        ("value", Value::from("")),
        ("value", Value::from("A".repeat(86))),
        ("value", Value::Null),
    ] {
        let text = edited(|bundle| {
            let signature = place(bundle).get_mut("signature").unwrap();
            signature.as_object_mut().unwrap().insert(field, value.clone().into_owned());
        });
        assert_eq!(of(&text), BundleSignature::Broken, "{field}: {value:?}");
    }
    for value in [Value::Null, Value::from("yes"), Value::from(Vec::new())] {
        let text = edited(|bundle| drop(place(bundle).insert("signature", value.into_owned())));
        assert_eq!(of(&text), BundleSignature::Broken, "{text}");
    }
}

#[test]
fn sbp_l3_16_a_signature_that_fits_everything_is_broken() {
    // The neutral point as key and as R, and S = 0: lenient verification accepts it for any text.
    let (mut key, mut value) = ([0; 32], [0; 64]);
    (key[0], value[0]) = (1, 1);
    let lenient = ed25519_dalek::VerifyingKey::from_bytes(&key).unwrap();
    let any = ed25519_dalek::Signature::from_bytes(&value);
    assert!(ed25519_dalek::Verifier::verify(&lenient, b"anything", &any).is_ok());
    let text = edited(|bundle| {
        bundle.insert("label", "another");
        let signature = place(bundle).get_mut("signature").unwrap().as_object_mut().unwrap();
        signature.insert("key", URL_SAFE_NO_PAD.encode(key));
        signature.insert("value", URL_SAFE_NO_PAD.encode(value));
    });
    assert_eq!(of(&text), BundleSignature::Broken);
}

#[test]
fn sbp_l3_16_who_signs_an_edited_bundle_is_named() {
    let mut theirs = Contents::open(&signed().text).unwrap().0;
    theirs.label = Some("another".into());
    let thief = GatewayIdentity::from_seed(&[9; 32]);
    let signature = of(&theirs.seal_signed(&thief).text);
    assert_eq!(signature, BundleSignature::Signed(thief.public()));
    let ours = RequiredSignature::Of(identity().public().fingerprint());
    let refused = Err(OpenError::OtherSigner(thief.public().fingerprint()));
    assert_eq!(signature.check(ours), refused);
    assert_eq!(signature.check(RequiredSignature::OfAnyone), Ok(()));
    assert_eq!(BundleSignature::Signed(identity().public()).check(ours), Ok(()));
    for required in [ours, RequiredSignature::OfAnyone] {
        assert_eq!(BundleSignature::Unsigned.check(required), Err(OpenError::Unsigned));
        assert_eq!(BundleSignature::Broken.check(required), Err(OpenError::BrokenSignature));
    }
    assert_eq!(BundleSignature::Unsigned.check(RequiredSignature::None), Ok(()));
}

#[test]
fn sbp_l3_16_a_signature_is_not_carried_into_the_next_export() {
    let first = signed();
    let (opened, _) = Contents::open(&first.text).unwrap();
    assert_eq!(opened.carried, None);
    assert_eq!(opened.seal(), contents().seal());
    assert_eq!(opened.seal_signed(&identity()), first);
    // What others put beside it is.
    let text = edited(|bundle| {
        place(bundle).remove("signature");
        place(bundle).insert("more", 1u64);
    });
    let again = Contents::open(&text).unwrap().0.seal_signed(&identity()).text;
    assert!(canonical(&again).contains(r#""metadata": {"bowline": {"more": 1, "signature": "#));
    assert_eq!(of(&again), BundleSignature::Signed(identity().public()));
}
