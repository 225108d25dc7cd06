//! `/v1/peers`: what an operator sees of other gateways, and whose changed key is accepted.

use bowline_gateway::identity_file;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, LOCAL_KEY};
use crate::federation_move::{free, knows};
use crate::people;

async fn of(bench: &Bench, method: Method, rest: &str, body: Value) -> Answer {
    people::call(bench, LOCAL_KEY, method, &format!("/v1/peers{rest}"), body).await
}

async fn check(bench: &Bench, id: &str) -> Value {
    let checked = of(bench, Method::POST, &format!("/{id}/check"), Value::Null).await;
    assert_eq!(checked.status, 200, "{}", checked.text);
    checked.body
}

#[tokio::test]
async fn sbp_l6_01_a_changed_key_is_shown_refused_and_approved_by_its_fingerprint() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let listed = of(&home, Method::GET, "", Value::Null).await;
    assert_eq!(listed.body["gateway_id"], "home");
    let peer = &listed.body["peers"][0];
    assert_eq!((&peer["id"], &peer["pin"]), (&json!("away"), &json!("unknown")));
    assert_eq!((&peer["allow"], &peer["named"]), (&json!("exported-to-me"), &json!("peer")));

    let checked = check(&home, "away").await;
    let first = away.gateway.identity().fingerprint().to_string();
    assert_eq!((&checked["ok"], &checked["pin"]), (&json!(true), &json!("remembered")));
    assert_eq!((&checked["fingerprint"], &checked["role"]), (&json!(first), &json!("gateway")));
    assert_eq!(checked["sbp_version"], bowline_sbp::SBP_VERSION);
    assert!(checked["round_trip_ms"].as_f64().unwrap() > 0.0, "{checked}");

    std::fs::remove_file(away.folder.path().join(identity_file::IDENTITY_FILE)).unwrap();
    let away = away.reopened_with(|config| knows(config, at_away, at_home)).await;
    let second = away.gateway.identity().fingerprint().to_string();
    let changed = check(&home, "away").await;
    assert_eq!((&changed["ok"], &changed["pin"]), (&json!(false), &json!("changed")));
    assert_eq!((&changed["fingerprint"], &changed["shown"]), (&json!(first), &json!(second)));
    assert!(changed["problem"].as_str().unwrap().contains("key has changed"), "{changed}");

    let approve = async |fingerprint: &str| {
        of(&home, Method::POST, "/away/approve", json!({ "fingerprint": fingerprint })).await
    };
    assert_eq!(approve(&first).await.status, 409, "it does not show that one");
    assert_eq!(approve("SHA256:00").await.status, 422);
    let approved = approve(&second).await;
    assert_eq!((approved.status, &approved.body["pin"]), (200, &json!("remembered")));
    assert_eq!(check(&home, "away").await["ok"], true, "and it is asked at once");
    assert_eq!(approve(&second).await.status, 409, "there is nothing more to approve");

    assert_eq!(of(&home, Method::DELETE, "/away", Value::Null).await.body["named"], "peer");
    let listed = of(&home, Method::GET, "", Value::Null).await;
    assert_eq!(listed.body["peers"][0]["pin"], "unknown");
    assert_eq!(of(&home, Method::POST, "/nobody/check", Value::Null).await.status, 404);
    assert_eq!(of(&home, Method::DELETE, "/nobody", Value::Null).await.status, 404);
}

#[tokio::test]
async fn sbp_l6_01_a_peer_that_does_not_answer_is_said_to_and_asked_again_at_once() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    let down = check(&home, "away").await;
    assert_eq!((&down["ok"], &down["pin"]), (&json!(false), &json!("unknown")));
    assert!(down["problem"].as_str().unwrap().contains("cannot be reached"), "{down}");
    assert!(down["backed_off_seconds"].as_u64().unwrap() >= 1, "{down}");
    let _away = Bench::with(|config| knows(config, at_away, at_home)).await;
    let up = check(&home, "away").await;
    assert_eq!((&up["ok"], &up["backed_off_seconds"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn g20_peers_are_for_operators() {
    let bench = Bench::with(|config| knows(config, ("home", free()), ("away", free()))).await;
    let ada = people::person(&bench, "ada").await;
    for (method, path) in [
        (Method::GET, "/v1/peers"),
        (Method::POST, "/v1/peers/away/check"),
        (Method::POST, "/v1/peers/away/approve"),
        (Method::DELETE, "/v1/peers/away"),
    ] {
        let refused = people::call(&bench, &ada.key, method, path, json!({})).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
    }
}

/// Whoever asks is known by a token for this one request, so its body is read first.
#[tokio::test]
async fn g11_what_a_gateway_asks_for_is_read_within_64_kib_before_it_is_known() {
    let (at_home, at_away) = (("home", free()), ("away", free()));
    let home = Bench::with(|config| knows(config, at_home, at_away)).await;
    for path in ["reservations", "attach"] {
        let path = format!("/v1/sbp/federation/{path}");
        for (length, expected) in [(70 << 10, 413), (10, 401)] {
            let asked = json!({
                "reservation_id": "01a1f4df-7e13-775b-ad0c-e90e8ea02eae",
                "roaming_token": "x".repeat(length),
            });
            let refused = home.call(Method::POST, &path, &[], &asked).await;
            assert_eq!(refused.status, expected, "{path}: {}", refused.text);
        }
    }
}
