use std::time::Duration;

use zeroize::Zeroizing;

use super::*;
use crate::handshake::{TIME_LIMIT, answer};
use crate::identity::IdentitySecret;
use crate::sealed::Channel;

const PAUSED: ControlCode = ControlCode::SessionPaused;
const PENDING: ControlCode = ControlCode::SessionPending;
const RESUMED: ControlCode = ControlCode::SessionResumed;

fn sid(id: u64) -> SessionId {
    SessionId::from_wire(id).unwrap()
}

fn ephemeral(seed: u8) -> Ephemeral {
    Ephemeral::from_random(Zeroizing::new([seed; 32]))
}

fn identity(seed: u8) -> IdentitySecret {
    IdentitySecret::from_seed(&[seed; 32])
}

fn told(code: ControlCode) -> ClientInput {
    ClientInput::Frame(Frame::control(code, Some(sid(1))))
}

fn say(text: &str) -> ClientInput {
    ClientInput::Send(text.as_bytes().to_vec().into())
}

/// A client that waits for the HandshakeAccept, and the HandshakeInit it sent.
fn handshaking(trust: Trust, now: Instant) -> (Client, Bytes) {
    let mut client = Client::new(DaemonId::new("d_1"), trust);
    assert_eq!(client.handle(ClientInput::Connect, now), Ok(vec![ClientAction::Connect]));
    let opened = ClientInput::Opened { session: sid(1), ephemeral: ephemeral(2) };
    let actions = client.handle(opened, now).unwrap();
    let [ClientAction::Send(init)] = &actions[..] else { panic!("{actions:?}") };
    let init = init.clone();
    (client, init)
}

/// The daemon's answer to that HandshakeInit.
fn accept(init: &Bytes, key: &IdentitySecret) -> (ClientInput, Channel) {
    let Ok(Frame::HandshakeInit { session, payload }) = Frame::decode(init.clone()) else {
        panic!()
    };
    let done = answer(session, &payload, &DaemonId::new("d_1"), key, ephemeral(3)).unwrap();
    (ClientInput::Frame(done.accept), done.channel)
}

fn active(now: Instant) -> (Client, Channel) {
    let (mut client, init) = handshaking(Trust::FirstUse, now);
    let (accept, channel) = accept(&init, &identity(1));
    client.handle(accept, now).unwrap();
    assert_eq!(client.state(), "active");
    (client, channel)
}

/// The messages that the daemon decrypts from these actions.
fn heard(channel: &mut Channel, actions: &[ClientAction]) -> Vec<Vec<u8>> {
    let frames = actions.iter().filter_map(|action| match action {
        ClientAction::Send(frame) => Some(frame),
        _ => None,
    });
    frames.map(|frame| channel.opener.open_frame(frame).unwrap().plaintext.to_vec()).collect()
}

