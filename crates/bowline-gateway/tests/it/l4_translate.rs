//! SBP L4: translation of an answer, by a model, for the device it is delivered to.
//!
//! The answers come from the built-in agent, so every call to the upstream is a translation.

use std::time::Duration;

use bowline_gateway::config::Config;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::bench::{Bench, DEADLINE, Phone, Session, eventually, joined, turn};
use crate::upstream::{MockUpstream, Piece};

pub(crate) const ORIGINAL: &str =
    "# Trip\n\nGo **now**.\n\n| day | town |\n|---|---|\n| Monday | Lyon |";
/// The same text as the formatting rules adapt it for devices without Markdown.
pub(crate) const BY_RULES: &str = "Trip\n\nGo now.\n\nday: Monday; town: Lyon";

/// A gateway that translates with that model of the upstream.
pub(crate) async fn bench(upstream: &MockUpstream, model: &str) -> Bench {
    bench_with(upstream, model, |_| {}).await
}

pub(crate) async fn bench_with(
    upstream: &MockUpstream,
    model: &str,
    change: impl FnOnce(&mut Config),
) -> Bench {
    Bench::before_with(upstream, |config| {
        config.translate.model = model.into();
        // Nothing here is slow unless it is meant to be.
        (config.translate.first_token, config.translate.timeout) = (DEADLINE, DEADLINE);
        change(config);
    })
    .await
}

pub(crate) fn watch() -> Value {
    json!({ "device_type": "watch", "locale": "de-CH", "ui_capabilities": ["text", "streaming"] })
}

/// A device without an output limit is sent each paragraph as soon as it is complete.
fn mobile() -> Value {
    json!({ "device_type": "mobile", "ui_capabilities": ["text", "streaming"] })
}

/// Runs a turn of the built-in agent with that answer.
pub(crate) async fn ends(bench: &Bench, session: &Session, text: &str) {
    let said = bench.say_to(session, "bowline/offline", &format!("echo {text}")).await;
    assert_eq!(said.content(), text, "the caller gets the original");
}

pub(crate) fn say(gate: &UnboundedSender<Piece>, text: &str) {
    gate.send(Piece::Text(text.into())).ok().unwrap();
}

/// The answer on that device as the formatting rules of the same gateway adapt it.
pub(crate) async fn by_rules(bench: &Bench, surface: Value) -> String {
    let session = bench.session().await;
    ends(bench, &session, ORIGINAL).await;
    let (mut phone, _) = bench.attach_as(&session, surface).await;
    phone.next().await["content"].as_str().unwrap().to_owned()
}

/// The number of translations with that outcome. The counter is shared by all tests of this
/// process.
pub(crate) async fn counted(bench: &Bench, outcome: &str) -> f64 {
    metric(bench, &format!("bowline_translate_total{{outcome=\"{outcome}\"}}")).await
}

pub(crate) async fn metric(bench: &Bench, name: &str) -> f64 {
    let metrics = bench.get("/metrics").await.text;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// Frames up to the end of a turn, which must be the original as adapted by the formatting rules.
pub(crate) async fn comes_by_rules(phone: &mut Phone) -> Vec<Value> {
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!(joined(&frames), BY_RULES);
    frames
}

#[tokio::test]
async fn sbp_l4_03_a_model_translates_for_the_device_and_the_log_keeps_the_original() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    let gate = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    say(&gate, "Jetzt los.\n\nHeute.\n\n");
    let mut frames = vec![phone.next().await];
    assert!(frames[0]["delta"].as_str().unwrap().starts_with("Jetzt los."), "before its end");
    say(&gate, "Montag ");
    say(&gate, "Lyon.");
    drop(gate);
    frames.extend(phone.until("TURN_COMPLETE").await);
    assert_eq!(joined(&frames), "Jetzt los.\n\nHeute.\n\nMontag Lyon.");
    let complete = frames.last().unwrap();
    assert_eq!((&complete["seq"], &complete["model"]), (&json!(2), &json!("bowline/offline")));
    assert_eq!(frames[0]["chunk_id"], complete["turn_id"]);
    phone.confirm(&bench, &session).await;

    let call = upstream.calls().pop().unwrap();
    let said = call.said();
    assert_eq!((said.len(), &said[1]), (2, &format!("user: {ORIGINAL}")), "the text is data");
    for told in ["watch", "60 tokens", "de-CH", "text, streaming", "plain text"] {
        assert!(said[0].starts_with("system: ") && said[0].contains(told), "{told}: {}", said[0]);
    }
    assert_eq!((&call.body["model"], &call.body["stream"]), (&json!("gated"), &json!(true)));
    assert_eq!(call.body["max_tokens"], 120);

    assert_eq!(bench.log(&session).await[1].1, ORIGINAL);
    assert_eq!(bench.show(&session).await["step_count"], 1);
}

