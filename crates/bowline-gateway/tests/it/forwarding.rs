//! Paths of OpenAI's API without sessions: embeddings, moderations, images, audio.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Answer, Bench, answer};
use crate::echo_upstream::{EchoUpstream, binary};
use crate::locked::{KEY, bearer, by_key, lock};

const PATHS: [&str; 8] = [
    "/v1/embeddings",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
];
const FORM: &str = "multipart/form-data; boundary=b";

/// A form with a file of that size; the model before or after it.
fn form(model: &str, file: usize, first: bool) -> String {
    let model = format!("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n");
    let file = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{}\r\n",
        "x".repeat(file)
    );
    let (one, two) = if first { (model, file) } else { (file, model) };
    format!("{one}{two}--b--\r\n")
}

fn send(bench: &Bench, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
    bench.http.post(bench.url(path)).header("content-type", kind).body(body)
}

/// A request body, under the test's control.
fn slowly() -> (mpsc::UnboundedSender<Bytes>, reqwest::Body) {
    let (sender, pieces) = mpsc::unbounded_channel::<Bytes>();
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async {
        Some((Ok::<_, std::io::Error>(pieces.recv().await?), pieces))
    });
    (sender, reqwest::Body::wrap_stream(pieces))
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_request_goes_to_its_models_upstream_and_the_answer_comes_back_byte_for_byte() {
    let (one, two) = (EchoUpstream::start().await, EchoUpstream::start().await);
    let bench = Bench::with(|config| {
        one.configure(config, "one", &["a-*"]);
        two.configure(config, "two", &[]);
    })
    .await;
    for (n, path) in PATHS.into_iter().enumerate() {
        for (model, upstream) in [("a-1", &one), ("b-1", &two)] {
            let text = format!("{{ \"input\" :[1.50],\"model\":\"{model}\",\"x\": 1e400 }}");
            let request = send(&bench, path, "application/json; x=1", text.clone())
                .header("Authorization", "Bearer sk-of-the-caller")
                .header("Cookie", "c=1");
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 201, "{path}");
            for (name, value) in [
                ("content-type", "audio/x-test"),
                ("content-disposition", "attachment; filename=\"a.bin\""),
                ("retry-after", "9"),
                ("retry-after-ms", "8500"),
                ("x-ratelimit-remaining-tokens", "5"),
                ("x-request-id", "req_1"),
                ("set-cookie", ""),
                ("access-control-allow-origin", ""),
            ] {
                assert_eq!(header(&response, name), value, "{name}");
            }
            assert_eq!(response.bytes().await.unwrap(), binary());
            let seen = upstream.seen();
            assert_eq!(seen.len(), n + 1, "{path} {model}");
            let seen = seen.last().unwrap();
            assert_eq!(
                (seen.line.as_str(), &seen.body[..]),
                (&*format!("POST {path}"), text.as_bytes())
            );
            assert_eq!(seen.header("content-type"), "application/json; x=1");
            assert!(!format!("{:?}", seen.headers).contains("sk-of-the-caller"));
            assert_eq!(seen.header("cookie"), "");
        }
    }
    assert_eq!(bench.sessions().await, [] as [Value; 0], "nothing is stored");
}

