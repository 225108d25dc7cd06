//! A real listener with real sockets.

mod entrance;
mod http2;

use std::path::Path;

use http_body_util::Full;
use hyper::StatusCode;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::peer::Peer;
use crate::tls::Tls;

/// The timeout of every wait; reached only by a failure.
const LONG: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_millis(100);

fn limits() -> DoorLimits {
    DoorLimits {
        connections: 100,
        connections_per_address: 0,
        request_head: 16 << 10,
        header_timeout: LONG,
        keep_alive: LONG,
        half_closed: LONG,
        write_timeout: LONG,
        http2_streams: 100,
    }
}

/// A server that answers with the client's address; `/peer` with all that is known of it, `/asked` with the
/// request, `/wait` is answered on a signal, `/much` is more than fits into a socket buffer, `/no` is refused without
/// reading its body, and `/upgrade` sends back what comes after it.
struct Server {
    address: SocketAddr,
    entrance: Entrance,
    stop: CancellationToken,
    came: Arc<Notify>,
    let_go: Arc<Notify>,
    serving: JoinHandle<Connections>,
}

impl Server {
    async fn start(change: impl FnOnce(&mut DoorLimits)) -> Self {
        Self::start_with(None, Vec::new(), change).await
    }

    async fn start_with(
        tls: Option<Tls>,
        trusted: Vec<IpNet>,
        change: impl FnOnce(&mut DoorLimits),
    ) -> Self {
        let mut limits = limits();
        change(&mut limits);
        let here = DoorConfig::plain("127.0.0.1:0".parse().unwrap());
        let config = DoorConfig { tls, behind_proxy: trusted, ..here };
        let door = Door::open(config, limits).await.unwrap();
        let (stop, address) = (CancellationToken::new(), door.address());
        let entrance = door.entrance();
        let (came, let_go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (came_in, may_go) = (Arc::clone(&came), Arc::clone(&let_go));
        let service = tower::service_fn(move |mut request: Request<Incoming>| {
            let (came, let_go) = (Arc::clone(&came_in), Arc::clone(&may_go));
            async move {
                let peer = request.extensions().get::<Peer>().expect("the door says who").clone();
                came.notify_one();
                let mut status = StatusCode::OK;
                let text = match request.uri().path() {
                    "/peer" => {
                        let Peer { address, device, is_forwarded, .. } = &peer;
                        let (name, local) = (peer.name(), peer.is_local());
                        format!("{name} {address} {device:?} {is_forwarded} {local}")
                    }
                    "/asked" => {
                        let hosts: Vec<_> = request.headers().get_all("host").iter().collect();
                        let (version, uri) = (request.version(), request.uri());
                        format!("{version:?} {} {uri} {hosts:?}", request.method())
                    }
                    "/upgrade" => {
                        status = StatusCode::SWITCHING_PROTOCOLS;
                        tokio::spawn(echo(hyper::upgrade::on(&mut request), peer));
                        String::new()
                    }
                    "/wait" => {
                        let_go.notified().await;
                        "let go".to_owned()
                    }
                    "/much" => "x".repeat(16 << 20),
                    "/no" => {
                        status = StatusCode::PAYLOAD_TOO_LARGE;
                        "refused".to_owned()
                    }
                    _ => peer.address.to_string(),
                };
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                if status == StatusCode::SWITCHING_PROTOCOLS {
                    let headers = response.headers_mut();
                    headers.insert("connection", "upgrade".parse().unwrap());
                    headers.insert("upgrade", "echo".parse().unwrap());
                }
                Ok::<_, Infallible>(response)
            }
        });
        let serving = tokio::spawn(door.serve(service, stop.clone()));
        Self { address, entrance, stop, came, let_go, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends the text and reads until the server closes the connection.
    async fn talk(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        rest(stream).await
    }
}

/// Takes an upgraded connection over and sends back what comes. Its permit is held meanwhile.
async fn echo(upgrading: hyper::upgrade::OnUpgrade, peer: Peer) {
    let (mut stream, read) = taken_over(upgrading.await.unwrap()).expect("it is one of the door's");
    stream.write_all(&read).await.unwrap();
    let mut buffer = [0; 64];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..read]).await.unwrap();
    }
    drop(peer.place);
}

/// Reads until end of file or reset.
async fn rest(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut all = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut all)).await.expect("it ends");
    String::from_utf8_lossy(&all).into_owned()
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n")
}

