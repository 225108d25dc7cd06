//! RFC 6455 on a surface's socket, frame by frame.
//!
//! The tables follow the Autobahn test suite and carry its case numbers; `make autobahn` runs the
//! suite itself. Autobahn expects an echo server, which a gateway is not. That a message arrived
//! whole is shown by the gateway's immediate answer: a `PING` of the protocol, padded to the wanted
//! size in an unknown field, is answered with `PONG`, and any other message with one
//! `PROTOCOL_ERROR`. That no byte changed is shown by the built-in agent, which repeats the text.
//!
//! Each row is run with its bytes in one write, split between frames, and split into small pieces.

use serde_json::json;

use crate::bench::Bench;
use crate::raw_socket::{Cut, Frame, Heard, RawSocket};

/// How a connection ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    /// It stays open until the client closes it; the gateway answers the close.
    Open,
    /// By the gateway's close with this code.
    With(u16),
    /// By the gateway's close without a code.
    Bare,
}

const AGAINST_RULES: Ends = Ends::With(1002);

/// A row: Autobahn's numbers, what is sent, what must come back, and how it ends.
pub(crate) type Case<'a> = (&'a str, Vec<Frame>, Vec<Heard>, Ends);

pub(crate) async fn run(cases: impl IntoIterator<Item = Case<'_>>) {
    let bench = Bench::start().await;
    for (id, sent, heard, ends) in cases {
        let length: usize = sent.iter().map(|frame| frame.bytes().len()).sum();
        // Large ones byte by byte would take minutes and show no more.
        let every = if length > 4096 { 997 } else { 1 };
        for cut in [Cut::Nowhere, Cut::BetweenFrames, Cut::Every(every)] {
            let session = bench.session().await;
            let mut socket = RawSocket::attach(&bench, &session).await;
            socket.write(&sent, cut).await;
            for expected in &heard {
                assert_eq!(socket.next().await, *expected, "{id} cut {cut:?}");
            }
            let goodbye = match ends {
                Ends::With(code) => Some(code),
                Ends::Bare => None,
                Ends::Open => {
                    socket.write(&[Frame::close(1000, "")], cut).await;
                    Some(1000)
                }
            };
            assert_eq!(socket.next().await, Heard::Close(goodbye), "{id} cut {cut:?}");
            assert_eq!(socket.next().await, Heard::End, "{id} cut {cut:?}");
        }
    }
}

/// A message of that size which the gateway answers with [`answer`].
fn message(size: usize) -> Frame {
    Frame::text(padded(size))
}

fn padded(size: usize) -> String {
    let bare = json!({ "type": "PING", "pad": "" }).to_string();
    json!({ "type": "PING", "pad": "x".repeat(size - bare.len()) }).to_string()
}

fn answer() -> Heard {
    Heard::Frame(json!({ "type": "PONG" }))
}

/// The answer to a text that is no frame of the protocol.
pub(crate) fn not_json() -> Heard {
    let detail = "the frame is not a JSON object";
    Heard::Frame(json!({ "type": "PROTOCOL_ERROR", "detail": detail }))
}

fn not_text() -> Heard {
    let detail = "frames are JSON text, not binary";
    Heard::Frame(json!({ "type": "PROTOCOL_ERROR", "detail": detail }))
}

#[tokio::test]
async fn ws_autobahn_1_sizes_at_which_the_length_changes_its_form() {
    let text = |id, size| (id, vec![message(size)], vec![answer()], Ends::Open);
    let binary =
        |id, size| (id, vec![Frame::binary(vec![0xfe; size])], vec![not_text()], Ends::Open);
    run([
        ("1.1.1", vec![Frame::text("")], vec![not_json()], Ends::Open),
        text("1.1.2", 125),
        text("1.1.3", 126),
        text("1.1.4", 127),
        text("1.1.5", 128),
        text("1.1.6", 65_535),
        text("1.1.7 1.1.8", 65_536),
        binary("1.2.1", 0),
        binary("1.2.2", 125),
        binary("1.2.3", 126),
        binary("1.2.4", 127),
        binary("1.2.5", 128),
        binary("1.2.6", 65_535),
        binary("1.2.7 1.2.8", 65_536),
        ("unmasked", vec![message(30).unmasked()], vec![], AGAINST_RULES),
    ])
    .await;
}

