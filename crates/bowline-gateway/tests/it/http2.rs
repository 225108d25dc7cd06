//! HTTP/2 over TLS at a whole gateway: what is served is what HTTP/1.1 serves, and so are the checks before it.

use std::sync::Arc;

use bowline_federation::{
    BundleRequest, Credentials, MemoryPins, OwnKeys, Peers, ReadLimits, StaticPeer, SystemLookup,
    Target,
};
use bowline_gateway::config::{Config, PeerConfig};
use bowline_net::tls::Tls;
use bowline_net::trust::{self, ServerCheck};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::Role;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{MaybeTlsStream, client_async};

use crate::bench::{Bench, DEADLINE, Phone, Session, asked, eventually, hello, plain};
use crate::documents::{id, identity, manifest};
use crate::roaming::text;
use crate::scripted::{Peer, Reply};
use crate::upstream::{MockUpstream, Piece};

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A gateway with a certificate for `localhost` that this process trusts.
struct Secure {
    bench: Bench,
    port: u16,
    _files: tempfile::TempDir,
}

impl Secure {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        Self::before(&MockUpstream::start().await, change).await
    }

    async fn before(upstream: &MockUpstream, change: impl FnOnce(&mut Config)) -> Self {
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str| files.path().join(name);
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        trust::add([file("cert.pem")]).unwrap();
        let mut bench = Bench::before_with(upstream, |config| {
            config.tls = Some(Tls::new(file("cert.pem"), file("key.pem")));
            change(config);
        })
        .await;
        let url = bench.gateway.url().parse().unwrap();
        bench.http = bowline_net::outbound::client(&url).build().unwrap();
        let port = bench.gateway.address().port();
        Self { bench, port, _files: files }
    }

    /// A connection of a client that speaks these protocols.
    async fn connect(&self, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
        let mut config = trust::tls_config(ServerCheck::Host, None).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = TcpStream::connect(self.bench.gateway.address()).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect("localhost".try_into().unwrap(), stream).await.unwrap()
    }

    async fn client(&self) -> Client {
        let stream = TokioIo::new(self.connect(&[H2]).await);
        let (requests, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Client { requests, port: self.port }
    }
}

/// A client of HTTP/2.
#[derive(Clone)]
struct Client {
    requests: SendRequest<Full<Bytes>>,
    port: u16,
}

