//! SBP L4: which answers are translated, and the cost of translations.

use bowline_gateway::config::{Config, Price};
use bowline_gateway::{Gateway, StartError, identity_file};
use serde_json::{Value, json};

use crate::bench::{Bench, DEADLINE, Session, hello, joined};
use crate::l4_translate::{
    BY_RULES, ORIGINAL, bench, bench_with, by_rules, comes_by_rules, counted, ends, metric, say,
    watch,
};
use crate::upstream::{MockUpstream, Piece};

#[tokio::test]
async fn sbp_l4_03_the_switches_say_for_which_devices_and_agents() {
    let upstream = MockUpstream::start().await;
    let bench = bench_with(&upstream, "m", |config| {
        config.translate.devices = vec!["watch".into()];
        config.translate.agents = vec!["travel-*".into()];
    })
    .await;
    let shown = async |agent: &str, device: &str| {
        let made = bench.post("/v1/sessions", json!({ "agent_id": agent })).await;
        let session = Session::of(&made.body);
        let surface = json!({ "device_type": device, "ui_capabilities": ["streaming"] });
        let (mut phone, _) = bench.attach_as(&session, surface).await;
        ends(&bench, &session, ORIGINAL).await;
        joined(&phone.until("TURN_COMPLETE").await)
    };
    for (agent, device) in [("travel-eu", "mobile"), ("other", "watch"), ("other", "desktop")] {
        assert_eq!(shown(agent, device).await, BY_RULES, "{agent} {device}");
    }
    assert!(upstream.calls().is_empty());
    assert_eq!(shown("travel-eu", "watch").await, "answer 1");
}

#[tokio::test]
async fn sbp_l4_03_what_fits_or_is_no_answer_needs_no_pass() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "hang").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    ends(&bench, &session, "It rains.").await;
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "It rains.");
    // A note of the gateway's, in place of an answer.
    let message = json!({ "type": "USER_MESSAGE", "client_turn_id": "c", "content": "x",
                          "model": "status-400" });
    phone.send(message).await;
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(frames.last().unwrap()["status"], "failed");
    assert!(upstream.calls().iter().all(|call| call.body["model"] == "status-400"));
}

#[tokio::test]
async fn sbp_l4_03_passes_are_bounded_and_who_finds_no_place_is_not_kept_waiting() {
    let upstream = MockUpstream::start().await;
    let bench = bench_with(&upstream, "gated", |config| config.translate.passes = 1).await;
    let busy = counted(&bench, "busy").await;
    let (one, other) = (bench.session().await, bench.session().await);
    let (mut first, _) = bench.attach_as(&one, watch()).await;
    let (mut second, _) = bench.attach_as(&other, watch()).await;
    let gate = upstream.gate();
    ends(&bench, &one, ORIGINAL).await;
    upstream.until_calls(1).await;
    ends(&bench, &other, ORIGINAL).await;
    comes_by_rules(&mut second).await;
    assert!(counted(&bench, "busy").await > busy);
    say(&gate, "Los.");
    drop(gate);
    assert_eq!(joined(&first.until("TURN_COMPLETE").await), "Los.");
    // The place is free again.
    let gate = upstream.gate();
    say(&gate, "Wieder.");
    drop(gate);
    ends(&bench, &other, ORIGINAL).await;
    assert_eq!(joined(&second.until("TURN_COMPLETE").await), "Wieder.");
}

#[tokio::test]
async fn sbp_l4_03_cost_and_time_of_passes_are_in_the_metrics_and_not_in_the_session() {
    let upstream = MockUpstream::start().await;
    let bench = bench_with(&upstream, "m", |config| {
        config.prices.insert("m".into(), Price { input: 1000.0, output: 10_000.0 });
    })
    .await;
    let names = [
        "bowline_translate_total{outcome=\"ok\"}",
        "bowline_translate_seconds_count",
        "bowline_translate_first_token_seconds_count",
        "bowline_translate_tokens_total{kind=\"prompt\"}",
        "bowline_translate_tokens_total{kind=\"completion\"}",
        "bowline_translate_cost_usd_total",
    ];
    let mut before = Vec::new();
    for name in names {
        before.push(metric(&bench, name).await);
    }
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    ends(&bench, &session, ORIGINAL).await;
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "answer 1");
    for ((name, before), more) in names.iter().zip(before).zip([1.0, 1.0, 1.0, 1000.0, 100.0, 2.0])
    {
        let now = metric(&bench, name).await;
        assert!(now >= before + more, "{name}: {now}, and {before} before");
    }
    let log = bench.entries(&session).await;
    assert_eq!(log[1]["cost_usd"].as_f64().unwrap_or_default(), 0.0);
}

