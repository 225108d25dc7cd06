use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::id::DaemonId;

const NOW: u64 = 1_700_000_000;
const ISSUER: &str = "https://control.example";

fn signer(kid: &str, seed: u8) -> TokenSigner {
    TokenSigner::from_seed(ISSUER, kid, &[seed; 32])
}

fn keys() -> KeySet {
    let jwks = json!({"keys": [signer("a", 1).jwk(), signer("b", 2).jwk()]});
    KeySet::from_jwks(jwks.to_string().as_bytes()).unwrap()
}

fn relay() -> Relay {
    Relay { issuer: ISSUER.into(), region: Some("eu".into()) }
}

fn admit(token: &str) -> Result<Admission, TokenError> {
    relay().admit(token, &keys(), NOW)
}

fn session() -> SessionGrant {
    SessionGrant {
        daemon: DaemonId::new("d_1"),
        user: "u_1".into(),
        session: "AAALOnPOL_I".parse().unwrap(),
        epoch: 0,
        region: None,
        issued_at: NOW,
        expires_at: NOW + 120,
    }
}

fn presence() -> PresenceGrant {
    PresenceGrant {
        daemon: DaemonId::new("d_1"),
        owner: Some("u_1".into()),
        epoch: 7,
        resumable: true,
        region: Some("eu".into()),
        concurrent_sessions: NonZeroU64::new(8),
        issued_at: NOW,
        expires_at: NOW + 3600,
    }
}

fn header() -> Header {
    Header { typ: Some(TYPE.into()), kid: Some("a".into()), ..Header::new(Algorithm::EdDSA) }
}

fn der(seed: u8) -> Vec<u8> {
    let mut der = crate::vectors::unhex("302e020100300506032b657004220420");
    der.extend([seed; 32]);
    der
}

/// A token with these claims and this header, signed by key `a`.
fn signed(header: &Header, claims: &Value) -> String {
    jsonwebtoken::encode(header, claims, &EncodingKey::from_ed_der(&der(1))).unwrap()
}

/// The claims of a valid client token.
fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "sideband-relay", "sub": "u_1", "role": "client", "did": "d_1",
           "sid": "AAALOnPOL_I", "iat": NOW, "exp": NOW + 120, "ver": 1,
           "scp": ["session:create"]})
}

/// The valid claims with one claim changed, or removed if the value is null.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn judged(claims: &Value) -> Result<Admission, TokenError> {
    admit(&signed(&header(), claims))
}

#[test]
fn sbrp_relay_01_a_clients_token_says_who_goes_where() {
    let token = signer("b", 2).session(&session());
    let Ok(Admission::Client(pass)) = admit(&token) else { panic!("{:?}", admit(&token)) };
    assert_eq!((pass.daemon, pass.user.as_str()), (DaemonId::new("d_1"), "u_1"));
    assert_eq!(pass.session.to_wire(), 0x0000_0B3A_73CE_2FF2);
    assert_eq!(admit(&signed(&header(), &claims())), admit(&token));
}

#[test]
fn sbrp_daemon_05_a_daemons_token_says_whether_it_resumes() {
    for resumable in [true, false] {
        let token = signer("a", 1).presence(&PresenceGrant { resumable, ..presence() });
        let daemon = DaemonId::new("d_1");
        let concurrent_sessions = NonZeroU64::new(8);
        let pass = DaemonPass {
            daemon,
            owner: Some("u_1".into()),
            epoch: 7,
            issued_at: NOW,
            expires_at: NOW + 3600,
            resumable,
            concurrent_sessions,
        };
        assert_eq!(admit(&token), Ok(Admission::Daemon(pass)));
    }
}

#[test]
fn a_session_token_has_these_claims_and_no_others() {
    let token = signer("a", 1).session(&session());
    let parts: Vec<_> = token.split('.').collect();
    let read = |part: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert_eq!(read(parts[0]), json!({"typ": "sbrp-relay+jwt", "alg": "EdDSA", "kid": "a"}));
    assert_eq!(read(parts[1]), claims());
}

/// Claims of our own: a control plane of others need not know them, nor may it be harmed by them.
#[test]
fn tokens_without_our_own_claims_are_as_good_as_before() {
    let daemon = json!({"iss": ISSUER, "aud": "sideband-relay", "role": "daemon", "did": "d_1",
                        "iat": NOW, "exp": NOW + 3600, "own": 7, "epoch": "late"});
    let Ok(Admission::Daemon(pass)) = judged(&daemon) else { panic!("{:?}", judged(&daemon)) };
    assert_eq!((pass.owner, pass.epoch, pass.issued_at), (None, 0, NOW));
    let late = with("epoch", json!(1_700_000_001));
    let Ok(Admission::Client(pass)) = judged(&late) else { panic!("{:?}", judged(&late)) };
    assert_eq!((pass.epoch, pass.issued_at), (1_700_000_001, NOW));
    let Ok(Admission::Client(pass)) = judged(&claims()) else { panic!() };
    assert_eq!(pass.epoch, 0);
}

