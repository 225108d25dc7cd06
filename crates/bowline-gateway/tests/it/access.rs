//! Access control: API keys, session tokens, open gateways, foreign web pages.

use std::sync::Arc;

use bowline_gateway::config::Config;
use bowline_gateway::{Gateway, StartError, identity_file};
use bowline_store::sqlite::Sqlite;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::bench::{Answer, Bench, LOCAL_KEY, Phone, Session, asked, hello, list, plain, turn};
use crate::locked::{KEY, bearer, by_key, lock};
use crate::roaming::{STRANGER, sealed};

async fn locked() -> Bench {
    Bench::with(lock).await
}

impl Bench {
    /// A new session on a gateway that requires an API key.
    async fn session_by_key(&self) -> Session {
        let made = by_key(self, Method::POST, "/v1/sessions", json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
        Session::of(&made.body)
    }
}

/// The credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shown {
    Nothing,
    WrongKey,
    WrongToken,
    /// The token of another session, both ways.
    OtherBearer,
    OtherToken,
    Key,
    LocalKey,
    Bearer,
    Token,
}

use Shown::*;

const ALL: [Shown; 9] =
    [Nothing, WrongKey, WrongToken, OtherBearer, OtherToken, Key, LocalKey, Bearer, Token];

impl Shown {
    fn header(self, own: &Session, other: &Session) -> Option<(&'static str, String)> {
        let bearer = |text: &str| Some(("Authorization", format!("Bearer {text}")));
        let token = |text: &str| Some(("X-Session-Token", text.to_owned()));
        match self {
            Nothing => None,
            WrongKey => bearer("a-key-that-nobody-was-given"),
            WrongToken => token("sbt_a-token-that-opens-nothing-at-all"),
            OtherBearer => bearer(&other.token),
            OtherToken => token(&other.token),
            Key => bearer(KEY),
            LocalKey => bearer(LOCAL_KEY),
            Bearer => bearer(&own.token),
            Token => token(&own.token),
        }
    }
}

/// The credentials that a route requires.
#[derive(Debug, Clone, Copy)]
enum Needs {
    /// An API key: the route creates or lists sessions.
    Key,
    /// An API key, or the session's token.
    Session,
    /// As `Key`, but a session token turns it into a turn of that session.
    KeyOrAnySession,
}

impl Needs {
    fn status(self, shown: Shown, allowed: u16) -> u16 {
        match (self, shown) {
            (_, Key | LocalKey) => allowed,
            (_, Nothing) => 401,
            (_, WrongKey) => 403,
            // Shown in its own header a token is no key at all; as Bearer it is a wrong one.
            (Needs::Key, WrongToken | OtherToken | Token) => 401,
            (Needs::Key, OtherBearer | Bearer) => 403,
            (Needs::Session, Bearer | Token) => allowed,
            (Needs::Session, WrongToken | OtherBearer | OtherToken) => 403,
            (Needs::KeyOrAnySession, WrongToken) => 403,
            (Needs::KeyOrAnySession, Bearer | Token | OtherBearer | OtherToken) => allowed,
        }
    }
}

