//! `/v1/models`: what the upstreams list, what the configuration names, and the built-in agent.

use std::time::Duration;

use bowline_gateway::config::{Config, Upstream};
use serde_json::{Value, json};

use crate::bench::{Bench, asked, eventually, plain};
use crate::upstream::MockUpstream;

const OFFLINE: &str = "bowline/offline";

fn add(config: &mut Config, name: &str, url: &str, models: &[&str]) {
    let models = models.iter().map(|model| model.to_string()).collect();
    let url = url.to_owned();
    let upstream = Upstream { url, models, retries: 0, ..Upstream::default() };
    config.upstream.insert(name.into(), upstream);
}

async fn ids(bench: &Bench) -> Vec<String> {
    let answer = bench.get("/v1/models").await;
    assert_eq!((answer.status, &answer.body["object"]), (200, &json!("list")), "{}", answer.text);
    let models = answer.body["data"].as_array().unwrap().iter();
    models.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

/// An address that refuses connections. The socket holds the port.
fn nobody() -> (tokio::net::TcpSocket, String) {
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/v1", taken.local_addr().unwrap());
    (taken, url)
}

#[tokio::test]
async fn models_are_listed_as_their_upstream_describes_them_and_can_all_be_used() {
    let (one, two) = (MockUpstream::start().await, MockUpstream::start().await);
    one.lists(
        200,
        &json!([
            { "id": "gpt-4o", "object": "model", "created": 7, "owned_by": "system", "x": [1.50] },
            { "id": "other", "owned_by": "system" },
            { "id": "gpt-4o", "owned_by": "twice" },
        ]),
    );
    two.lists(
        200,
        &json!([
            { "id": "org/llama:8b" }, { "id": "gpt-4o" }, { "id": "bowline/offline" },
            { "id": "" }, { "id": "x".repeat(257) }, { "id": 5 }, "text", null,
        ]),
    );
    let bench = Bench::with(|config| {
        add(config, "one", &one.url, &["gpt-*", "named"]);
        add(config, "two", &two.url, &[]);
    })
    .await;
    let listed = bench.get("/v1/models").await.body["data"].clone();
    let built_in = json!({ "id": OFFLINE, "object": "model", "created": 0, "owned_by": "bowline",
                           "upstream": "offline" });
    let gpt = json!({ "id": "gpt-4o", "object": "model", "created": 7, "owned_by": "system",
                      "x": [1.50], "upstream": "one" });
    let named = json!({ "id": "named", "object": "model", "created": 0, "owned_by": "one",
                        "upstream": "one" });
    let llama = json!({ "id": "org/llama:8b", "object": "model", "created": 0,
                        "owned_by": "two", "upstream": "two" });
    assert_eq!(listed, json!([built_in, gpt, named, llama]));
    for model in listed.as_array().unwrap() {
        let id = model["id"].as_str().unwrap();
        assert_eq!(bench.chat(plain(id, "echo x")).await.status, 200, "{id}");
        let said = bench.chat(asked(id, "echo x", json!({}))).await;
        assert_eq!(said.body["sbp"]["model_routed_to"], model["upstream"], "{}", said.text);
    }
}

#[tokio::test]
async fn one_model_is_shown_by_its_id_with_slashes_or_without() {
    let upstream = MockUpstream::start().await;
    upstream.lists(200, &json!([{ "id": "org/sub/m:1" }, { "id": "m" }]));
    let bench = Bench::before(&upstream).await;
    for (path, id) in [
        ("m", "m"),
        ("org/sub/m:1", "org/sub/m:1"),
        ("org%2Fsub%2Fm%3A1", "org/sub/m:1"),
        ("bowline/offline", OFFLINE),
    ] {
        let shown = bench.get(&format!("/v1/models/{path}")).await;
        assert_eq!((shown.status, &shown.body["id"]), (200, &json!(id)), "{}", shown.text);
    }
    for path in ["none", "org", "m/m"] {
        let missing = bench.get(&format!("/v1/models/{path}")).await;
        assert_eq!(missing.refusal(), (404, "SBP_NOT_FOUND"), "{path}");
        assert_eq!(missing.body["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_costs_its_own_models_only() {
    let upstream = MockUpstream::start().await;
    upstream.lists(200, &json!([{ "id": "here" }]));
    let no_list = MockUpstream::start().await;
    let (_taken, url) = nobody();
    let bench = Bench::with(|config| {
        add(config, "away", &url, &["away-*", "away-1"]);
        add(config, "here", &upstream.url, &[]);
        add(config, "no-list", &no_list.url, &["unlisted"]);
    })
    .await;
    assert_eq!(ids(&bench).await, [OFFLINE, "away-1", "here", "unlisted"]);
}

#[tokio::test]
async fn the_last_list_is_served_while_an_upstream_is_away() {
    let upstream = MockUpstream::start().await;
    upstream.lists(200, &json!([{ "id": "a" }]));
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.models_cache = Duration::ZERO;
    })
    .await;
    assert_eq!(ids(&bench).await, [OFFLINE, "a"]);
    upstream.lists(500, &json!([]));
    assert_eq!(ids(&bench).await, [OFFLINE, "a"]);
    upstream.lists(200, &json!("no list"));
    assert_eq!(ids(&bench).await, [OFFLINE, "a"]);
    upstream.lists(200, &json!([{ "id": "b" }]));
    assert_eq!(ids(&bench).await, [OFFLINE, "b"], "and it came back");
    assert_eq!(upstream.lists_asked(), 4);
}

#[tokio::test]
async fn a_list_is_asked_for_once_however_many_want_it() {
    let upstream = MockUpstream::start().await;
    upstream.lists(200, &json!([{ "id": "a" }]));
    let bench = Bench::before(&upstream).await;
    let held = upstream.hold_lists().await;
    let all = futures_util::future::join_all((0..8).map(|_| ids(&bench)));
    let go = async {
        eventually("asked", async || upstream.lists_asked() > 0).await;
        drop(held);
    };
    let (lists, ()) = tokio::join!(all, go);
    assert!(lists.iter().all(|list| *list == [OFFLINE, "a"]), "{lists:?}");
    upstream.lists(200, &json!([{ "id": "b" }]));
    assert_eq!(ids(&bench).await, [OFFLINE, "a"], "limits.models_cache");
    assert_eq!(upstream.lists_asked(), 1);
}

#[tokio::test]
async fn g11_a_list_of_models_has_a_size_and_a_time() {
    let (long, slow) = (MockUpstream::start().await, MockUpstream::start().await);
    let models: Vec<Value> = (0..100).map(|n| json!({ "id": format!("long-{n}") })).collect();
    long.lists(200, &json!(models));
    slow.lists(200, &json!([{ "id": "slow-1" }]));
    let _held = slow.hold_lists().await;
    let bench = Bench::with(|config| {
        add(config, "long", &long.url, &["long-*"]);
        add(config, "slow", &slow.url, &["slow-*"]);
        config.limits.models_list = 1000;
        config.limits.models_timeout = Duration::from_millis(50);
    })
    .await;
    assert_eq!(ids(&bench).await, [OFFLINE]);
    assert_eq!(ids(&bench).await, [OFFLINE]);
    assert_eq!((long.lists_asked(), slow.lists_asked()), (1, 1), "a failure has a pause, too");
}
