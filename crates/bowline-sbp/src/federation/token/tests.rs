use super::*;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use proptest::prelude::*;
use serde_json::{Value, json};

fn identity(n: u8) -> GatewayIdentity {
    GatewayIdentity::from_seed(&[n; 32])
}

fn id(text: &str) -> GatewayId {
    text.parse().unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn asked<'a>(gateway: &'a GatewayId, subject: &'a str) -> Asked<'a> {
    Asked { gateway, action: FederationAction::Bundle, subject }
}

fn fed_claims() -> FederationClaims {
    let url = "https://b.example".parse().unwrap();
    FederationClaims::new(id("b"), url, asked(&id("a"), "cid"), Uuid::from_u128(7), at(1_000))
}

fn read(token: &str, now: i64) -> Result<FederationClaims, FederationTokenError> {
    let token = UnverifiedFederationToken::peek(token)?;
    token.verify(&identity(1).public(), asked(&id("a"), "cid"), at(now))
}

#[test]
fn sbp_l6_02_a_token_says_who_asks_whom_for_what() {
    let token = fed_claims().sign(&identity(1));
    let peeked = UnverifiedFederationToken::peek(&token).unwrap();
    assert_eq!((peeked.issuer(), peeked.url().as_str()), (&id("b"), "https://b.example"));
    assert_eq!(read(&token, 1_000), Ok(fed_claims()));
    assert_eq!(read(&token, 970), Ok(fed_claims()), "clocks may differ by 30 s");
    assert_eq!(read(&token, 1_059), Ok(fed_claims()));
    let payload: Value = serde_json::to_value(fed_claims()).unwrap();
    assert_eq!(
        payload,
        json!({
            "iss": "b", "url": "https://b.example", "aud": "a", "iat": 1000, "exp": 1060,
            "jti": Uuid::from_u128(7), "act": "bundle", "ref": "cid",
        })
    );
}

#[test]
fn sbp_l6_02_a_token_for_another_gateway_request_or_time_is_refused() {
    use FederationTokenError as E;
    let sign = |change: &dyn Fn(&mut FederationClaims)| {
        let mut claims = fed_claims();
        change(&mut claims);
        claims.sign(&identity(1))
    };
    for (token, now, error) in [
        (sign(&|claims| claims.aud = id("c")), 1_000, E::Audience),
        (sign(&|claims| claims.act = FederationAction::Reserve), 1_000, E::OtherRequest),
        (sign(&|claims| claims.subject = "other".into()), 1_000, E::OtherRequest),
        (sign(&|_| ()), 1_060, E::Time),
        (sign(&|_| ()), 969, E::Time),
        (sign(&|claims| claims.exp = 1_301), 1_000, E::Time),
        (sign(&|claims| claims.exp = i64::MAX), 1_000, E::Time),
        (sign(&|claims| claims.iat = i64::MIN), 1_000, E::Time),
        (sign(&|claims| claims.iat = 1_061), 1_040, E::Time),
        (sign(&|claims| claims.subject = "x".repeat(65)), 1_000, E::Unreadable),
        (fed_claims().sign(&identity(2)), 1_000, E::Signature),
    ] {
        assert_eq!(read(&token, now), Err(error));
    }
    assert!(read(&sign(&|claims| claims.exp = 1_300), 1_000).is_ok(), "exactly five minutes");
}

#[test]
fn sbp_l6_02_what_a_token_says_of_itself_decides_nothing() {
    let payload = serde_json::to_value(fed_claims()).unwrap();
    let pkcs8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let secret = EncodingKey::from_ed_der(&[pkcs8, &[1; 32]].concat());
    let kid = super::super::key_id::KeyId::of(&identity(1).public()).to_string();
    let good =
        Header { typ: Some(TYPE.into()), kid: Some(kid.clone()), ..Header::new(Algorithm::EdDSA) };
    let sign = |header: &Header| jsonwebtoken::encode(header, &payload, &secret).unwrap();
    assert_eq!(read(&sign(&good), 1_000), Ok(fed_claims()));
    for header in [
        Header { typ: Some("JWT".into()), ..good.clone() },
        Header { typ: None, ..good.clone() },
        Header { kid: None, ..good.clone() },
        Header { kid: Some("x".into()), ..good.clone() },
        Header { crit: Some(vec!["x".into()]), ..good.clone() },
    ] {
        assert!(read(&sign(&header), 1_000).is_err(), "{header:?}");
    }
    // The public key as the secret of an HMAC, and no signature at all.
    let hmac = Header { typ: Some(TYPE.into()), kid: Some(kid), ..Header::new(Algorithm::HS256) };
    let public = EncodingKey::from_secret(identity(1).public().as_bytes());
    let confused = jsonwebtoken::encode(&hmac, &payload, &public).unwrap();
    let unsigned = sign(&good).rsplit_once('.').unwrap().0.to_owned();
    for token in [confused, format!("{unsigned}."), unsigned, String::new(), "a.b.c".into()] {
        assert!(read(&token, 1_000).is_err());
    }
    // A roaming token is not a federation token, although the same key signs both.
    let other = claims::sign(&fed_claims(), "JWT", &identity(1));
    assert_eq!(read(&other, 1_000), Err(FederationTokenError::Unreadable));
}

proptest! {
    #[test]
    fn sbp_l6_06_every_changed_byte_of_a_token_is_found(
        at in any::<prop::sample::Index>(), bit in 0..7u8,
    ) {
        let mut bytes = fed_claims().sign(&identity(1)).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let changed = String::from_utf8(bytes).unwrap();
        prop_assert!(read(&changed, 1_000).is_err());
    }
}
