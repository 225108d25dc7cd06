//! Tokens at the door: every rule, before the upgrade (SBRP-TOKEN-01 to 16).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::issuer::{Issuer, now};
use super::server::{Server, start, start_with};

/// The reason a token is refused for, after its status was looked at.
async fn reason(server: &Server, token: &str, status: u16) -> String {
    let (given, body) = server.refusal(token).await;
    assert_eq!(given, status, "{body}");
    let code = if status == 403 { "forbidden" } else { "unauthorized" };
    assert_eq!(body["error"]["code"], code);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(!message.is_empty());
    assert!(token.len() < 20 || !body.to_string().contains(token));
    body["error"]["reason"].as_str().unwrap().to_owned()
}

fn with(issuer: &Issuer, name: &str, value: Value) -> Value {
    let mut claims = issuer.claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

#[tokio::test]
async fn sbrp_token_01_no_token_is_401() {
    let server = start().await;
    for path in ["/", "/relay", "/relay?tokn=x"] {
        let (status, body) = server.get(path, None).await;
        assert_eq!(status, 401, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["code"], "unauthorized");
    }
    server.until_metric("bowline_relay_rejected_tokens_total{reason=\"missing\"}", 3).await;
}

#[tokio::test]
async fn sbrp_token_06_a_slash_at_the_end_of_an_issuer_changes_nothing() {
    let server = start_with(|config| config.issuer.push('/')).await;
    server.daemon("d").await.expect_quiet().await;
    let server = start().await;
    let slashed = with(&server.issuer, "iss", json!(format!("{}/", server.issuer.url)));
    server.connect(&server.issuer.signed(&server.issuer.header(), &slashed)).await;
    let other = with(&server.issuer, "iss", json!(format!("{}/x", server.issuer.url)));
    let other = server.issuer.signed(&server.issuer.header(), &other);
    assert_eq!(reason(&server, &other, 401).await, "issuer");
}

#[tokio::test]
async fn sbrp_token_01_length_and_parts() {
    let server = start().await;
    let issuer = &server.issuer;
    let padded =
        |pad: usize| issuer.signed(&issuer.header(), &with(issuer, "pad", json!("x".repeat(pad))));
    let token = (2000..4000).map(padded).find(|token| token.len() >= 4097).unwrap();
    assert!(token.len() <= 4098, "{}", token.len());
    assert_eq!(reason(&server, &token, 401).await, "malformed");
    let good = padded(0);
    for token in ["", "x", "a.b", "a.b.c", "a.b.c.d", "..", "%FF%FE.a.b", &good[..30]] {
        assert_eq!(reason(&server, token, 401).await, "malformed", "{token}");
    }
    assert_eq!(reason(&server, &format!("{good}.x"), 401).await, "malformed");
    server.until_metric("bowline_relay_rejected_tokens_total{reason=\"malformed\"}", 10).await;
}

#[tokio::test]
async fn sbrp_token_02_03_04_header_and_signature() {
    let server = start().await;
    let issuer = &server.issuer;
    let claims = issuer.claims();
    let good = issuer.header();
    for (header, expected) in [
        (Header { typ: Some("JWT".into()), ..good.clone() }, "type"),
        (Header { typ: None, ..good.clone() }, "type"),
        (Header { kid: None, ..good.clone() }, "unknown_key"),
        (Header { kid: Some("zzz".into()), ..good.clone() }, "unknown_key"),
        // A known key that did not sign.
        (Header { kid: Some("b".into()), ..good.clone() }, "signature"),
    ] {
        let token = issuer.signed(&header, &claims);
        assert_eq!(reason(&server, &token, 401).await, expected, "{header:?}");
    }
}

#[tokio::test]
async fn sbrp_token_04_no_algorithm_but_eddsa() {
    let server = start().await;
    let issuer = &server.issuer;
    // The public key as an HMAC secret, raw and as the text that is published.
    let public = issuer.public("a");
    let text = URL_SAFE_NO_PAD.encode(&public).into_bytes();
    for (secret, algorithm) in
        [(&public, Algorithm::HS256), (&text, Algorithm::HS256), (&public, Algorithm::HS512)]
    {
        let header = Header { alg: algorithm, ..issuer.header() };
        let key = EncodingKey::from_secret(secret);
        let token = jsonwebtoken::encode(&header, &issuer.claims(), &key).unwrap();
        assert_eq!(reason(&server, &token, 401).await, "signature");
    }
    let body = URL_SAFE_NO_PAD.encode(issuer.claims().to_string());
    for algorithm in ["none", "None", "NONE", "EdDSA"] {
        let head = json!({"typ": "sbrp-relay+jwt", "alg": algorithm, "kid": "a"}).to_string();
        let token = format!("{}.{body}.", URL_SAFE_NO_PAD.encode(head));
        let reason = reason(&server, &token, 401).await;
        assert!(["malformed", "signature"].contains(&reason.as_str()), "{algorithm}: {reason}");
    }
    // A signature of somebody else's key under a known name.
    let foreign = bowline_sbrp::token::TokenSigner::from_seed(&issuer.url, "a", &[99; 32]);
    let token = foreign.session(&issuer.session("d", 1));
    assert_eq!(reason(&server, &token, 401).await, "signature");
}

#[tokio::test]
async fn sbrp_token_05_to_16_every_claim_is_judged() {
    let server = start_with(|config| config.region = Some("eu".into())).await;
    let issuer = &server.issuer;
    for (name, value, expected, status) in [
        ("aud", json!("other"), "audience", 401),
        ("aud", json!(null), "audience", 401),
        ("iss", json!("https://evil.example"), "issuer", 401),
        ("iat", json!(null), "times", 401),
        ("exp", json!("tomorrow"), "times", 401),
        ("exp", json!(now() - 60), "expired", 401),
        ("ver", json!(2), "version", 401),
        ("role", json!("relay"), "role", 401),
        ("did", json!(""), "daemon", 401),
        ("sub", json!(""), "client", 401),
        ("sid", json!("AAAAAAAAAAA"), "client", 401),
        ("region", json!("us"), "region", 403),
        ("exp", json!(now() + 400), "lifetime", 401),
        ("scp", json!("session:create"), "scopes", 401),
        ("lim", json!({"concurrent_sessions": 0}), "limits", 401),
    ] {
        let token = issuer.signed(&issuer.header(), &with(issuer, name, value.clone()));
        assert_eq!(reason(&server, &token, status).await, expected, "{name} = {value}");
    }
    // And what is good gets in: told that its daemon is away, but in.
    for (name, value) in [
        ("region", json!("eu")),
        ("aud", json!(["x", "sideband-relay"])),
        ("exp", json!(now() + 290)),
        ("scp", json!(["session:create", "tea:brew"])),
    ] {
        let token = issuer.signed(&issuer.header(), &with(issuer, name, value));
        let mut client = server.connect(&token).await;
        let code = bowline_sbrp::control::ControlCode::DaemonOffline;
        client.expect_last(code, 0x0000_0B3A_73CE_2FF2).await;
    }
}

#[tokio::test]
async fn established_connections_outlive_their_tokens() {
    let server = start().await;
    let issuer = &server.issuer;
    // Expired already, and within the skew: good for one more second at most.
    let presence =
        bowline_sbrp::token::PresenceGrant { expires_at: now() - 29, ..issuer.presence("d") };
    let token = issuer.signer("a").presence(&presence);
    let mut daemon = server.connect(&token).await;
    super::server::until("the token is over", || async {
        let (status, _) = server.get("/status", Some(&token)).await;
        status == 401
    })
    .await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn a_good_token_without_an_upgrade_is_told_to_upgrade() {
    let server = start().await;
    let (status, body) = server.get("/relay", Some(&server.issuer.daemon("d"))).await;
    assert_eq!(status, 426, "{body}");
}
