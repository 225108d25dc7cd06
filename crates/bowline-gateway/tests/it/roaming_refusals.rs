//! SBP L3: which requests are refused, with which code, and that nothing of them is stored.

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::roaming::{IMPORT, STRANGER, made, of, sealed, text};

const UNKNOWN: &str = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";

/// Every roaming route, with a valid body.
fn routes() -> Vec<(Method, &'static str, Value)> {
    vec![
        (Method::POST, "export", json!({})),
        (Method::GET, "exports", Value::Null),
        (Method::GET, "exports/0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f/bundle", Value::Null),
        (Method::POST, "handoff", json!({ "to_agent_id": "a" })),
        (Method::POST, "fork", json!({})),
        (Method::GET, "lineage", Value::Null),
    ]
}

#[tokio::test]
async fn sbp_l3_01_malformed_and_unknown_sessions_are_told_apart() {
    let bench = Bench::start().await;
    for base in ["/v1/sbp/sessions", "/v1/sessions"] {
        for (method, what, body) in routes() {
            for id in ["not-a-uuid", "0191f2c03b5e7a108a551d2b3c4d5e6f", "%20", "%ff"] {
                let path = format!("{base}/{id}/{what}");
                let refused = bench.call(method.clone(), &path, &[], &body).await;
                assert_eq!(refused.refusal(), (422, "SBP_INVALID_UUID"), "{path}");
            }
            let path = format!("{base}/{UNKNOWN}/{what}");
            let refused = bench.call(method.clone(), &path, &[], &body).await;
            assert_eq!(refused.refusal(), (404, "SBP_SESSION_NOT_FOUND"), "{path}");
        }
    }
}

#[tokio::test]
async fn sbp_l3_01_a_bundle_is_only_found_under_its_own_session() {
    let bench = Bench::start().await;
    let (session, other) = (bench.session_with(1).await, bench.session_with(1).await);
    let export = text(&bench.export(&session, json!({})).await.body["export_id"]);
    let found = bench.get(&of(&session, &format!("exports/{export}/bundle"))).await;
    assert_eq!(found.status, 200);
    for (session, export, refusal) in [
        (&other, export.as_str(), (404, "SBP_NOT_FOUND")),
        (&session, UNKNOWN, (404, "SBP_NOT_FOUND")),
        (&session, "nonsense", (422, "SBP_INVALID_UUID")),
    ] {
        let refused = bench.get(&of(session, &format!("exports/{export}/bundle"))).await;
        assert_eq!(refused.refusal(), refusal, "{}", refused.text);
    }
}

/// Values of every JSON type; some may be valid.
const VALUES: [&str; 16] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "1e400",
    "99999999999999999999",
    "\"\"",
    "\"x\"",
    r#""\ud800""#,
    r#""\u0000""#,
    "[]",
    "[[]]",
    "{}",
    "{\"a\":null}",
];

async fn post(bench: &Bench, path: &str, body: String) -> crate::bench::Answer {
    let request = bench.http.post(bench.url(path)).header("content-type", "application/json");
    crate::bench::answer(request.body(body)).await
}

