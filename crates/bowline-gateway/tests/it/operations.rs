//! Operations: health, metrics, documentation, graceful stop, and no secrets in logs.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_gateway::config::mcp::McpServerConfig;
use bowline_gateway::config::{Loopback, PeerConfig};
use bowline_sbp::approval::Approval;
use bowline_sbp::id::{ApprovalId, TurnId};
use bowline_sbp::session::{self, AskedRow};
use reqwest::Method;
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::bench::{Bench, LOCAL_KEY, Session, answer, eventually, plain, turn};
use crate::images;
use crate::l2_delivery::message;
use crate::paired::{new_key, pair};
use crate::upstream::{MockUpstream, Piece};
use crate::written::by_a_dead_process;

#[tokio::test]
async fn g13_health_and_readiness_answer_without_a_key() {
    let bench = Bench::with(|config| {
        config.auth.api_keys = vec!["a-key-of-twenty-characters".into()];
    })
    .await;
    let alive = bench.get("/healthz").await;
    assert_eq!((alive.status, &alive.body["status"]), (200, &json!("ok")));
    assert_eq!(alive.body["version"], env!("CARGO_PKG_VERSION"));
    let ready = bench.get("/readyz").await;
    assert_eq!((ready.status, &ready.body["status"]), (200, &json!("ready")));
}

