//! A model server's errors: its status, code and wait reach the caller.

use bowline_gateway::config::ContextPolicy;
use serde_json::{Value, json};

use crate::bench::{Bench, asked};
use crate::upstream::MockUpstream;

/// Model, the caller's status and code, OpenAI's type (the upstream's, which is `t`, or the usual
/// one), calls made.
const FAILURES: [(&str, u16, &str, &str, usize); 13] = [
    ("status-400", 400, "SBP_INVALID_REQUEST", "t", 1),
    ("status-402", 402, "SBP_UPSTREAM", "t", 1),
    ("status-404", 404, "SBP_INVALID_REQUEST", "t", 1),
    ("status-413", 413, "SBP_INVALID_REQUEST", "t", 1),
    ("status-422", 422, "SBP_INVALID_REQUEST", "t", 1),
    ("status-401", 401, "SBP_UPSTREAM", "t", 1),
    ("status-403", 403, "SBP_UPSTREAM", "t", 1),
    ("status-429", 429, "SBP_RATE_LIMITED", "t", 1),
    ("status-500", 500, "SBP_UPSTREAM", "t", 1),
    ("status-502", 502, "SBP_UPSTREAM", "t", 2),
    ("status-503", 503, "SBP_UPSTREAM", "t", 2),
    ("status-504", 504, "SBP_UPSTREAM", "t", 2),
    ("nonsense", 502, "SBP_UPSTREAM", "server_error", 1),
];

#[tokio::test]
async fn g4_a_failed_call_is_told_in_our_words_and_stores_nothing() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let left = async || {
        let mut sessions = bench.sessions().await;
        sessions.iter_mut().for_each(|session| session["updated_at"] = Value::Null);
        sessions
    };
    let fresh = left().await;
    for (model, status, code, kind, calls) in FAILURES {
        for (stream, sbp) in [(false, json!({})), (true, json!({ "session_id": session.id }))] {
            let before = upstream.calls().len();
            let mut ask = asked(model, "x", sbp);
            ask["stream"] = json!(stream);
            let failed = bench.chat(ask).await;
            assert_eq!(failed.refusal(), (status, code), "{model}: {}", failed.text);
            let error = failed.body["error"].as_object().unwrap();
            assert_eq!(error["type"], kind, "{model}");
            assert!(error.contains_key("param"), "{model}");
            assert!(error["message"].as_str().unwrap().contains("`mock`") || model == "nonsense");
            assert_eq!(upstream.calls().len() - before, calls, "{model}");
        }
    }
    assert_eq!(left().await, fresh, "nothing stored, no session left behind");
    assert_eq!(bench.entries(&session).await, [] as [Value; 0]);
}

#[tokio::test]
async fn an_upstreams_wish_to_wait_and_its_reason_reach_the_caller() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let limited = bench.chat(asked("status-429", "x", json!({}))).await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, "7"));
    assert!(limited.text.contains("scripted refusal"), "{}", limited.text);
    let refused = bench.chat(asked("status-401", "x", json!({}))).await;
    assert!(refused.text.contains("the gateway's own key"), "{}", refused.text);
    assert!(!refused.text.contains("scripted refusal"), "it may quote the key");
}

/// The model that makes the scripted upstream answer exactly this.
fn refuses(status: u16, headers: Value, error: Value) -> String {
    let body = json!({ "error": error });
    format!("refuses {}", json!({ "status": status, "headers": headers, "body": body }))
}

