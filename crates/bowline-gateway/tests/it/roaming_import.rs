//! SBP L3: what an import restores, from a token and from a bundle file.

use bowline_gateway::config::Price;
use bowline_sbp::cid::Cid;
use bowline_sbp::id::ExportId;
use bowline_sbp::roaming_token::RoamingClaims;
use bowline_store::{NewExport, Roaming, Sessions};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bench::{Bench, Session, list, turn, user};
use crate::roaming::{STRANGER, made, names, of, parsed, part, sealed, text};
use crate::upstream::MockUpstream;

/// A session with an image, a tool call and its result, two models and costs.
async fn rich(bench: &Bench) -> Session {
    let session = bench.session().await;
    let mut body = turn(&session, "gpt-x", "");
    let picture = json!([
        { "type": "text", "text": "what is this?" },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
    ]);
    body["messages"] = json!([
        { "role": "system", "content": "Be brief.", "name": "owner" },
        { "role": "user", "content": picture },
    ]);
    assert_eq!(bench.chat(body).await.status, 200);
    bench.say_to(&session, "tools", "look it up").await;
    let mut body = turn(&session, "tools", "");
    body["messages"] = json!([{ "role": "tool", "tool_call_id": "call_1", "content": "42" }]);
    assert_eq!(bench.chat(body).await.content(), "it says 42");
    session
}

async fn priced(upstream: &MockUpstream) -> Bench {
    Bench::before_with(upstream, |config| {
        config.prices.insert("gpt-x".into(), Price { input: 1.0, output: 0.0 });
    })
    .await
}

#[tokio::test]
async fn sbp_l3_05_an_import_says_what_was_made_of_what() {
    let bench = Bench::start().await;
    let session = bench.session_with(2).await;
    let exported = bench.export(&session, json!({})).await.body;
    let imported = bench.import_token(&text(&exported["roaming_token"])).await;
    let new = made(&imported);
    let body = &imported.body;
    let fields = [
        "session_id",
        "new_session_id",
        "session_token",
        "agent_id",
        "step_count",
        "message_count",
        "messages_restored",
        "origin_export_id",
        "memory_restored",
        "memory_count",
        "signature",
        "provenance",
    ];
    assert_eq!(names(body), fields);
    assert_eq!(body["session_id"], body["new_session_id"]);
    assert_ne!(new.id, session.id);
    assert_eq!((&body["agent_id"], &body["step_count"]), (&json!("default"), &json!(2)));
    assert_eq!((&body["message_count"], &body["messages_restored"]), (&json!(4), &json!(4)));
    assert_eq!(body["origin_export_id"], exported["export_id"]);
    assert_eq!(body["memory_restored"], false);
    let from = &body["provenance"];
    assert_eq!(from["origin_session_id"], json!(session.id));
    assert_eq!(from["origin_agent_id"], "default");
    assert_eq!(from["origin_export_id"], exported["export_id"]);
    assert_eq!(from["bundle_cid"], exported["bundle_cid"]);
    let shown = bench.show(&new).await;
    assert_eq!(from["imported_at"], shown["created_at"]);
    assert_eq!((&shown["status"], &shown["step_count"]), (&json!("running"), &json!(2)));
    assert_eq!(shown["tether_turns_pending"], 0, "what was read elsewhere is not delivered again");
    // Its token opens it, and only it.
    let (_, welcome) = bench.attach(&new).await;
    assert_eq!(welcome["queued_turns"], 0);
    let wrong = [("X-Session-Token", new.token.as_str())];
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(bench.call(Method::GET, &path, &wrong, &Value::Null).await.status, 403);
}

