use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::control::{Code, ControlCode, Role};
use crate::vectors;

fn sender(row: &Value) -> Role {
    match vectors::text(row, "sender") {
        "client" => Role::Client,
        "daemon" => Role::Daemon,
        other => panic!("sender {other}"),
    }
}

#[test]
fn sbrp_relay_02_valid_frames_go_where_the_vectors_say_and_forwarded_ones_unchanged() {
    for row in vectors::rows("headers_valid", 11) {
        let bytes = Bytes::from(vectors::frame(&row));
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(format!("{:#04x}", header.kind), vectors::text(&row, "type"));
        assert_eq!(u64::from(header.length), row["length"].as_u64().unwrap());
        assert_eq!(header.session, SessionId::from_wire(vectors::number(&row, "session_id")));
        if let Some(hash) = row["frame_sha256"].as_str() {
            assert_eq!(vectors::to_hex(&Sha256::digest(&bytes)), hash);
        }
        let read = Inbound::read(sender(&row), bytes.clone()).unwrap();
        let does = match &read {
            Inbound::Forward { message, .. } => {
                assert_eq!(message.as_ptr(), bytes.as_ptr(), "copied");
                assert_eq!(message.len(), bytes.len());
                "forward"
            }
            Inbound::Signal { .. } => "process",
            Inbound::Ping(_) => "pong",
            Inbound::Pong(_) => "absorb",
        };
        assert_eq!(does, vectors::text(&row, "relay"), "{}", row["id"]);
    }
}

#[test]
fn sbrp_relay_05_the_first_broken_rule_is_the_one_reported() {
    for row in vectors::rows("headers_invalid", 78) {
        let read = Inbound::read(sender(&row), vectors::frame(&row).into());
        let (code, session) = read.unwrap_err().answer();
        assert_eq!(code.name(), vectors::text(&row, "expect_error"), "{}", row["id"]);
        assert_eq!(format!("{:#06x}", code.to_wire()), vectors::text(&row, "expect_code"));
        let expected = SessionId::from_wire(vectors::number(&row, "expect_session_id"));
        assert_eq!(session, expected, "{}", row["id"]);
    }
}

#[test]
fn sbrp_relay_04_who_may_send_what() {
    let session = SessionId::from_wire(7).unwrap();
    let payload = Bytes::from_static(&[0; 128]);
    let frames = [
        (Frame::HandshakeInit { session, payload: payload.clone() }, true, false),
        (Frame::HandshakeAccept { session, payload: payload.clone() }, false, true),
        (Frame::Data { session, payload }, true, true),
        (Frame::Signal { session, signal: Signal::READY }, false, true),
        (Frame::Ping(PingPayload::default()), true, true),
        (Frame::Pong(PingPayload::default()), true, true),
        (Frame::control(ControlCode::SessionPaused, Some(session)), false, false),
    ];
    for (frame, client, daemon) in frames {
        for (role, allowed) in [(Role::Client, client), (Role::Daemon, daemon)] {
            let read = Inbound::read(role, frame.encode());
            let refused = Err(Violation::DisallowedSender(Some(session)));
            assert!(if allowed { read.is_ok() } else { read == refused }, "{role:?} {frame:?}");
        }
    }
}

#[test]
fn sbrp_relay_14_a_ping_of_nine_bytes_is_too_large_even_with_a_wrong_session() {
    let mut bytes = Header::encode(FrameType::Ping, 9, SessionId::from_wire(1)).to_vec();
    bytes.extend([0; 9]);
    assert_eq!(Inbound::read(Role::Client, bytes.into()), Err(Violation::PayloadTooLarge));
}