#[test]
fn sbrp_client_01_the_first_identity_that_proves_itself_is_pinned() {
    let now = Instant::now();
    let (mut client, init) = handshaking(Trust::FirstUse, now);
    let actions = client.handle(accept(&init, &identity(1)).0, now).unwrap();
    let [ClientAction::Pin(pinned), ClientAction::Established(_)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(pinned.key(), &identity(1).public());

    // From now on only the pinned key is accepted, in later sessions too.
    client.handle(told(ControlCode::SessionExpired), now).unwrap();
    client.handle(ClientInput::Connect, now).unwrap();
    let opened = ClientInput::Opened { session: sid(2), ephemeral: ephemeral(4) };
    let actions = client.handle(opened, now).unwrap();
    let [ClientAction::Send(init)] = &actions[..] else { panic!("{actions:?}") };
    let actions = client.handle(accept(init, &identity(9)).0, now).unwrap();
    let [ClientAction::CloseSocket, ClientAction::Failed(ClientFailure::KeyChanged(change))] =
        &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(change.pinned, identity(1).public().fingerprint());
    assert_eq!(change.offered, identity(9).public().fingerprint());
    assert_eq!(client.state(), "closed");
}

#[test]
fn sbrp_client_01_a_signature_that_fails_pins_nothing() {
    let now = Instant::now();
    let (mut client, init) = handshaking(Trust::FirstUse, now);
    let ClientInput::Frame(Frame::HandshakeAccept { session, payload }) =
        accept(&init, &identity(1)).0
    else {
        panic!()
    };
    let mut payload = payload.to_vec();
    payload[127] ^= 1;
    let forged = Frame::HandshakeAccept { session, payload: payload.into() };
    let failed = ClientAction::Failed(ClientFailure::Sdk(SdkCode::HandshakeFailed));
    let actions = client.handle(ClientInput::Frame(forged), now);
    assert_eq!(actions, Ok(vec![ClientAction::CloseSocket, failed]));
    assert_eq!(client.trust, Trust::FirstUse);
}

#[test]
fn sbrp_client_04_a_new_connection_is_a_new_session_with_new_keys() {
    let now = Instant::now();
    let (mut client, mut old) = active(now);
    let lost = client.handle(ClientInput::Lost { session: sid(1) }, now);
    assert_eq!(lost, Ok(vec![ClientAction::ConnectLater]));
    assert!(client.handle(say("too early"), now).is_err());
    assert_eq!(client.handle(ClientInput::Connect, now), Ok(vec![ClientAction::Connect]));
    let opened = ClientInput::Opened { session: sid(2), ephemeral: ephemeral(5) };
    let actions = client.handle(opened, now).unwrap();
    let [ClientAction::Send(init)] = &actions[..] else { panic!("{actions:?}") };
    client.handle(accept(init, &identity(1)).0, now).unwrap();
    // Frames of the old session and the end of the old connection are ignored.
    let stale = Frame::decode(old.sealer.seal(b"old").unwrap()).unwrap();
    assert!(client.handle(ClientInput::Frame(stale), now).is_err());
    assert_eq!(client.handle(ClientInput::Lost { session: sid(1) }, now), Ok(vec![]));
    assert_eq!((client.state(), client.session()), ("active", Some(sid(2))));
    let actions = client.handle(say("new"), now).unwrap();
    let [ClientAction::Send(frame)] = &actions[..] else { panic!("{actions:?}") };
    assert!(old.opener.open_frame(frame).is_err());
}

#[test]
fn sbrp_client_05_what_is_sent_in_a_pause_waits_and_goes_out_in_order() {
    let now = Instant::now();
    let (mut client, mut daemon) = active(now);
    let sent = client.handle(say("0"), now).unwrap();
    assert_eq!(heard(&mut daemon, &sent), [b"0"]);
    assert_eq!(client.handle(told(PAUSED), now), Ok(vec![ClientAction::Show(Notice::Paused)]));
    assert_eq!(client.handle(say("1"), now), Ok(vec![]));
    assert_eq!(client.handle(told(PENDING), now), Ok(vec![ClientAction::Show(Notice::Pending)]));
    assert_eq!(client.handle(say("2"), now), Ok(vec![]));
    let resumed = client.handle(told(RESUMED), now).unwrap();
    assert_eq!(resumed[0], ClientAction::Show(Notice::Resumed));
    assert_eq!(heard(&mut daemon, &resumed), [b"1", b"2"]);
    assert_eq!(heard(&mut daemon, &client.handle(say("3"), now).unwrap()), [b"3"]);
}

#[test]
fn sbrp_client_05_an_expired_session_gives_back_what_waited() {
    let now = Instant::now();
    for pause in [&[PAUSED][..], &[PAUSED, PENDING]] {
        let (mut client, _) = active(now);
        for code in pause {
            client.handle(told(*code), now).unwrap();
        }
        client.handle(say("1"), now).unwrap();
        let actions = client.handle(told(ControlCode::SessionExpired), now).unwrap();
        assert_eq!(actions[0], ClientAction::Unsent(vec![b"1".to_vec().into()]));
        assert_eq!(actions[2..], [ClientAction::CloseSocket, ClientAction::ConnectLater]);
        assert_eq!(client.state(), "reconnecting");
    }
}

#[test]
fn sbrp_client_05_a_full_queue_gives_the_message_back() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    client.handle(told(PAUSED), now).unwrap();
    for _ in 0..256 {
        assert_eq!(client.handle(say("x"), now), Ok(vec![]));
    }
    let full = client.handle(say("y"), now);
    assert_eq!(full, Ok(vec![ClientAction::Unsent(vec![b"y".to_vec().into()])]));
}