#[tokio::test]
async fn sbp_l4_03_a_desktop_that_comes_after_the_watch_gets_the_original() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, mobile()).await;
    let gate = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    say(&gate, "Los.\n\nMontag");
    assert_eq!(phone.next().await["type"], "TURN_CHUNK");
    // The desktop takes the session over in the middle of the pass.
    let (mut desktop, welcome) =
        bench.attach_as(&session, json!({ "device_type": "desktop" })).await;
    assert_eq!(welcome["queued_turns"], 1, "half a translation is no delivery");
    assert_eq!(desktop.next().await["content"], ORIGINAL);
    assert_eq!(phone.closed().await, 4009);
    eventually("the call ends", async || gate.is_closed()).await;
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn sbp_l4_03_a_slow_pass_gives_way_to_the_rules() {
    let upstream = MockUpstream::start().await;
    let bench = bench_with(&upstream, "hang", |config| {
        config.translate.first_token = Duration::from_millis(50);
    })
    .await;
    let slow = counted(&bench, "slow").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    ends(&bench, &session, ORIGINAL).await;
    comes_by_rules(&mut phone).await;
    phone.confirm(&bench, &session).await;
    assert!(counted(&bench, "slow").await > slow);
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn sbp_l4_03_a_pass_that_does_not_end_gives_way_and_the_turn_starts_over() {
    let upstream = MockUpstream::start().await;
    let bench = bench_with(&upstream, "gated", |config| {
        config.translate.timeout = Duration::from_secs(2);
    })
    .await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, mobile()).await;
    let gate = upstream.gate();
    say(&gate, "Los.\n\nMon");
    ends(&bench, &session, ORIGINAL).await;
    let frames = comes_by_rules(&mut phone).await;
    let mut offsets = frames.iter().filter_map(|frame| frame["offset"].as_u64());
    assert!(offsets.all(|offset| offset == 0), "it starts over: {frames:?}");
    eventually("the call ends", async || gate.is_closed()).await;
}

#[tokio::test]
async fn sbp_l4_03_a_pass_that_fails_gives_way_before_or_after_its_first_words() {
    for (model, begins) in
        [("status-500", false), ("nonsense", false), ("broken", false), ("gated", true)]
    {
        let upstream = MockUpstream::start().await;
        let bench = bench(&upstream, model).await;
        let failed = counted(&bench, "failed").await;
        let session = bench.session().await;
        let (mut phone, _) = bench.attach_as(&session, mobile()).await;
        let gate = upstream.gate();
        let mut frames = Vec::new();
        if begins {
            say(&gate, "Los.\n\nMon");
        }
        ends(&bench, &session, ORIGINAL).await;
        if begins {
            frames.push(phone.next().await);
            gate.send(Piece::Cut).ok().unwrap();
        }
        let rest = phone.until("TURN_COMPLETE").await;
        assert_eq!(rest[0]["offset"], 0, "{model}");
        frames.extend(rest);
        assert_eq!(joined(&frames), BY_RULES, "{model}");
        phone.confirm(&bench, &session).await;
        assert!(counted(&bench, "failed").await > failed, "{model}");
    }
}

#[tokio::test]
async fn sbp_l4_03_an_answer_of_nothing_is_no_translation() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    for nothing in ["", " \n", "---"] {
        let session = bench.session().await;
        let (mut phone, _) = bench.attach_as(&session, watch()).await;
        let gate = upstream.gate();
        say(&gate, nothing);
        drop(gate);
        ends(&bench, &session, ORIGINAL).await;
        comes_by_rules(&mut phone).await;
    }
}

#[tokio::test]
async fn sbp_l4_03_a_model_that_puts_a_table_on_a_watch_is_overruled() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    let gate = upstream.gate();
    say(&gate, "**Los:**\n\n| Tag | Ort |\n|---|---|\n| Montag | Lyon |\n");
    drop(gate);
    ends(&bench, &session, ORIGINAL).await;
    let shown = joined(&phone.until("TURN_COMPLETE").await);
    assert!(shown.contains("Montag") && !shown.contains(['|', '*']), "{shown}");
}

#[tokio::test]
async fn sbp_l4_03_of_what_was_pending_only_the_newest_is_translated() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "m").await;
    let session = bench.session().await;
    for n in 0..3 {
        ends(&bench, &session, &format!("**{n}**")).await;
    }
    let (mut phone, welcome) = bench.attach_as(&session, watch()).await;
    assert_eq!(welcome["queued_turns"], 3);
    for (n, content) in ["0", "1", "answer 1"].iter().enumerate() {
        let frame = phone.next().await;
        assert_eq!(frame["type"], "TETHER_TURN", "what was pending comes whole");
        assert_eq!((&frame["content"], &frame["turn_index"]), (&json!(content), &json!(n)));
    }
    phone.confirm(&bench, &session).await;
    assert_eq!(upstream.calls().len(), 1);
    assert_eq!(upstream.calls()[0].said()[1], "user: **2**");
}