#[test]
fn sbrp_relay_14_relay_16_daemon_06_payloads_have_the_vectors_bytes() {
    for row in vectors::rows("frames", 36) {
        let bytes = Bytes::from(vectors::frame(&row));
        let session = SessionId::from_wire(vectors::number(&row, "session_id"));
        let frame = Frame::decode(bytes.clone()).unwrap();
        // Two rows are decoded leniently, so encoding them again gives other bytes.
        let exact = !["close-unknown-reason", "bad-utf8"].contains(&vectors::text(&row, "id"));
        assert_eq!(frame.encode() == bytes, exact, "{}", row["id"]);
        match frame {
            Frame::Signal { session: of, signal } => {
                assert_eq!(Some(of), session);
                let kind = format!("{:?}", signal.kind()).to_lowercase();
                let reason = match signal.reason() {
                    Reason::None => "none",
                    Reason::StateLost => "state_lost",
                    Reason::Shutdown => "shutdown",
                    Reason::Policy => "policy",
                    Reason::Error => "error",
                };
                assert_eq!(
                    (&*kind, reason),
                    (vectors::text(&row, "signal"), vectors::text(&row, "reason"))
                );
            }
            Frame::Control { session: of, control } => {
                assert_eq!(of, session);
                let Code::Known(code) = control.code else { panic!("{}", row["id"]) };
                assert_eq!(code.name(), vectors::text(&row, "name"));
                assert_eq!(control.text(), vectors::text(&row, "message"));
                if control.text().is_empty() {
                    assert_eq!(Frame::control(code, session).encode(), bytes);
                }
            }
            Frame::Ping(ping) => {
                assert_eq!(ping.as_bytes(), vectors::hex(&row, "payload_hex"));
                assert_eq!(Frame::Pong(ping).encode(), vectors::hex(&row, "pong_frame_hex"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn sbrp_relay_16_broken_payloads_are_refused_and_unknown_codes_are_terminal() {
    for row in vectors::rows("frames_invalid", 6) {
        let read = Frame::decode(vectors::frame(&row).into());
        match vectors::text(&row, "expect") {
            "malformed_frame" => assert_eq!(read, Err(Violation::MalformedFrame), "{}", row["id"]),
            "treat_as_terminal" => {
                let Ok(Frame::Control { control, .. }) = read else { panic!("{}", row["id"]) };
                assert_eq!(control.code, Code::Unknown(0x9999));
                assert!(control.code.is_terminal());
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn control_text_is_cut_between_characters() {
    let control = Control::with_text(ControlCode::InternalError, &"é".repeat(MAX_PAYLOAD));
    let frame = Frame::Control { session: None, control };
    assert_eq!(frame.encode().len(), MAX_FRAME);
    assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    // Every invalid UTF-8 byte is decoded as a replacement character of three bytes.
    let mut bytes = Header::encode(FrameType::Control, MAX_PAYLOAD as u32, None).to_vec();
    bytes.resize(MAX_FRAME, 0xff);
    assert!(Frame::decode(bytes.into()).unwrap().encode().len() <= MAX_FRAME);
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let session = || (1..=u64::MAX).prop_map(|id| SessionId::from_wire(id).unwrap());
    let payload = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    let ping = || {
        prop::collection::vec(any::<u8>(), 0..=8)
            .prop_map(|bytes| PingPayload::new(&bytes).unwrap())
    };
    let reason = prop::sample::select(vec![
        Reason::None,
        Reason::StateLost,
        Reason::Shutdown,
        Reason::Policy,
        Reason::Error,
    ]);
    let signal = prop_oneof![Just(Signal::READY), reason.prop_map(Signal::close)];
    let control = (prop::sample::select(ControlCode::ALL.to_vec()), "\\PC{0,40}")
        .prop_map(|(code, text)| Control::with_text(code, &text));
    prop_oneof![
        (session(), payload())
            .prop_map(|(session, payload)| Frame::HandshakeInit { session, payload }),
        (session(), payload())
            .prop_map(|(session, payload)| Frame::HandshakeAccept { session, payload }),
        (session(), payload()).prop_map(|(session, payload)| Frame::Data { session, payload }),
        (session(), signal).prop_map(|(session, signal)| Frame::Signal { session, signal }),
        ping().prop_map(Frame::Ping),
        ping().prop_map(Frame::Pong),
        (prop::option::of(session()), control)
            .prop_map(|(session, control)| Frame::Control { session, control }),
    ]
}

proptest! {
    #[test]
    fn decoding_what_was_encoded_gives_it_back(frame in any_frame()) {
        prop_assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let decoded = Frame::decode(bytes.clone());
        for role in [Role::Client, Role::Daemon] {
            // The relay accepts nothing that an endpoint could not decode.
            if Inbound::read(role, bytes.clone()).is_ok() {
                prop_assert!(decoded.is_ok());
            }
        }
    }

    /// A relay that checks only the header decides as one that has read the whole message.
    #[test]
    fn sbrp_relay_05_a_glance_decides_as_a_whole_reading_does(
        frame in any_frame(),
        at in 0..HEADER_LEN,
        byte: u8,
        more in 0_usize..3,
    ) {
        let mut bytes = frame.encode().to_vec();
        bytes[at] = byte;
        bytes.resize(bytes.len() + more, 0);
        for role in [Role::Client, Role::Daemon] {
            let start = &bytes[..HEADER_LEN];
            match (HeaderVerdict::at(role, start, bytes.len()), Inbound::read(role, bytes.clone().into())) {
                (Ok(HeaderVerdict::Forward { session }), Ok(Inbound::Forward { session: read, .. })) => {
                    prop_assert_eq!(session, read);
                }
                (Err(seen), Err(read)) => prop_assert_eq!(seen, read),
                (Ok(HeaderVerdict::Relay), Ok(Inbound::Forward { .. })) => prop_assert!(false),
                // The payload of a signal is parsed last.
                (Ok(HeaderVerdict::Relay), Ok(_) | Err(Violation::MalformedFrame)) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    /// Random bytes rarely have a matching length: corrupt valid frames instead.
    #[test]
    fn a_damaged_frame_decodes_or_fails_without_panic(
        frame in any_frame(),
        at in any::<prop::sample::Index>(),
        byte: u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = frame.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Frame::decode(bytes.clone().into());
        let cut = cut.index(bytes.len());
        bytes.truncate(cut);
        prop_assert!(Frame::decode(bytes.into()).is_err());
    }
}