#[tokio::test]
async fn metrics_count_and_name_nobody() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let (_phone, _) = bench.attach(&session).await;
    bench.say(&session, "echo words-of-the-metrics-test").await;
    bench.get(&format!("/v1/sessions/{}?secret-query", session.id)).await;
    bench.get("/not-a-route-of-ours").await;
    let metrics = bench.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    for (name, label) in [
        ("bowline_http_requests_total", r#"route="/v1/sessions/{id}""#),
        ("bowline_http_requests_total", r#"route="unmatched""#),
        ("bowline_turns_total", r#"status="complete""#),
        ("bowline_surfaces_attached", ""),
        ("bowline_sessions_created_total", ""),
        ("bowline_turn_seconds", ""),
    ] {
        let found = metrics.text.lines().any(|l| l.starts_with(name) && l.contains(label));
        assert!(found, "no {name} {label} in {}", metrics.text);
    }
    for secret in [&session.id, &session.token, "words-of-the", "secret-query", "not-a-route"] {
        assert!(!metrics.text.contains(secret), "{secret} in {}", metrics.text);
    }
}

/// Method and path of every operation in the OpenAPI document.
pub(crate) fn documented(document: &Value) -> Vec<(Method, String)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let mut all = Vec::new();
    for (path, methods) in paths {
        let methods = methods.as_object().unwrap().keys();
        all.extend(methods.map(|m| (m.to_uppercase().parse().unwrap(), path.clone())));
    }
    all
}

/// A request in a session.
async fn asked_in(bench: &Bench, session: &Session) -> String {
    let id = ApprovalId(uuid::Uuid::now_v7());
    let at = jiff::Timestamp::now();
    let session_id = session.id.parse().unwrap();
    let approval = Approval {
        expires_at: at + std::time::Duration::from_secs(60),
        ..Approval::new(
            id,
            session_id,
            TurnId(uuid::Uuid::now_v7()),
            "camera".into(),
            json!({}),
            at,
        )
    };
    let asked =
        session::Write::Ask(AskedRow { approval, place: (1, 0), definition: String::new() });
    by_a_dead_process(&bench.store, session_id, None, |_| vec![asked]).await;
    id.to_string()
}

#[tokio::test]
async fn every_documented_address_is_served() {
    let off =
        McpServerConfig { enabled: false, command: Some("x".into()), ..McpServerConfig::default() };
    let bench = Bench::with(|config| {
        config.mcp.servers.insert("off".into(), off);
        config.federation.enabled = true;
        config.federation.gateway_id = Some("home".parse().unwrap());
        // Nobody listens there.
        let url = Some("http://127.0.0.1:1".parse().unwrap());
        config.federation.peers.insert("work".into(), PeerConfig { url, ..PeerConfig::default() });
        // Users do not close it.
        config.access.loopback = Loopback::Open;
    })
    .await;
    let document = bench.get("/openapi.json").await;
    assert_eq!(document.status, 200);
    let documented = documented(&document.body);
    assert!(documented.len() >= 13, "{documented:?}");
    let key = bench.post_as_owner("/v1/keys", json!({ "name": "laptop" })).await;
    let key = key.body["id"].as_str().unwrap().to_owned();
    let device = pair(&bench, new_key(), None, None).await.id;
    bench.post_as_owner("/v1/users", json!({ "name": "ada" })).await;
    for (method, path) in documented {
        let session = bench.session().await;
        let approval = asked_in(&bench, &session).await;
        bench.attach_as(&session, json!({ "surface_id": "phone" })).await;
        let memory = json!({ "memories": [{ "text": "x" }] });
        let memory = bench.post("/v1/agents/a/memory", memory).await.body["memories"][0].clone();
        let exported = bench.post(&format!("/v1/sessions/{}/export", session.id), json!({})).await;
        let image = images::send(&bench, &session).await;
        let exported = |name: &str| exported.body[name].as_str().unwrap().to_owned();
        let address = path
            .replace("/v1/users/{name}", "/v1/users/ada")
            .replace("/v1/keys/{id}", &format!("/v1/keys/{key}"))
            .replace("/v1/devices/{id}", &format!("/v1/devices/{device}"))
            .replace("/v1/peers/{id}", "/v1/peers/work")
            .replace("{id}", &session.id)
            .replace("{surface_id}", "phone")
            .replace("{approval_id}", &approval)
            .replace("{token}", &exported("roaming_token"))
            .replace("{cid}", &exported("bundle_cid"))
            .replace("{export_id}", &exported("export_id"))
            .replace("{hash}", &image.cid.to_string())
            .replace("{agent_id}", "a")
            .replace("{server}", "off")
            .replace("{prompt}", "p")
            .replace("{user}", "ada")
            .replace("{name}", "export.json")
            .replace("{model}", "bowline/offline")
            .replace("{memory_id}", memory["id"].as_str().unwrap());
        assert!(!address.contains('{'), "a parameter this test does not know: {path}");
        let bearer = format!("Bearer {LOCAL_KEY}");
        let owner = [("authorization", bearer.as_str())];
        let said = bench.call(method.clone(), &address, &owner, &Value::Null).await;
        assert!(said.status != 404 && said.status != 405, "{method} {path}: {}", said.text);
    }
}

#[tokio::test]
async fn every_address_that_is_served_is_documented() {
    // The router is the truth; its source says which addresses there are.
    let source = include_str!("../../src/router.rs");
    let (one_session, all) = source.split_once("let mut router").unwrap();
    let literals = |text: &'static str| {
        text.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned())
    };
    let mut served: Vec<_> = literals(one_session)
        .map(|path| format!("/v1/sessions/{{id}}{}", path.trim_end_matches('/')))
        .collect();
    // `{*name}` matches the rest of an address; OpenAPI has no word for it.
    served.extend(literals(all).map(|path| path.replace("{*", "{")));
    served.push("/v1/sessions".into());
    assert!(served.len() >= 13, "{served:?}");

    let document = Bench::start().await.get("/openapi.json").await.body;
    // What describes the interface, and what HTTP cannot describe.
    let apart = ["/", "/docs", "/openapi.json", "/v1/sbp/ws/{session_id}"];
    for path in served.iter().filter(|path| !apart.contains(&path.as_str())) {
        assert!(document["paths"].get(path).is_some(), "{path} is not documented");
    }
    assert!(document["info"]["description"].as_str().unwrap().contains("/v1/sbp/ws/{session_id}"));
}

#[tokio::test]
async fn the_page_of_documents_loads_nothing_from_elsewhere() {
    let bench = Bench::start().await;
    for path in ["/docs", "/"] {
        let page = bench.get(path).await;
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").starts_with("text/html"));
        assert!(page.text.contains("<title>"), "{}", page.text);
        for foreign in ["http://", "https://", "src=\"//", "href=\"//", "url(//", "@import"] {
            assert!(!page.text.contains(foreign), "{foreign} in {path}");
        }
    }
}

