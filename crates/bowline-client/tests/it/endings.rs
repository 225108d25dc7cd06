//! The ways a surface's connection can end, and the event for each.

use std::time::Duration;

use bowline_client::surface::{CloseReason, Event, Refused, Surface};
use bowline_net::backoff::Backoff;
use bowline_sbp::error::Close;
use bowline_sbp::frame::ServerFrame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::gateway::{Gateway, attached, next, within};

#[tokio::test]
async fn sbp_l2_16_final_closes_are_final() {
    for (close, reason) in [
        (Close::Replaced, CloseReason::Replaced),
        (Close::Forbidden, CloseReason::Forbidden),
        (Close::NotFound, CloseReason::NotFound),
        (Close::Protocol, CloseReason::Protocol { detail: "too odd".into() }),
    ] {
        let gateway = Gateway::start().await;
        let mut surface = gateway.surface();
        let mut peer = gateway.attach().await;
        assert_eq!(next(&mut surface).await, attached(false));
        peer.say(ServerFrame::ProtocolError { detail: "too odd".into() }).await;
        peer.close(close).await;
        assert_eq!(next(&mut surface).await, Event::Closed(reason));
        assert_eq!(within("the end", surface.next()).await, None);
        // The surface's task has ended, so there will be no further connection.
        assert!(!gateway.has_caller());
        assert_eq!(surface.send("hi".into(), "c".into(), None).await, Err(Refused::Closed));
        assert_eq!(surface.cancel().await, Err(Refused::Closed));
        assert_eq!(surface.detach().await, []);
    }
}

#[tokio::test]
async fn sbp_l2_16_replaced_is_known_though_the_socket_breaks_right_after() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.attach().await;
    assert_eq!(next(&mut surface).await, attached(false));
    surface.send("unread".into(), "c".into(), None).await.unwrap();
    within("the message", peer.0.get_ref().readable()).await.unwrap();
    peer.0.close(Some(CloseFrame { code: 4009.into(), reason: "".into() })).await.unwrap();
    // Dropping a socket with unread data resets the connection.
    drop(peer);
    assert_eq!(next(&mut surface).await, Event::Closed(CloseReason::Replaced));
}

#[tokio::test]
async fn sbp_l2_03_a_refusal_before_the_attach_is_final() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    let mut peer = gateway.accept().await;
    peer.hear().await;
    peer.say(ServerFrame::Forbidden { detail: "wrong token".into() }).await;
    assert_eq!(next(&mut surface).await, Event::Closed(CloseReason::Forbidden));
}

#[tokio::test]
async fn an_upgrade_answered_otherwise_is_retried_unless_the_key_is_wrong() {
    let gateway = Gateway::start().await;
    let mut surface = gateway.surface();
    answer(&gateway, "503 Service Unavailable").await;
    assert_eq!(why(&mut surface).await, "the gateway answered 503 Service Unavailable");
    answer(&gateway, "404 Not Found").await;
    assert_eq!(why(&mut surface).await, "the gateway answered 404 Not Found");
    answer(&gateway, "401 Unauthorized").await;
    assert_eq!(next(&mut surface).await, Event::Closed(CloseReason::Forbidden));
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_tried_again() {
    // Bound but not listening: refuses connections, and no other process can get the port.
    let port = TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gateway = format!("http://{}", port.local_addr().unwrap()).parse().unwrap();
    let mut config = Gateway::start().await.config();
    config.gateway = gateway;
    let mut surface = Surface::connect(config).unwrap();
    for _ in 0..3 {
        assert_eq!(why(&mut surface).await, "connection refused");
    }
    // Without a connection, a detach does not wait.
    let rest = within("the detach", surface.detach()).await;
    assert_eq!(rest.last(), Some(&Event::Closed(CloseReason::Detached)));
}

#[tokio::test]
async fn https_to_a_gateway_without_tls_is_a_sentence_not_a_panic() {
    let gateway = Gateway::start().await;
    let mut config = gateway.config();
    config.gateway.set_scheme("https").unwrap();
    let mut surface = Surface::connect(config).unwrap();
    answer(&gateway, "400 Bad Request").await;
    let why = why(&mut surface).await;
    // A machine without root certificates fails before the handshake, with another message.
    assert!(why.starts_with("no secure connection: ") || why.contains("certificates"), "{why}");
}

#[tokio::test]
async fn a_detach_interrupts_the_wait_for_the_next_attempt() {
    let gateway = Gateway::start().await;
    let forever = Duration::from_secs(1 << 40);
    let mut config = gateway.config();
    config.backoff = Backoff { start: forever, cap: forever };
    let surface = Surface::connect(config).unwrap();
    drop(gateway.attach().await);
    let rest = within("the detach", surface.detach()).await;
    assert_eq!(rest.last(), Some(&Event::Closed(CloseReason::Detached)));
}

async fn why(surface: &mut Surface) -> String {
    match next(surface).await {
        Event::Lost { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

/// Answers the upgrade with a status line and nothing else.
async fn answer(gateway: &Gateway, status: &str) {
    let mut stream = gateway.accept_raw().await;
    // Closing before the request is read would reset the connection and lose the response.
    let _ = within("a request", stream.read(&mut [0; 4096])).await.unwrap();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let _ = stream.shutdown().await;
    let _ = within("the end", stream.read_to_end(&mut Vec::new())).await;
}