#[tokio::test]
async fn sbp_l3_01_wrong_types_in_any_field_are_the_callers_mistake() {
    let bench = Bench::start().await;
    for (what, fields) in [
        ("export", &["ttl_seconds", "label"][..]),
        ("handoff", &["to_agent_id", "handoff_message", "reason"]),
        ("fork", &["label", "at_step"]),
        ("import", &["roaming_token", "target_agent_id", "allow_reuse", "bundle"]),
    ] {
        let mut refused = 0;
        for value in VALUES {
            let whole = format!(r#"{{"f": {value}}}"#);
            let bodies = fields.iter().map(|field| match (what, *field) {
                ("handoff", "to_agent_id") | ("import", _) => {
                    whole.replace("\"f\"", &format!("\"{field}\""))
                }
                ("handoff", _) => format!(r#"{{"to_agent_id": "a", "{field}": {value}}}"#),
                _ => format!(r#"{{"{field}": {value}}}"#),
            });
            for body in bodies.chain([value.to_owned(), format!("{value}}}")]) {
                let session = bench.session().await;
                let path = if what == "import" { IMPORT.to_owned() } else { of(&session, what) };
                let answer = post(&bench, &path, body.clone()).await;
                assert!(matches!(answer.status, 201 | 400 | 422), "{what} {body}: {}", answer.text);
                if answer.status != 201 {
                    refused += 1;
                    assert!(answer.code().starts_with("SBP_"), "{what} {body}: {}", answer.text);
                }
            }
        }
        assert!(refused > 30, "{what}: {refused}");
    }
}

/// The paths of all values in a document.
fn places(value: &Value, here: Vec<String>, found: &mut Vec<Vec<String>>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, v)| (n.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in inner {
        let there = [here.clone(), vec![name]].concat();
        places(value, there.clone(), found);
        found.push(there);
    }
}

/// The document with another value at that path.
fn with(text: &str, place: &[String], value: &'static str) -> String {
    let mut document = bowline_pyjson::Value::parse(text).unwrap();
    let mut at = &mut document;
    for name in place {
        at = match at {
            bowline_pyjson::Value::Array(items) => &mut items[name.parse::<usize>().unwrap()],
            other => other.get_mut(name).unwrap(),
        };
    }
    *at = bowline_pyjson::Value::parse(value).unwrap();
    document.to_json()
}

#[tokio::test]
async fn sbp_l3_05_a_bundle_with_anything_anywhere_is_taken_or_refused_whole() {
    let bench = Bench::start().await;
    let memory = r#"{"schema_id": "urn:bowline:memory:1", "payload": {"semantic": [
        {"text": "tea", "created_at": "2026-03-01T00:00:00Z"}], "episodic": []}}"#;
    let ours = r#"{"bowline": {"snapshot_id": "s", "kind": "checkpoint", "seq": 2,
        "created_at": "2026-03-01T00:00:00Z"}}"#;
    let rich = STRANGER
        .replace(r#""memory": null"#, &format!(r#""memory": {memory}"#))
        .replace(r#""state_snapshot": null"#, &format!(r#""state_snapshot": {ours}"#))
        .replace(
            r#""role": "assistant""#,
            r#""bowline": {"kind": "turn", "status": "complete",
            "agent_id": "x"}, "tool_calls": [], "role": "assistant""#,
        )
        .replace(r#""id": "ses_1""#, r#""bowline": {"metadata": {"a": 1}}, "id": "ses_1""#);
    let mut all = Vec::new();
    places(&serde_json::from_str(&rich).unwrap(), Vec::new(), &mut all);
    assert!(all.len() > 45, "{all:?}");
    let (mut taken, mut refused) = (0, 0);
    for (n, place) in all.iter().enumerate() {
        // A few kinds each: all of them at each place would take a while.
        for value in VALUES.iter().cycle().skip(n * 5).take(6) {
            let bundle = sealed(&with(&rich, place, value));
            let before = bench.sessions().await.len();
            let answer = bench.import_bundle(&bundle).await;
            match answer.status {
                201 => {
                    taken += 1;
                    let new = made(&answer);
                    bench.bundle_of(&new).await;
                    let said = bench.say(&new, "echo on").await;
                    assert_eq!(said.content(), "on", "{place:?} {value}: {}", said.text);
                    let path = format!("/v1/sessions/{}", new.id);
                    bench.call(Method::DELETE, &path, &[], &Value::Null).await;
                }
                400 | 422 => {
                    refused += 1;
                    assert!(answer.code().starts_with("SBP_"), "{}", answer.text);
                    assert_eq!(bench.sessions().await.len(), before);
                }
                other => panic!("{other} for {value} at {place:?}: {}", answer.text),
            }
        }
    }
    assert!(taken > 100 && refused > 10, "{taken} taken, {refused} refused");
}

#[tokio::test]
async fn g11_a_bundle_over_the_limit_is_refused_on_either_side() {
    let limit = 4_000;
    let bench = Bench::with(|config| config.limits.import_body = limit).await;
    let padded = |length: usize| {
        let bare = crate::roaming::carried(&sealed(STRANGER));
        let pad = " ".repeat(length - bare.len());
        (bare + &pad).into_bytes()
    };
    assert_eq!(bench.import_bytes(padded(limit)).await.status, 201);
    let refused = bench.import_bytes(padded(limit + 1)).await;
    assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"));
    assert!(refused.text.contains("limits.import_body"), "{}", refused.text);
    let session = bench.session().await;
    bench.say(&session, &"x".repeat(limit)).await;
    let refused = bench.export(&session, json!({})).await;
    assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{}", refused.text);
    // A handoff goes nowhere: history is shared, however long it is, and no bundle is kept.
    let handed = bench.hand_off(&session, "a").await;
    let export = handed.body["export_id"].as_str().unwrap().to_owned();
    let bundle = bench.get(&of(&session, &format!("exports/{export}/bundle"))).await;
    assert_eq!((handed.status, bundle.status), (201, 404));
    // Other requests have a limit of their own.
    let bench = Bench::with(|config| config.limits.request_body = 100).await;
    let session = bench.session().await;
    let refused = bench.export(&session, json!({ "x": "x".repeat(100) })).await;
    assert_eq!(refused.status, 413);
    made(&bench.import_bundle(&sealed(STRANGER)).await);
}

#[tokio::test]
async fn g11_deep_bundles_are_refused_and_cost_nothing() {
    let bench = Bench::start().await;
    for depth in [600, 100_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for body in [format!(r#"{{"bundle": {deep}}}"#), deep.clone(), "[".repeat(depth)] {
            let refused = bench.import_bytes(body.into_bytes()).await;
            assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"), "{depth}");
        }
        let session = bench.session().await;
        let refused = post(&bench, &of(&session, "export"), format!(r#"{{"x": {deep}}}"#)).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{depth}");
    }
    for body in [&b"\xff"[..], b"{\"bundle\": \"\xc3\x28\"}", b"", b"{", b"null"] {
        let refused = bench.import_bytes(body.to_vec()).await;
        assert!(matches!(refused.status, 400 | 422), "{body:?}: {}", refused.text);
    }
}