#[tokio::test]
async fn the_model_of_a_form_is_found_before_and_after_the_file() {
    let (one, two) = (EchoUpstream::start().await, EchoUpstream::start().await);
    let bench = Bench::with(|config| {
        one.configure(config, "one", &["whisper-*"]);
        two.configure(config, "two", &["other"]);
    })
    .await;
    for (file, first) in [(10, true), (10, false), (9_000_000, true), (3_000_000, false)] {
        let body = form("whisper-1", file, first);
        let said = answer(send(&bench, "/v1/audio/transcriptions", FORM, body.clone())).await;
        assert_eq!(said.status, 201, "{file} {first}");
        let seen = one.seen().pop().unwrap();
        assert_eq!(seen.body, body, "{file} {first}");
        assert_eq!(seen.header("content-type"), FORM);
        assert_eq!(seen.header("content-length"), body.len().to_string());
    }
    let late = form("whisper-1", 9_000_000, false);
    let refused = answer(send(&bench, "/v1/audio/transcriptions", FORM, late)).await;
    assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"));
    assert!(refused.text.contains("before the file"), "{}", refused.text);
    assert_eq!((one.seen().len(), two.seen().len()), (4, 0));
    // Nor is it guessed that the upstream for every model is meant.
    let bench = Bench::with(|config| {
        one.configure(config, "one", &["whisper-*"]);
        two.configure(config, "two", &[]);
    })
    .await;
    let late = form("whisper-1", 9_000_000, false);
    let refused = answer(send(&bench, "/v1/audio/transcriptions", FORM, late.clone())).await;
    assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"));
    assert_eq!((one.seen().len(), two.seen().len()), (4, 0));
    // If there is no other one, nothing has to be guessed.
    let bench = Bench::with(|config| two.configure(config, "two", &[])).await;
    let said = answer(send(&bench, "/v1/audio/transcriptions", FORM, late.clone())).await;
    assert_eq!((said.status, two.seen().pop().unwrap().body), (201, late.into()));
}

#[tokio::test]
async fn without_a_model_the_upstream_for_every_model_is_asked_or_nobody() {
    let (one, two) = (EchoUpstream::start().await, EchoUpstream::start().await);
    let picky = Bench::with(|config| one.configure(config, "one", &["a"])).await;
    let easy = Bench::with(|config| {
        one.configure(config, "one", &["a"]);
        two.configure(config, "two", &[]);
    })
    .await;
    for body in [json!({ "input": "x" }), json!({ "model": null }), json!({ "model": 5 })] {
        let refused = picky.post("/v1/moderations", body.clone()).await;
        assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"), "{body}");
        assert_eq!(refused.body["error"]["param"], "model");
        assert_eq!(easy.post("/v1/moderations", body).await.status, 201);
    }
    assert_eq!((one.seen().len(), two.seen().len()), (0, 3));
    for body in ["", "[1]", "{", "text"] {
        let refused = answer(send(&easy, "/v1/embeddings", "application/json", body)).await;
        assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"), "{body}");
    }
    let unknown = picky.post("/v1/embeddings", json!({ "model": "b" })).await;
    assert_eq!(unknown.refusal(), (422, "SBP_INVALID_REQUEST"));
}