#[tokio::test]
async fn sbp_l3_05_every_message_is_restored_as_it_was() {
    let upstream = MockUpstream::start().await;
    let (bench, elsewhere) = (priced(&upstream).await, priced(&upstream).await);
    let session = rich(&bench).await;
    let before = bench.entries(&session).await;
    assert_eq!(before.len(), 7, "{before:?}");
    assert_eq!(before[2]["cost_usd"], 0.001);
    let by_token = made(&bench.import_token(&bench.token_of(&session).await).await);
    let by_hand = made(&elsewhere.import_bundle(&bench.bundle_of(&session).await).await);
    for (bench, new) in [(&bench, &by_token), (&elsewhere, &by_hand)] {
        let after = bench.entries(new).await;
        assert_eq!(after.len(), 8);
        for (was, is) in before.iter().zip(&after) {
            for name in ["seq", "kind", "message", "model_used", "cost_usd", "status", "created_at"]
            {
                assert_eq!(was[name], is[name], "{name} of {was}");
            }
        }
        let told = &after[7]["message"];
        assert_eq!(told["role"], "system");
        let told = text(&told["content"]);
        assert!(told.contains(&session.id) && told.contains("7 messages"), "{told}");
        let shown = bench.show(new).await;
        assert_eq!((&shown["step_count"], &shown["cost_usd"]), (&json!(3), &json!(0.001)));
    }
}

#[tokio::test]
async fn sbp_l3_13_a_session_of_one_model_goes_on_with_another() {
    let upstream = MockUpstream::start().await;
    let (bench, elsewhere) = (priced(&upstream).await, priced(&upstream).await);
    let session = rich(&bench).await;
    let new = made(&elsewhere.import_bundle(&bench.bundle_of(&session).await).await);
    let said = elsewhere.say_to(&new, "another-model", "and then?").await;
    assert_eq!(said.status, 200, "{}", said.text);
    let call = upstream.calls().pop().unwrap();
    assert_eq!(call.body["model"], "another-model");
    let seen = list(&call.body["messages"]);
    let before: Vec<_> =
        bench.entries(&session).await.into_iter().map(|entry| entry["message"].clone()).collect();
    assert_eq!(seen[..7], before[..], "pictures, calls and results as they were");
    assert_eq!((&seen[7]["role"], &seen[8]), (&json!("system"), &user("and then?")));
    let last = elsewhere.entries(&new).await.pop().unwrap();
    assert_eq!(last["model_used"], "another-model");
    assert_eq!(elsewhere.entries(&new).await[2]["model_used"], "gpt-x");
}

#[tokio::test]
async fn sbp_l3_05_a_session_can_be_given_to_another_agent_on_arrival() {
    let bench = Bench::with(|config| {
        config.agents.known = vec!["cook".parse().unwrap(), "default".parse().unwrap()];
    })
    .await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    for agent in ["stranger", "", "a\nb", &"x".repeat(129)] {
        let body = json!({ "roaming_token": token, "target_agent_id": agent });
        let refused = bench.import(body).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{agent}");
        assert_eq!(refused.body["error"]["param"], "target_agent_id");
        let refused = bench.hand_off(&session, agent).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{agent}");
        assert_eq!(refused.body["error"]["param"], "to_agent_id");
    }
    assert_eq!(bench.sessions().await.len(), 1);
    let body = json!({ "roaming_token": token, "target_agent_id": "cook" });
    let imported = bench.import(body).await;
    assert_eq!(imported.body["agent_id"], "cook");
    assert_eq!(bench.show(&made(&imported)).await["agent_id"], "cook");
    assert_eq!(imported.body["provenance"]["origin_agent_id"], "default");
    made(&bench.hand_off(&session, "cook").await);
}

