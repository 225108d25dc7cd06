//! SBP L3: the bundle's schema and the examples of the roaming requests match what is served, real
//! bundles, and the gateway's responses.

use std::path::{Path, PathBuf};

use bowline_gateway::config::{Config, Price};
use bowline_sbp::bundle::Contents;
use bowline_sbp::gateway_key::GatewayIdentity;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Answer, Bench, Session, list, turn};
use crate::json_schema::Schema;
use crate::roaming::{IMPORT, STRANGER, forked, made, of, parsed, sealed, text};
use crate::upstream::MockUpstream;

const CALLS: [&str; 4] = ["export", "import", "handoff", "fork"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn schema() -> Schema {
    Schema::parse(&file("roaming-bundle.schema.json"))
}

fn example(call: &str) -> Value {
    serde_json::from_str(&file(&format!("examples/{call}.json"))).unwrap()
}

#[tokio::test]
async fn sbp_l3_15_the_schema_and_the_examples_are_served_to_everyone() {
    let key = "a-key-that-nobody-needs-here";
    let bench = Bench::with(|config| config.auth.api_keys = vec![key.into()]).await;
    let served = bench.get("/spec/roaming-bundle.schema.json").await;
    assert_eq!((served.status, served.header("content-type")), (200, "application/schema+json"));
    assert_eq!(served.text, file("roaming-bundle.schema.json"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder().join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let served = bench.get(&format!("/spec/examples/{name}")).await;
        assert_eq!((served.status, served.header("content-type")), (200, "application/json"));
        assert_eq!(served.text, file(&format!("examples/{name}")), "{name}");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["bundle.json", "export.json", "fork.json", "handoff.json", "import.json"]);
    for name in ["export", "..%2Fsbp.md", "%ff", "%00"] {
        let refused = bench.get(&format!("/spec/examples/{name}")).await;
        assert_eq!(refused.refusal(), (404, "SBP_NOT_FOUND"), "{name}");
    }
}

/// A session with everything that a bundle can contain.
async fn full(bench: &Bench) -> Session {
    let memories = json!({ "memories": [
        { "text": "Tea, not coffee." }, { "text": "We met in May.", "kind": "episodic" },
        { "text": "Answer in two sentences.", "kind": "procedural" },
    ] });
    bench.post("/v1/agents/default/memory", memories).await;
    let asked = json!({ "metadata": { "colour": "red", "nested": { "n": [1.0, null] } } });
    let session = Session::of(&bench.post("/v1/sessions", asked).await.body);
    let mut body = turn(&session, "gpt-x", "");
    let parts = json!([
        { "type": "text", "text": "what is this?" },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
    ]);
    body["messages"] = json!([
        { "role": "system", "content": "Be brief.", "name": "owner" },
        { "role": "user", "content": parts, "unknown": 12 },
    ]);
    assert_eq!(bench.chat(body).await.status, 200);
    // A tool of the caller's, and one that the gateway runs.
    bench.say_to(&session, "tools", "look it up").await;
    let mut body = turn(&session, "tools", "");
    body["messages"] = json!([{ "role": "tool", "tool_call_id": "call_1", "content": "42" }]);
    assert_eq!(bench.chat(body).await.content(), "it says 42");
    let mut body = turn(&session, "remembers", "the cat is Ada");
    body["sbp"]["memory_retrieval"] = json!(true);
    assert_eq!(bench.chat(body).await.status, 200);
    // Another agent's turn, and one whose model breaks off.
    let critic = [("X-Agent-ID", "critic")];
    assert_eq!(bench.chat_as(&critic, turn(&session, "m", "and you?")).await.status, 200);
    let mut body = turn(&session, "broken", "go on");
    body["stream"] = json!(true);
    bench.chat(body).await;
    bench.until(&session, "six steps", |seen| seen["step_count"] == 6).await;
    session
}

async fn exported(bench: &Bench, session: &Session, label: &str) -> String {
    let exported = bench.export(session, json!({ "label": label })).await;
    assert_eq!(exported.status, 201, "{}", exported.text);
    let export = text(&exported.body["export_id"]);
    bench.get(&of(session, &format!("exports/{export}/bundle"))).await.text
}

#[tokio::test]
async fn sbp_l3_15_every_bundle_we_write_is_as_the_schema_says() {
    let upstream = MockUpstream::start().await;
    let prices = |config: &mut Config| {
        config.prices.insert("*".into(), Price { input: 1.0, output: 2.0 });
    };
    let bench = Bench::before_with(&upstream, prices).await;
    let elsewhere = Bench::before_with(&upstream, prices).await;
    let session = full(&bench).await;
    let label = "é".repeat(120);
    let bundle = exported(&bench, &session, &label).await;
    // Everything that the schema names is there to be checked.
    for named in [
        r#""metadata":{"colour":"red""#,
        r#""tool_calls":[{"#,
        r#""kind":"action""#,
        r#""agent_id":"critic""#,
        r#""bowline":{"status":""#,
        r#""semantic":[{"text":"#,
        r#""episodic":[{"text":"#,
        r#""snapshot_id":"#,
        r#""signature":{"alg":"ed25519","#,
        r#""cost_usd":0.0012"#,
    ] {
        assert!(bundle.contains(named), "{named} is not in {bundle}");
    }
    let imported = made(&elsewhere.import_bundle(&bundle).await);
    let again = made(&elsewhere.import_token(&elsewhere.token_of(&imported).await).await);
    let fork = forked(&elsewhere.fork(&again, json!({ "label": "b", "at_step": 2 })).await);
    let next = made(&elsewhere.hand_off(&again, "booking").await);
    elsewhere.say(&next, "echo on").await;
    let empty = elsewhere.session().await;
    let stranger = STRANGER
        .replace(r#""memory": null"#, r#""memory": {"schema_id": "urn:x", "payload": [1e400]}"#)
        .replace(r#""state_snapshot": null"#, r#""state_snapshot": {"cursor": 123}, "more": {}"#)
        .replace(r#""step_count": 1"#, r#""step_count": 1, "half": "\ud800""#);
    let stranger = made(&elsewhere.import_bundle(&sealed(&stranger)).await);
    // Their memory goes along inside ours.
    let memories = json!({ "memories": [{ "text": "North is up." }] });
    elsewhere.post("/v1/agents/navigator/memory", memories).await;
    let mut bundles = vec![bundle];
    for session in [&imported, &again, &fork, &next, &empty, &stranger] {
        bundles.push(exported(&elsewhere, session, "l").await);
    }
    bundles.push(elsewhere.bundle_of(&next).await);
    assert!(bundles[6].contains(r#""carried":{"schema_id":"urn:x""#), "{}", bundles[6]);
    for bundle in bundles {
        assert_eq!(schema().faults(&bundle), [""; 0], "{bundle}");
    }
}

#[test]
fn sbp_l3_15_the_example_bundle_is_as_the_schema_says_and_as_we_would_write_it() {
    let bundle = file("examples/bundle.json");
    assert_eq!(schema().faults(&bundle), [""; 0]);
    let (contents, cid) = Contents::open(&bundle).unwrap();
    // Nothing in it is unknown here; a task is carried until the next one.
    let task = json!([contents.messages.len(), contents.session.last_task]);
    assert_eq!(contents.carried, Some(json!({ "last_task": task }).to_string()));
    // The identity that signed the example.
    let again = contents.seal_signed(&GatewayIdentity::from_seed(&[7; 32]));
    assert_eq!(again.cid, cid);
    assert_eq!(parsed(&again.text), parsed(&bundle));
}

#[test]
fn sbp_l3_15_bundles_of_the_content_id_vectors_are_as_the_schema_says() {
    let vectors =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowline-sbp/tests/vectors/cid.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(vectors).unwrap()).unwrap();
    let vectors = list(&vectors["vectors"]);
    let bundles: Vec<_> = vectors.iter().filter(|vector| vector["bundle"] == true).collect();
    assert_eq!(bundles.len(), 2);
    for vector in bundles {
        let faults = schema().faults(vector["bundle_with_cid_text"].as_str().unwrap());
        assert_eq!(faults, [""; 0], "{}", vector["id"]);
    }
}

#[test]
fn sbp_l3_15_a_bundle_with_a_broken_field_is_not_as_the_schema_says() {
    let whole: Value = serde_json::from_str(&file("examples/bundle.json")).unwrap();
    let faults = |bundle: &Value| schema().faults(&bundle.to_string());
    for (place, wrong, keyword) in [
        ("/sbp_version", json!("2.0"), "const"),
        ("/bundle_cid", json!("F".repeat(64)), "pattern"),
        ("/exported_at", json!("yesterday"), "format"),
        ("/label", json!("x".repeat(121)), "maxLength"),
        ("/session", json!("s"), "type"),
        ("/session/id", json!(""), "minLength"),
        ("/session/status", json!(1), "type"),
        ("/session/last_task", json!({}), "type"),
        ("/session/created_at", json!(1_773_478_800), "type"),
        ("/session/step_count", json!(1.5), "type"),
        ("/session/bowline/metadata", json!([]), "type"),
        ("/messages", json!({}), "type"),
        ("/messages/0", json!("hi"), "type"),
        ("/messages/0/role", json!(""), "minLength"),
        ("/messages/0/model_used", json!(4), "type"),
        ("/messages/0/cost_usd", json!(-0.1), "minimum"),
        ("/messages/0/created_at", Value::Null, "type"),
        ("/messages/1/bowline/kind", json!("thought"), "enum"),
        ("/messages/1/bowline", json!({ "status": "complete" }), "enum"),
        ("/memory", json!("words"), "type"),
        ("/memory/schema_id", json!(1), "type"),
        ("/memory/payload", json!([]), "type"),
        ("/memory/payload/semantic", json!("fact"), "type"),
        ("/memory/payload/episodic/0/text", json!(""), "minLength"),
        ("/memory/payload/episodic/0/created_at", json!("May"), "format"),
        ("/state_snapshot/bowline/kind", json!("photo"), "enum"),
        ("/state_snapshot/bowline/seq", json!(-1), "minimum"),
        ("/metadata/export_id", json!(7), "type"),
        ("/metadata/message_count", json!("6"), "type"),
        ("/metadata/total_cost_usd", json!("0"), "type"),
        ("/metadata/bowline", json!(1), "type"),
        ("/metadata/bowline/signature", json!("x"), "type"),
        ("/metadata/bowline/signature/alg", json!("rsa"), "const"),
        ("/metadata/bowline/signature/key", json!("A".repeat(42)), "pattern"),
        ("/metadata/bowline/signature/value", json!("A".repeat(85)), "pattern"),
    ] {
        let mut broken = whole.clone();
        *broken.pointer_mut(place).unwrap() = wrong;
        let found = faults(&broken);
        assert_eq!(found.len(), 1, "{place}: {found:?}");
        assert!(found[0].starts_with(place) && found[0].ends_with(keyword), "{place}: {found:?}");
    }
    // What is missing is found, and what is lost on import is not allowed.
    let mut required = 0;
    let signature = "/metadata/bowline/signature";
    for place in ["", "/session", "/messages/0", "/memory", "/metadata", signature] {
        for name in whole.pointer(place).unwrap().as_object().unwrap().keys() {
            let mut broken = whole.clone();
            broken.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(name);
            let optional = matches!(name.as_str(), "bowline" | "content");
            let expected = if optional { vec![] } else { vec![format!("{place} required")] };
            assert_eq!(faults(&broken), expected, "{place}/{name}");
            required += usize::from(!optional);
        }
    }
    assert_eq!(required, 9 + 6 + 4 + 2 + 3 + 3);
    for place in ["/messages/1/bowline", "/memory", "/memory/payload/semantic/0", signature] {
        let mut broken = whole.clone();
        broken.pointer_mut(place).unwrap()["more"] = json!(1);
        assert_eq!(faults(&broken), [format!("{place} additionalProperties")]);
    }
    for place in ["", "/session", "/messages/0", "/state_snapshot", "/metadata"] {
        let mut extended = whole.clone();
        extended.pointer_mut(place).unwrap()["more"] = json!(1);
        assert_eq!(faults(&extended), [""; 0], "{place}");
    }
}

/// Sends an example's request with the session and token replaced.
async fn replay(bench: &Bench, example: &Value, names: &[(&str, &str)]) -> Answer {
    let mut request = example["request"].to_string();
    for (theirs, ours) in names {
        request = request.replace(theirs, ours);
    }
    let request: Value = serde_json::from_str(&request).unwrap();
    let method: Method = text(&request["method"]).parse().unwrap();
    let headers: Vec<_> = request["headers"].as_object().unwrap().iter().collect();
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    bench.call(method, &text(&request["path"]), &headers, &request["body"]).await
}

/// The type of the value at each path.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect()
        }
    }
}

#[tokio::test]
async fn sbp_l3_15_a_gateway_answers_as_the_examples_say() {
    let key = text(&example("export")["request"]["headers"]["Authorization"]);
    let api_key = key.strip_prefix("Bearer ").unwrap().to_owned();
    let bench = Bench::with(|config| config.auth.api_keys = vec![api_key]).await;
    let bundle: Value = serde_json::from_str(&file("examples/bundle.json")).unwrap();
    let carried = json!({ "bundle": bundle });
    let session = bench.call(Method::POST, IMPORT, &[("Authorization", &key)], &carried).await;
    let session = made(&session);
    let their_session = text(&bundle["session"]["id"]);
    let their_token = text(&example("export")["response"]["body"]["roaming_token"]);
    let mut token = String::new();
    for call in CALLS {
        let example = example(call);
        let names = [(their_token.as_str(), token.as_str()), (&their_session, &session.id)];
        let answer = replay(&bench, &example, &names).await;
        let expected = &example["response"];
        assert_eq!(expected["status"], answer.status, "{call}: {}", answer.text);
        assert_eq!(shape(&answer.body), shape(&expected["body"]), "{call}");
        // What does not depend on ids and clocks is the same.
        for same in [
            "agent_id",
            "to_agent_id",
            "label",
            "fork_label",
            "step_count",
            "memory_restored",
            "fork_point_msg",
            "fork_point_step",
        ] {
            assert_eq!(answer.body.get(same), expected["body"].get(same), "{call}: {same}");
        }
        if call == "export" {
            token = text(&answer.body["roaming_token"]);
        }
    }
}

#[test]
fn sbp_l3_15_the_examples_fit_together() {
    let bundle: Value = serde_json::from_str(&file("examples/bundle.json")).unwrap();
    let [export, import, handoff, fork] =
        CALLS.map(|call| example(call)["response"]["body"].clone());
    for name in ["bundle_cid", "label"] {
        assert_eq!(export[name], bundle[name], "{name}");
    }
    assert_eq!(export["bundle_hash"], bundle["bundle_cid"]);
    assert_eq!(export["export_id"], bundle["metadata"]["export_id"]);
    assert_eq!(export["message_count"], bundle["metadata"]["message_count"]);
    assert_eq!(import["message_count"], bundle["metadata"]["message_count"]);
    assert_eq!(import["step_count"], bundle["session"]["step_count"]);
    let from = &import["provenance"];
    assert_eq!(from["bundle_cid"], bundle["bundle_cid"]);
    assert_eq!(from["origin_export_id"], export["export_id"]);
    assert_eq!(from["origin_agent_id"], bundle["session"]["agent_external_id"]);
    assert_eq!(from["exported_at"], bundle["exported_at"]);
    assert_eq!(example("import")["request"]["body"]["roaming_token"], export["roaming_token"]);
    let session = &bundle["session"]["id"];
    for said in [
        &export["session_id"],
        &from["origin_session_id"],
        &handoff["from_session_id"],
        &handoff["source_session_id"],
        &fork["origin_session_id"],
    ] {
        assert_eq!(said, session);
    }
}