#[test]
fn sbrp_token_01_length_and_parts() {
    let fits = |pad: usize| signed(&header(), &with("pad", json!("x".repeat(pad))));
    let longest = (0..3000).rev().find(|pad| fits(*pad).len() <= 4096).unwrap();
    assert!(fits(longest).len() > 4090 && admit(&fits(longest)).is_ok());
    assert_eq!(admit(&fits(longest + 3)), Err(TokenError::Malformed));
    let good = fits(0);
    for bad in
        ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", &format!("{good}.x"), &good[..20], "é.é.é"]
    {
        assert_eq!(admit(bad), Err(TokenError::Malformed), "{bad}");
        assert_eq!(TokenError::Malformed.status(), 401);
    }
}

#[test]
fn sbrp_token_02_03_04_header_and_signature() {
    let kid = |kid: Option<&str>| Header { kid: kid.map(Into::into), ..header() };
    let typ = |typ: Option<&str>| Header { typ: typ.map(Into::into), ..header() };
    for (header, expected) in [
        (typ(None), TokenError::Type),
        (typ(Some("JWT")), TokenError::Type),
        (typ(Some("SBRP-relay+jwt")), TokenError::Type),
        (kid(None), TokenError::UnknownKey),
        (kid(Some("c")), TokenError::UnknownKey),
        // A known key, but not the one that signed.
        (kid(Some("b")), TokenError::Signature),
        (Header { crit: Some(vec!["b64".into()]), ..header() }, TokenError::Signature),
    ] {
        assert_eq!(admit(&signed(&header, &claims())), Err(expected), "{header:?}");
    }
}

#[test]
fn sbrp_token_04_no_algorithm_but_eddsa() {
    // Algorithm confusion: the public key used as an HMAC secret.
    let public = URL_SAFE_NO_PAD.decode(signer("a", 1).jwk()["x"].as_str().unwrap()).unwrap();
    let hmac = Header { alg: Algorithm::HS256, ..header() };
    let token = jsonwebtoken::encode(&hmac, &claims(), &EncodingKey::from_secret(&public)).unwrap();
    assert_eq!(admit(&token), Err(TokenError::Signature));
    let head = URL_SAFE_NO_PAD.encode(r#"{"typ":"sbrp-relay+jwt","alg":"none","kid":"a"}"#);
    let body = URL_SAFE_NO_PAD.encode(claims().to_string());
    assert!(admit(&format!("{head}.{body}.")).is_err());
}

#[test]
fn sbrp_token_04_every_changed_byte_is_found() {
    let token = signed(&header(), &claims());
    for at in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[at] ^= 1;
        assert!(admit(&String::from_utf8(bytes).unwrap()).is_err(), "byte {at}");
    }
}

#[test]
fn sbrp_token_05_to_16_one_broken_claim_at_a_time() {
    let cases = [
        ("aud", json!(null), TokenError::Audience),
        ("aud", json!("other"), TokenError::Audience),
        ("aud", json!(["other"]), TokenError::Audience),
        ("aud", json!([]), TokenError::Audience),
        ("aud", json!(7), TokenError::Audience),
        ("iss", json!(null), TokenError::Issuer),
        ("iss", json!("https://evil.example"), TokenError::Issuer),
        ("iss", json!([ISSUER]), TokenError::Issuer),
        ("iat", json!(null), TokenError::Times),
        ("iat", json!("1700000000"), TokenError::Times),
        ("exp", json!(null), TokenError::Times),
        ("exp", json!("1700000120"), TokenError::Times),
        ("exp", json!(true), TokenError::Times),
        ("exp", json!(NOW - 31), TokenError::Expired),
        ("ver", json!(2), TokenError::Version),
        ("ver", json!("1"), TokenError::Version),
        ("role", json!(null), TokenError::Role),
        ("role", json!("relay"), TokenError::Role),
        ("did", json!(null), TokenError::Daemon),
        ("did", json!(""), TokenError::Daemon),
        ("did", json!(7), TokenError::Daemon),
        ("sub", json!(null), TokenError::Client),
        ("sub", json!(""), TokenError::Client),
        ("sid", json!(null), TokenError::Client),
        ("sid", json!("AAAAAAAAAAA"), TokenError::Client),
        ("sid", json!("AAALOnPOL_I="), TokenError::Client),
        ("sid", json!(12345), TokenError::Client),
        ("region", json!("us"), TokenError::Region),
        ("region", json!(7), TokenError::Region),
        ("exp", json!(NOW + 301), TokenError::Lifetime),
        ("iat", json!(NOW + 121), TokenError::Lifetime),
        ("scp", json!("session:create"), TokenError::Scopes),
        ("scp", json!(["session:create", 7]), TokenError::Scopes),
        ("lim", json!(7), TokenError::Limits),
        ("lim", json!({"concurrent_sessions": 0}), TokenError::Limits),
        ("lim", json!({"concurrent_sessions": -1}), TokenError::Limits),
        ("lim", json!({"concurrent_sessions": 1.5}), TokenError::Limits),
        ("lim", json!({"concurrent_sessions": "4"}), TokenError::Limits),
    ];
    for (name, value, expected) in cases {
        assert_eq!(judged(&with(name, value.clone())), Err(expected), "{name} = {value}");
    }
}

