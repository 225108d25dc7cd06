//! Web pages of other origins: what an allowed one is told, so that it can read the responses.

use std::sync::Arc;

use bowline_gateway::config::Config;
use bowline_gateway::http::BadOrigins;
use bowline_gateway::{Gateway, StartError, identity_file};
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::bench::{Answer, Bench, asked, plain};
use crate::locked::{KEY, bearer, lock};

const PAGE: &str = "https://app.example";

async fn allowing(origins: &[&str], change: impl FnOnce(&mut Config)) -> Bench {
    Bench::with(|config| {
        config.http.allowed_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        change(config);
    })
    .await
}

impl Answer {
    /// All values of a header, as one list.
    fn listed(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
        values.flat_map(|value| value.split(',')).map(|v| v.trim().to_ascii_lowercase()).collect()
    }

    fn lets_the_page_read_it(&self) -> bool {
        let origins: Vec<_> = self.headers.get_all("access-control-allow-origin").iter().collect();
        let exposed = self.listed("access-control-expose-headers");
        let needed = ["x-session-token", "retry-after"];
        origins == [PAGE]
            && self.listed("vary").contains(&"origin".to_owned())
            && needed.iter().all(|name| exposed.iter().any(|exposed| exposed == name))
    }
}

/// Asks as a browser does before it sends the request itself.
async fn preflight(bench: &Bench, origin: &str, path: &str) -> Answer {
    let headers = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,x-session-token"),
    ];
    bench.call(Method::OPTIONS, path, &headers, &Value::Null).await
}

#[tokio::test]
async fn a_preflight_of_an_allowed_page_is_answered_before_authentication() {
    let bench = allowing(&[PAGE], lock).await;
    for path in ["/v1/chat/completions", "/v1/sessions/five/status", "/mcp", "/nowhere"] {
        let asked = preflight(&bench, PAGE, path).await;
        assert_eq!((asked.status, asked.text.as_str()), (204, ""), "{path}");
        assert!(asked.lets_the_page_read_it(), "{:?}", asked.headers);
        for method in ["get", "post", "put", "patch", "delete"] {
            let methods = asked.listed("access-control-allow-methods");
            assert!(methods.iter().any(|allowed| allowed == method), "{methods:?}");
        }
        for header in ["authorization", "content-type", "x-session-token"] {
            let headers = asked.listed("access-control-allow-headers");
            assert!(headers.iter().any(|allowed| allowed == header), "{headers:?}");
        }
        let age: u64 = asked.header("access-control-max-age").parse().unwrap();
        assert!((60..=86400).contains(&age));
        assert_eq!(asked.header("access-control-allow-credentials"), "");
    }
    let refused = preflight(&bench, "https://evil.example", "/v1/sessions").await;
    assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"));
    assert_eq!(refused.header("access-control-allow-origin"), "");
    // Not a preflight: an unknown method, as ever.
    let plain =
        bench.call(Method::OPTIONS, "/v1/sessions", &[("Origin", PAGE)], &Value::Null).await;
    assert_eq!(plain.status, 405);
}

#[tokio::test]
async fn an_allowed_page_can_read_answers_streams_and_errors() {
    let bench = allowing(&["https://other.example", PAGE], |config| {
        lock(config);
        config.limits.request_body = 4096;
    })
    .await;
    let key = bearer(KEY);
    let (with_key, without) = ([("Origin", PAGE), ("Authorization", &key)], [("Origin", PAGE)]);
    let mut stream = plain("m", "echo x");
    stream["stream"] = json!(true);
    let mut session_stream = asked("m", "echo x", json!({}));
    session_stream["stream"] = json!(true);
    let chat = "/v1/chat/completions";
    let none = Value::Null;
    for (headers, method, path, body, status) in [
        (&with_key[..], Method::POST, chat, &asked("m", "echo x", json!({})), 200),
        (&with_key, Method::POST, chat, &session_stream, 200),
        (&with_key, Method::POST, chat, &stream, 200),
        (&with_key, Method::POST, "/v1/sessions", &json!({}), 201),
        (&without, Method::GET, "/healthz", &none, 200),
        (&without, Method::GET, "/v1/sessions", &none, 401),
        (&with_key, Method::GET, "/nowhere", &none, 404),
        (&with_key, Method::PUT, "/v1/sessions", &none, 405),
        (&with_key, Method::POST, chat, &plain("m", &"x".repeat(5000)), 413),
        (&with_key, Method::GET, "/v1/sessions/five", &none, 422),
    ] {
        let said = bench.call(method.clone(), path, headers, body).await;
        assert_eq!(said.status, status, "{method} {path}: {}", said.text);
        assert!(said.lets_the_page_read_it(), "{method} {path}: {:?}", said.headers);
    }
}

