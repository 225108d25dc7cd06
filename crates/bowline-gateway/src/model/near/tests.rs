use super::*;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_millis(50);

/// A server whose connections the test answers by hand.
struct Server {
    listener: TcpListener,
    near: Near,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
        Self { listener, near: Near::new(uri, Duration::from_secs(5), PATIENCE) }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    async fn call(&self) -> Result<Response<Answer>, Fault> {
        let request = Request::post("/v1/x").header("host", "here").body(Full::from("ask"));
        self.near.send(request.unwrap()).await
    }

    /// One call over a connection that is there, answered with these bytes.
    async fn answered(&self, stream: &mut TcpStream, with: &str) -> Response<Answer> {
        let answer = async {
            take_request(stream).await;
            stream.write_all(with.as_bytes()).await.unwrap();
        };
        tokio::join!(self.call(), answer).0.unwrap()
    }

    fn kept(&self) -> usize {
        self.near.idle.lock().free.len()
    }
}

async fn take_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nask") {
        let mut bytes = [0; 512];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "the request broke off");
        seen.extend_from_slice(&bytes[..read]);
    }
}

async fn text(response: Response<Answer>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The first call, which makes the connection.
async fn first(server: &Server, with: &str) -> (TcpStream, Response<Answer>) {
    let answer = async {
        let mut stream = server.accept().await;
        take_request(&mut stream).await;
        stream.write_all(with.as_bytes()).await.unwrap();
        stream
    };
    let (response, stream) = tokio::join!(server.call(), answer);
    (stream, response.unwrap())
}

#[tokio::test]
async fn a_connection_is_used_again_when_its_answer_is_through() {
    let server = Server::start().await;
    let (mut stream, response) = first(&server, DONE).await;
    assert_eq!(text(response).await, "ok");
    for _ in 0..3 {
        assert_eq!(server.kept(), 1);
        assert_eq!(text(server.answered(&mut stream, DONE).await).await, "ok");
    }
}

#[tokio::test]
async fn pieces_come_as_they_are_sent() {
    let server = Server::start().await;
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
    let (mut stream, response) = first(&server, chunked).await;
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    stream.write_all(b"1\r\nb\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "b");
    assert!(body.frame().await.is_none());
    assert_eq!(server.kept(), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_is_not_used() {
    let server = Server::start().await;
    let (stream, response) = first(&server, DONE).await;
    text(response).await;
    drop(stream);
    // It is noticed when it is looked at, once the news is there.
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.near.idle.lock().free[0].0.is_free() {
        assert!(Instant::now() < deadline, "the hang-up was not seen");
        tokio::task::yield_now().await;
    }
    let (_, response) = first(&server, DONE).await;
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn a_server_that_hangs_up_in_the_very_moment_of_a_call_keeps_nobody_waiting() {
    let server = Server::start().await;
    let (stream, response) = first(&server, DONE).await;
    text(response).await;
    // Taken as good, and then it is not: the news comes between the look and the call.
    let (mut line, _) = server.near.idle.lock().free.pop().unwrap();
    drop(stream);
    tokio::time::sleep(PATIENCE).await;
    let request = Request::post("/v1/x").header("host", "here").body(Full::from("ask"));
    let asked = tokio::time::timeout(Duration::from_secs(10), line.ask(request.unwrap()));
    assert!(asked.await.expect("not kept waiting").is_err());
}

#[tokio::test]
async fn a_connection_that_the_server_will_close_is_not_kept() {
    let server = Server::start().await;
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let (_stream, response) = first(&server, closing).await;
    assert_eq!(text(response).await, "ok");
    assert_eq!(server.kept(), 0);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_to_its_end_takes_its_connection_along() {
    let server = Server::start().await;
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let (mut stream, response) = first(&server, half).await;
    drop(response);
    assert_eq!(server.kept(), 0);
    assert!(matches!(stream.read(&mut [0; 9]).await, Ok(0) | Err(_)), "the server sees it");
}

#[tokio::test]
async fn g11_an_answer_that_stops_is_given_up() {
    let server = Server::start().await;
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let (_stream, response) = first(&server, half).await;
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    assert!(matches!(body.frame().await, Some(Err(Fault::Silent))));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_broken() {
    let server = Server::start().await;
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    let (stream, response) = first(&server, half).await;
    drop(stream);
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    assert!(matches!(body.frame().await, Some(Err(Fault::Broken(_)))));
    assert_eq!(server.kept(), 0);
}

#[tokio::test]
async fn a_call_that_was_taken_and_not_answered_is_not_made_again() {
    let server = Server::start().await;
    let hang_up = async { take_request(&mut server.accept().await).await };
    let (failed, ()) = tokio::join!(server.call(), hang_up);
    assert!(matches!(failed, Err(Fault::Broken(_))));
}

#[tokio::test]
async fn nobody_there_is_said_as_such() {
    let server = Server::start().await;
    let Server { listener, near } = server;
    drop(listener);
    let request = Request::post("/").body(Full::from("ask")).unwrap();
    assert!(matches!(near.send(request).await, Err(Fault::Connect(_))));
}

#[tokio::test]
async fn g11_connections_without_use_are_let_go() {
    let server = Server::start().await;
    let (mut stream, response) = first(&server, DONE).await;
    text(response).await;
    let idle = &server.near.idle;
    assert!(idle.tidy(Instant::now()), "too early");
    assert_eq!(server.kept(), 1);
    assert!(!idle.tidy(Instant::now() + KEPT));
    assert_eq!(server.kept(), 0);
    assert!(matches!(stream.read(&mut [0; 9]).await, Ok(0) | Err(_)));
}
