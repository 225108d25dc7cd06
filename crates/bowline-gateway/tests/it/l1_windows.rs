//! Conversations that outgrow their model.

use bowline_gateway::config::ContextPolicy;
use serde_json::json;

use crate::bench::{Bench, user};
use crate::upstream::MockUpstream;

const LONG: usize = 400;

fn words(n: usize) -> String {
    format!("words {n} {}", "x".repeat(LONG))
}

#[tokio::test]
async fn a_session_that_outgrows_its_model_goes_on_without_its_oldest_turns() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let mut left_out = 0;
    for n in 0..40 {
        let mut messages = vec![user(&words(n))];
        if n == 0 {
            messages.insert(0, json!({ "role": "system", "content": "be brief" }));
        }
        let sbp = json!({ "session_id": session.id });
        let body = json!({ "model": "window-6000", "messages": messages, "sbp": sbp });
        let said = bench.chat(body).await;
        assert_eq!(said.status, 200, "turn {n}: {}", said.text);
        let told = upstream.calls().pop().unwrap().said();
        assert_eq!(told[0], "system: be brief");
        assert_eq!(told[told.len() - 1], format!("user: {}", words(n)));
        assert!(told[1].starts_with("user: words"), "a turn begins with its question");
        let missing = said.body["sbp"]["left_out"]["messages"].as_u64().unwrap_or(0);
        assert_eq!(told.len() as u64 + missing, 2 * n as u64 + 2, "all the rest is sent");
        assert!(missing >= left_out, "the cut never moves back");
        left_out = missing;
    }
    assert!(left_out > 40);
    assert_eq!(bench.log(&session).await.len(), 81, "the log stays whole");
    let calls = upstream.calls();
    let refused = calls.iter().filter(|call| call.body["messages"].to_string().len() > 6000);
    assert!(refused.count() <= 2, "the limit was learned");
    // The beginning stays the same for several turns, so that the upstream's cache holds.
    let mut beginnings: Vec<_> = calls[10..].iter().map(|call| call.said()[1].clone()).collect();
    beginnings.dedup();
    assert!(beginnings.len() < 15, "{}", beginnings.len());
}

#[tokio::test]
async fn a_configured_window_is_kept_without_a_refusal() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.context.tokens.insert("window-*".into(), 1500);
    })
    .await;
    let session = bench.session().await;
    for n in 0..20 {
        let said = bench.say_to(&session, "window-6000", &words(n)).await;
        assert_eq!(said.status, 200, "turn {n}: {}", said.text);
    }
    assert_eq!(upstream.calls().len(), 20);
}

#[tokio::test]
async fn what_cannot_be_cut_or_may_not_be_keeps_the_upstreams_code() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let said = bench.say_to(&session, "window-300", &words(0)).await;
    assert_eq!((said.status, said.code()), (400, "context_length_exceeded"), "{}", said.text);
    assert_eq!(upstream.calls().len(), 1, "nothing could be left out");
    assert_eq!(bench.log(&session).await.len(), 0, "nothing is stored");

    let upstream = MockUpstream::start().await;
    let bench =
        Bench::before_with(&upstream, |config| config.context.policy = ContextPolicy::Error).await;
    let session = bench.session().await;
    let mut status = 200;
    for n in 0..20 {
        let said = bench.say_to(&session, "window-3000", &words(n)).await;
        status = said.status;
        if status != 200 {
            assert_eq!((status, said.code()), (400, "context_length_exceeded"));
            break;
        }
        assert!(said.body["sbp"].get("left_out").is_none());
    }
    assert_eq!(status, 400);
}

#[tokio::test]
async fn one_callers_request_does_not_shrink_the_window_for_others() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let model = "window-40000";
    for n in 0..10 {
        bench.say_to(&session, model, &words(n)).await;
    }
    let quoted = json!({ "role": "maximum context length is 1", "content": "x" });
    let quoted_too = json!({ "role": "please reduce the length of the messages", "content": "x" });
    for (extra, tokens) in [
        (None, 20_000),
        (None, 10_000_000),
        (Some(quoted.clone()), 10),
        (Some(quoted_too), 10),
        (Some(json!({ "role": "m\u{61}ximum context length is 300", "content": words(0) })), 10),
    ] {
        let other = bench.session().await;
        let mut messages = vec![user("hi")];
        messages.splice(0..0, extra);
        let body = json!({ "model": model, "messages": messages, "max_tokens": tokens,
                           "sbp": { "session_id": other.id } });
        for _ in 0..3 {
            assert_eq!(bench.chat(body.clone()).await.status, 400);
        }
        let said = bench.say_to(&session, model, "and now?").await;
        assert_eq!(said.status, 200, "{}", said.text);
        assert!(said.body["sbp"].get("left_out").is_none(), "{}", said.body["sbp"]);
    }
}

#[tokio::test]
async fn a_text_with_more_tokens_than_estimated_is_cut_until_it_fits() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for n in 0..40 {
        let said = bench.say_to(&session, "dense-6000", &words(n)).await;
        assert_eq!(said.status, 200, "turn {n}: {}", said.text);
    }
}

#[tokio::test]
async fn a_conversation_of_many_windows_goes_on_where_the_server_names_no_limit() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for n in 0..40 {
        bench.say_to(&session, "m", &words(n)).await;
    }
    // Eight windows and more, each time as if nothing were known, then with what was learned.
    for model in ["unnamed-2000", "unnamed-2001", "unnamed-2001", "unnamed-2001"] {
        let said = bench.say_to(&session, model, "and now?").await;
        assert_eq!(said.status, 200, "{}", said.text);
        let told = upstream.calls().pop().unwrap().said();
        assert_eq!(told[told.len() - 1], "user: and now?");
    }
}

#[tokio::test]
async fn a_later_round_is_cut_also_if_the_model_has_said_something() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    for n in 0..10 {
        bench.say_to(&session, "m", &words(n)).await;
    }
    for stream in [false, true] {
        let sbp = json!({ "session_id": session.id, "memory_retrieval": true });
        let body = json!({ "model": "remembers-4000", "messages": [user("note this")], "sbp": sbp,
                           "stream": stream });
        let said = bench.chat(body).await;
        assert_eq!(said.status, 200, "{}", said.text);
        assert!(said.text.contains("One moment. "), "{}", said.text);
        assert!(said.text.contains("Noted: "), "{}", said.text);
        let calls = upstream.calls();
        let (cut, whole) = (&calls[calls.len() - 1].said(), &calls[calls.len() - 2].said());
        assert!(cut.len() < whole.len(), "{} {}", cut.len(), whole.len());
    }
}