#[test]
fn sbrp_token_05_to_16_what_is_allowed() {
    for (name, value) in [
        ("aud", json!(["other", "sideband-relay"])),
        ("exp", json!(NOW - 30)),
        ("exp", json!(NOW + 300)),
        ("exp", json!(NOW as f64 + 0.5)),
        ("ver", json!(null)),
        ("region", json!("eu")),
        ("scp", json!(null)),
        ("scp", json!(["session:create", "tea:brew"])),
        ("lim", json!({})),
        ("lim", json!({"concurrent_sessions": 1, "more": true})),
        ("jti", json!("seen-before")),
    ] {
        let mut claims = with(name, value.clone());
        if claims["exp"].as_u64() == Some(NOW - 30) {
            claims["iat"] = json!(NOW - 100);
        }
        assert!(judged(&claims).is_ok(), "{name} = {value}: {:?}", judged(&claims));
    }
    let daemon = json!({"iss": ISSUER, "aud": "sideband-relay", "role": "daemon", "did": "d_1",
                        "iat": NOW, "exp": NOW + 86_400});
    assert!(judged(&daemon).is_ok(), "a daemon's token may be good for long");
}

/// Breaks all rules from the n-th on; the n-th must be reported.
#[test]
fn sbrp_token_05_to_16_the_first_broken_rule_is_reported() {
    let rules: [(&str, Value, TokenError); 12] = [
        ("aud", json!("x"), TokenError::Audience),
        ("iss", json!("x"), TokenError::Issuer),
        ("iat", json!("x"), TokenError::Times),
        ("exp", json!(NOW - 1000), TokenError::Expired),
        ("ver", json!(9), TokenError::Version),
        ("role", json!("x"), TokenError::Role),
        ("did", json!(""), TokenError::Daemon),
        ("sid", json!("x"), TokenError::Client),
        ("region", json!("x"), TokenError::Region),
        ("exp", json!(NOW + 1000), TokenError::Lifetime),
        ("scp", json!("x"), TokenError::Scopes),
        ("lim", json!("x"), TokenError::Limits),
    ];
    for first in 0..rules.len() {
        let mut broken = claims();
        for (name, value, _) in rules[first..].iter().rev() {
            broken[*name] = value.clone();
        }
        assert_eq!(judged(&broken), Err(rules[first].2), "from rule {first}");
    }
}

#[test]
fn sbrp_token_13_region_is_the_only_refusal_that_a_new_token_does_not_cure() {
    assert_eq!(TokenError::Region.status(), 403);
    let nowhere = Relay { region: None, ..relay() };
    for region in [json!("eu"), json!(7), json!({}), json!([])] {
        let token = signed(&header(), &with("region", region));
        assert_eq!(nowhere.admit(&token, &keys(), NOW), Err(TokenError::Region));
    }
}

#[test]
fn sbrp_token_03_key_sets_refuse_weak_keys_and_pass_over_foreign_ones() {
    let load = |keys: Value| {
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes()).map(|keys| keys.len())
    };
    let jwk = |name: &str, value: Value| {
        let mut jwk = signer("a", 1).jwk();
        jwk[name] = value;
        jwk
    };
    let good = signer("b", 2).jwk();
    assert_eq!(keys().len(), 2);
    for (name, value) in [("kty", "RSA"), ("crv", "X25519"), ("alg", "ES256"), ("kid", "")] {
        assert_eq!(load(json!([jwk(name, json!(value))])), Err(KeySetError::Empty));
        assert_eq!(load(json!([jwk(name, json!(value)), good])), Ok(1));
    }
    let mut neutral = [0; 32];
    neutral[0] = 1;
    for x in [json!(URL_SAFE_NO_PAD.encode(neutral)), json!("AQ"), json!("?"), json!(null)] {
        assert_eq!(load(json!([jwk("x", x), good])), Err(KeySetError::UnfitKey));
    }
    assert_eq!(load(json!([good, good])), Err(KeySetError::DuplicateId));
    for text in ["", "[]", "{}", r#"{"keys":7}"#] {
        let read = KeySet::from_jwks(text.as_bytes());
        assert_eq!(read.err(), Some(KeySetError::Malformed), "{text}");
    }
}

#[test]
fn sbrp_crypto_10_a_token_signer_shows_no_secret() {
    let shown = format!("{:?} {:?}", signer("a", 0xA5), keys());
    assert!(!shown.contains("165") && !shown.to_lowercase().contains("a5a5"), "{shown}");
}

proptest! {
    #[test]
    fn any_text_is_judged_without_panic(text in "\\PC{0,200}", parts in prop::array::uniform3("[A-Za-z0-9_-]{0,60}")) {
        prop_assert!(admit(&text).is_err());
        prop_assert!(admit(&parts.join(".")).is_err());
    }
}
