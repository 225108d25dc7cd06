//! Images, sounds and files in messages: stored once, sent to the model as they came, and only
//! referred to in logs and frames.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_sbp::blob::Blob;
use bowline_sbp::id::SessionId;
use bowline_store::Log;
use serde_json::{Value, json};

use crate::bench::{Bench, Session, list};
use crate::roaming::of;
use crate::upstream::MockUpstream;

/// An image, larger than what stays in the log.
fn image(seed: u8) -> Blob {
    sized(100_000, seed)
}

fn sized(size: usize, seed: u8) -> Blob {
    Blob::new((0..size).map(|n| (n as u8).wrapping_mul(7).wrapping_add(seed)).collect())
}

fn url(blob: &Blob) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(&blob.bytes))
}

fn part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

/// A question about an image.
fn asked(text: &str, url: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "text", "text": text }, part(url)] })
}

fn request(session: &Session, messages: Value) -> Value {
    json!({ "model": "m", "messages": messages, "sbp": { "session_id": session.id } })
}

fn answer(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

/// The conversation that the model was sent last, without notes of the gateway.
fn sent(upstream: &MockUpstream) -> Vec<Value> {
    let mut messages = list(&upstream.calls().last().unwrap().body["messages"]);
    messages.retain(|message| message["role"] != "system");
    messages
}

/// The URL, or in its place the text, of a message's second part.
fn shown(message: &Value) -> &str {
    let part = &message["content"][1];
    part["image_url"]["url"].as_str().or(part["text"].as_str()).unwrap()
}

/// Sends an image in a turn.
pub(crate) async fn send(bench: &Bench, session: &Session) -> Blob {
    let image = image(1);
    let said = bench.chat(request(session, json!([asked("this?", &url(&image))]))).await;
    assert_eq!(said.status, 200, "{}", said.text);
    image
}

async fn is_stored(bench: &Bench, session: &Session, blob: &Blob) -> bool {
    let id: SessionId = session.id.parse().unwrap();
    bench.store.blobs(id, vec![blob.cid]).await.unwrap() == [blob.clone()]
}

#[tokio::test]
async fn sbp_l1_11_an_image_that_is_sent_with_every_turn_is_stored_once() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let image = url(&image(1));
    let mut conversation = Vec::new();
    for n in 1..=4 {
        let question = match n {
            1 => asked("what is this?", &image),
            _ => json!({ "role": "user", "content": format!("and {n}?") }),
        };
        conversation.push(question);
        let said = bench.chat(request(&session, json!(conversation))).await;
        assert_eq!(said.status, 200, "{}", said.text);
        conversation.push(answer(said.content()));
        let messages = sent(&upstream);
        assert_eq!(messages.len(), 2 * n - 1, "no copy in the prompt");
        assert_eq!(shown(&messages[0]), image, "the model gets the bytes");
    }
    let entries = bench.entries(&session).await;
    assert_eq!(entries.len(), 8, "{entries:?}");
    let reference = shown(&entries[0]["message"]).to_owned();
    let expected = format!("data:image/png;base64,{}", self::image(1).reference());
    assert_eq!(reference, expected, "the log has a reference");
    // A client that keeps what the log says may send the reference back.
    let mut again = request(&session, json!([asked("what is this?", &reference)]));
    again["messages"].as_array_mut().unwrap().extend(conversation.drain(1..));
    again["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "last" }));
    bench.chat(again).await;
    assert_eq!(shown(&sent(&upstream)[0]), image);
    assert_eq!(bench.entries(&session).await.len(), 10);
    for n in 0..5 {
        let frames = phone.until("TURN_COMPLETE").await;
        let long = frames.iter().any(|frame| frame.to_string().len() > 10_000);
        assert!(!long, "turn {n}: frames carry no image");
    }
}

#[tokio::test]
async fn sbp_l1_11_the_stored_history_has_its_images_also_after_a_restart() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    bench.chat(request(&session, json!([asked("what is this?", &url(&image(1)))]))).await;
    bench.say(&session, "are you sure?").await;
    assert_eq!(shown(&sent(&upstream)[0]), url(&image(1)));
    let bench = bench.reopened_with(|config| upstream.configure(config)).await;
    bench.say(&session, "and now?").await;
    let messages = sent(&upstream);
    assert_eq!((messages.len(), shown(&messages[0])), (5, &*url(&image(1))));
}

