//! SBP L3: forks share the history up to the fork point and nothing else.

use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, list};
use crate::roaming::{STRANGER, forked, made, names, of, parsed, part, sealed, text};
use crate::upstream::MockUpstream;

#[tokio::test]
async fn sbp_l3_11_a_fork_says_where_it_leaves_its_origin() {
    let bench = Bench::start().await;
    let session = bench.session_with(3).await;
    let answer = bench.fork(&session, json!({ "label": "what if", "at_step": 2 })).await;
    let fork = forked(&answer);
    let fields = [
        "fork_session_id",
        "session_token",
        "fork_session_token",
        "origin_session_id",
        "fork_label",
        "fork_point_msg",
        "fork_point_step",
    ];
    let body = &answer.body;
    assert_eq!(names(body), fields);
    assert_eq!(body["session_token"], body["fork_session_token"]);
    assert_eq!(body["origin_session_id"], json!(session.id));
    assert_eq!((&body["fork_label"], &body["fork_point_msg"]), (&json!("what if"), &json!(4)));
    assert_eq!(body["fork_point_step"], 2);
    let shown = bench.show(&fork).await;
    assert_eq!((&shown["step_count"], &shown["message_count"]), (&json!(2), &json!(4)));
    assert_eq!(
        (&shown["tether_turns_pending"], &shown["agent_id"]),
        (&json!(0), &json!("default"))
    );
    bench.attach(&fork).await;
    let (_, welcome) = bench.attach(&session).await;
    assert_eq!(welcome["queued_turns"], 3, "the origin's Tether is its own");
}

#[tokio::test]
async fn sbp_l3_11_a_fork_begins_at_any_step() {
    let bench = Bench::start().await;
    let session = bench.session_with(3).await;
    let all = ["echo 1", "1", "echo 2", "2", "echo 3", "3"];
    for (body, messages, step) in [
        (json!({ "at_step": 0 }), 0, 0),
        (json!({ "at_step": 1 }), 2, 1),
        (json!({ "at_step": 2 }), 4, 2),
        (json!({ "at_step": 3 }), 6, 3),
        (json!({ "at_step": null }), 6, 3),
        (Value::Null, 6, 3),
    ] {
        let path = of(&session, "fork");
        let answer = bench.call(Method::POST, &path, &[], &body).await;
        let fork = forked(&answer);
        assert_eq!(answer.body["fork_point_msg"], messages, "{body}");
        assert_eq!(answer.body["fork_point_step"], step, "{body}");
        assert_eq!(bench.words(&fork).await, all[..messages], "{body}");
        // The past is shared; from there both go on.
        let said = bench.say(&fork, "echo mine").await;
        assert_eq!((said.content(), &said.body["sbp"]["step_count"]), ("mine", &json!(step + 1)));
        let words = bench.words(&fork).await;
        assert_eq!(
            (&words[..messages], words.len()),
            (&all.map(str::to_owned)[..messages], messages + 2)
        );
    }
    for far in [4, 1_000_000, u64::MAX] {
        let refused = bench.fork(&session, json!({ "at_step": far })).await;
        assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"), "{far}");
    }
    assert_eq!(bench.words(&session).await, all, "the origin did not change");
    assert_eq!(bench.sessions().await.len(), 7, "what was refused made nothing");
}