#[tokio::test]
async fn ws_autobahn_2_pings_and_pongs() {
    let ping = |id, payload: &[u8]| {
        (id, vec![Frame::ping(payload)], vec![Heard::Pong(payload.to_vec())], Ends::Open)
    };
    let numbered = || (0..10).map(|n| format!("ping {n}").into_bytes());
    run([
        ping("2.1", b""),
        ping("2.2", b"are you there?"),
        ping("2.3", &[0x00, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0x00, 0xff]),
        ping("2.4 2.6", &[0xfe; 125]),
        ("2.5", vec![Frame::ping([0xfe; 126])], vec![], AGAINST_RULES),
        ("2.7", vec![Frame::pong("")], vec![], Ends::Open),
        ("2.8", vec![Frame::pong("nobody asked")], vec![], Ends::Open),
        (
            "2.9",
            vec![Frame::pong("nobody asked"), Frame::ping("I do")],
            vec![Heard::Pong(b"I do".to_vec())],
            Ends::Open,
        ),
        (
            "2.10 2.11",
            numbered().map(Frame::ping).collect(),
            numbered().map(Heard::Pong).collect(),
            Ends::Open,
        ),
    ])
    .await;
}

#[tokio::test]
async fn ws_autobahn_3_reserved_bits() {
    let after =
        |id, frame| (id, vec![message(40), frame, Frame::ping("")], vec![answer()], AGAINST_RULES);
    run([
        ("3.1", vec![message(40).reserved(1)], vec![], AGAINST_RULES),
        after("3.2", message(40).reserved(2)),
        after("3.3", message(40).reserved(3)),
        after("3.4", message(40).reserved(4)),
        ("3.5", vec![Frame::binary([0; 9]).reserved(5)], vec![], AGAINST_RULES),
        ("3.6", vec![Frame::ping("hello").reserved(6)], vec![], AGAINST_RULES),
        ("3.7", vec![Frame::close(1000, "").reserved(7)], vec![], AGAINST_RULES),
    ])
    .await;
}

#[tokio::test]
async fn ws_autobahn_4_opcodes_without_a_meaning() {
    let alone =
        |id, opcode, payload: &[u8]| (id, vec![Frame::new(opcode, payload)], vec![], AGAINST_RULES);
    let after = |id, opcode, payload: &[u8]| {
        let sent = vec![message(40), Frame::new(opcode, payload), Frame::ping("")];
        (id, sent, vec![answer()], AGAINST_RULES)
    };
    run([
        alone("4.1.1", 3, b""),
        alone("4.1.2", 4, b"with words"),
        after("4.1.3", 5, b""),
        after("4.1.4", 6, b"with words"),
        after("4.1.5", 7, b"with words"),
        alone("4.2.1", 11, b""),
        alone("4.2.2", 12, b"with words"),
        after("4.2.3", 13, b""),
        after("4.2.4", 14, b"with words"),
        after("4.2.5", 15, b"with words"),
    ])
    .await;
}

#[tokio::test]
async fn ws_autobahn_5_fragmentation() {
    let pong = |payload: &str| Heard::Pong(payload.into());
    let halves = || message(60).pieces(30);
    let with_ping = || {
        let [first, second] = <[Frame; 2]>::try_from(halves()).unwrap();
        vec![first, Frame::ping("between"), second]
    };
    let stray = |frame: Frame| vec![frame, message(40)];
    let five = || {
        let mut frames = message(100).pieces(20);
        frames.insert(4, Frame::ping("second"));
        frames.insert(2, Frame::ping("first"));
        frames
    };
    run([
        ("5.1", Frame::ping("in two").pieces(3), vec![], AGAINST_RULES),
        ("5.2", Frame::pong("in two").pieces(3), vec![], AGAINST_RULES),
        ("5.3 5.4 5.5", halves(), vec![answer()], Ends::Open),
        ("5.6 5.7 5.8", with_ping(), vec![pong("between"), answer()], Ends::Open),
        ("5.9 5.10 5.11", stray(Frame::next("stray")), vec![], AGAINST_RULES),
        ("5.12 5.13 5.14", stray(Frame::next("stray").unfinished()), vec![], AGAINST_RULES),
        (
            "5.15",
            [halves(), stray(Frame::next("stray").unfinished())].concat(),
            vec![answer()],
            AGAINST_RULES,
        ),
        ("5.16", [stray(Frame::next("s").unfinished()), halves()].concat(), vec![], AGAINST_RULES),
        ("5.17", [stray(Frame::next("stray")), halves()].concat(), vec![], AGAINST_RULES),
        ("5.18", vec![message(40).unfinished(), message(40)], vec![], AGAINST_RULES),
        ("5.19 5.20", five(), vec![pong("first"), pong("second"), answer()], Ends::Open),
    ])
    .await;
}