#[tokio::test]
async fn g16_a_stop_tells_surfaces_and_lets_the_running_turn_end() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    gate.send(Piece::Text("before the stop, ".into())).unwrap();
    let ask = |stream: bool| {
        let mut body = turn(&session, "gated", "go");
        body["stream"] = json!(stream);
        body["sbp"]["client_turn_id"] = json!("one turn");
        tokio::spawn(answer(bench.http.post(bench.url("/v1/chat/completions")).json(&body)))
    };
    let asked = ask(false);
    phone.until("TURN_CHUNK").await;
    let Bench { gateway, store, folder, .. } = bench;
    let address = gateway.address();
    let stopping = tokio::spawn(gateway.stop());
    assert_eq!(phone.closed().await, 1012);
    drop(phone);
    eventually("deaf to newcomers", async || {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    assert!(!asked.is_finished() && !stopping.is_finished(), "both wait for the turn");
    gate.send(Piece::Text("after it".into())).unwrap();
    drop(gate);
    let said = asked.await.unwrap();
    assert_eq!((said.status, said.content()), (200, "before the stop, after it"));
    stopping.await.unwrap();

    assert_eq!(store.unfinished_turns().await.unwrap(), 0);
    let bench = Bench::on(store, folder, |_| {}).await;
    assert_eq!(bench.gateway.recovered(), 0);
    assert_eq!(bench.log(&session).await[1].1, "before the stop, after it");
    assert_eq!(bench.show(&session).await["tether_turns_pending"], 1, "no surface confirmed it");
}

#[tokio::test]
async fn g16_a_stop_waits_for_a_turn_that_nobody_watches() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before(&upstream).await;
    let session = bench.session().await;
    let (mut phone, _) = bench.attach(&session).await;
    let gate = upstream.gate();
    phone.send(message("one", "gated")).await;
    upstream.until_calls(1).await;
    let Bench { gateway, store, folder, .. } = bench;
    let idle = Bench::start().await;
    let stopping = tokio::spawn(gateway.stop());
    assert_eq!(phone.closed().await, 1012);
    drop(phone);
    // A stop that has nothing to wait for ends, although it began later.
    idle.gateway.stop().await;
    assert!(!stopping.is_finished(), "it waits for the turn");
    gate.send(Piece::Text("done".into())).unwrap();
    drop(gate);
    stopping.await.unwrap();
    assert_eq!(store.unfinished_turns().await.unwrap(), 0, "the turn ended before the stop did");
    let bench = Bench::on(store, folder, |_| {}).await;
    assert_eq!(bench.log(&session).await[1].1, "done");
}

#[tokio::test]
async fn g16_a_turn_that_outlasts_the_stop_is_taken_up_by_the_next_start() {
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.limits.drain = Duration::from_millis(50);
    })
    .await;
    let session = bench.session().await;
    let gate = upstream.gate();
    let body = turn(&session, "gated", "echo go on");
    let asked = tokio::spawn(bench.http.post(bench.url("/v1/chat/completions")).json(&body).send());
    upstream.until_calls(1).await;
    asked.abort();
    let Bench { gateway, store, folder, .. } = bench;
    gateway.stop().await;
    let bench = Bench::on(store, folder, |_| {}).await;
    assert_eq!(bench.gateway.recovered(), 1);
    // What is left of the stopped gateway comes too late to write.
    drop(gate);
    bench.until(&session, "answered", |seen| seen["step_count"] == 1).await;
    assert_eq!(bench.log(&session).await[1].1, "go on", "by the built-in agent this time");
}

/// Strings that must never be logged. Unique, so that logs of other tests cannot match.
const CANARIES: [&str; 8] = [
    "canary-in-a-message",
    "canary-in-an-answer",
    "canary-own-session-token-of-32-chars",
    "canary-api-key-of-twenty-chars",
    "canary-in-the-query",
    "canary-in-the-metadata",
    "canary-upstream-key",
    "canary-in-an-upstreams-error",
];

/// A web page that is refused. No other test has one of that name.
const REFUSED_PAGE: &str = "https://refused-in-the-log.example";

/// Checks every log line: keeps those with a canary, and counts those of the gateway.
#[derive(Clone, Default)]
struct Watch {
    caught: Arc<Mutex<Vec<String>>>,
    requests: Arc<Mutex<usize>>,
    /// Lines about refused pages that name [`REFUSED_PAGE`].
    refused_pages: Arc<Mutex<usize>>,
}