#[tokio::test]
async fn sbp_l3_11_steps_from_before_a_log_begins_are_known_too() {
    let bench = Bench::start().await;
    // Four steps were taken, and the bundle has the last one.
    let bundle = sealed(&STRANGER.replace(r#""step_count": 1"#, r#""step_count": 4"#));
    let session = made(&bench.import_bundle(&bundle).await);
    bench.say(&session, "echo 5").await;
    for (step, words) in [
        (0, &[][..]),
        (1, &[]),
        (3, &[]),
        (4, &["where to", "north"]),
        (5, &["where to", "north", "(provenance)", "echo 5", "5"]),
    ] {
        let answer = bench.fork(&session, json!({ "at_step": step })).await;
        let mut found = bench.words(&forked(&answer)).await;
        found.iter_mut().skip(2).take(1).for_each(|words| *words = "(provenance)".into());
        assert_eq!(found, words, "at step {step}");
        assert_eq!(answer.body["fork_point_step"], step);
    }
    assert_eq!(bench.fork(&session, json!({ "at_step": 6 })).await.status, 422);
}

#[tokio::test]
async fn g8_a_fork_and_its_origin_never_see_each_others_turns() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    bench.say(&session, "shared").await;
    let fork = forked(&bench.fork(&session, json!({})).await);
    let second = forked(&bench.fork(&fork, json!({ "at_step": 1 })).await);
    for round in 0..2 {
        for (who, words) in
            [(&session, "of the origin"), (&fork, "of the fork"), (&second, "third")]
        {
            bench.say(who, &format!("{words} {round}")).await;
        }
    }
    for (who, words) in [(&session, "of the origin"), (&fork, "of the fork"), (&second, "third")] {
        let asked: Vec<_> = bench.words(who).await.into_iter().step_by(2).collect();
        assert_eq!(asked, ["shared".to_owned(), format!("{words} 0"), format!("{words} 1")]);
    }
    let last = upstream.calls().pop().unwrap().said();
    let asked: Vec<_> = last.iter().step_by(2).map(String::as_str).collect();
    assert_eq!(asked, ["user: shared", "user: third 0", "user: third 1"], "nor does the model");
}

#[tokio::test]
async fn g8_a_fork_is_whole_without_its_origin() {
    let bench = Bench::start().await;
    let session = bench.session_with(3).await;
    let fork = forked(&bench.fork(&session, json!({ "at_step": 2 })).await);
    let successor = made(&bench.hand_off(&session, "another").await);
    let path = format!("/v1/sessions/{}", session.id);
    assert_eq!(bench.call(Method::DELETE, &path, &[], &Value::Null).await.status, 204);
    assert_eq!(bench.get(&path).await.status, 404);
    assert_eq!(bench.words(&fork).await, ["echo 1", "1", "echo 2", "2"]);
    assert_eq!(bench.words(&successor).await.len(), 7);
    for session in [&fork, &successor] {
        assert_eq!(bench.say(session, "echo on").await.content(), "on");
        let copy = made(&bench.import_token(&bench.token_of(session).await).await);
        assert_eq!(bench.words(&copy).await[..4], ["echo 1", "1", "echo 2", "2"]);
    }
    assert_eq!(bench.lineage(&fork).await["origin"]["from_session_id"], json!(session.id));
}

#[tokio::test]
async fn sbp_l3_11_a_fork_brings_what_the_origin_carried() {
    let bench = Bench::start().await;
    let bundle = sealed(&STRANGER.replace(r#""memory": null"#, r#""memory": {"schema_id": "x"}"#));
    let origin = made(&bench.import_bundle(&bundle).await);
    let fork = forked(&bench.fork(&origin, json!({})).await);
    let successor = made(&bench.hand_off(&origin, "another").await);
    for session in [&fork, &successor] {
        let again = bench.bundle_of(session).await;
        let memory = part(&parsed(&again), &["memory"]);
        assert_eq!(memory, r#"{"schema_id": "x"}"#);
    }
}

#[tokio::test]
async fn sbp_l3_11_a_forks_label_has_at_most_120_characters() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let longest = "é".repeat(120);
    let answer = bench.fork(&session, json!({ "label": longest })).await;
    let fork = forked(&answer);
    assert_eq!(answer.body["fork_label"], json!(longest));
    assert_eq!(bench.lineage(&fork).await["origin"]["detail"]["label"], json!(longest));
    let refused = bench.fork(&session, json!({ "label": format!("{longest}é") })).await;
    assert_eq!(refused.refusal(), (422, "SBP_INVALID_REQUEST"));
    assert_eq!(refused.body["error"]["param"], "label");
    assert_eq!(bench.sessions().await.len(), 2);
}

#[tokio::test]
async fn sbp_l3_12_lineage_is_the_whole_tree_in_both_directions() {
    let bench = Bench::start().await;
    let first = bench.session_with(2).await;
    let exported = bench.export(&first, json!({ "label": "trip" })).await.body;
    let imported = made(&bench.import_token(&text(&exported["roaming_token"])).await);
    let fork = forked(&bench.fork(&imported, json!({ "label": "f" })).await);
    let reuse = json!({ "roaming_token": bench.token_of(&fork).await, "allow_reuse": true });
    let copy = made(&bench.import(reuse).await);
    let reasons = json!({ "to_agent_id": "cook", "reason": "hunger", "handoff_message": "hurry" });
    let handed = bench.post(&of(&imported, "handoff"), reasons).await;
    let successor = made(&handed);
    let stranger = bench.session_with(1).await;

    let edge = |kind: &str, from: &Session, to: &Session| json!([kind, from.id, to.id]);
    let tree = [
        edge("import", &first, &imported),
        edge("fork", &imported, &fork),
        edge("fork", &fork, &copy),
        edge("handoff", &imported, &successor),
    ];
    let short =
        |edge: &Value| json!([edge["kind"], edge["from_session_id"], edge["to_session_id"]]);
    let edges = |value: &Value| list(value).iter().map(short).collect::<Vec<_>>();
    for member in [&first, &imported, &fork, &copy, &successor] {
        let seen = bench.lineage(member).await;
        assert_eq!(edges(&seen["tree"]), tree, "from anywhere");
        assert_eq!((&seen["session_id"], &seen["truncated"]), (&json!(member.id), &json!(false)));
    }
    assert!(list(&bench.lineage(&stranger).await["tree"]).is_empty());

    let seen = bench.lineage(&imported).await;
    let fields = [
        "session_id",
        "exports",
        "outgoing_handoffs",
        "incoming_handoffs",
        "forks",
        "origin",
        "tree",
        "truncated",
        "sessions",
    ];
    assert_eq!(names(&seen), fields);
    assert_eq!(short(&seen["origin"]), tree[0]);
    assert_eq!(seen["origin"]["export_id"], exported["export_id"]);
    assert_eq!(seen["origin"]["detail"]["label"], "trip");
    assert_eq!(edges(&seen["forks"]), tree[1..2]);
    assert_eq!(edges(&seen["outgoing_handoffs"]), tree[3..]);
    assert!(list(&seen["incoming_handoffs"]).is_empty());
    let detail = &seen["outgoing_handoffs"][0]["detail"];
    assert_eq!(
        (&detail["reason"], &detail["handoff_message"]),
        (&json!("hunger"), &json!("hurry"))
    );
    assert_eq!(
        (&detail["from_agent_id"], &detail["to_agent_id"]),
        (&json!("default"), &json!("cook"))
    );
    assert_eq!(seen["exports"][0]["export_id"], handed.body["export_id"]);
    assert_eq!(seen["exports"][0]["import_session_id"], json!(successor.id));

    let seen = bench.lineage(&first).await;
    assert_eq!(seen["origin"], Value::Null);
    let export = &seen["exports"][0];
    for name in ["export_id", "created_at", "expires_at", "imported_at", "import_session_id"] {
        assert!(export[name].is_string(), "{name}: {export}");
    }
    assert_eq!(export["export_id"], exported["export_id"]);
    assert_eq!(export["import_session_id"], json!(imported.id));
    assert_eq!(edges(&bench.lineage(&successor).await["incoming_handoffs"]), tree[3..]);
    assert_eq!(edges(&bench.lineage(&fork).await["forks"]), tree[2..3]);

    // The dead are remembered.
    for gone in [&first, &imported] {
        let path = format!("/v1/sessions/{}", gone.id);
        assert_eq!(bench.call(Method::DELETE, &path, &[], &Value::Null).await.status, 204);
    }
    assert_eq!(edges(&bench.lineage(&copy).await["tree"]), tree);
}

#[tokio::test]
async fn sbp_l3_12_exports_are_listed_newest_first() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let mut made_of = Vec::new();
    for label in ["one", "two", "three"] {
        made_of.push(bench.export(&session, json!({ "label": label })).await.body);
    }
    let used = made(&bench.import_token(&text(&made_of[1]["roaming_token"])).await);
    let listed = bench.get(&of(&session, "exports")).await;
    assert_eq!((listed.status, &listed.body["session_id"]), (200, &json!(session.id)));
    let exports = list(&listed.body["exports"]);
    let labels: Vec<_> = exports.iter().map(|export| text(&export["label"])).collect();
    assert_eq!(labels, ["three", "two", "one"]);
    for (export, exported) in exports.iter().zip(made_of.iter().rev()) {
        for name in ["export_id", "bundle_cid", "message_count", "expires_at", "label"] {
            assert_eq!(export[name], exported[name], "{name}");
        }
        assert!(export.get("roaming_token").is_none(), "a token is shown once");
    }
    assert_eq!(exports[1]["import_session_id"], json!(used.id));
    assert!(exports[1]["imported_at"].is_string());
    assert_eq!(exports[0]["imported_at"], Value::Null);
}

#[tokio::test]
async fn sbp_l3_12_a_session_from_elsewhere_knows_where_it_was() {
    let bench = Bench::start().await;
    let bundle = sealed(STRANGER);
    let new = made(&bench.import_bundle(&bundle).await);
    let origin = bench.lineage(&new).await["origin"].clone();
    assert_eq!((&origin["kind"], &origin["from_session_id"]), (&json!("import"), &json!("ses_1")));
    assert_eq!(origin["export_id"], Value::Null);
    assert_eq!(origin["detail"]["origin_export_id"], "exp_1");
    assert_eq!(origin["detail"]["from_agent_id"], "navigator");
    assert_eq!(origin["detail"]["label"], "from afar");
    // Two from the same session are relatives.
    let twin = made(&bench.import_bundle(&bundle).await);
    assert_eq!(list(&bench.lineage(&new).await["tree"]).len(), 2);
    assert_eq!(bench.lineage(&twin).await["origin"]["from_session_id"], "ses_1");
}