#[tokio::test]
async fn sbp_l4_02_an_answer_that_will_be_translated_is_written_as_for_anyone() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "hang").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    bench.say(&session, "hi").await;
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "answer 1", "it fits");
    let call = &upstream.calls()[0];
    assert_eq!((call.said(), &call.body["max_tokens"]), (vec!["user: hi".into()], &Value::Null));
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_refused_at_the_start() {
    let (folder, mut config) = (tempfile::tempdir().unwrap(), Config::default());
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.translate.model = "small".into();
    let store = std::sync::Arc::new(bowline_store::sqlite::Sqlite::open(folder.path()).unwrap());
    let signer = identity_file::load_or_make(folder.path()).unwrap();
    let refused = Gateway::start(config, store, None, signer).await.unwrap_err();
    assert!(matches!(refused, StartError::Translate(_)), "{refused}");
    assert!(refused.to_string().contains("`small`"), "{refused}");
}

#[tokio::test]
async fn without_a_model_no_pass_is_made() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    assert_eq!(by_rules(&bench, watch()).await, BY_RULES);
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn sbp_l4_02_with_a_second_pass_a_device_is_told_of_where_its_answer_is_written() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.translate.model = "second-pass".into();
        (config.translate.first_token, config.translate.timeout) = (DEADLINE, DEADLINE);
    })
    .await;
    let session = bench.session().await;
    let watch = json!({ "device_type": "watch", "max_output_tokens": 61, "surface_id": "w",
                        "ui_capabilities": ["text", "streaming"] });
    let desktop = json!({ "device_type": "desktop", "max_output_tokens": 777, "surface_id": "d" });
    let join = async |surface: &Value| {
        let mut phone = bench.socket(&session.id).await;
        let mut first = hello(&session, surface.clone());
        first["join"] = json!(true);
        phone.send(first).await;
        phone.until("SESSION_ATTACHED").await;
        phone
    };
    let calls_of = |model: &str| -> Vec<_> {
        upstream.calls().into_iter().filter(|call| call.body["model"] == model).collect()
    };
    // A watch alone: its answer is written by the pass.
    let mut on_watch = join(&watch).await;
    // Written in a form that a watch cannot show.
    let say = async |text: &str| {
        let gate = upstream.gate();
        gate.send(Piece::Text(ORIGINAL.into())).ok().unwrap();
        drop(gate);
        assert_eq!(bench.say_to(&session, "gated", text).await.status, 200);
    };
    say("first").await;
    on_watch.until("TURN_COMPLETE").await;
    let first = calls_of("gated").pop().unwrap();
    assert!(!first.text.contains("watch") && first.body["max_tokens"].is_null(), "{}", first.text);
    let pass = calls_of("second-pass").pop().unwrap();
    assert!(pass.text.contains("watch") && pass.text.contains("61"), "{}", pass.text);
    // And a desktop beside it: it gets the first pass as it is.
    let mut on_desktop = join(&desktop).await;
    say("second").await;
    let shown = on_desktop.until("TURN_COMPLETE").await;
    assert_eq!(shown.last().unwrap()["status"], "complete");
    on_watch.until("TURN_COMPLETE").await;
    let first = calls_of("gated").pop().unwrap();
    assert_eq!(first.body["max_tokens"], 777);
    assert!(first.said()[0].contains("desktop") && !first.said()[0].contains("watch"));
    let passes = calls_of("second-pass");
    assert_eq!(passes.len(), 2, "one pass for each turn of the watch, and none for the desktop");
    assert!(passes[1].text.contains("watch") && !passes[1].text.contains("desktop"));
}
