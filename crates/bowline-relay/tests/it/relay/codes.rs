//! Every rule a frame can break, and the answer to it (SBRP-RELAY-04, 05, 06, 16).

use bowline_sbrp::control::ControlCode::{self, *};
use bowline_sbrp::frame::{Frame, Reason, Signal};
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::issuer::sid;
use super::peer::{Peer, data};
use super::server::{PATIENCE, Server, raw as socket, start, start_with};

/// A message with any header.
fn raw(kind: u8, length: u32, session: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(length.to_be_bytes());
    bytes.extend(session.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn pair(server: &Server) -> (Peer, Peer) {
    let daemon = server.daemon("d").await;
    let mut client = server.client("d", 7).await;
    client.expect_quiet().await;
    (daemon, client)
}

/// Each rule with all later ones broken as well: the first one is reported.
#[tokio::test]
async fn sbrp_relay_05_the_first_broken_rule_is_answered() {
    let server = start().await;
    let cases: Vec<(Vec<u8>, ControlCode, u64)> = vec![
        (vec![], MalformedFrame, 0),
        (vec![0x99; 12], MalformedFrame, 0),
        // Size before all that the header says else.
        (raw(0x99, 65_537, 0, b"x"), PayloadTooLarge, 0),
        (raw(0x99, u32::MAX, 0, b""), PayloadTooLarge, 0),
        (raw(0x03, 65_537, 7, &vec![0; 65_537]), PayloadTooLarge, 0),
        // Missing and trailing bytes.
        (raw(0x99, 2, 0, b"x"), MalformedFrame, 0),
        (raw(0x99, 0, 0, b"x"), MalformedFrame, 0),
        (raw(0x03, 65_536, 7, &vec![0; 65_537]), MalformedFrame, 0),
        (raw(0x99, 1, 0, b"x"), InvalidFrameType, 0),
        (raw(0x00, 0, 7, b""), InvalidFrameType, 0),
        (raw(0x04, 2, 0, &[0, 0]), InvalidSessionId, 0),
        (raw(0x01, 1, 0, b"x"), InvalidSessionId, 0),
        (raw(0x10, 0, 7, b""), InvalidSessionId, 0),
        (raw(0x11, 0, 7, b""), InvalidSessionId, 0),
        (raw(0x04, 2, 9, &[0, 0]), DisallowedSender, 9),
        (raw(0x02, 1, 9, b"x"), DisallowedSender, 9),
        (raw(0x03, 1, 9, b"x"), SessionNotFound, 9),
    ];
    for (message, code, session) in cases {
        let (mut daemon, mut client) = pair(&server).await;
        client.send_bytes(message.clone()).await;
        client.expect_last(code, session).await;
        daemon.expect_code(SessionEnded, 7).await;
        let name = &message[..message.len().min(13)];
        drop(daemon);
        server.until_metric("bowline_relay_connections{role=\"daemon\"}", 0).await;
        eprintln!("{name:02x?} ok");
    }
}

#[tokio::test]
async fn sbrp_relay_04_each_end_sends_only_what_is_its_own() {
    let server = start().await;
    let session = sid(7);
    let control = Frame::control(SessionPaused, Some(session));
    let from_client = [
        Frame::Signal { session, signal: Signal::READY },
        Frame::HandshakeAccept { session, payload: Bytes::from_static(&[0; 128]) },
        control.clone(),
    ];
    for frame in from_client {
        let (_daemon, mut client) = pair(&server).await;
        client.send(&frame).await;
        client.expect_last(DisallowedSender, 7).await;
        client.close().await;
    }
    let from_daemon =
        [Frame::HandshakeInit { session, payload: Bytes::from_static(&[0; 32]) }, control];
    for frame in from_daemon {
        let (mut daemon, mut client) = pair(&server).await;
        daemon.send(&frame).await;
        daemon.expect_last(DisallowedSender, 7).await;
        client.expect_code(SessionPaused, 7).await;
        client.close().await;
        server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
    }
    // A control frame of the connection is as foreign.
    let (_daemon, mut client) = pair(&server).await;
    client.send(&Frame::control(RateLimited, None)).await;
    client.expect_last(DisallowedSender, 0).await;
}

#[tokio::test]
async fn sbrp_relay_06_a_client_has_no_session_but_its_own() {
    let server = start().await;
    let (mut daemon, mut client) = pair(&server).await;
    let mut other = server.client("d", 8).await;
    other.expect_quiet().await;
    client.send(&data(8, "as somebody else")).await;
    client.expect_last(SessionNotFound, 8).await;
    daemon.expect_code(SessionEnded, 7).await;
    other.expect_quiet().await;
    daemon.expect_quiet().await;
}

#[tokio::test]
async fn sbrp_relay_16_a_daemon_stays_when_one_session_is_unknown() {
    let server = start().await;
    let (mut daemon, mut client) = pair(&server).await;
    daemon.send(&data(99, "who?")).await;
    daemon.expect_code(SessionNotFound, 99).await;
    daemon.signal(99, Signal::close(Reason::None)).await;
    daemon.expect_code(SessionNotFound, 99).await;
    daemon.send(&data(7, "go on")).await;
    client.expect(&data(7, "go on")).await;
}

#[tokio::test]
async fn broken_signals_are_malformed_frames() {
    let server = start().await;
    for payload in [&[][..], &[0], &[2, 0], &[0, 0, 0]] {
        let (mut daemon, client) = pair(&server).await;
        daemon.send_bytes(raw(0x04, payload.len() as u32, 7, payload)).await;
        daemon.expect_last(MalformedFrame, 0).await;
        client.close().await;
        server.until_metric("bowline_relay_pairs{state=\"paused\"}", 0).await;
    }
}

#[tokio::test]
async fn text_is_a_malformed_frame() {
    let server = start().await;
    let (_daemon, mut client) = pair(&server).await;
    client.socket.send(Message::text("hello")).await.unwrap();
    client.expect_code(MalformedFrame, 0).await;
    client.expect_close(1003).await;
}

/// A ready for a session that is not waiting means nothing, and is no reason to end anything.
#[tokio::test]
async fn a_ready_out_of_turn_changes_nothing() {
    let server = start().await;
    let (mut daemon, mut client) = pair(&server).await;
    daemon.signal(7, Signal::READY).await;
    daemon.expect_quiet().await;
    client.expect_quiet().await;
    assert_eq!(server.metric("bowline_relay_impossible_total").await, Some(1));
}

#[tokio::test]
async fn a_message_in_parts_goes_on_as_one() {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame as Part;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
    let server = start().await;
    let (mut daemon, mut client) = pair(&server).await;
    let frame = data(7, vec![9; 40_000]);
    let bytes = frame.encode();
    let mut at = 0;
    for (index, size) in [1, 12, 0, 5_000, 34_987, 13].into_iter().enumerate() {
        let opcode = OpCode::Data(if index == 0 { Data::Binary } else { Data::Continue });
        let part = Part::message(bytes.slice(at..at + size), opcode, index == 5);
        at += size;
        client.socket.send(Message::Frame(part)).await.unwrap();
        // Pings between the parts are answered between them.
        client.socket.send(Message::Ping("x".into())).await.unwrap();
    }
    assert_eq!(at, bytes.len());
    daemon.expect(&frame).await;
    client.expect_quiet().await;
}

/// What is no WebSocket traffic is no frame either: told, closed, and only that connection. The relay
/// closes its side at once: a peer that broke a rule with its close frame sends no other.
#[tokio::test]
async fn broken_websocket_frames_are_malformed_frames() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = start_with(|config| config.limits.farewell = 60 * PATIENCE).await;
    let (mut daemon, _client) = pair(&server).await;
    for (session, bytes) in (100..).zip([
        &[0x82, 0x01, 0x00][..],
        &[0xc2, 0x80, 0, 0, 0, 0],
        &[0x83, 0x80, 0, 0, 0, 0],
        &[0x80, 0x80, 0, 0, 0, 0],
        &[0x09, 0x80, 0, 0, 0, 0],
        &[0x89, 0xfe, 0, 126],
        &[0x82, 0xfe, 0, 1, 0, 0, 0, 0, 9],
        &[0x88, 0x81, 0, 0, 0, 0, 3],
    ]) {
        let mut client = socket(&server, &server.issuer.client("d", session)).await;
        client.write_all(bytes).await.unwrap();
        let mut expected = vec![0x82, 15];
        expected.extend(Frame::control(MalformedFrame, None).encode());
        expected.extend([0x88, 2, 0x03, 0xea]);
        let mut heard = vec![0; expected.len()];
        let reading = client.read_exact(&mut heard);
        tokio::time::timeout(PATIENCE, reading).await.expect("an answer").unwrap();
        assert_eq!(heard, expected, "{bytes:02x?}");
        let ended = tokio::time::timeout(PATIENCE, client.read(&mut heard)).await;
        assert_eq!(ended.expect("the relay closes first").unwrap(), 0, "{bytes:02x?}");
        daemon.expect_code(SessionEnded, session).await;
    }
    daemon.expect_quiet().await;
}
