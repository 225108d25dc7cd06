//! Device tokens: attach only, with expiry and revocation (SBP-L4-05).

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Phone, Session};

async fn token_for(bench: &Bench, session: &Session, body: Value) -> Value {
    let made = bench.post(&format!("/v1/sessions/{}/surfaces", session.id), body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body
}

async fn attach_with(bench: &Bench, session: &Session, token: &Value) -> (Phone, Value) {
    let mut phone = bench.socket(&session.id).await;
    let attach = json!({ "type": "ATTACH_SESSION", "session_id": session.id,
                         "session_token": token, "surface": { "surface_id": "someone" } });
    phone.send(attach).await;
    let welcome = phone.next().await;
    (phone, welcome)
}

#[tokio::test]
async fn sbp_l4_05_a_devices_token_attaches_that_device_and_opens_nothing_else() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let made = token_for(&bench, &session, json!({ "surface_id": "watch" })).await;
    let token = &made["surface_token"];
    let (mut phone, welcome) = attach_with(&bench, &session, token).await;
    assert_eq!(welcome["type"], "SESSION_ATTACHED");
    assert_eq!(welcome["surface_id"], "watch", "it is who its token says");
    bench.say(&session, "echo hi").await;
    phone.until("TURN_COMPLETE").await;
    let shown = [("x-session-token", token.as_str().unwrap())];
    let one = format!("/v1/sessions/{}", session.id);
    for path in [one.clone(), format!("{one}/messages"), format!("{one}/surfaces")] {
        let read = bench.call(Method::GET, &path, &shown, &Value::Null).await;
        assert_eq!(read.status, 200, "{path}");
    }
    for (method, path) in [
        (Method::DELETE, one.clone()),
        (Method::PATCH, one.clone()),
        (Method::POST, format!("{one}/surfaces")),
        (Method::POST, format!("{one}/export")),
        (Method::GET, format!("{one}/exports")),
    ] {
        let refused = bench.call(method, &path, &shown, &Value::Null).await;
        assert_eq!(refused.status, 403, "{path}");
    }
    let other = bench.session().await;
    let (_, welcome) = attach_with(&bench, &other, token).await;
    assert_eq!(welcome["type"], "FORBIDDEN");
}

#[tokio::test]
async fn sbp_l4_05_a_device_that_is_forgotten_is_cut_off_and_stays_out() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let made = token_for(&bench, &session, json!({})).await;
    let name = made["surface_id"].as_str().unwrap();
    let path = format!("/v1/sessions/{}/surfaces", session.id);
    let known = bench.get(&path).await.body["surfaces"][0].clone();
    assert_eq!((&known["last_seen"], &known["attached"]), (&Value::Null, &json!(false)));
    let (mut phone, _) = attach_with(&bench, &session, &made["surface_token"]).await;
    let one = format!("{path}/{name}");
    assert_eq!(bench.call(Method::DELETE, &one, &[], &Value::Null).await.status, 204);
    let frame = phone.next().await;
    assert_eq!(frame["type"], "FORBIDDEN");
    assert_eq!(phone.closed().await, 4003);
    let (mut phone, welcome) = attach_with(&bench, &session, &made["surface_token"]).await;
    assert_eq!((&welcome["type"], phone.closed().await), (&json!("FORBIDDEN"), 4003));
    assert!(bench.get(&path).await.body["surfaces"][0].is_null());
    // The session's own token is none the worse for it.
    bench.attach(&session).await;
}

#[tokio::test]
async fn sbp_l4_05_a_token_ends_by_itself_and_a_new_one_takes_its_place() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let first = token_for(&bench, &session, json!({ "surface_id": "tv", "expires_in": 1 })).await;
    let second = token_for(&bench, &session, json!({ "surface_id": "tv", "expires_in": 1 })).await;
    let (_, welcome) = attach_with(&bench, &session, &first["surface_token"]).await;
    assert_eq!(welcome["type"], "FORBIDDEN", "another took its place");
    let (mut phone, welcome) = attach_with(&bench, &session, &second["surface_token"]).await;
    if welcome["type"] == "SESSION_ATTACHED" {
        assert_eq!(phone.closed().await, 4003, "it stays no longer than its token");
    }
    let ends: jiff::Timestamp = second["expires_at"].as_str().unwrap().parse().unwrap();
    crate::bench::eventually("over", async || jiff::Timestamp::now() > ends).await;
    let (_, welcome) = attach_with(&bench, &session, &second["surface_token"]).await;
    assert_eq!(welcome["type"], "FORBIDDEN", "it is over");
    let path = format!("/v1/sessions/{}/surfaces", session.id);
    for body in
        [json!({ "expires_in": 0 }), json!({ "surface_id": "" }), json!({ "expires_in": -1 })]
    {
        assert!((400..=422).contains(&bench.post(&path, body).await.status));
    }
}
