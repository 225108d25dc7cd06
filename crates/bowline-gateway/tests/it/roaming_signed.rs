//! SBP L3: a bundle file is signed by the gateway that exported it (SBP-L3-16).

use bowline_gateway::identity_file;
use bowline_pyjson::Value as Parsed;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench};
use crate::roaming::{IMPORT, STRANGER, made, names, parsed, sealed, text};

pub(crate) async fn identity(bench: &Bench) -> Value {
    let seen = bench.get("/v1/sbp/identity").await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    seen.body
}

/// Imports a bundle that must be signed like this.
async fn import_signed(bench: &Bench, bundle: &str, required: &Value) -> Answer {
    let body = format!(r#"{{"require_signature": {required}, "bundle": {bundle}}}"#);
    bench.import_bytes(body.into_bytes()).await
}

/// The bundle with another label, sealed again.
pub(crate) fn edited(bundle: &str) -> String {
    let mut bundle = parsed(bundle);
    bundle.as_object_mut().unwrap().insert("label", "another");
    sealed(&bundle.to_json())
}

#[tokio::test]
async fn sbp_l3_16_an_import_says_who_signed_the_bundle() {
    let (bench, elsewhere) = (Bench::start().await, Bench::start().await);
    let bundle = bench.bundle_of(&bench.session_with(1).await).await;
    let key = identity(&bench).await;
    for (gateway, known) in [(&bench, true), (&elsewhere, false)] {
        let imported = gateway.import_bundle(&bundle).await;
        made(&imported);
        let signature = &imported.body["signature"];
        assert_eq!(names(signature), ["state", "key", "fingerprint", "known"]);
        let expected = json!({ "state": "signed", "key": key["key"],
                               "fingerprint": key["fingerprint"], "known": known });
        assert_eq!(*signature, expected);
    }
    let by_token = bench.import_token(&bench.token_of(&bench.session_with(1).await).await).await;
    assert_eq!(by_token.body["signature"]["known"], true, "{}", by_token.text);
    let unsigned = elsewhere.import_bundle(&sealed(STRANGER)).await;
    made(&unsigned);
    let expected = json!({ "state": "unsigned", "key": null, "fingerprint": null, "known": false });
    assert_eq!(unsigned.body["signature"], expected);
    // What is exported again is signed by who exports it, and by nobody else.
    let again = elsewhere.bundle_of(&made(&elsewhere.import_bundle(&bundle).await)).await;
    let back = bench.import_bundle(&again).await;
    assert_eq!(back.body["signature"]["key"], identity(&elsewhere).await["key"]);
    assert_eq!(again.matches(r#""signature":"#).count(), 1, "{again}");
}

#[tokio::test]
async fn sbp_l3_16_a_bundle_that_was_edited_and_sealed_again_is_refused() {
    let (bench, elsewhere) = (Bench::start().await, Bench::start().await);
    let bundle = bench.bundle_of(&bench.session_with(1).await).await;
    let changed = edited(&bundle);
    for gateway in [&bench, &elsewhere] {
        let refused = gateway.import_bundle(&changed).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INTEGRITY"), "{}", refused.text);
        assert!(refused.text.contains("signature is broken"), "{}", refused.text);
    }
    assert_eq!(elsewhere.sessions().await.len(), 0);
    // Who takes the signature out as well has an unsigned bundle.
    let mut bare = parsed(&changed);
    let metadata = bare.get_mut("metadata").and_then(Parsed::as_object_mut).unwrap();
    metadata.remove("bowline");
    let bare = sealed(&bare.to_json());
    let imported = elsewhere.import_bundle(&bare).await;
    made(&imported);
    assert_eq!(imported.body["signature"]["state"], "unsigned");
}

#[tokio::test]
async fn sbp_l3_16_an_import_may_require_a_signature() {
    let (bench, elsewhere) = (Bench::start().await, Bench::start().await);
    let bundle = bench.bundle_of(&bench.session_with(1).await).await;
    let (ours, theirs) = (identity(&bench).await, identity(&elsewhere).await);
    let lower = json!(text(&ours["fingerprint"]).to_lowercase());
    for required in [&json!(true), &ours["fingerprint"], &lower, &json!(false), &Value::Null] {
        made(&import_signed(&elsewhere, &bundle, required).await);
    }
    let count = elsewhere.sessions().await.len();
    let unsigned = sealed(STRANGER);
    for (bundle, required) in [
        (&bundle, &theirs["fingerprint"]),
        (&unsigned, &json!(true)),
        (&unsigned, &ours["fingerprint"]),
        (&edited(&bundle), &json!(false)),
    ] {
        let refused = import_signed(&elsewhere, bundle, required).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INTEGRITY"), "{}", refused.text);
    }
    for wrong in [json!(1), json!("SHA256:00"), json!({})] {
        let refused = import_signed(&elsewhere, &bundle, &wrong).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{}", refused.text);
        assert_eq!(refused.body["error"]["param"], "require_signature", "{}", refused.text);
    }
    assert_eq!(elsewhere.sessions().await.len(), count);
    // Also of a bundle on the gateway; the token is still good afterwards.
    let token = bench.token_of(&bench.session_with(1).await).await;
    let asked = |required: &Value| json!({ "roaming_token": token, "require_signature": required });
    let refused = bench.import(asked(&theirs["fingerprint"])).await;
    assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INTEGRITY"), "{}", refused.text);
    made(&bench.import(asked(&ours["fingerprint"])).await);
}

#[tokio::test]
async fn sbp_l3_16_a_retried_import_says_the_same_about_the_signature() {
    let bench = Bench::start().await;
    let bundle: Value =
        serde_json::from_str(&bench.bundle_of(&bench.session_with(1).await).await).unwrap();
    let (body, key) = (json!({ "bundle": bundle }), [("Idempotency-Key", "once")]);
    let first = bench.call(reqwest::Method::POST, IMPORT, &key, &body).await;
    let again = bench.call(reqwest::Method::POST, IMPORT, &key, &body).await;
    assert_eq!(made(&first).id, made(&again).id);
    assert_eq!(first.body["signature"]["state"], "signed");
    assert_eq!(first.body, again.body);
}

#[tokio::test]
async fn sbp_l3_16_a_gateway_keeps_its_identity_and_shows_it_to_everyone() {
    let lock = |config: &mut bowline_gateway::config::Config| {
        config.auth.api_keys = vec!["a-key-that-nobody-needs-here".into()];
    };
    let bench = Bench::with(lock).await;
    let before = identity(&bench).await;
    assert_eq!(names(&before), ["algorithm", "key", "fingerprint"]);
    let on_disk = identity_file::load(bench.folder.path()).unwrap().unwrap().public();
    assert_eq!(before["key"], on_disk.to_string());
    assert_eq!(before["fingerprint"], on_disk.fingerprint().to_string());
    let bench = bench.reopened_with(lock).await;
    assert_eq!(identity(&bench).await, before);
}