#[tokio::test]
async fn sbp_l3_05_what_an_agent_remembers_travels_with_it_if_asked_for() {
    let (bench, elsewhere) = (Bench::start().await, Bench::start().await);
    let memories = json!({ "memories": [
        { "text": "Tea, not coffee." }, { "text": "We met in May.", "kind": "episodic" },
    ] });
    bench.post("/v1/agents/default/memory", memories).await;
    let bundle = bench.bundle_of(&bench.session_with(1).await).await;
    let with_memory = async |more: &str| {
        let body = format!(r#"{{"with_memory": true{more}, "bundle": {bundle}}}"#);
        let imported = elsewhere.import_bytes(body.into_bytes()).await;
        made(&imported);
        let said = (&imported.body["memory_restored"], &imported.body["memory_count"]);
        assert_eq!(said, (&json!(true), &json!(2)));
    };
    with_memory("").await;
    let found = async |agent: &str| {
        let path = format!("/v1/agents/{agent}/memory");
        let mut found: Vec<_> = list(&elsewhere.get(&path).await.body["memories"])
            .iter()
            .map(|memory| (text(&memory["text"]), text(&memory["kind"])))
            .collect();
        found.sort();
        found
    };
    let all = [("Tea, not coffee.", "semantic"), ("We met in May.", "episodic")];
    let all = all.map(|(text, kind)| (text.to_owned(), kind.to_owned()));
    assert_eq!(found("default").await, all);
    with_memory(r#", "target_agent_id": "cook""#).await;
    assert_eq!(found("cook").await, all, "to the agent that goes on");
    assert_eq!(found("default").await, all, "once is enough");
}

#[tokio::test]
async fn sbp_l3_08_memory_of_another_make_is_carried_on_untouched() {
    let bench = Bench::start().await;
    for memory in [
        r#"{"schema_id": "urn:someone:graph:7", "payload": {"nodes": [1.0, 10000000000000000000001, "\ud800"]}}"#,
        r#"{"schema_id": "urn:bowline:memory:1", "payload": "not ours after all"}"#,
        r#"{"schema_id": null, "payload": NaN}"#,
        r#""just words""#,
    ] {
        let bundle =
            sealed(&STRANGER.replace(r#""memory": null"#, &format!(r#""memory": {memory}"#)));
        let imported = bench.import_bundle(&bundle).await;
        let new = made(&imported);
        assert_eq!(imported.body["memory_restored"], false, "{memory}");
        let found = bench.get("/v1/agents/navigator/memory").await.body;
        assert_eq!(found["memories"], json!([]));
        bench.say(&new, "echo on").await;
        let again = bench.bundle_of(&new).await;
        assert_eq!(part(&parsed(&again), &["memory"]), parsed(memory).to_canonical());
    }
}

/// A bundle with everything that other implementations may put into one.
pub(crate) const ODD: &str = r#"{
    "sbp_version": "1.7", "future": [1e400, -0.0, 1E5, "\ud800", "\u0000", {"n": null}],
    "exported_at": "2026-03-14T09:00:00Z", "label": null,
    "session": {"id": "ses_1", "agent_external_id": "navigator", "status": "idle", "last_task": "t",
                "created_at": "2026-03-14T08:00:00Z", "step_count": 4, "colour": -0},
    "messages": [
        {"role": "user", "content": "\udfff", "cost_usd": 0, "tokens": 12345678901234567890123,
         "created_at": "2026-03-14T08:00:01.123456+00:00", "model_used": ["?"]},
        {"role": "assistant", "content": [NaN, {"type": "text", "text": "x"}], "score": -Infinity,
         "created_at": null, "model_used": null, "cost_usd": 1e-7, "reasoning": {"n": 1.50}},
        {"role": "tool", "content": null, "tool_call_id": "c", "created_at": "2026-03-14T08:00:02Z",
         "model_used": null, "cost_usd": 0.0}],
    "memory": {"schema_id": "theirs", "payload": {"x": 1.0}},
    "state_snapshot": {"cursor": 18446744073709551616, "half": "\udc00"},
    "metadata": {"export_id": "exp_1", "message_count": 9, "total_cost_usd": 7, "trace": [true]}}"#;

#[tokio::test]
async fn sbp_l3_08_what_has_no_place_here_survives_import_and_export() {
    let bench = Bench::start().await;
    let theirs = sealed(ODD);
    let imported = bench.import_bundle(&theirs).await;
    let mut new = made(&imported);
    assert_eq!(imported.body["origin_export_id"], "exp_1");
    assert_eq!(imported.body["step_count"], 4);
    // From here by hand, by token and by hand again: nothing wears off.
    for trip in 0..3 {
        let bundle = bench.bundle_of(&new).await;
        let (before, after) = (parsed(&theirs), parsed(&bundle));
        for same in [
            &["future"][..],
            &["memory"],
            &["session", "colour"],
            &["session", "last_task"],
            &["session", "step_count"],
            &["state_snapshot", "cursor"],
            &["state_snapshot", "half"],
            &["metadata", "trace"],
        ] {
            assert_eq!(part(&after, same), part(&before, same), "trip {trip}: {same:?}");
        }
        let said = |bundle: &bowline_pyjson::Value<'_>| -> Vec<String> {
            let messages = bundle.get("messages").unwrap().as_array().unwrap();
            messages.iter().map(|message| message.to_canonical()).collect()
        };
        assert_eq!(said(&after)[..3], said(&before)[..], "trip {trip}");
        assert_eq!(said(&after).len(), 4 + trip, "each arrival adds where it came from");
        new = match trip {
            1 => made(&bench.import_token(&bench.token_of(&new).await).await),
            _ => made(&bench.import_bundle(&bundle).await),
        };
    }
}

#[tokio::test]
async fn sbp_l3_08_a_strangers_session_goes_on_here() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    // Half a surrogate goes to the model as it came; this one's server would not read it.
    let readable = ODD.replace(r#""content": "\udfff""#, r#""content": "hi""#);
    let new = made(&bench.import_bundle(&sealed(&readable)).await);
    let said = bench.say(&new, "and now?").await;
    assert_eq!(said.status, 200, "{}", said.text);
    let call = &upstream.calls()[0];
    let seen = list(&call.body["messages"]);
    assert_eq!(seen.len(), 5, "{}", call.text);
    // A model's server sees messages, not another house's bookkeeping.
    for message in &seen {
        for ours in ["cost_usd", "model_used", "created_at", "tokens", "score"] {
            assert!(message.get(ours).is_none(), "{message}");
        }
    }
    assert_eq!(bench.show(&new).await["step_count"], 5);
}

#[tokio::test]
async fn sbp_l3_05_a_snapshot_from_elsewhere_is_kept_and_ours_is_made() {
    let bench = Bench::start().await;
    for (theirs, merged) in [("[1, 2]", false), (r#"{"cursor": 7}"#, true)] {
        let text = format!(r#""state_snapshot": {theirs}"#);
        let bundle = sealed(&STRANGER.replace(r#""state_snapshot": null"#, &text));
        let new = made(&bench.import_bundle(&bundle).await);
        let again = bench.bundle_of(&new).await;
        let again = parsed(&again);
        if merged {
            assert_eq!(part(&again, &["state_snapshot", "cursor"]), "7");
            assert_eq!(part(&again, &["state_snapshot", "bowline", "seq"]), "3");
        } else {
            assert_eq!(part(&again, &["state_snapshot"]), theirs);
        }
        let snapshot =
            bench.store.session(new.id.parse().unwrap()).await.unwrap().unwrap().snapshot;
        assert_eq!(snapshot.unwrap().seq, 3, "the session can be taken up from here");
    }
}

#[tokio::test]
async fn sbp_l3_06_a_token_works_once() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let first = made(&bench.import_token(&token).await);
    for _ in 0..2 {
        let refused = bench.import_token(&token).await;
        assert_eq!(refused.refusal(), (410, "SBP_TOKEN_CONSUMED"), "{}", refused.text);
    }
    assert_eq!(bench.sessions().await.len(), 2);
    let exports = bench.get(&of(&session, "exports")).await.body;
    assert_eq!(exports["exports"][0]["import_session_id"], json!(first.id));
}

#[tokio::test]
async fn sbp_l3_06_the_token_of_a_deleted_session_opens_nothing() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let (token, bundle) = (bench.token_of(&session).await, bench.bundle_of(&session).await);
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(bench.call(Method::DELETE, &path, &[], &Value::Null).await.status, 204);
    assert_eq!(bench.import_token(&token).await.refusal(), (422, "SBP_TOKEN_INVALID"));
    assert_eq!(bench.inspect(&token).await.body["valid"], false);
    assert!(bench.sessions().await.is_empty());
    made(&bench.import_bundle(&bundle).await);
}

#[tokio::test]
async fn sbp_l3_06_a_bundle_that_is_not_what_was_exported_is_refused() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let bundle = bench.bundle_of(&session).await;
    let (cid, key) = (Cid::of_bundle(&parsed(&bundle)), bench.signing_key().await);
    let forged = bundle.replace("echo 1", "echo 9");
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    for (cid, bundle) in [
        (*cid.as_bytes(), forged.clone()),
        // With the right content id inside, but of another bundle than the export names.
        (*cid.as_bytes(), sealed(&forged)),
        ([7; 32], bundle.clone()),
        (*cid.as_bytes(), bundle.replace("bundle_cid", "bundle_kid")),
        (*cid.as_bytes(), "\u{fffd}".into()),
    ] {
        let export = NewExport {
            id: ExportId(Uuid::now_v7()),
            session_id: session.id.parse().unwrap(),
            cid,
            label: None,
            message_count: 2,
            with_memory: false,
            bundle: bundle.into_bytes(),
            at: now,
            expires_at: now + SignedDuration::from_secs(60),
            spender: None,
            peer: None,
            announce: false,
        };
        let claims = RoamingClaims {
            sub: export.id,
            sid: export.session_id,
            iat: now.as_second(),
            exp: now.as_second() + 60,
        };
        bench.store.keep_export(export).await.unwrap();
        let refused = bench.import_token(&claims.sign(&key)).await;
        assert!(matches!(refused.status, 400 | 422), "{}", refused.text);
        if refused.status == 422 {
            assert_eq!(refused.code(), "SBP_TOKEN_INTEGRITY", "{}", refused.text);
        }
        let seen = bench.inspect(&claims.sign(&key)).await.body;
        assert_eq!(seen["consumed"], false, "a failed import uses nothing up");
    }
    for changed in [forged, bundle.replace("bundle_cid", "bundle_kid")] {
        let refused = bench.import_bundle(&changed).await;
        assert_eq!(refused.refusal(), (422, "SBP_TOKEN_INTEGRITY"));
    }
    assert_eq!(bench.sessions().await.len(), 1);
}

#[tokio::test]
async fn sbp_l3_07_with_allow_reuse_a_token_makes_any_number_of_forks() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let token = bench.token_of(&session).await;
    let again = json!({ "roaming_token": token, "allow_reuse": true });
    let mut forks = Vec::new();
    for n in 0..3 {
        let fork = made(&bench.import(again.clone()).await);
        assert_eq!(
            bench.say(&fork, &format!("echo mine {n}")).await.content(),
            format!("mine {n}")
        );
        forks.push(fork);
        assert_eq!(bench.inspect(&token).await.body["valid"], true, "the token is still good");
    }
    bench.say(&session, "echo 2").await;
    for (n, fork) in forks.iter().enumerate() {
        let words = bench.words(fork).await;
        assert_eq!((words.len(), &words[..2]), (5, &["echo 1".into(), "1".into()][..]));
        assert_eq!(words[4], format!("mine {n}"), "each goes its own way");
        assert_eq!(bench.lineage(fork).await["origin"]["kind"], "fork");
    }
    assert_eq!(bench.words(&session).await, ["echo 1", "1", "echo 2", "2"]);
    made(&bench.import_token(&token).await);
    assert_eq!(bench.import_token(&token).await.refusal(), (410, "SBP_TOKEN_CONSUMED"));
    // Whoever forks needs no unused token.
    made(&bench.import(again).await);
}
