//! HTTP/2: by a client of hyper, and by one that writes frames as it likes.

use std::io;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Method, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::client::TlsStream;

use super::*;

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// A server with a certificate that clients trust.
struct Secure {
    server: Server,
    certificate: CertificateDer<'static>,
    _folder: tempfile::TempDir,
}

impl Secure {
    async fn start(change: impl FnOnce(&mut DoorLimits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = certify(folder.path());
        let server = Server::start_with(Some(files(folder.path())), Vec::new(), change).await;
        Self { server, certificate, _folder: folder }
    }

    /// A connection of a client that speaks these protocols.
    async fn connect(&self, protocols: &[&[u8]]) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect("localhost".try_into().unwrap(), self.server.connect().await).await
    }

    async fn client(&self) -> Client {
        let stream = TokioIo::new(self.connect(&[H2]).await.unwrap());
        let (requests, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
        Client { requests, connection: tokio::spawn(async move { connection.await.is_ok() }) }
    }

    async fn raw(&self) -> Raw {
        let mut raw = Raw { stream: self.connect(&[H2]).await.unwrap(), read: Vec::new() };
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.send(&frame(SETTINGS, 0, 0, b"")).await;
        raw
    }
}

/// A client that behaves.
struct Client {
    requests: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<bool>,
}

impl Client {
    /// Sends a request without waiting for its answer.
    fn ask(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> JoinHandle<Option<(StatusCode, String)>> {
        let mut request = Request::get(format!("https://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let asking = self.requests.clone().send_request(request.body(Empty::new()).unwrap());
        tokio::spawn(async move {
            let (head, body) = asking.await.ok()?.into_parts();
            assert_eq!(head.version, Version::HTTP_2);
            let text = body.collect().await.ok()?.to_bytes();
            Some((head.status, String::from_utf8_lossy(&text).into_owned()))
        })
    }

    async fn answer(&self, path: &str, headers: &[(&str, &str)]) -> Option<(StatusCode, String)> {
        let answer = tokio::time::timeout(LONG, self.ask(path, headers)).await;
        answer.expect("it answers").unwrap()
    }

    async fn text(&self, path: &str, headers: &[(&str, &str)]) -> String {
        self.answer(path, headers).await.expect("it answers").1
    }
}

/// Frames by their numbers in RFC 9113.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A request for that path, in HPACK: `:method GET`, `:scheme https`, `:path`, `:authority`.
fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend(b"\x01\x09localhost");
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// A client that sends what it likes.
struct Raw {
    stream: TlsStream<TcpStream>,
    read: Vec<u8>,
}

#[derive(Debug)]
struct Received {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Received {
    /// A number at the end of the payload's first `at` + 4 bytes.
    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

impl Raw {
    async fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection: what comes then says so.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    /// The next frame; none at the end of the connection.
    async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some((head, rest)) = self.read.split_first_chunk::<9>() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                if rest.len() >= length {
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                    let (kind, flags, payload) = (head[3], head[4], rest[..length].to_vec());
                    self.read.drain(..9 + length);
                    return Some(Received { kind, flags, stream, payload });
                }
            }
            let read = tokio::time::timeout(LONG, self.stream.read_buf(&mut self.read)).await;
            if read.expect("it comes").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next frame of that kind, on that stream. Others are passed over, and pings answered.
    async fn until(&mut self, kind: u8, stream: u32) -> Option<Received> {
        loop {
            let next = self.next().await?;
            if next.kind == PING && next.flags & ACK == 0 {
                self.send(&frame(PING, ACK, 0, &next.payload)).await;
            }
            if (next.kind, next.stream) == (kind, stream) {
                return Some(next);
            }
        }
    }

    /// Reads to the end of the connection. Pings are not answered.
    async fn read_to_its_end(&mut self) {
        while self.next().await.is_some() {}
    }
}

#[tokio::test]
async fn http_2_is_spoken_with_clients_that_ask_for_it_over_tls_and_with_no_others() {
    let secure = Secure::start(|_| {}).await;
    for (offered, chosen) in [
        (&[H2, HTTP_1_1][..], Some(H2)),
        (&[H2], Some(H2)),
        (&[HTTP_1_1], Some(HTTP_1_1)),
        (&[], None),
    ] {
        let mut stream = secure.connect(offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        if chosen != Some(H2) {
            stream.write_all(get("/asked", "").as_bytes()).await.unwrap();
            let answer = rest(stream).await;
            assert!(answer.ends_with("HTTP/1.1 GET /asked [\"localhost\"]"), "{answer}");
        }
    }
    let client = secure.client().await;
    assert_eq!(client.text("/", &[("x-forwarded-for", "203.0.113.9")]).await, "127.0.0.1");
    assert_eq!(client.text("/peer", &[]).await, "127.0.0.1 127.0.0.1 None false true");
    // Where it is not wanted, it is not there; nor in the clear.
    let without = Secure::start(|limits| limits.http2_streams = 0).await;
    let stream = without.connect(&[H2, HTTP_1_1]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(HTTP_1_1));
    assert!(without.connect(&[H2]).await.is_err());
    let plain = Server::start(|_| {}).await;
    let answer = plain.talk("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn services_see_the_host_and_path_of_a_request_as_over_http_1_1() {
    let secure = Secure::start(|_| {}).await;
    let client = secure.client().await;
    let path = "/asked?x=1";
    for (headers, hosts) in [
        (&[][..], r#"["localhost"]"#),
        (&[("host", "LocalHost")], r#"["LocalHost"]"#),
        // Whoever checks the host refuses two.
        (&[("host", "evil.example")], r#"["evil.example", "localhost"]"#),
    ] {
        let seen = client.text(path, headers).await;
        assert_eq!(seen, format!("HTTP/2.0 GET {path} {hosts}"));
    }
}

#[tokio::test]
async fn g11_requests_beyond_those_of_a_connection_are_refused_and_the_others_answered() {
    let secure = Secure::start(|limits| limits.http2_streams = 2).await;
    let mut raw = secure.raw().await;
    let settings = raw.until(SETTINGS, 0).await.unwrap();
    let told: Vec<_> = settings.payload.chunks(6).map(|one| (one[1], one[2..].to_vec())).collect();
    assert!(told.contains(&(3, vec![0, 0, 0, 2])), "the most requests: {told:?}");
    assert!(told.contains(&(6, vec![0, 0, 0x40, 0])), "the largest head: {told:?}");
    assert!(told.iter().all(|(name, _)| *name != 8), "no extended CONNECT: {told:?}");
    for stream in [1, 3] {
        raw.send(&get_frame(stream, "/wait")).await;
        secure.server.came.notified().await;
    }
    raw.send(&get_frame(5, "/wait")).await;
    assert_eq!(raw.until(RST_STREAM, 5).await.unwrap().number(0), REFUSED_STREAM);
    secure.server.let_go.notify_one();
    secure.server.let_go.notify_one();
    // In whatever order.
    let first = raw.until(DATA, 1).await;
    assert_eq!(first.unwrap().payload, b"let go");
    raw.send(&get_frame(7, "/")).await;
    assert_eq!(raw.until(DATA, 7).await.unwrap().payload, b"127.0.0.1");
}

#[tokio::test]
async fn g11_a_client_that_opens_requests_and_takes_them_back_is_disconnected() {
    let secure = Secure::start(|_| {}).await;
    let other = secure.client().await;
    assert_eq!(other.text("/", &[]).await, "127.0.0.1");
    let mut raw = secure.raw().await;
    let mut flood = Vec::new();
    for stream in (1..2001).step_by(2) {
        flood.extend(get_frame(stream, "/wait"));
        flood.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    raw.send(&flood).await;
    // Whoever goes on sending may lose the reason.
    if let Some(reason) = raw.until(GOAWAY, 0).await {
        assert_eq!(reason.number(4), ENHANCE_YOUR_CALM);
    }
    raw.read_to_its_end().await;
    assert_eq!(other.text("/", &[]).await, "127.0.0.1", "nobody else notices");
}

#[tokio::test]
async fn g11_a_request_head_has_a_size_over_http_2() {
    let secure = Secure::start(|_| {}).await;
    let client = secure.client().await;
    let large = "y".repeat(17 << 10);
    let refused = client.answer("/", &[("x", &large)]).await.unwrap();
    assert_eq!(refused.0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert_eq!(client.text("/", &[]).await, "127.0.0.1", "the connection goes on");
    // One that never ends.
    let mut raw = secure.raw().await;
    raw.send(&frame(HEADERS, 0, 1, &[0x82, 0x87, 0x84])).await;
    // A header `x` with a value of 16,000 bytes, in a frame of its own.
    let mut header = b"\x00\x01x\x7f\x81\x7c".to_vec();
    header.extend([b'y'; 16_000]);
    for _ in 0..1000 {
        raw.send(&frame(CONTINUATION, 0, 1, &header)).await;
    }
    raw.read_to_its_end().await;
}

#[tokio::test]
async fn g11_a_connection_without_a_first_request_is_cut_off_over_http_2() {
    // The handshakes have to be done within it, too.
    let secure = Secure::start(|limits| limits.header_timeout = Duration::from_secs(3)).await;
    let silent = secure.connect(&[H2]).await.unwrap();
    let _ = rest(silent).await;
    for begun in [Vec::new(), frame(HEADERS, 0, 1, &[0x82])] {
        let mut raw = secure.raw().await;
        raw.send(&begun).await;
        raw.read_to_its_end().await;
    }
}

#[tokio::test]
async fn g11_an_idle_connection_of_http_2_is_closed_and_a_running_response_is_not() {
    let secure = Secure::start(|limits| limits.keep_alive = SOON).await;
    let asking = secure.client().await;
    let answer = asking.ask("/wait", &[]);
    secure.server.came.notified().await;
    // This one begins to be idle later. When it is closed, the other has waited longer than that.
    let idle = secure.client().await;
    assert_eq!(idle.text("/", &[]).await, "127.0.0.1");
    let ended = tokio::time::timeout(LONG, idle.connection).await.expect("it is closed");
    assert!(ended.unwrap(), "and says so before");
    secure.server.let_go.notify_one();
    assert_eq!(answer.await.unwrap().unwrap().1, "let go");
}

#[tokio::test]
async fn g12_a_response_that_is_not_read_is_reset_and_the_others_go_on() {
    let secure = Secure::start(|limits| limits.write_timeout = SOON).await;
    let mut raw = secure.raw().await;
    // Room for the connection, and none beyond the first 65,535 bytes for the response.
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 24).to_be_bytes())).await;
    raw.send(&get_frame(1, "/much")).await;
    assert_eq!(raw.until(RST_STREAM, 1).await.unwrap().number(0), CANCEL);
    raw.send(&get_frame(3, "/")).await;
    assert_eq!(raw.until(DATA, 3).await.unwrap().payload, b"127.0.0.1");
    // One that is read comes whole, however large.
    let secure = Secure::start(|_| {}).await;
    let client = secure.client().await;
    assert_eq!(client.text("/much", &[]).await.len(), 16 << 20);
}

#[tokio::test]
async fn g12_a_client_of_http_2_that_does_not_read_from_its_socket_is_let_go() {
    let secure = Secure::start(|limits| {
        (limits.connections, limits.write_timeout) = (1, SOON);
    });
    let secure = secure.await;
    let mut deaf = secure.raw().await;
    let room = (1u32 << 30).to_be_bytes();
    deaf.send(&frame(WINDOW_UPDATE, 0, 0, &room)).await;
    deaf.send(&get_frame(1, "/much")).await;
    deaf.send(&frame(WINDOW_UPDATE, 0, 1, &room)).await;
    secure.server.came.notified().await;
    // Its permit is free again, although the client is still connected.
    assert_eq!(secure.client().await.text("/", &[]).await, "127.0.0.1");
}

#[tokio::test]
async fn g11_a_client_that_answers_no_ping_is_let_go() {
    let secure = Secure::start(|_| {}).await;
    let mut raw = secure.raw().await;
    raw.send(&get_frame(1, "/wait")).await;
    secure.server.came.notified().await;
    // From now on the time goes to the next timer by itself. What was sent here stays unanswered.
    tokio::time::pause();
    let mut end = Vec::new();
    let read = raw.stream.read_to_end(&mut end);
    let _ = tokio::time::timeout(Duration::from_secs(3600), read).await.expect("it is let go");
}

#[tokio::test]
async fn g16_a_stop_lets_the_answers_under_way_end_over_http_2() {
    let secure = Secure::start(|_| {}).await;
    let (idle, asking) = (secure.client().await, secure.client().await);
    assert_eq!(idle.text("/", &[]).await, "127.0.0.1");
    secure.server.came.notified().await;
    let answer = asking.ask("/wait", &[]);
    secure.server.came.notified().await;
    secure.server.stop.cancel();
    let connections = secure.server.serving.await.unwrap();
    assert!(!connections.ended(SOON).await, "one is still answered");
    assert!(idle.connection.await.unwrap(), "idle ones are closed, and told");
    assert!(idle.requests.is_closed());
    secure.server.let_go.notify_one();
    assert_eq!(answer.await.unwrap().unwrap().1, "let go");
    assert!(asking.connection.await.unwrap());
    assert!(connections.ended(LONG).await);
}

#[tokio::test]
async fn a_body_that_is_refused_unread_can_be_sent_to_its_end_over_http_2() {
    let secure = Secure::start(|_| {}).await;
    let stream = TokioIo::new(secure.connect(&[H2]).await.unwrap());
    let (mut requests, connection) = handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let body = Full::new(Bytes::from(vec![b'x'; 4 << 20]));
    let request = Request::builder().method(Method::POST).uri("https://localhost/no");
    let answer = requests.send_request(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.headers().get("connection"), None, "there is no such header");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "refused");
    // The connection goes on.
    let request = Request::get("https://localhost/").body(Full::default()).unwrap();
    assert_eq!(requests.send_request(request).await.unwrap().status(), StatusCode::OK);
    drop(requests);
    connection.await.unwrap().unwrap();
}