#[tokio::test]
async fn every_route_opens_to_the_right_credentials_and_to_no_others() {
    let bench = locked().await;
    let other = bench.session_by_key().await;
    let done = json!({ "status": "completed" });
    let (none, chat) = (Value::Null, "/v1/chat/completions");
    let (new, pass) = (asked("m", "echo x", json!({})), plain("m", "echo x"));
    let bundle: Value = serde_json::from_str(&sealed(STRANGER)).unwrap();
    let no_bundle = "/v1/sessions/ID/exports/0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f/bundle";
    for (method, path, body, needs, allowed) in [
        (Method::POST, "/v1/sessions", &json!({}), Needs::Key, 201),
        (Method::GET, "/v1/sessions", &none, Needs::Key, 200),
        (Method::GET, "/v1/sessions?named=ID", &none, Needs::Key, 200),
        (Method::GET, "/v1/sessions/search?q=x", &none, Needs::Key, 200),
        (Method::PATCH, "/v1/sessions/ID", &json!({ "title": "x" }), Needs::Session, 200),
        (Method::GET, "/v1/agents/a/memory", &none, Needs::Key, 200),
        (Method::PUT, "/v1/agents/a/memory", &json!({ "memories": [] }), Needs::Key, 200),
        (Method::POST, "/v1/agents/a/memory", &json!({ "memories": [] }), Needs::Key, 200),
        (Method::DELETE, "/v1/agents/a/memory", &none, Needs::Key, 204),
        (Method::GET, "/v1/mcp/servers", &none, Needs::Key, 200),
        (Method::GET, "/v1/mcp/servers/x/prompts", &none, Needs::Key, 404),
        (Method::POST, "/v1/mcp/servers/x/prompts/y", &json!({}), Needs::Key, 404),
        (Method::GET, "/v1/mcp/servers/x/resources", &none, Needs::Key, 404),
        (Method::GET, "/v1/mcp/servers/x/resources/templates", &none, Needs::Key, 404),
        (Method::GET, "/v1/mcp/servers/x/resources/read?uri=z", &none, Needs::Key, 404),
        (Method::GET, "/v1/sessions/ID", &none, Needs::Session, 200),
        (Method::GET, "/v1/sessions/ID/messages", &none, Needs::Session, 200),
        (Method::PATCH, "/v1/sessions/ID/status", &done, Needs::Session, 200),
        (Method::POST, "/v1/sessions/ID/cancel", &none, Needs::Session, 200),
        (Method::DELETE, "/v1/sessions/ID", &none, Needs::Session, 204),
        (Method::DELETE, "/v1/sbp/sessions/ID", &none, Needs::Session, 204),
        (Method::POST, "/v1/sbp/sessions/ID/export", &json!({}), Needs::Session, 201),
        (Method::GET, "/v1/sbp/sessions/ID/exports", &none, Needs::Session, 200),
        (Method::GET, no_bundle, &none, Needs::Session, 404),
        (Method::GET, "/v1/sbp/sessions/ID/lineage", &none, Needs::Session, 200),
        (Method::POST, "/v1/sbp/sessions/ID/fork", &json!({}), Needs::Session, 201),
        (
            Method::POST,
            "/v1/sessions/ID/handoff",
            &json!({ "to_agent_id": "a" }),
            Needs::Session,
            201,
        ),
        (Method::POST, "/v1/sbp/sessions/import", &json!({ "bundle": bundle }), Needs::Key, 201),
        (Method::POST, "/v1/sbp/keys/rotate", &json!({}), Needs::Key, 200),
        (Method::POST, chat, &json!("existing"), Needs::Session, 200),
        (Method::POST, chat, &new, Needs::KeyOrAnySession, 200),
        (Method::POST, chat, &pass, Needs::KeyOrAnySession, 200),
        (Method::POST, "/v1/completions", &pass, Needs::KeyOrAnySession, 200),
    ] {
        for shown in ALL {
            let own = bench.session_by_key().await;
            let body = if body == "existing" { turn(&own, "m", "echo x") } else { body.clone() };
            let header = shown.header(&own, &other);
            let headers: Vec<_> = header.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let path = path.replace("ID", &own.id);
            let said = bench.call(method.clone(), &path, &headers, &body).await;
            let expected = needs.status(shown, allowed);
            assert_eq!(
                said.status, expected,
                "{method} {path} {body} with {shown:?}: {}",
                said.text
            );
            match expected {
                401 => assert_eq!(
                    (said.code(), said.header("www-authenticate")),
                    ("SBP_UNAUTHORIZED", "Bearer")
                ),
                403 => assert_eq!(said.code(), "SBP_FORBIDDEN"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn sbp_l3_09_whoever_has_a_roaming_token_may_look_at_it_and_needs_a_key_to_use_it() {
    let bench = locked().await;
    let (own, other) = (bench.session_by_key().await, bench.session_by_key().await);
    let bearer = format!("Bearer {KEY}");
    let key = [("Authorization", bearer.as_str())];
    let export = format!("/v1/sbp/sessions/{}/export", own.id);
    let exported = bench.call(Method::POST, &export, &key, &json!({})).await.body;
    let token = exported["roaming_token"].as_str().unwrap();
    let look = format!("/v1/sbp/token/{token}");
    for shown in ALL {
        let header = shown.header(&own, &other);
        let headers: Vec<_> = header.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let seen = bench.call(Method::GET, &look, &headers, &Value::Null).await;
        assert_eq!((seen.status, &seen.body["valid"]), (200, &json!(true)), "{shown:?}");
    }
    let body = json!({ "roaming_token": token });
    let refused = bench.call(Method::POST, "/v1/sbp/sessions/import", &[], &body).await;
    assert_eq!(refused.refusal(), (401, "SBP_UNAUTHORIZED"));
    assert_eq!(bench.get(&look).await.body["consumed"], false);
}

/// Attaches with this token in the frame and this Bearer on the upgrade.
async fn attach(bench: &Bench, session: &Session, token: &str, bearer: &str) -> Option<u16> {
    let url = format!("ws://{}/v1/sbp/ws/{}", bench.gateway.address(), session.id);
    let mut request = url.into_client_request().unwrap();
    if !bearer.is_empty() {
        let bearer = format!("Bearer {bearer}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
    }
    let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut phone = Phone { socket };
    let session = Session { id: session.id.clone(), token: token.into() };
    phone.send(hello(&session, json!({}))).await;
    match phone.next().await["type"].as_str().unwrap() {
        "SESSION_ATTACHED" => None,
        _ => Some(phone.closed().await),
    }
}

#[tokio::test]
async fn sbp_l2_03_a_surface_attaches_by_the_sessions_token_or_a_key() {
    let bench = locked().await;
    let (session, other) = (bench.session_by_key().await, bench.session_by_key().await);
    for (token, bearer, closed) in [
        (session.token.as_str(), "", None),
        ("", session.token.as_str(), None),
        (KEY, "", None),
        ("", KEY, None),
        ("", LOCAL_KEY, None),
        ("", "", Some(4003)),
        (&other.token, "", Some(4003)),
        ("", &other.token, Some(4003)),
        ("wrong", KEY, Some(4003)),
        ("", "a-key-that-nobody-was-given", Some(4003)),
    ] {
        assert_eq!(attach(&bench, &session, token, bearer).await, closed, "{token:?} {bearer:?}");
    }
}

#[tokio::test]
async fn a_session_token_as_bearer_names_the_session_in_chat() {
    for bench in [locked().await, Bench::start().await] {
        let session = bench.session_by_key().await;
        let bearer = format!("Bearer {}", session.token);
        // An SDK can only set its key, and sends nothing else of ours.
        let said = bench.chat_as(&[("Authorization", &bearer)], plain("m", "echo x")).await;
        assert_eq!((said.status, &said.body["sbp"]["session_id"]), (200, &json!(session.id)));
        let unknown = [("Authorization", "Bearer sbt_a-token-that-opens-nothing-at-all")];
        let refused = bench.chat_as(&unknown, plain("m", "echo x")).await;
        assert_eq!(refused.refusal(), (403, "SBP_FORBIDDEN"));
    }
}

#[tokio::test]
async fn an_open_gateway_asks_for_nothing_but_believes_no_wrong_token() {
    let bench = Bench::start().await;
    let (own, other) = (bench.session().await, bench.session().await);
    let show = format!("/v1/sessions/{}", own.id);
    let none = Value::Null;
    let existing = turn(&own, "m", "echo x");
    let new = asked("m", "echo x", json!({}));
    for (method, path, body, of_session) in [
        (Method::GET, show.as_str(), &none, true),
        (Method::POST, "/v1/chat/completions", &existing, true),
        (Method::POST, "/v1/chat/completions", &new, false),
        (Method::GET, "/v1/sessions", &none, false),
    ] {
        for shown in ALL {
            let header = shown.header(&own, &other);
            let headers: Vec<_> = header.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let said = bench.call(method.clone(), path, &headers, body).await;
            let is_chat = method == Method::POST;
            let wrong = match shown {
                WrongToken => of_session || is_chat,
                OtherToken => of_session,
                // In chat a Bearer that is a session token counts as one.
                OtherBearer => of_session && is_chat,
                _ => false,
            };
            let expected = if wrong { 403 } else { 200 };
            assert_eq!(said.status, expected, "{method} {path} with {shown:?}: {}", said.text);
        }
    }
}

#[tokio::test]
async fn keys_come_from_a_file_and_as_hashes_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "# for the laptop\n\n  key-one-from-the-file  \n").unwrap();
    // printf %s key-that-is-only-known-as-a-hash | sha256sum
    let hash = "sha256:41d3c2e0432aac2f240da3f6d62a8ba73d1983af2216838137b5271ff67f2dc7";
    let bench = Bench::with(|config| {
        config.auth.api_keys = vec![hash.into()];
        config.auth.api_keys_file = Some(file);
    })
    .await;
    assert!(!bench.gateway.is_open());
    for (key, status) in [
        ("key-one-from-the-file", 200),
        ("key-that-is-only-known-as-a-hash", 200),
        ("# for the laptop", 403),
        (hash, 403),
    ] {
        let bearer = format!("Bearer {key}");
        let headers = [("Authorization", bearer.as_str())];
        let listed = bench.call(Method::GET, "/v1/sessions", &headers, &Value::Null).await;
        assert_eq!(listed.status, status, "{key}");
    }
}

#[tokio::test]
async fn a_public_address_without_keys_is_refused_unless_someone_insists() {
    let start = async |insecure: bool, keys: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
        config.behind_proxy = vec!["192.0.2.1".parse::<std::net::IpAddr>().unwrap().into()];
        config.insecure = insecure;
        config.auth.api_keys = keys.iter().map(|key| key.to_string()).collect();
        let store = Arc::new(Sqlite::open(folder.path()).unwrap());
        // The owner's key opens this machine, not the world: it does not count.
        let signer = identity_file::load_or_make(folder.path()).unwrap();
        let started = Gateway::start(config, store, Some(LOCAL_KEY), signer).await;
        started.map(|gateway| (gateway, folder))
    };
    let refused = start(false, &[]).await.unwrap_err();
    assert!(matches!(refused, StartError::Exposed { .. }), "{refused}");
    for (insecure, keys, list) in [(true, &[][..], 200), (false, &[KEY], 401)] {
        let (gateway, _folder) = start(insecure, keys).await.unwrap();
        assert_eq!(gateway.is_open(), keys.is_empty());
        let address = format!("http://127.0.0.1:{}", gateway.address().port());
        // From outside it has whatever name its owner gave it.
        let request = reqwest::Client::new().get(format!("{address}/v1/sessions"));
        let listed = request.header("Host", "gateway.example").send().await.unwrap();
        assert_eq!(listed.status(), list);
    }
}

#[tokio::test]
async fn g11_foreign_pages_and_names_are_kept_out_over_http_and_websocket() {
    let bench = Bench::with(|config| {
        config.http.allowed_origins = vec!["https://app.example".into()];
        config.http.allowed_hosts = vec!["laptop.lan".into()];
    })
    .await;
    let session = bench.session().await;
    let port = bench.gateway.address().port();
    let here = format!("127.0.0.1:{port}");
    let own_page = format!("http://{here}");
    for (host, origin, welcome) in [
        (here.as_str(), None, true),
        ("localhost", None, true),
        ("laptop.lan:8080", None, true),
        (&here, Some(own_page.as_str()), true),
        (&here, Some("https://app.example"), true),
        (&here, Some("https://evil.example"), false),
        (&here, Some("null"), false),
        (&here, Some("https://app.example.evil.example"), false),
        ("evil.example", None, false),
        ("evil.example", Some("http://evil.example"), false),
        ("127.0.0.1.evil.example", None, false),
    ] {
        let mut headers = vec![("Host", host)];
        headers.extend(origin.map(|origin| ("Origin", origin)));
        let seen: Vec<Answer> = vec![
            bench.call(Method::GET, "/v1/sessions", &headers, &Value::Null).await,
            bench.call(Method::POST, "/v1/chat/completions", &headers, &plain("m", "x")).await,
        ];
        for answer in seen {
            assert_eq!(answer.status, if welcome { 200 } else { 403 }, "{headers:?}");
            assert_eq!(answer.code(), if welcome { "" } else { "SBP_FORBIDDEN" });
        }
        let url = format!("ws://{here}/v1/sbp/ws/{}", session.id);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in &headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let refused = match tokio_tungstenite::connect_async(request).await {
            Ok(_) => None,
            Err(SocketError::Http(response)) => Some(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, (!welcome).then_some(403), "{headers:?}");
    }
}

#[tokio::test]
async fn with_keys_on_strangers_learn_nothing() {
    let bench = locked().await;
    let unknown = "/v1/sessions/0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";
    let known = format!("/v1/sessions/{}", bench.session_by_key().await.id);
    for path in [unknown, &known, "/v1/models", "/v1/models/m"] {
        assert_eq!(bench.get(path).await.refusal(), (401, "SBP_UNAUTHORIZED"), "{path}");
    }
    let key = format!("Bearer {KEY}");
    let with_key = [("Authorization", key.as_str())];
    for (path, status) in [(unknown, 404), (&known, 200), ("/metrics", 200), ("/v1/models", 200)] {
        let answer = bench.call(Method::GET, path, &with_key, &json!(null)).await;
        assert_eq!(answer.status, status, "{path}");
    }
}

#[tokio::test]
async fn g11_an_attached_surface_holds_its_place_among_the_connections() {
    let bench = Bench::with(|config| config.limits.connections = 2).await;
    let session = bench.session().await;
    let (phone, _) = bench.attach(&session).await;
    // The kept-alive HTTP connection and the surface hold both places: a third one waits.
    let mut third = bench.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut byte = [0];
    let early = tokio::io::AsyncReadExt::read(&mut third, &mut byte);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(100), early).await.is_err());
    drop(phone);
    assert!(crate::bench::some_of(&mut third).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn sbp_l1_01_a_callers_own_token_as_bearer_is_its_session() {
    let own = "the-callers-own-token-32-letters-";
    for locked in [false, true] {
        let bench = if locked { Bench::with(lock).await } else { Bench::start().await };
        let new = json!({ "session_token": own });
        let session = by_key(&bench, Method::POST, "/v1/sessions", new).await;
        assert_eq!(session.status, 201, "{}", session.text);
        let id = &session.body["session_id"];
        let shown = bearer(own);
        let shown = [("Authorization", shown.as_str())];
        for body in [
            plain("m", "echo hi"),
            asked("m", "echo hi", json!({})),
            asked("m", "echo hi", json!({ "session_id": id })),
        ] {
            let said = bench.chat_as(&shown, body).await;
            assert_eq!((said.status, said.content()), (200, "hi"), "{}", said.text);
            assert_eq!(&said.body["sbp"]["session_id"], id);
        }
        let log = bench
            .call(
                Method::GET,
                &format!("/v1/sessions/{}/messages", id.as_str().unwrap()),
                &shown,
                &Value::Null,
            )
            .await;
        assert_eq!(list(&log.body["messages"]).len(), 6, "{}", log.text);
    }
}