impl Write for Watch {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if CANARIES.iter().any(|canary| text.contains(canary)) {
            self.caught.lock().unwrap().push(text.into_owned());
        } else if text.contains("bowline_gateway") && text.contains("/v1/chat/completions") {
            *self.requests.lock().unwrap() += 1;
        } else if text.contains(REFUSED_PAGE) && text.contains("http.allowed_origins") {
            *self.refused_pages.lock().unwrap() += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Watch {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_content_token_or_key_is_ever_logged() {
    let watch = Watch::default();
    // Everything, with the one exception that the binary makes too: the WebSocket library writes
    // whole frames at `trace`, so `tungstenite` is held at `info`.
    let filter = EnvFilter::new("trace,tungstenite=info,tokio_tungstenite=info");
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(watch.clone());
    // For the whole process, because turns run in tasks of their own; it also takes in what
    // libraries say through `log`. Whoever runs beside us cannot say our canaries.
    log.finish().try_init().expect("no other test installs a log");
    tracing::info!("the watch works: {}", CANARIES[0]);
    assert_eq!(watch.caught.lock().unwrap().drain(..).count(), 1);

    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, CANARIES[6]).unwrap();
    let upstream = MockUpstream::start().await;
    let bench = Bench::before_with(&upstream, |config| {
        config.upstream.get_mut("mock").unwrap().key_file = Some(key_file);
        config.auth.api_keys = vec![CANARIES[3].into()];
    })
    .await;
    let bearer = format!("Bearer {}", CANARIES[3]);
    let key = [("Authorization", bearer.as_str())];
    let body = json!({ "session_token": CANARIES[2], "metadata": { "x": CANARIES[5] } });
    let made = bench.call(Method::POST, "/v1/sessions", &key, &body).await;
    let session = Session::of(&made.body);
    let (mut phone, _) = bench.attach(&session).await;
    let token = [("X-Session-Token", session.token.as_str())];

    let mut chats = 0;
    let mut chat = async |headers: &[(&str, &str)], model: &str, stream: bool| {
        let mut body = plain(model, &format!("echo {}", CANARIES[0]));
        body["stream"] = json!(stream);
        chats += 1;
        bench.chat_as(headers, body).await
    };
    let gate = upstream.gate();
    gate.send(Piece::Text(CANARIES[1].into())).unwrap();
    drop(gate);
    assert_eq!(chat(&token, "gated", true).await.status, 200);
    assert_eq!(chat(&token, "m", false).await.status, 200);
    assert_eq!(chat(&token, "bowline/offline", true).await.status, 200);
    assert_eq!(chat(&key, "m", false).await.status, 200, "passed through");
    assert_eq!(
        chat(&[("Authorization", "Bearer canary-in-the-query")], "m", false).await.status,
        403
    );
    assert_eq!(chat(&token, &format!("status-400-{}", CANARIES[7]), false).await.status, 400);
    let gate = upstream.gate();
    gate.send(Piece::Text(CANARIES[1].into())).unwrap();
    gate.send(Piece::Cut).unwrap();
    assert_eq!(chat(&token, "gated", false).await.status, 502);

    bench.gateway.devices().set_pairing_text(Some(Arc::new(|_| CANARIES[2].to_owned())));
    let offered = bench.call(Method::POST, "/v1/devices/pairing", &key, &json!({})).await;
    assert_eq!((offered.status, &offered.body["text"]), (201, &json!(CANARIES[2])));

    let queries =
        ["/v1/sessions/ID?x=Q", "/v1/sessions/ID/messages?after=Q", "/Q?Q", "/v1/sessions/Q"];
    for path in queries {
        let path = path.replace("ID", &session.id).replace('Q', CANARIES[4]);
        bench.call(Method::GET, &path, &token, &Value::Null).await;
    }
    let no_origin = format!("https://x.example/{}", CANARIES[4]);
    for origin in [REFUSED_PAGE, &no_origin, REFUSED_PAGE, REFUSED_PAGE] {
        let page = [("Origin", origin)];
        assert_eq!(bench.call(Method::GET, "/healthz", &page, &Value::Null).await.status, 403);
    }
    phone
        .send(json!({ "type": "USER_MESSAGE", "content": CANARIES[0], "client_turn_id": "c" }))
        .await;
    phone.until("TURN_ACCEPTED").await;
    phone.send(json!({ "type": CANARIES[0], "session_token": session.token })).await;
    phone.send(json!({ "type": "TETHER_ACK", "seq": CANARIES[0] })).await;
    phone.until("PROTOCOL_ERROR").await;
    bench.chat_text(&format!("{{ \"model\": \"{}", CANARIES[0])).await;
    drop(phone);
    let Bench { gateway, .. } = bench;
    gateway.stop().await;

    let caught = watch.caught.lock().unwrap();
    assert!(caught.is_empty(), "{}", caught.join(""));
    assert_eq!(*watch.refused_pages.lock().unwrap(), 1, "once, with what to configure");
    assert!(*watch.requests.lock().unwrap() >= chats, "the gateway's own log was watched");
}