#[tokio::test]
async fn an_upstreams_code_type_and_param_reach_the_caller_as_they_are() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    for (status, code, kind, param) in [
        (400, "context_length_exceeded", "invalid_request_error", json!("messages")),
        (404, "model_not_found", "invalid_request_error", Value::Null),
        (429, "insufficient_quota", "insufficient_quota", Value::Null),
        (401, "invalid_api_key", "invalid_request_error", Value::Null),
        (503, "overloaded", "server_error", Value::Null),
    ] {
        let error = json!({ "message": "why", "type": kind, "param": param, "code": code });
        let model = refuses(status, json!({}), error);
        for stream in [false, true] {
            let mut ask = asked(&model, "x", json!({}));
            ask["stream"] = json!(stream);
            let failed = bench.chat(ask).await;
            assert_eq!(failed.refusal(), (status, code), "{}", failed.text);
            let error = &failed.body["error"];
            assert_eq!((&error["type"], &error["param"]), (&json!(kind), &param));
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("the upstream `mock` "), "{message}");
            assert_eq!(message.ends_with(": why"), status != 401, "{message}");
        }
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn an_upstreams_wait_reaches_the_caller_in_seconds_and_milliseconds() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let later = "Sun, 06 Nov 1994 08:50:07 GMT";
    for (headers, seconds, millis) in [
        (json!({ "retry-after": "7" }), "7", ""),
        (json!({ "retry-after": later, "date": date }), "30", ""),
        (json!({ "retry-after-ms": "1500" }), "2", "1500"),
    ] {
        let model = refuses(429, headers, json!({ "message": "slow down" }));
        let failed = bench.chat(asked(&model, "x", json!({}))).await;
        assert_eq!(failed.refusal(), (429, "SBP_RATE_LIMITED"));
        let waits = (failed.header("retry-after"), failed.header("retry-after-ms"));
        assert_eq!(waits, (seconds, millis));
    }
}

#[tokio::test]
async fn an_error_that_comes_as_an_answer_keeps_its_code_and_status() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let long = json!({ "message": "too long", "code": "context_length_exceeded" });
    let limited = json!({ "message": "slow down", "code": 429 });
    for (error, status, code) in
        [(long, 400, "context_length_exceeded"), (limited, 429, "SBP_RATE_LIMITED")]
    {
        let event = format!("event {}", json!({ "error": error }));
        let whole = refuses(200, json!({}), error);
        for (model, stream) in [(&event, false), (&event, true), (&whole, false), (&whole, true)] {
            let mut ask = asked(model, "x", json!({}));
            ask["stream"] = json!(stream);
            let failed = bench.chat(ask).await;
            assert_eq!(failed.refusal(), (status, code), "{model}: {}", failed.text);
            assert!(failed.text.contains("`mock` refused the request: "), "{}", failed.text);
        }
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_has_openais_code_whatever_the_server_says() {
    let upstream = MockUpstream::start().await;
    let trims = Bench::before(&upstream).await;
    let error = |config: &mut bowline_gateway::config::Config| {
        config.context.policy = ContextPolicy::Error;
    };
    let errs = Bench::before_with(&upstream, error).await;
    for (status, error) in [
        (
            400,
            json!({ "message": "The decoder prompt (length 9) is longer than the maximum model length of 4.", "type": "BadRequestError", "code": 400 }),
        ),
        (
            400,
            json!({ "message": "the request exceeds the available context size", "type": "exceed_context_size_error", "code": 400, "n_ctx": 4 }),
        ),
        (400, json!("the input length exceeds the context length")),
        (
            400,
            json!({ "message": "The input token count (9) exceeds the maximum number of tokens allowed (4).", "status": "INVALID_ARGUMENT", "code": 400 }),
        ),
        (422, json!({ "message": "`inputs` tokens + `max_new_tokens` must be <= 4. Given: 9" })),
        (500, json!({ "message": "context size has been exceeded" })),
    ] {
        upstream.refuses(status, error);
        for bench in [&trims, &errs] {
            for stream in [false, true] {
                let mut ask = asked("refusing", "hello", json!({}));
                ask["stream"] = json!(stream);
                let failed = bench.chat(ask).await;
                assert_eq!(failed.refusal(), (400, "context_length_exceeded"), "{}", failed.text);
            }
        }
    }
    // What quotes the caller says nothing about its length.
    upstream.refuses(400, json!({ "message": "Unknown: maximum context length" }));
    let failed = trims.chat(asked("refusing", "maximum context length", json!({}))).await;
    assert_eq!(failed.refusal(), (400, "SBP_INVALID_REQUEST"), "{}", failed.text);
}
