//! SBP L3: a token or bundle with any changed byte is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbp::roaming_token::{RoamingClaims, SigningKey};
use jiff::Timestamp;
use serde_json::json;

use crate::bench::Bench;
use crate::roaming::{STRANGER, made, parsed, sealed};

#[tokio::test]
async fn sbp_l3_06_every_changed_byte_of_a_token_is_refused() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] ^= 1 << (at % 6);
        let changed = String::from_utf8(changed).unwrap();
        let refused = bench.import_token(&changed).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INVALID"), "byte {at}: {changed}");
    }
    for length in [0, 1, token.len() / 2, token.len() - 1] {
        let refused = bench.import_token(&token[..length]).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INVALID"), "{length} bytes");
    }
    assert_eq!(bench.sessions().await.len(), 1);
    assert_eq!(bench.inspect(&token).await.body["valid"], true);
    made(&bench.import_token(&token).await);
}

#[tokio::test]
async fn sbp_l3_06_a_token_that_nobody_here_signed_is_refused() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let key = bench.signing_key().await;
    let now = Timestamp::now();
    let claims = RoamingClaims::read(&token, std::slice::from_ref(&key), now).unwrap();
    let encoded = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let body = encoded(serde_json::to_value(&claims).unwrap());
    let signature = token.rsplit('.').next().unwrap();
    let with_header = |header: serde_json::Value| format!("{}.{body}.{signature}", encoded(header));
    let other = Bench::start().await;
    let theirs = other.token_of(&other.session_with(1).await).await;
    let week = 7 * 24 * 3600;
    for forged in [
        format!("{}.{body}.", encoded(json!({ "alg": "none", "typ": "JWT", "kid": key.id }))),
        format!("{}.{body}", encoded(json!({ "alg": "none" }))),
        with_header(json!({ "alg": "HS256", "typ": "JWT" })),
        with_header(json!({ "alg": "HS256", "typ": "at+jwt", "kid": key.id })),
        with_header(json!({ "alg": "HS512", "typ": "JWT", "kid": key.id })),
        with_header(json!({ "alg": "HS256", "typ": "JWT", "kid": "99" })),
        claims.sign(&SigningKey { id: key.id.clone(), secret: [7; 32] }),
        claims.sign(&SigningKey { id: "99".into(), secret: key.secret }),
        // Signed here, but good for longer than anything that is signed here.
        RoamingClaims { exp: claims.iat + week + 1, ..claims.clone() }.sign(&key),
        // An export that never was.
        RoamingClaims { sub: bowline_sbp::id::ExportId(uuid::Uuid::nil()), ..claims.clone() }
            .sign(&key),
        theirs,
        format!("{token}{}", "A".repeat(10_000)),
        format!("{token}.{signature}"),
        format!(" {token}"),
        format!("Bearer {token}"),
        "\u{1f9a2}".into(),
    ] {
        let refused = bench.import_token(&forged).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INVALID"), "{forged}: {}", refused.text);
        assert!(!refused.text.contains(signature), "no token in an answer: {}", refused.text);
        // What cannot be imported cannot be looked at either; a long address is refused by itself.
        if forged.len() < 2048 {
            assert_eq!(
                bench.inspect(&forged).await.refusal(),
                (422, "SBP_TOKEN_INVALID"),
                "{forged}"
            );
        }
    }
    assert_eq!(bench.sessions().await.len(), 1);
    made(&bench.import_token(&token).await);
}

#[tokio::test]
async fn sbp_l3_06_every_changed_byte_of_a_bundle_is_refused() {
    let bench = Bench::start().await;
    let bundle = sealed(STRANGER);
    let canonical = parsed(&bundle).to_canonical();
    let mut same = 0;
    for at in 0..bundle.len() {
        let mut changed = bundle.clone().into_bytes();
        changed[at] ^= 1 << (at % 8);
        let means_the_same = std::str::from_utf8(&changed)
            .ok()
            .and_then(|text| bowline_pyjson::Value::parse(text).ok())
            .is_some_and(|value| value.to_canonical() == canonical);
        if means_the_same {
            same += 1;
            continue;
        }
        let body = [&b"{\"bundle\":"[..], &changed, b"}"].concat();
        let refused = bench.import_bytes(body).await;
        assert!(
            matches!(refused.status, 400 | 422),
            "byte {at}: {} {}",
            refused.status,
            refused.text
        );
    }
    assert!(same < 20, "{same} changes mean nothing");
    assert!(bench.sessions().await.is_empty(), "nothing was written");
    made(&bench.import_bundle(&bundle).await);
}

#[tokio::test]
async fn sbp_l3_06_a_bundle_may_be_spelled_another_way() {
    let bench = Bench::start().await;
    let bundle = sealed(STRANGER);
    let pretty = bundle.replace(',', " ,\n ").replace("where to", r"\u0077here to");
    made(&bench.import_bundle(&pretty).await);
    made(&bench.import_bundle(&parsed(&bundle).to_canonical()).await);
}