impl Client {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let answer = tokio::time::timeout(DEADLINE, self.requests.send_request(request)).await;
        let answer = answer.expect("it answers").unwrap();
        assert_eq!(answer.version(), Version::HTTP_2);
        answer
    }

    async fn post(&mut self, path: &str, body: &Value) -> Response<Incoming> {
        let url = format!("https://localhost:{}{path}", self.port);
        let request = Request::post(url).header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_string())).unwrap()).await
    }

    /// Status and code of the answer to a request of that authority with these headers.
    async fn asks(&mut self, authority: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut request = Request::get(format!("https://{authority}/v1/sessions"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.send(request.body(Full::default()).unwrap()).await;
        let status = answer.status().as_u16();
        let body: Value = serde_json::from_str(&whole(answer).await).unwrap();
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

async fn whole(answer: Response<Incoming>) -> String {
    let body = tokio::time::timeout(DEADLINE, answer.into_body().collect()).await;
    String::from_utf8(body.expect("it ends").unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn sbp_l6_02_a_whole_gateway_gives_its_bundle_over_http_2_and_over_http_1_1() {
    let work =
        Peer::start(|_| Reply::Json(200, manifest("work", 5, Role::Gateway).sign(&identity(5))));
    let work = work.await;
    for (streams, protocol) in [(100, H2), (0, HTTP_1_1)] {
        let secure = Secure::start(|config| {
            config.limits.http2_streams = streams;
            config.federation.enabled = true;
            config.federation.gateway_id = Some(id("home"));
            let url = Some(work.url.parse().unwrap());
            let known = PeerConfig { url, ..PeerConfig::default() };
            config.federation.peers.insert("work".into(), known);
        })
        .await;
        // As the asking gateway offers it.
        let stream = secure.connect(&[H2, HTTP_1_1]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        let bench = &secure.bench;
        let session = bench.session_with(3).await;
        let made = bench.export(&session, json!({ "for_gateway": "work" })).await;
        let cid: Cid = text(&made.body["bundle_cid"]).parse().unwrap();
        let home = StaticPeer {
            id: id("home"),
            url: format!("https://localhost:{}", secure.port).parse().unwrap(),
            key: Some(bench.gateway.identity()),
        };
        let url = work.url.parse().unwrap();
        let me = Credentials {
            id: id("work"),
            url,
            keys: Arc::new(OwnKeys::new(identity(5), Vec::new())),
        };
        let (pins, lookup) = (Arc::new(MemoryPins::default()), Arc::new(SystemLookup));
        let peers = Peers::new(me, vec![home.clone()], pins, lookup).unwrap();
        let request = BundleRequest {
            cid,
            roaming_token: None,
            reservation: None,
            limits: ReadLimits::bundle(1 << 20),
            spool: bench.folder.path(),
        };
        let fetched = peers.bundle(&Target::named(&home), request).await.unwrap();
        assert_eq!(fetched.opened.cid, cid);
        assert!(fetched.text.contains("echo 3"), "{}", fetched.text);
    }
}

#[tokio::test]
async fn many_turns_are_streamed_at_once_over_one_connection_of_http_2() {
    let secure = Secure::start(|_| {}).await;
    let client = secure.client().await;
    let turns = (0..20).map(|n| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let mut body = plain("bowline/offline", &format!("echo {n}"));
            body["stream"] = json!(true);
            let answer = client.post("/v1/chat/completions", &body).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.headers()["content-type"], "text/event-stream");
            let text = whole(answer).await;
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
            assert!(text.contains(&format!("\"content\":\"{n}")), "{text}");
        })
    });
    for turn in turns.collect::<Vec<_>>() {
        turn.await.unwrap();
    }
}

#[tokio::test]
async fn g11_hosts_and_origins_are_checked_over_http_2_as_over_http_1_1() {
    let secure = Secure::start(|_| {}).await;
    let mut client = secure.client().await;
    let here = format!("localhost:{}", secure.port);
    let page = format!("https://{here}");
    for (authority, headers, expected) in [
        (here.as_str(), &[][..], (200, "")),
        (&here, &[("host", here.as_str())], (200, "")),
        (&here, &[("origin", page.as_str())], (200, "")),
        (&here, &[("origin", "https://evil.example")], (403, "SBP_FORBIDDEN")),
        // A page whose name leads to this machine.
        ("evil.example", &[], (403, "SBP_FORBIDDEN")),
        ("evil.example", &[("origin", "https://evil.example")], (403, "SBP_FORBIDDEN")),
        // Two hosts: somebody in front may have checked the other one.
        (&here, &[("host", "evil.example")], (400, "SBP_INVALID_REQUEST")),
        ("evil.example", &[("host", here.as_str())], (400, "SBP_INVALID_REQUEST")),
    ] {
        let (status, code) = client.asks(authority, headers).await;
        assert_eq!((status, code.as_str()), expected, "{authority} {headers:?}");
    }
}

#[tokio::test]
async fn g11_a_body_has_a_size_and_a_time_over_http_2() {
    let secure = Secure::start(|config| {
        config.limits.request_body = 64 << 10;
        config.limits.body_timeout = std::time::Duration::from_secs(2);
    })
    .await;
    let mut client = secure.client().await;
    let large = json!({ "metadata": { "x": "y".repeat(65 << 10) } });
    let refused = client.post("/v1/sessions", &large).await;
    assert_eq!(refused.status(), 413);
    assert!(refused.headers().get("connection").is_none());
    // A body of which nothing comes.
    let stream = TokioIo::new(secure.connect(&[H2]).await);
    let (mut requests, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let body = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<hyper::body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let url = format!("https://localhost:{}/v1/sessions", secure.port);
    let asking = requests.send_request(Request::post(url).body(body).unwrap());
    let late = tokio::time::timeout(DEADLINE, asking).await.expect("it answers").unwrap();
    assert_eq!(late.status(), 400);
    assert!(whole(late).await.contains("too long"));
    assert_eq!(client.post("/v1/sessions", &json!({})).await.status(), 201, "others go on");
}

#[tokio::test]
async fn websockets_stay_on_http_1_1() {
    let secure = Secure::start(|_| {}).await;
    let session = secure.bench.session().await;
    let path = format!("localhost:{}/v1/sbp/ws/{}", secure.port, session.id);
    let stream = MaybeTlsStream::Rustls(secure.connect(&[HTTP_1_1]).await);
    let (socket, _) = client_async(format!("wss://{path}"), stream).await.unwrap();
    let mut phone = Phone { socket };
    phone.send(hello(&session, json!({ "device_type": "mobile" }))).await;
    assert_eq!(phone.next().await["type"], "SESSION_ATTACHED");
    let mut client = secure.client().await;
    for method in ["GET", "CONNECT"] {
        let uri = match method {
            "GET" => format!("https://{path}"),
            _ => format!("localhost:{}", secure.port),
        };
        let request = Request::builder().method(method).uri(uri);
        let refused = client.send(request.body(Full::default()).unwrap()).await;
        assert!(refused.status().is_client_error(), "{method}: {}", refused.status());
    }
}

/// A turn of the model `gated` over HTTP/2, of which the first word was received.
async fn begun(client: &mut Client, session: &Session) -> Response<Incoming> {
    let mut body = asked("gated", "x", json!({ "session_id": session.id }));
    body["stream"] = json!(true);
    let mut answer = client.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status(), 200);
    let mut heard = String::new();
    while !heard.contains("first") {
        let frame = tokio::time::timeout(DEADLINE, answer.frame()).await.expect("it comes");
        heard += &String::from_utf8_lossy(&frame.unwrap().unwrap().into_data().unwrap());
    }
    answer
}

#[tokio::test]
async fn g16_a_stop_lets_a_stream_of_http_2_end() {
    let upstream = MockUpstream::start().await;
    let secure = Secure::before(&upstream, |_| {}).await;
    let session = secure.bench.session().await;
    let gate = upstream.gate();
    gate.send(Piece::Text("first".into())).unwrap();
    let mut client = secure.client().await;
    let answer = begun(&mut client, &session).await;
    let Bench { gateway, .. } = secure.bench;
    let address = gateway.address();
    let stopping = tokio::spawn(gateway.stop());
    eventually("closed", async || TcpStream::connect(address).await.is_err()).await;
    gate.send(Piece::Text(" last".into())).unwrap();
    drop(gate);
    let text = whole(answer).await;
    assert!(text.contains(" last") && text.ends_with("data: [DONE]\n\n"), "{text}");
    tokio::time::timeout(DEADLINE, stopping).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn g2_a_turn_whose_client_took_its_request_back_runs_to_its_end() {
    let upstream = MockUpstream::start().await;
    let secure = Secure::before(&upstream, |_| {}).await;
    let session = secure.bench.session().await;
    let gate = upstream.gate();
    gate.send(Piece::Text("first".into())).unwrap();
    let mut client = secure.client().await;
    // Dropped, it is reset; the connection goes on.
    drop(begun(&mut client, &session).await);
    assert_eq!(client.post("/v1/sessions", &json!({})).await.status(), 201);
    gate.send(Piece::Text(" last".into())).unwrap();
    drop(gate);
    let done =
        async || secure.bench.log(&session).await.iter().any(|(_, text)| text == "first last");
    eventually("complete", done).await;
}