#[test]
fn sbrp_relay_19_a_second_notice_means_a_discarded_message() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    for code in [PAUSED, PENDING] {
        client.handle(told(code), now).unwrap();
        assert_eq!(client.handle(told(code), now), Ok(vec![ClientAction::Show(Notice::Discarded)]));
    }
}

#[test]
fn sbrp_client_06_a_handshake_ends_after_thirty_seconds() {
    let start = Instant::now();
    let (mut client, _) = handshaking(Trust::FirstUse, start);
    assert_eq!(client.deadline(), Some(start + TIME_LIMIT));
    let early = start + TIME_LIMIT - Duration::from_nanos(1);
    assert_eq!(client.handle(ClientInput::Tick, early), Ok(vec![]));
    let late = client.handle(ClientInput::Tick, start + TIME_LIMIT).unwrap();
    assert_eq!(late[0], ClientAction::Refused(SdkCode::HandshakeTimeout));
    assert_eq!(client.state(), "reconnecting");
}

#[test]
fn sbrp_client_05_a_session_that_resumes_without_us_is_given_up_at_once() {
    let now = Instant::now();
    let (mut client, _) = handshaking(Trust::FirstUse, now);
    for code in [PAUSED, PENDING] {
        client.handle(told(code), now).unwrap();
        assert_eq!(client.state(), "handshaking");
    }
    let actions = client.handle(told(RESUMED), now).unwrap();
    assert_eq!(actions[1..], [ClientAction::CloseSocket, ClientAction::ConnectLater]);
    assert_eq!(client.state(), "reconnecting");
}

#[test]
fn sbrp_client_07_text_changes_nothing() {
    let now = Instant::now();
    let text = |code, text: &str| {
        let control = crate::frame::Control::with_text(code, text);
        ClientInput::Frame(Frame::Control { session: Some(sid(1)), control })
    };
    let (mut client, _) = active(now);
    client.handle(text(PAUSED, "session_expired"), now).unwrap();
    assert_eq!(client.state(), "paused");
    client.handle(text(ControlCode::SessionExpired, "all is well"), now).unwrap();
    assert_eq!(client.state(), "reconnecting");
}

#[test]
fn sbrp_client_09_nothing_is_sealed_before_the_handshake_is_done() {
    let now = Instant::now();
    let mut client = Client::new(DaemonId::new("d_1"), Trust::FirstUse);
    let refused = |state| Err(Impossible { state, event: "a message to send" });
    assert_eq!(client.handle(say("x"), now), refused("idle"));
    client.handle(ClientInput::Connect, now).unwrap();
    assert_eq!(client.handle(say("x"), now), refused("connecting"));
    let (mut client, _) = handshaking(Trust::FirstUse, now);
    assert_eq!(client.handle(say("x"), now), refused("handshaking"));
    // Data frames are not opened either.
    let payload = Bytes::from_static(&[0; 28]);
    let data = ClientInput::Frame(Frame::Data { session: sid(1), payload });
    assert!(client.handle(data, now).is_err());
}

#[test]
fn what_a_terminal_code_leads_to() {
    let now = Instant::now();
    for code in ControlCode::ALL.into_iter().filter(|code| code.is_terminal()) {
        let (mut client, _) = active(now);
        client.handle(told(code), now).unwrap();
        let again = worth_a_new_try(Code::Known(code));
        assert_eq!(client.state(), if again { "reconnecting" } else { "closed" }, "{code:?}");
    }
    assert!(!worth_a_new_try(Code::Unknown(0x9999)));
}