#[tokio::test]
async fn an_image_is_read_by_its_hash_and_only_in_its_session() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let (mine, other) = (bench.session().await, bench.session().await);
    let image = image(1);
    bench.chat(request(&mine, json!([asked("what is this?", &url(&image))]))).await;
    let path = |session: &Session, hash: &str| of(session, &format!("blobs/{hash}"));
    let hash = image.cid.to_string();
    let read = bench.http.get(bench.url(&path(&mine, &hash))).send().await.unwrap();
    assert_eq!(read.headers()["content-type"], "application/octet-stream");
    assert_eq!(read.headers()["x-content-type-options"], "nosniff");
    assert_eq!(read.bytes().await.unwrap(), image.bytes[..]);
    for (session, hash) in
        [(&other, &*hash), (&mine, "five"), (&mine, &*self::image(2).cid.to_string())]
    {
        let refused = bench.get(&path(session, hash)).await;
        assert_eq!(refused.refusal(), (404, "SBP_NOT_FOUND"), "{}", refused.text);
    }
    // A reference that was copied from elsewhere shows nothing.
    let copied = format!("data:image/png;base64,{}", image.reference());
    for _ in 0..2 {
        bench.chat(request(&other, json!([asked("show me", &copied)]))).await;
        let messages = sent(&upstream);
        assert_eq!(shown(&messages[0]), "[image: image/png, 97 KB]");
        assert!(!upstream.calls().last().unwrap().text.contains(&url(&image)[..100]));
    }
}

#[tokio::test]
async fn sbp_l3_04_a_bundle_has_the_images_inline_and_an_import_stores_them_once() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let image = image(1);
    let question = asked("what is this?", &url(&image));
    bench.chat(request(&session, json!([question, question]))).await;
    let bundle = bench.bundle_of(&session).await;
    assert_eq!(bundle.matches(&url(&image)).count(), 2);
    let elsewhere = Bench::before(&upstream).await;
    let imported = elsewhere.import_bundle(&bundle).await;
    assert_eq!(imported.status, 201, "{}", imported.text);
    let imported = Session::of(&imported.body);
    assert!(is_stored(&elsewhere, &imported, &image).await);
    let entries = elsewhere.entries(&imported).await;
    assert!(shown(&entries[0]["message"]).ends_with(&image.reference().to_string()));
    elsewhere.say(&imported, "and now?").await;
    let messages = sent(&upstream);
    assert_eq!([shown(&messages[0]), shown(&messages[1])], [&*url(&image), &*url(&image)]);
    // And on: the same bundle content comes out again.
    let again = elsewhere.bundle_of(&imported).await;
    assert_eq!(again.matches(&url(&image)).count(), 2);
}

#[tokio::test]
async fn g8_a_fork_and_a_handoff_show_the_images_of_their_history() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let image = image(1);
    bench.chat(request(&session, json!([asked("what is this?", &url(&image))]))).await;
    let forked = Session::of(&json!({
        "session_id": bench.fork(&session, json!({})).await.body["fork_session_id"],
    }));
    let handed = Session::of(&bench.hand_off(&session, "other").await.body);
    let deleted =
        bench.http.delete(bench.url(&format!("/v1/sessions/{}", session.id))).send().await.unwrap();
    assert!(deleted.status().is_success(), "{}", deleted.status());
    for session in [&forked, &handed] {
        let said = bench.say(session, "and now?").await;
        assert_eq!(said.status, 200, "{}", said.text);
        assert_eq!(shown(&sent(&upstream)[0]), url(&image));
    }
}

#[tokio::test]
async fn g11_an_image_has_its_own_limit_and_the_rest_of_a_request_keeps_the_usual_one() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.request_body = 10_000;
        config.limits.image = 200_000;
    })
    .await;
    let session = bench.session().await;
    let fits = |size: usize| request(&session, json!([asked("this?", &url(&sized(size, 1)))]));
    assert_eq!(bench.chat(fits(200_000)).await.status, 200, "the limit itself fits");
    let refused = bench.chat(fits(200_001)).await;
    assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{}", refused.text);
    assert!(refused.text.contains("limits.image"), "{}", refused.text);
    // Text, and what only looks like an image, counts as ever.
    let letters = "a".repeat(100_000);
    for body in [
        request(&session, json!([{ "role": "user", "content": letters }])),
        request(
            &session,
            json!([{ "role": "user", "content": [{ "type": "text", "text": letters }] }]),
        ),
        json!({ "model": "m", "messages": [{ "role": "user", "content": letters }] }),
        json!({ "model": "m", "messages": [asked("this?", &url(&image(1)))], "x": "a".repeat(10_000) }),
    ] {
        let refused = bench.chat(body).await;
        assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{}", refused.text);
        assert!(refused.text.contains("limits.request_body"), "{}", refused.text);
    }
    assert_eq!(bench.entries(&session).await.len(), 2);
    // Without a session, an image passes as it is.
    let plain = json!({ "model": "m", "messages": [asked("this?", &url(&sized(300_000, 1)))] });
    let passed = bench.chat(plain.clone()).await;
    assert_eq!(passed.status, 200, "{}", passed.text);
    assert_eq!(upstream.calls().last().unwrap().body, plain);
}