#[tokio::test]
async fn sbp_l4_03_a_backlog_of_many_pages_is_translated_at_its_very_end_only() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "m").await;
    let session = bench.session().await;
    // A page of the log holds a quarter of a megabyte.
    let long = "x".repeat(700 << 10);
    for n in 0..4 {
        ends(&bench, &session, &format!("Turn {n} here. {long}")).await;
    }
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    for content in ["Turn 0 here. …", "Turn 1 here. …", "Turn 2 here. …", "answer 1"] {
        assert_eq!(phone.next().await["content"], content);
    }
    phone.confirm(&bench, &session).await;
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn sbp_l4_03_order_is_kept_when_a_turn_ends_during_a_pass() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    let (first, second) = (upstream.gate(), upstream.gate());
    ends(&bench, &session, "**one**").await;
    upstream.until_calls(1).await;
    ends(&bench, &session, "**two**").await;
    ends(&bench, &session, "**three**").await;
    // The surface is served meanwhile.
    phone.send(json!({ "type": "PING" })).await;
    assert_eq!(phone.next().await["type"], "PONG");
    say(&first, "eins");
    drop(first);
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!((joined(&frames), &frames.last().unwrap()["seq"]), ("eins".into(), &json!(2)));
    // No longer the newest: it does not wait for a model.
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!((joined(&frames), &frames.last().unwrap()["seq"]), ("two".into(), &json!(4)));
    say(&second, "drei");
    drop(second);
    let frames = phone.until("TURN_COMPLETE").await;
    assert_eq!((joined(&frames), &frames.last().unwrap()["seq"]), ("drei".into(), &json!(6)));
    phone.confirm(&bench, &session).await;
    let asked: Vec<_> = upstream.calls().iter().map(|call| call.said()[1].clone()).collect();
    assert_eq!(asked, ["user: **one**", "user: **three**"]);
}

#[tokio::test]
async fn sbp_l4_03_a_surface_that_vanishes_takes_the_pass_with_it() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let dropped = counted(&bench, "dropped").await;
    let session = bench.session().await;
    let (phone, _) = bench.attach_as(&session, watch()).await;
    let gate = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    upstream.until_calls(1).await;
    assert!(!gate.is_closed());
    drop(phone);
    eventually("the call ends", async || gate.is_closed()).await;
    assert!(counted(&bench, "dropped").await > dropped);
    bench.until_pending(&session, 1).await;
}

#[tokio::test]
async fn sbp_l4_03_cancel_and_handoff_do_not_wait_for_a_pass() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    let first = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    upstream.until_calls(1).await;
    phone.send(json!({ "type": "CANCEL_TURN" })).await;
    let frames = comes_by_rules(&mut phone).await;
    assert_eq!(frames.last().unwrap()["status"], "complete", "it had ended before");
    eventually("the call ends", async || first.is_closed()).await;

    let second = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    upstream.until_calls(2).await;
    let path = format!("/v1/sbp/sessions/{}/handoff", session.id);
    let body = json!({ "to_agent_id": "other" });
    assert_eq!(bench.call(Method::POST, &path, &[], &body).await.status, 201);
    comes_by_rules(&mut phone).await;
    assert_eq!(phone.until("SESSION_HANDED_OFF").await.len(), 1);
    assert_eq!(phone.closed().await, 4010);
    eventually("the call ends", async || second.is_closed()).await;
}

#[tokio::test]
async fn sbp_l4_03_a_surface_that_does_not_stream_gets_the_translation_whole() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "gated").await;
    let session = bench.session().await;
    let phone = json!({ "device_type": "mobile", "ui_capabilities": ["text"] });
    let (mut phone, _) = bench.attach_as(&session, phone).await;
    let gate = upstream.gate();
    ends(&bench, &session, ORIGINAL).await;
    say(&gate, "Los.\n\n");
    say(&gate, "Montag Lyon.");
    drop(gate);
    let frame = phone.next().await;
    assert_eq!(
        (&frame["type"], &frame["content"]),
        (&json!("TETHER_TURN"), &json!("Los.\n\nMontag Lyon."),)
    );
    phone.confirm(&bench, &session).await;
}

#[tokio::test]
async fn sbp_l4_03_a_model_that_does_not_stream_translates_too() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "whole").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, watch()).await;
    ends(&bench, &session, ORIGINAL).await;
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "answer 1");
}

#[tokio::test]
async fn sbp_l4_03_no_text_is_shown_before_its_translation() {
    let upstream = MockUpstream::start().await;
    let bench = bench(&upstream, "m").await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach_as(&session, mobile()).await;
    let gate = upstream.gate();
    say(&gate, "**The original.**\n\nMore.\n\nand");
    let mut body = turn(&session, "gated", "go");
    body["stream"] = json!(true);
    let request = bench.http.post(bench.url("/v1/chat/completions")).json(&body);
    let mut caller = request.send().await.unwrap();
    assert!(String::from_utf8_lossy(&caller.chunk().await.unwrap().unwrap()).contains("original"));
    // Who was asked twice has looked at what there is in between.
    for _ in 0..2 {
        phone.send(json!({ "type": "PING" })).await;
        assert_eq!(phone.next().await["type"], "PONG");
    }
    drop(gate);
    assert_eq!(joined(&phone.until("TURN_COMPLETE").await), "answer 2");
}