fn frame(bytes: Bytes) -> ClientInput {
    ClientInput::Frame(Frame::decode(bytes).unwrap())
}

/// The frame with one bit of its tag changed.
fn flipped(frame: &Bytes) -> Bytes {
    let mut bytes = frame.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bytes.into()
}

#[test]
fn sbrp_sdk_01_what_cannot_be_decrypted_ends_the_session_at_the_client() {
    let now = Instant::now();
    let ended = [
        ClientAction::Refused(SdkCode::DecryptFailed),
        ClientAction::CloseSocket,
        ClientAction::ConnectLater,
    ];
    let (mut client, mut daemon) = active(now);
    let good = daemon.sealer.seal(b"hello").unwrap();
    assert_eq!(client.handle(frame(flipped(&good)), now).unwrap(), ended);
    assert_eq!((client.state(), client.session()), ("reconnecting", None));
    // Nothing more of that session is accepted, not even what is authentic.
    assert!(client.handle(frame(good.clone()), now).is_err());
    assert!(client.handle(told(PAUSED), now).is_err());
    assert!(client.handle(say("x"), now).is_err());
    // A new session has new keys, so that what belongs to the old one is of no use there.
    client.handle(ClientInput::Connect, now).unwrap();
    let opened = ClientInput::Opened { session: sid(2), ephemeral: ephemeral(4) };
    client.handle(opened, now).unwrap();
    assert!(client.handle(frame(good.clone()), now).is_err());

    // The same in a pause: what waits is given back to the program.
    for codes in [&[PAUSED][..], &[PAUSED, PENDING]] {
        let (mut client, _) = active(now);
        codes.iter().for_each(|code| drop(client.handle(told(*code), now).unwrap()));
        client.handle(say("x"), now).unwrap();
        let actions = client.handle(frame(flipped(&good)), now).unwrap();
        assert_eq!(actions[0], ClientAction::Unsent(vec![b"x".to_vec().into()]));
        assert_eq!((&actions[1..], client.state()), (&ended[..], "reconnecting"));
    }
}

#[test]
fn sbrp_sdk_01_a_repeated_message_is_rejected_and_the_session_goes_on_at_the_client() {
    let now = Instant::now();
    let (mut client, mut daemon) = active(now);
    let deliver = |seq, text: &[u8]| {
        Ok(vec![ClientAction::Deliver(Opened { seq, plaintext: text.to_vec().into() })])
    };
    let first = daemon.sealer.seal(b"hello").unwrap();
    assert_eq!(client.handle(frame(first.clone()), now), deliver(0, b"hello"));
    let rejected = Ok(vec![ClientAction::Refused(SdkCode::SequenceError)]);
    assert_eq!(client.handle(frame(first), now), rejected);
    let second = daemon.sealer.seal(b"again").unwrap();
    assert_eq!(client.handle(frame(second), now), deliver(1, b"again"));
}

#[test]
fn sbrp_sdk_01_a_failed_handshake_and_a_changed_key_stop_the_client() {
    let now = Instant::now();
    let bad_signature = |mut payload: Vec<u8>| {
        *payload.last_mut().unwrap() ^= 1;
        payload
    };
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let cases: [(Trust, Change, SdkCode); 2] = [
        (Trust::FirstUse, bad_signature, SdkCode::HandshakeFailed),
        (Trust::Key(identity(9).public()), |payload| payload, SdkCode::IdentityKeyChanged),
    ];
    for (trust, change, expected) in cases {
        let (mut client, init) = handshaking(trust, now);
        let (ClientInput::Frame(Frame::HandshakeAccept { payload, .. }), mut daemon) =
            accept(&init, &identity(1))
        else {
            panic!()
        };
        let payload = change(payload.to_vec()).into();
        let accept = ClientInput::Frame(Frame::HandshakeAccept { session: sid(1), payload });
        let actions = client.handle(accept, now).unwrap();
        let [ClientAction::CloseSocket, ClientAction::Failed(failure)] = &actions[..] else {
            panic!("{actions:?}")
        };
        let code = match failure {
            ClientFailure::Sdk(code) => *code,
            ClientFailure::KeyChanged(_) => SdkCode::IdentityKeyChanged,
            ClientFailure::Relay(_) => panic!("{failure:?}"),
        };
        assert_eq!((code, client.state()), (expected, "closed"));
        // It does not go on by itself, whatever comes.
        assert!(client.handle(frame(daemon.sealer.seal(b"x").unwrap()), now).is_err());
        assert!(client.handle(ClientInput::Connect, now).is_err());
    }
}