#[tokio::test]
async fn ws_autobahn_5_19_a_ping_is_answered_before_the_message_is_whole() {
    let bench = Bench::start().await;
    let session = bench.session().await;
    let mut socket = RawSocket::attach(&bench, &session).await;
    let pieces = message(90).pieces(30);
    socket.write(&[pieces[0].clone(), Frame::ping("now")], Cut::Nowhere).await;
    assert_eq!(socket.next().await, Heard::Pong(b"now".to_vec()));
    socket.write(&pieces[1..], Cut::Nowhere).await;
    assert_eq!(socket.next().await, answer());
}

#[tokio::test]
async fn ws_autobahn_7_closing() {
    let close = |code| Frame::close(code, "");
    let answered = |id, frame, code| (id, vec![frame], vec![], Ends::With(code));
    let longest = "r".repeat(123);
    let mut cases = vec![
        ("7.1.1", vec![message(40), close(1000)], vec![answer()], Ends::With(1000)),
        ("7.1.2", vec![close(1000), close(1000)], vec![], Ends::With(1000)),
        ("7.1.3", vec![close(1000), Frame::ping("late")], vec![], Ends::With(1000)),
        ("7.1.4", vec![close(1000), message(40)], vec![], Ends::With(1000)),
        (
            "7.1.5",
            vec![message(40).unfinished(), close(1000), Frame::next("late")],
            vec![],
            Ends::With(1000),
        ),
        (
            "7.1.6",
            vec![message(256 << 10), close(1000), Frame::ping("late")],
            vec![answer()],
            Ends::With(1000),
        ),
        ("7.3.1", vec![Frame::raw_close("")], vec![], Ends::Bare),
        answered("7.3.2", Frame::raw_close("a"), 1002),
        answered("7.3.3", close(1000), 1000),
        answered("7.3.4", Frame::close(1000, "done"), 1000),
        answered("7.3.5", Frame::close(1000, &longest), 1000),
        answered("7.3.6", Frame::close(1000, longest.clone() + "r"), 1002),
        answered("7.5.1", Frame::close(1000, b"no \xed\xa0\x80 text"), 1007),
    ];
    // 7.7 and beyond: 1012 and 1013 came after the suite.
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013] {
        cases.push(answered("7.7", close(code), code));
    }
    for code in [3000, 3999, 4000, 4999] {
        cases.push(answered("7.7", close(code), code));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999] {
        cases.push(answered("7.9", close(code), 1002));
    }
    for code in [5000, 65_535] {
        cases.push(answered("7.13", close(code), 1002));
    }
    run(cases).await;
}

