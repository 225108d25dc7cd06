//! Signs of life (SBRP-RELAY-14).

use std::time::Duration;

use bowline_sbrp::control::ControlCode::*;
use bowline_sbrp::frame::{Frame, PingPayload};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::peer::data;
use super::server::{PATIENCE, start, start_with};

#[tokio::test]
async fn sbrp_relay_14_a_ping_is_answered_and_not_passed_on() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    let mut client = server.client("d", 1).await;
    for payload in [&b""[..], b"1", b"12345678"] {
        let ping = PingPayload::new(payload).unwrap();
        for peer in [&mut client, &mut daemon] {
            peer.send(&Frame::Ping(ping)).await;
            peer.expect(&Frame::Pong(ping)).await;
            peer.send(&Frame::Pong(ping)).await;
        }
    }
    client.send(&data(1, "x")).await;
    daemon.expect(&data(1, "x")).await;
}

#[tokio::test]
async fn sbrp_relay_14_a_ping_of_nine_bytes_is_too_large() {
    let server = start().await;
    for kind in [0x10, 0x11] {
        let mut daemon = server.daemon("d").await;
        let mut message = vec![kind, 0, 0, 0, 9];
        message.extend([0; 8 + 9]);
        daemon.send_bytes(message).await;
        daemon.expect_last(PayloadTooLarge, 0).await;
    }
}

#[tokio::test]
async fn sbrp_relay_14_websocket_pings_are_answered_with_their_payload() {
    let server = start().await;
    let mut daemon = server.daemon("d").await;
    daemon.socket.send(Message::Ping("are you there?".into())).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, daemon.socket.next()).await.unwrap();
    assert_eq!(answer.unwrap().unwrap(), Message::Pong("are you there?".into()));
}

#[tokio::test]
async fn sbrp_relay_14_silent_connections_are_pinged_and_those_that_answer_stay() {
    let server = start_with(|config| {
        config.limits.ping_every = Duration::from_millis(50);
        config.limits.pong_timeout = Duration::from_secs(5);
    })
    .await;
    let mut daemon = server.daemon("d").await;
    for _ in 0..3 {
        let ping = tokio::time::timeout(PATIENCE, daemon.socket.next()).await.unwrap();
        assert!(matches!(ping, Some(Ok(Message::Ping(_)))), "{ping:?}");
    }
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_14_dead_connections_are_dropped() {
    let server = start_with(|config| {
        config.limits.ping_every = Duration::from_millis(50);
        config.limits.pong_timeout = Duration::from_millis(100);
    })
    .await;
    // Reads nothing, and so answers nothing.
    let _dead = server.daemon("d").await;
    server.until_metric("bowline_relay_closes_total{code=\"1006\"}", 1).await;
    server.until_metric("bowline_relay_connections{role=\"daemon\"}", 0).await;
}