#[test]
fn sbrp_crypto_06_an_exhausted_session_makes_way_for_a_new_one() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    client.state.channel().sealer.skip_to(u64::MAX);
    let actions = client.handle(say("x"), now).unwrap();
    assert_eq!(actions[0], ClientAction::Refused(SdkCode::SequenceError));
    assert_eq!(actions[1], ClientAction::Unsent(vec![b"x".to_vec().into()]));
    assert_eq!(client.state(), "reconnecting");

    // The same in the middle of a flush: what fits is sent, the rest is returned.
    let (mut client, _) = active(now);
    client.handle(told(PAUSED), now).unwrap();
    client.handle(told(PENDING), now).unwrap();
    client.handle(say("1"), now).unwrap();
    client.handle(say("2"), now).unwrap();
    client.state.channel().sealer.skip_to(u64::MAX - 1);
    let actions = client.handle(told(RESUMED), now).unwrap();
    assert_eq!(actions[3], ClientAction::Unsent(vec![b"2".to_vec().into()]));
}

#[test]
fn sbrp_crypto_10_no_action_or_state_shows_plaintext() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    client.handle(told(PAUSED), now).unwrap();
    let event = say("attack at dawn");
    let shown = format!("{event:?}");
    client.handle(event, now).unwrap();
    let state = format!("{client:?}");
    let actions = format!("{:?}", client.handle(ClientInput::Close, now).unwrap());
    for shown in [shown, state, actions] {
        assert!(!shown.contains("attack") && !shown.contains("97, 116, 116"), "{shown}");
    }
}

#[test]
fn frames_of_others_are_typed_errors_and_change_nothing() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    let other = Some(sid(7));
    let payload = Bytes::from_static(&[0; 32]);
    for frame in [
        Frame::control(ControlCode::SessionExpired, other),
        Frame::control(ControlCode::SessionEnded, Some(sid(1))),
        Frame::control(RESUMED, Some(sid(1))),
        Frame::Data { session: sid(7), payload: payload.clone() },
        Frame::HandshakeInit { session: sid(1), payload: payload.clone() },
        Frame::HandshakeAccept { session: sid(1), payload },
        Frame::Signal { session: sid(1), signal: crate::frame::Signal::READY },
    ] {
        assert!(client.handle(ClientInput::Frame(frame.clone()), now).is_err(), "{frame:?}");
        assert_eq!(client.state(), "active");
        assert!(client.is_active());
    }
    assert_eq!(client.handle(ClientInput::Close, now), Ok(vec![ClientAction::CloseSocket]));
    assert!(client.handle(ClientInput::Connect, now).is_err(), "closed is closed");
}

#[test]
fn closing_gives_up_a_connection_that_is_being_made() {
    let now = Instant::now();
    let mut client = Client::new(DaemonId::new("d_1"), Trust::FirstUse);
    client.handle(ClientInput::Connect, now).unwrap();
    assert_eq!(client.handle(ClientInput::Close, now), Ok(vec![ClientAction::CloseSocket]));
    let opened = ClientInput::Opened { session: sid(1), ephemeral: ephemeral(2) };
    assert!(client.handle(opened, now).is_err());
}

#[test]
fn a_message_past_the_limit_is_refused_at_once() {
    let now = Instant::now();
    let (mut client, _) = active(now);
    let long = ClientInput::Send(vec![0; crate::sealed::MAX_PLAINTEXT + 1].into());
    assert!(client.handle(long, now).is_err());
    assert_eq!(client.state(), "active");
}