#[tokio::test]
async fn ws_autobahn_9_and_10_large_messages_however_they_are_cut() {
    const LIMIT: usize = 1 << 20;
    let bench = Bench::start().await;
    let session = bench.session().await;
    let mut socket = RawSocket::attach(&bench, &session).await;
    for (id, size) in [("9.1.1", 64 << 10), ("9.1.2", 256 << 10), ("9.1.3", LIMIT)] {
        socket.write(&[message(size)], Cut::Nowhere).await;
        assert_eq!(socket.next().await, answer(), "{id}");
        socket.write(&[Frame::binary(vec![0xfe; size])], Cut::Nowhere).await;
        assert_eq!(socket.next().await, not_text(), "9.2 like {id}");
    }
    for size in [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, LIMIT] {
        socket.write(&message(LIMIT).pieces(size), Cut::Nowhere).await;
        assert_eq!(socket.next().await, answer(), "9.3 in frames of {size}");
        socket.write(&Frame::binary(vec![0xfe; LIMIT]).pieces(size), Cut::Nowhere).await;
        assert_eq!(socket.next().await, not_text(), "9.4 in frames of {size}");
    }
    for size in [64, 128, 256, 512, 1 << 10, 2 << 10] {
        socket.write(&[message(LIMIT)], Cut::Every(size)).await;
        assert_eq!(socket.next().await, answer(), "9.5 cut every {size}");
        socket.write(&[Frame::binary(vec![0xfe; LIMIT])], Cut::Every(size)).await;
        assert_eq!(socket.next().await, not_text(), "9.6 cut every {size}");
    }
    for (size, there, back) in [
        (0, Frame::text(""), not_json()),
        (64, message(64), answer()),
        (256, message(256), answer()),
        (4 << 10, message(4 << 10), answer()),
        (4 << 10, Frame::binary([0xfe; 4 << 10]), not_text()),
    ] {
        for _ in 0..1000 {
            socket.write(std::slice::from_ref(&there), Cut::Nowhere).await;
            assert_eq!(socket.next().await, back, "9.7 and 9.8 of {size}");
        }
    }
    socket.write(&message(64 << 10).pieces(1300), Cut::BetweenFrames).await;
    assert_eq!(socket.next().await, answer(), "10.1.1");

    // And no byte of it changes.
    let long: String = (0..100_000).map(|n| format!("{n} µ ")).collect();
    let long = long.trim();
    socket.write(&said(long).pieces(777), Cut::Every(1009)).await;
    assert!(socket.turn().await == long, "the words came back changed");
}

/// The text that the built-in agent repeats.
pub(crate) fn said(words: &str) -> Frame {
    let content = format!("echo {words}");
    let frame = json!({ "type": "USER_MESSAGE", "content": content, "client_turn_id": "c1" });
    Frame::text(frame.to_string())
}

#[tokio::test]
async fn g11_a_message_over_the_limit_is_refused_however_it_comes() {
    const OVER: usize = (1 << 20) + 1;
    run([
        ("one frame", vec![message(OVER)], vec![], Ends::With(1009)),
        ("many frames", message(OVER).pieces(60_000), vec![], Ends::With(1009)),
        ("binary", vec![Frame::binary(vec![0; OVER])], vec![], Ends::With(1009)),
    ])
    .await;
    // Only announced: nobody waits for the rest, and nobody makes room for it.
    let bench = Bench::start().await;
    for length in [OVER as u64, u64::MAX >> 1, u64::MAX] {
        let session = bench.session().await;
        let mut socket = RawSocket::attach(&bench, &session).await;
        socket.write_bytes(&Frame::text("").header(length)).await;
        assert_eq!(socket.next().await, Heard::Close(Some(1009)), "{length}");
        assert_eq!(socket.next().await, Heard::End, "{length}");
    }
}

#[tokio::test]
async fn ws_autobahn_12_and_13_compression_is_declined_and_the_socket_works() {
    let bench = Bench::start().await;
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; client_max_window_bits=9; server_max_window_bits=9",
        "permessage-deflate; server_max_window_bits=10, permessage-deflate; client_max_window_bits",
    ] {
        let session = bench.session().await;
        let headers = format!("Sec-WebSocket-Extensions: {offer}\r\n");
        let (mut socket, answered) = RawSocket::open(&bench, &session, &headers).await;
        assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
        // The example of RFC 6455, 1.3.
        assert!(answered.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answered}");
        assert!(!answered.to_lowercase().contains("sec-websocket-extensions"), "{answered}");
        socket.greet(&session).await;
        socket.write(&[message(1000)], Cut::Nowhere).await;
        assert_eq!(socket.next().await, answer());
        // Who compresses nevertheless, breaks the rules.
        socket.write(&[message(1000).reserved(4)], Cut::Nowhere).await;
        assert_eq!(socket.next().await, Heard::Close(Some(1002)));
    }
}