#[tokio::test]
async fn a_caller_without_an_origin_gets_no_permission_and_caches_are_told() {
    for (bench, varies) in [(allowing(&[PAGE], |_| {}).await, true), (Bench::start().await, false)]
    {
        let own_page = format!("http://{}", bench.gateway.address());
        for headers in [&[][..], &[("Origin", own_page.as_str())]] {
            let said = bench.call(Method::GET, "/healthz", headers, &Value::Null).await;
            assert_eq!(said.status, 200);
            assert_eq!(said.header("access-control-allow-origin"), "");
            assert_eq!(said.listed("vary").contains(&"origin".to_owned()), varies);
        }
    }
}

#[tokio::test]
async fn null_is_an_origin_only_if_it_is_listed() {
    for (origins, status) in [(&["null"][..], 200), (&[PAGE], 403)] {
        let bench = allowing(origins, |_| {}).await;
        let page = [("Origin", "null")];
        let said = bench.call(Method::GET, "/v1/sessions", &page, &Value::Null).await;
        assert_eq!(said.status, status, "{origins:?}");
        let allowed = if status == 200 { "null" } else { "" };
        assert_eq!(said.header("access-control-allow-origin"), allowed);
    }
}

#[tokio::test]
async fn every_page_may_call_a_gateway_with_keys_and_still_needs_one() {
    let bench = allowing(&["*"], lock).await;
    let key = bearer(KEY);
    for origin in ["https://any.example", "http://localhost:3000", "null"] {
        for (shown, status) in [(key.as_str(), 200), ("", 401)] {
            let headers = [("Origin", origin), ("Authorization", shown)];
            let said = bench.call(Method::GET, "/v1/sessions", &headers, &Value::Null).await;
            assert_eq!((said.status, said.header("access-control-allow-origin")), (status, origin));
        }
        assert_eq!(preflight(&bench, origin, "/v1/sessions").await.status, 204);
    }
    let odd = [("Origin", "no origin at all"), ("Authorization", key.as_str())];
    let said = bench.call(Method::GET, "/v1/sessions", &odd, &Value::Null).await;
    assert_eq!(said.status, 403);
}

#[tokio::test]
async fn origins_that_cannot_be_meant_stop_the_start() {
    for (origin, refused) in [
        ("*", BadOrigins::EveryPage),
        ("https://app.example/", BadOrigins::NotAnOrigin("https://app.example/".into())),
        ("app.example", BadOrigins::NotAnOrigin("app.example".into())),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        config.http.allowed_origins = vec![origin.into()];
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        let signer = identity_file::load_or_make(folder.path()).unwrap();
        match Gateway::start(config, store, None, signer).await.unwrap_err() {
            StartError::Origins(error) => assert_eq!(error, refused),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_websocket_follows_the_same_rule() {
    for (origins, page, welcome) in [
        (&[PAGE][..], PAGE, true),
        (&[PAGE], "https://evil.example", false),
        (&[PAGE], "null", false),
        (&["null"], "null", true),
        (&["*"], "https://any.example", true),
    ] {
        let bench = allowing(origins, lock).await;
        let id = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
        let url = format!("ws://{}/v1/sbp/ws/{id}", bench.gateway.address());
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("origin", page.parse().unwrap());
        let refused = match tokio_tungstenite::connect_async(request).await {
            Ok(_) => None,
            Err(SocketError::Http(response)) => Some(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, (!welcome).then_some(403), "{origins:?} {page}");
    }
}