#[tokio::test]
async fn g11_base64_that_cannot_be_taken_out_is_part_of_the_request_body() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.request_body = 200_000).await;
    let session = bench.session().await;
    let unpadded = url(&sized(300_001, 1)).trim_end_matches('=').to_owned();
    let asked = asked("this?", &unpadded);
    let instruction = json!({ "role": "system", "content": [part(&url(&sized(300_000, 1)))] });
    for messages in [json!([asked]), json!([instruction, { "role": "user", "content": "hi" }])] {
        let refused = bench.chat(request(&session, messages)).await;
        assert_eq!(refused.refusal(), (413, "SBP_INVALID_REQUEST"), "{}", refused.text);
    }
}

#[tokio::test]
async fn g11_images_beyond_limits_prompt_images_become_lines_the_oldest_first() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.prompt_images = 250_000).await;
    let session = bench.session().await;
    for n in 0..4 {
        bench.chat(request(&session, json!([asked("this?", &url(&image(n)))]))).await;
    }
    let messages = sent(&upstream);
    let shown: Vec<_> = messages.iter().step_by(2).map(shown).collect();
    let line = "[image: image/png, 97 KB]";
    assert_eq!(shown, [line, line, &*url(&image(2)), &*url(&image(3))]);
}

#[tokio::test]
async fn an_image_of_20_mb_takes_a_turn() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let image = sized(20 << 20, 1);
    let said = bench.chat(request(&session, json!([asked("this?", &url(&image))]))).await;
    assert_eq!(said.status, 200, "{}", said.text);
    assert_eq!(shown(&sent(&upstream)[0]), url(&image));
    assert!(is_stored(&bench, &session, &image).await);
}

#[tokio::test]
async fn a_surface_sends_an_image_as_any_client_does() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let content = asked("what is this?", &url(&image(1)))["content"].clone();
    phone.send(json!({ "type": "USER_MESSAGE", "content": content, "client_turn_id": "1", "model": "m" })).await;
    phone.until("TURN_COMPLETE").await;
    assert_eq!(shown(&sent(&upstream)[0]), url(&image(1)));
    let entries = bench.entries(&session).await;
    assert!(entries[0].to_string().len() < 2000, "{}", entries[0]);
}

#[tokio::test]
async fn g11_an_image_counts_as_often_as_it_is_sent_and_with_its_true_size() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.prompt_images = 250_000).await;
    let session = bench.session().await;
    let image = send(&bench, &session).await;
    let reference = format!("data:image/png;base64,{}", image.reference());
    let lie = reference.replace(":100000", ":1");
    assert_ne!(lie, reference);
    let parts: Vec<_> = [&lie, &reference, &reference, &reference].map(|url| part(url)).into();
    let many = json!({ "role": "user", "content": parts });
    let said = bench.chat(request(&session, json!([many]))).await;
    assert_eq!(said.status, 200, "{}", said.text);
    let messages = sent(&upstream);
    let line = "[image: image/png, 97 KB]";
    assert_eq!(shown(&messages[0]), line, "the oldest is left out");
    let parts = &messages[2]["content"];
    assert_eq!(parts[0]["text"], "[image: image/png, 1 bytes]", "it names no blob");
    assert_eq!(parts[1]["text"], line);
    for part in [&parts[2], &parts[3]] {
        assert_eq!(part["image_url"]["url"], url(&image));
    }
}

#[tokio::test]
async fn sbp_l3_01_references_that_open_nothing_are_no_reason_to_refuse_an_export() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| config.limits.import_body = 500_000).await;
    let session = bench.session().await;
    let image = send(&bench, &session).await;
    let foreign = Blob::new(b"of another session".to_vec()).reference().to_string();
    let urls = [foreign.replace(":18", ":99999999999"), image.reference().to_string()];
    for url in urls.map(|reference| format!("data:image/png;base64,{reference}")) {
        assert_eq!(bench.chat(request(&session, json!([asked("this?", &url)]))).await.status, 200);
    }
    let exported = bench.post(&of(&session, "export"), json!({})).await;
    assert_eq!(exported.status, 201, "two images of 133 kB: {}", exported.text);
    // Each time it is in the bundle counts.
    for _ in 0..2 {
        let again = format!("data:image/png;base64,{}", image.reference());
        bench.chat(request(&session, json!([asked("this?", &again)]))).await;
    }
    let refused = bench.post(&of(&session, "export"), json!({})).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    // A handoff keeps no bundle.
    let handed = bench.post(&of(&session, "handoff"), json!({ "to_agent_id": "next" })).await;
    assert_eq!(handed.status, 201, "{}", handed.text);
}