#[tokio::test]
async fn the_built_in_agent_says_that_it_only_chats() {
    let upstream = EchoUpstream::start().await;
    let benches =
        [Bench::start().await, Bench::with(|config| upstream.configure(config, "one", &[])).await];
    for bench in &benches {
        for path in PATHS {
            let refused = bench.post(path, json!({ "model": "bowline/offline" })).await;
            assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"), "{path}");
            assert!(refused.text.contains("built-in agent") && refused.text.contains(path));
            assert_eq!(refused.body["error"]["type"], "invalid_request_error");
        }
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn with_keys_on_only_a_key_passes() {
    let upstream = EchoUpstream::start().await;
    let bench = Bench::with(|config| {
        lock(config);
        upstream.configure(config, "one", &[]);
        config.upstream.get_mut("one").unwrap().stateful_paths = vec!["/v1/files".into()];
    })
    .await;
    let session = by_key(&bench, Method::POST, "/v1/sessions", json!({})).await;
    let token = bearer(session.body["session_token"].as_str().unwrap());
    let as_one = async |header: Option<(&str, &str)>, path: &str| -> Answer {
        bench.call(Method::POST, path, header.as_slice(), &json!({ "model": "m" })).await
    };
    for path in PATHS.into_iter().chain(["/v1/files", "/v1/files/x", "/v1/batches"]) {
        assert_eq!(as_one(None, path).await.refusal(), (401, "SBP_UNAUTHORIZED"), "{path}");
        for wrong in [bearer("wrong"), token.clone(), bearer(&"w".repeat(40))] {
            let refused = as_one(Some(("Authorization", &wrong)), path).await;
            assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"), "{path}");
            assert!(!refused.text.contains("stateful_paths"), "strangers learn nothing");
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    let key = bearer(KEY);
    assert_eq!(as_one(Some(("Authorization", &key)), "/v1/embeddings").await.status, 201);
}

#[tokio::test]
async fn g11_a_body_that_is_passed_on_has_a_size() {
    let upstream = EchoUpstream::start().await;
    let bench = Bench::with(|config| {
        upstream.configure(config, "one", &[]);
        config.limits.passthrough_body = 200_000;
    })
    .await;
    let path = "/v1/audio/transcriptions";
    let fits = form("m", 199_000, true);
    assert_eq!(answer(send(&bench, path, FORM, fits)).await.status, 201);
    let announced = answer(send(&bench, path, FORM, form("m", 201_000, true))).await;
    assert_eq!(announced.refusal(), (413, "SBP_INVALID_REQUEST"));
    assert!(announced.text.contains("limits.passthrough_body"), "{}", announced.text);
    // Without a length: the upstream gets a part, and never the end.
    for first in [true, false] {
        let (pieces, body) = slowly();
        let text = form("m", 400_000, first);
        for piece in text.as_bytes().chunks(10_000) {
            pieces.send(Bytes::copy_from_slice(piece)).unwrap();
        }
        drop(pieces);
        let refused = answer(send(&bench, path, FORM, body)).await;
        assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{first}");
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn g11_a_body_that_stops_arriving_is_given_up() {
    let upstream = EchoUpstream::start().await;
    let bench = Bench::with(|config| {
        upstream.configure(config, "one", &[]);
        config.limits.body_timeout = Duration::from_millis(50);
    })
    .await;
    for beginning in ["{\"inp", "{\"model\":\"m\",\"inp"] {
        let (pieces, body) = slowly();
        pieces.send(beginning.into()).unwrap();
        let refused = answer(send(&bench, "/v1/embeddings", "application/json", body)).await;
        assert_eq!(refused.refusal(), (400, "SBP_INVALID_REQUEST"), "{beginning}");
        assert!(refused.text.contains("too long"), "{}", refused.text);
    }
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn bodies_and_answers_are_passed_on_while_they_arrive() {
    let upstream = EchoUpstream::start().await;
    let bench = Bench::with(|config| {
        upstream.configure(config, "one", &[]);
        // Counts from the end of the request body.
        config.upstream.get_mut("one").unwrap().first_byte_timeout = Duration::from_secs(20);
    })
    .await;
    let reply = upstream.answer();
    let (pieces, body) = slowly();
    let request = send(&bench, "/v1/audio/transcriptions", FORM, body);
    let sent = tokio::spawn(request.send());
    let text = form("m", 300_000, true);
    let (begin, end) = text.split_at(200_000);
    pieces.send(Bytes::copy_from_slice(begin.as_bytes())).unwrap();
    upstream.until_arrived(200_000).await;
    pieces.send(Bytes::copy_from_slice(end.as_bytes())).unwrap();
    drop(pieces);
    reply.send("one".into()).unwrap();
    let mut response = sent.await.unwrap().unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
    reply.send("two".into()).unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "two");
    drop(reply);
    assert_eq!(response.chunk().await.unwrap(), None);
    assert_eq!(upstream.seen()[0].body, text);
}

#[tokio::test]
async fn g11_an_upstream_that_is_silent_is_given_up() {
    let upstream = EchoUpstream::start().await;
    let bench = Bench::with(|config| {
        upstream.configure(config, "one", &[]);
        let settings = config.upstream.get_mut("one").unwrap();
        settings.idle_timeout = Duration::from_millis(50);
    })
    .await;
    let reply = upstream.answer();
    reply.send("begun".into()).unwrap();
    let request = bench.http.post(bench.url("/v1/embeddings")).json(&json!({ "model": "m" }));
    let cut = request.send().await.unwrap().bytes().await;
    assert!(cut.is_err(), "half an answer looks like a whole one");
}