#[tokio::test]
async fn a_request_is_answered_and_its_peer_is_known() {
    let server = Server::start(|_| {}).await;
    let answer = server.talk(&get("/", "x-forwarded-for: 203.0.113.9\r\n")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n127.0.0.1"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_trusted_proxy_says_who_is_behind_it() {
    let trusted = vec!["127.0.0.0/8".parse().unwrap()];
    let server = Server::start_with(None, trusted, |_| {}).await;
    let answer = server.talk(&get("/", "x-forwarded-for: 203.0.113.9\r\n")).await;
    assert!(answer.ends_with("203.0.113.9"), "{answer}");
    let answer = server.talk(&get("/", "forwarded: for=203.0.113.8;proto=https\r\n")).await;
    assert!(answer.ends_with("203.0.113.8"), "{answer}");
}

#[tokio::test]
async fn an_address_for_others_is_not_even_bound_without_tls() {
    let everywhere = DoorConfig::plain("0.0.0.0:0".parse().unwrap());
    let refused = Door::open(everywhere.clone(), limits()).await.unwrap_err();
    assert!(matches!(refused, DoorError::Plain(_)), "{refused}");
    let hint = refused.hint("127.0.0.1:1");
    for way in ["--tls-cert", "--behind-proxy", "--insecure"] {
        assert!(hint.contains(way), "{hint}");
    }
    let behind_proxy = vec!["192.0.2.0/24".parse().unwrap()];
    Door::open(DoorConfig { behind_proxy, ..everywhere }, limits()).await.unwrap();
}

#[tokio::test]
async fn g11_a_request_head_that_never_ends_is_cut_off() {
    let server = Server::start(|limits| limits.header_timeout = SOON).await;
    for begun in ["", "GET / HTTP/1.1\r\nhost: "] {
        let answer = server.talk(begun).await;
        assert!(!answer.contains("200"), "{answer}");
    }
}

/// Sends a request on a connection that stays open, and reads the answer.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n127.0.0.1") {
        let read = tokio::time::timeout(LONG, stream.read_buf(&mut answer)).await;
        assert!(read.expect("it answers").unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn g11_an_idle_connection_is_closed_and_a_running_response_is_not() {
    let server = Server::start(|limits| limits.keep_alive = SOON).await;
    let mut asking = server.connect().await;
    asking.write_all(get("/wait", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    // This one begins to be idle later. When it is closed, the other has waited longer than that.
    let mut idle = server.connect().await;
    ask(&mut idle).await;
    assert_eq!(rest(idle).await, "");
    server.let_go.notify_one();
    assert!(rest(asking).await.ends_with("let go"));
}

#[tokio::test]
async fn g11_a_connection_may_be_idle_for_longer_than_a_head_may_take() {
    let server = Server::start(|limits| limits.header_timeout = SOON).await;
    let mut idle = server.connect().await;
    ask(&mut idle).await;
    // A head that never comes on a later connection is cut off meanwhile.
    for begun in ["", "GET / HTTP/1.1\r\nhost: "] {
        assert_eq!(server.talk(begun).await, "");
        ask(&mut idle).await;
    }
    // The next head on it has begun, so that it has to be whole soon.
    idle.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
    assert_eq!(rest(idle).await, "");
}

#[tokio::test]
async fn without_keep_alive_each_connection_is_closed_after_its_response() {
    let server = Server::start(|limits| limits.keep_alive = Duration::ZERO).await;
    let answer = server.talk("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.contains("connection: close") && answer.ends_with("127.0.0.1"), "{answer}");
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_its_answer() {
    let server = Server::start(|_| {}).await;
    let mut stream = server.connect().await;
    let ask = "GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    server.came.notified().await;
    stream.shutdown().await.unwrap();
    // By the time that another one is answered, the server could have noticed.
    assert!(server.talk(&get("/", "")).await.ends_with("127.0.0.1"));
    server.let_go.notify_one();
    assert!(rest(stream).await.ends_with("let go"));
}

#[tokio::test]
async fn requests_that_came_before_the_end_of_the_input_are_answered() {
    let server = Server::start(|_| {}).await;
    let mut stream = server.connect().await;
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all((ask("/wait") + &ask("/")).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    server.came.notified().await;
    server.let_go.notify_one();
    let answers = rest(stream).await;
    assert!(answers.contains("let go") && answers.ends_with("127.0.0.1"), "{answers}");
}

#[tokio::test]
async fn g11_nothing_runs_for_ever_for_a_client_that_may_be_gone() {
    let server = Server::start(|limits| {
        (limits.connections, limits.half_closed) = (1, SOON);
    })
    .await;
    let mut stream = server.connect().await;
    stream.write_all(get("/wait", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    stream.shutdown().await.unwrap();
    assert_eq!(rest(stream).await, "", "it is not answered");
    // Its permit is free.
    assert!(server.talk(&get("/", "")).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn a_client_that_sends_on_can_read_the_answer_that_refuses_its_body() {
    let server = Server::start(|_| {}).await;
    let mut stream = server.connect().await;
    let head = "POST /no HTTP/1.1\r\nhost: localhost\r\ncontent-length: 33554432\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; 32 << 20]).await.expect("it may send everything");
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.ends_with("refused"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn g11_a_request_head_has_a_size() {
    let server = Server::start(|_| {}).await;
    let answer = server.talk(&get("/", &format!("x: {}\r\n", "y".repeat(17 << 10)))).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn g11_connections_beyond_the_limit_wait_for_one_to_close() {
    let server = Server::start(|limits| limits.connections = 1).await;
    let mut first = server.connect().await;
    first.write_all(get("/wait", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    let mut second = server.connect().await;
    second.write_all(get("/", "").as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(SOON, second.read(&mut byte)).await;
    assert!(early.is_err(), "there is no place for it yet");
    server.let_go.notify_one();
    assert!(rest(first).await.ends_with("let go"));
    assert!(rest(second).await.ends_with("127.0.0.1"));
}

#[tokio::test]
async fn g12_a_client_that_asks_and_never_reads_is_let_go() {
    let server = Server::start(|limits| {
        (limits.connections, limits.write_timeout) = (1, SOON);
    })
    .await;
    let mut deaf = server.connect().await;
    deaf.write_all(get("/much", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    // Its permit is free again, although the client is still connected.
    assert!(server.talk(&get("/", "")).await.ends_with("127.0.0.1"));
    assert!(rest(deaf).await.len() < 16 << 20, "what was left is not sent");
}

#[tokio::test]
async fn g16_a_stop_accepts_nobody_and_lets_the_answer_under_way_end() {
    let server = Server::start(|_| {}).await;
    let idle = server.connect().await;
    let mut asking = server.connect().await;
    asking.write_all(get("/wait", "").as_bytes()).await.unwrap();
    server.came.notified().await;
    server.stop.cancel();
    let connections = server.serving.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens");
    assert!(!connections.ended(SOON).await, "one is still answered");
    server.let_go.notify_one();
    assert!(rest(asking).await.ends_with("let go"));
    assert_eq!(rest(idle).await, "", "idle ones are closed");
    assert!(connections.ended(LONG).await);
}

#[tokio::test]
async fn an_address_in_use_is_said() {
    let server = Server::start(|_| {}).await;
    let taken = DoorConfig::plain(server.address);
    let error = Door::open(taken, limits()).await.unwrap_err();
    assert_eq!(error, DoorError::AddressInUse { address: server.address });
}

/// Writes a new certificate for `localhost` and returns it.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

fn files(folder: &Path) -> Tls {
    let mut tls = Tls::new(folder.join("cert.pem"), folder.join("key.pem"));
    tls.reload_every = Duration::from_millis(20);
    tls
}

/// The answer to a client that trusts only this certificate.
async fn ask_over_tls(server: &Server, certificate: &CertificateDer<'static>) -> Option<String> {
    ask_over(server, certificate, rustls::DEFAULT_VERSIONS).await
}

/// The same with these versions of TLS.
async fn ask_over(
    server: &Server,
    certificate: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = "localhost".try_into().unwrap();
    let mut stream = connector.connect(name, server.connect().await).await.ok()?;
    stream.write_all(get("/", "").as_bytes()).await.ok()?;
    Some(rest(stream).await)
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certify(folder.path());
    let server = Server::start_with(Some(files(folder.path())), Vec::new(), |_| {}).await;
    for version in [&version::TLS12, &version::TLS13] {
        let answer = ask_over(&server, &certificate, &[version]).await;
        assert!(answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")), "{version:?}");
    }
}

#[tokio::test]
async fn tls_is_served_and_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path());
    let tls = Some(files(folder.path()));
    let server = Server::start_with(tls, Vec::new(), |_| {}).await;
    assert!(ask_over_tls(&server, &first).await.unwrap().ends_with("127.0.0.1"));
    let second = certify(folder.path());
    // Change the modification time: the clock may not have advanced since the first write.
    let file = std::fs::File::options().write(true).open(folder.path().join("cert.pem")).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(9)).unwrap();
    let renewed = async {
        while ask_over_tls(&server, &second).await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, renewed).await.expect("it is renewed");
    assert!(ask_over_tls(&server, &first).await.is_none(), "the old one is gone");
}

#[tokio::test]
async fn g11_a_tls_handshake_that_never_comes_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let tls = Some(files(folder.path()));
    let server = Server::start_with(tls, Vec::new(), |limits| limits.header_timeout = SOON).await;
    assert_eq!(server.talk("").await, "");
}
