use std::time::Duration;

use zeroize::Zeroizing;

use super::*;
use crate::frame::SignalKind;
use crate::handshake::{AwaitAccept, TIME_LIMIT, Trust};
use crate::sealed::Channel;

fn sid(id: u64) -> SessionId {
    SessionId::from_wire(id).unwrap()
}

fn ephemeral(seed: u8) -> Ephemeral {
    Ephemeral::from_random(Zeroizing::new([seed; 32]))
}

fn identity() -> IdentitySecret {
    IdentitySecret::from_seed(&[1; 32])
}

fn new(resumable: bool) -> Daemon {
    Daemon::new(DaemonId::new("d_1"), identity(), resumable, 3)
}

fn connected(now: Instant) -> Daemon {
    let mut daemon = new(true);
    assert!(daemon.handle(DaemonInput::Connected, now).unwrap().is_empty());
    daemon
}

fn init(session: SessionId, seed: u8) -> (AwaitAccept, DaemonInput) {
    let (waiting, frame) = AwaitAccept::start(session, DaemonId::new("d_1"), ephemeral(seed));
    (waiting, DaemonInput::Frame(frame))
}

/// Completes a handshake with the daemon and returns the client's channel.
fn establish(daemon: &mut Daemon, session: SessionId, now: Instant) -> Channel {
    let seed = session.to_wire() as u8;
    let (waiting, init) = init(session, 20 + seed);
    let offered = daemon.handle(init, now).unwrap();
    assert!(matches!(offered[..], [DaemonAction::Offer(id)] if id == session));
    let answer = DaemonInput::Answer { session, ephemeral: ephemeral(40 + seed) };
    let answered = daemon.handle(answer, now).unwrap();
    let [DaemonAction::Send(accept), DaemonAction::Session(_, Progress::Established(_))] =
        &answered[..]
    else {
        panic!("{answered:?}")
    };
    let Ok(Frame::HandshakeAccept { payload, .. }) = Frame::decode(accept.clone()) else {
        panic!()
    };
    waiting.accept(&payload, &Trust::FirstUse).unwrap().channel
}

fn control(code: ControlCode, session: SessionId) -> DaemonInput {
    DaemonInput::Frame(Frame::control(code, Some(session)))
}

/// The signals among the actions.
fn signals(actions: &[DaemonAction]) -> Vec<(SessionId, SignalKind, Reason)> {
    let sent = actions.iter().filter_map(|action| match action {
        DaemonAction::Send(frame) => Frame::decode(frame.clone()).ok(),
        _ => None,
    });
    sent.filter_map(|frame| match frame {
        Frame::Signal { session, signal } => Some((session, signal.kind(), signal.reason())),
        _ => None,
    })
    .collect()
}

fn progress(actions: &[DaemonAction]) -> Vec<&Progress> {
    actions
        .iter()
        .filter_map(|action| match action {
            DaemonAction::Session(_, progress) => Some(progress),
            _ => None,
        })
        .collect()
}

fn data(frame: Bytes) -> DaemonInput {
    DaemonInput::Frame(Frame::decode(frame).unwrap())
}

#[test]
fn sbrp_daemon_02_sessions_have_nothing_in_common() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let (mut ann, mut bob) =
        (establish(&mut daemon, sid(1), now), establish(&mut daemon, sid(2), now));
    for client in [&mut ann, &mut bob] {
        let heard = daemon.handle(data(client.sealer.seal(b"hello").unwrap()), now).unwrap();
        let deliver = Progress::Deliver(Opened { seq: 0, plaintext: b"hello".to_vec().into() });
        assert_eq!(progress(&heard), [&deliver]);
    }
    // Ann's frame, moved into Bob's session by the relay.
    let Ok(Frame::Data { payload, .. }) = Frame::decode(ann.sealer.seal(b"two").unwrap()) else {
        panic!()
    };
    let moved = DaemonInput::Frame(Frame::Data { session: sid(2), payload });
    let heard = daemon.handle(moved, now).unwrap();
    assert_eq!(progress(&heard), [&Progress::Ended(Some(SdkCode::DecryptFailed))]);
    assert!(daemon.session(sid(2)).is_none());
    let back = DaemonInput::Send { session: sid(1), plaintext: b"still here".to_vec().into() };
    let sent = daemon.handle(back, now).unwrap();
    let [DaemonAction::Send(frame)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(&ann.opener.open_frame(frame).unwrap().plaintext[..], b"still here");
}

#[test]
fn sbrp_daemon_03_three_codes_end_one_session() {
    let now = Instant::now();
    for code in
        [ControlCode::SessionEnded, ControlCode::SessionNotFound, ControlCode::SessionExpired]
    {
        let mut daemon = connected(now);
        establish(&mut daemon, sid(1), now);
        establish(&mut daemon, sid(2), now);
        let ended = daemon.handle(control(code, sid(1)), now).unwrap();
        assert_eq!(progress(&ended), [&Progress::Ended(None)]);
        assert!(signals(&ended).is_empty(), "there is nobody to tell");
        assert!(daemon.session(sid(1)).is_none() && daemon.session(sid(2)).unwrap().is_active());
        // A second time, for a session that no longer exists: reported, but not an error.
        assert!(matches!(
            daemon.handle(control(code, sid(1)), now).unwrap()[..],
            [DaemonAction::Told(_)]
        ));
    }
}

#[test]
fn sbrp_daemon_04_an_offer_that_nobody_answers_ends_after_thirty_seconds() {
    let start = Instant::now();
    let mut daemon = connected(start);
    daemon.handle(init(sid(1), 2).1, start).unwrap();
    assert_eq!(daemon.deadline(), Some(start + TIME_LIMIT));
    let early = start + TIME_LIMIT - Duration::from_nanos(1);
    assert!(daemon.handle(DaemonInput::Tick, early).unwrap().is_empty());
    let late = daemon.handle(DaemonInput::Tick, start + TIME_LIMIT).unwrap();
    assert_eq!(signals(&late), [(sid(1), SignalKind::Close, Reason::Error)]);
    assert_eq!(progress(&late), [&Progress::Ended(Some(SdkCode::HandshakeTimeout))]);
    let answer = DaemonInput::Answer { session: sid(1), ephemeral: ephemeral(3) };
    assert!(daemon.handle(answer, start + TIME_LIMIT).is_err());
}

#[test]
fn sbrp_daemon_05_crypto_09_a_lost_connection_resumes_with_the_same_keys_and_numbers() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let mut client = establish(&mut daemon, sid(1), now);
    let old = client.sealer.seal(b"before").unwrap();
    daemon.handle(data(old.clone()), now).unwrap();

    let lost = daemon.handle(DaemonInput::Disconnected, now).unwrap();
    assert_eq!(progress(&lost), [&Progress::Suspended]);
    let early = DaemonInput::Send { session: sid(1), plaintext: Plaintext::default() };
    assert!(daemon.handle(early, now).is_err(), "not while the connection is away");

    let up = daemon.handle(DaemonInput::Connected, now).unwrap();
    assert_eq!(signals(&up), [(sid(1), SignalKind::Ready, Reason::None)]);
    let replayed = daemon.handle(data(old), now).unwrap();
    assert_eq!(progress(&replayed), [&Progress::Refused(SdkCode::SequenceError)]);
    let next = daemon.handle(data(client.sealer.seal(b"after").unwrap()), now).unwrap();
    let opened = Opened { seq: 1, plaintext: b"after".to_vec().into() };
    assert_eq!(progress(&next), [&Progress::Deliver(opened)]);
}

#[test]
fn sbrp_daemon_05_what_cannot_resume_is_closed_as_lost() {
    let now = Instant::now();
    let mut daemon = connected(now);
    establish(&mut daemon, sid(1), now);
    establish(&mut daemon, sid(2), now);
    daemon.sessions.get_mut(&sid(1)).unwrap().channel().sealer.skip_to(u64::MAX);
    // A session that was offered and not answered yet cannot be resumed.
    daemon.handle(init(sid(3), 4).1, now).unwrap();
    daemon.handle(DaemonInput::Disconnected, now).unwrap();
    let up = daemon.handle(DaemonInput::Connected, now).unwrap();
    let expected = [
        (sid(1), SignalKind::Close, Reason::StateLost),
        (sid(2), SignalKind::Ready, Reason::None),
        (sid(3), SignalKind::Close, Reason::StateLost),
    ];
    assert_eq!(signals(&up), expected);
}

#[test]
fn sbrp_daemon_05_after_a_restart_all_sessions_are_closed_as_lost() {
    let mut daemon = new(true).having_forgotten([sid(1), sid(2)]);
    let up = daemon.handle(DaemonInput::Connected, Instant::now()).unwrap();
    let lost = |id| (sid(id), SignalKind::Close, Reason::StateLost);
    assert_eq!(signals(&up), [lost(1), lost(2)]);
    assert!(daemon.session(sid(1)).is_none());
}

#[test]
fn sbrp_daemon_05_without_the_scope_sessions_end_with_the_connection() {
    let now = Instant::now();
    let mut daemon = new(false);
    daemon.handle(DaemonInput::Connected, now).unwrap();
    establish(&mut daemon, sid(1), now);
    let lost = daemon.handle(DaemonInput::Disconnected, now).unwrap();
    assert_eq!(progress(&lost), [&Progress::Ended(None)]);
    assert!(daemon.handle(DaemonInput::Connected, now).unwrap().is_empty());
}

#[test]
fn sbrp_daemon_06_reasons_fit() {
    let now = Instant::now();
    let mut daemon = connected(now);
    establish(&mut daemon, sid(1), now);
    establish(&mut daemon, sid(2), now);
    let refused = DaemonInput::Close { session: sid(1), reason: Reason::Policy };
    let closed = daemon.handle(refused, now).unwrap();
    assert_eq!(signals(&closed), [(sid(1), SignalKind::Close, Reason::Policy)]);
    let stopped = daemon.handle(DaemonInput::Stop, now).unwrap();
    assert_eq!(signals(&stopped), [(sid(2), SignalKind::Close, Reason::Shutdown)]);
}

#[test]
fn a_wish_to_close_survives_the_loss_of_the_connection() {
    let now = Instant::now();
    let mut daemon = connected(now);
    establish(&mut daemon, sid(1), now);
    daemon.handle(DaemonInput::Disconnected, now).unwrap();
    let close = DaemonInput::Close { session: sid(1), reason: Reason::Policy };
    assert_eq!(progress(&daemon.handle(close, now).unwrap()), [&Progress::Ended(None)]);
    let up = daemon.handle(DaemonInput::Connected, now).unwrap();
    assert_eq!(signals(&up), [(sid(1), SignalKind::Close, Reason::Policy)]);
}

#[test]
fn a_second_init_does_not_touch_the_session() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let mut client = establish(&mut daemon, sid(1), now);
    assert!(daemon.handle(init(sid(1), 7).1, now).is_err());
    let heard = daemon.handle(data(client.sealer.seal(b"x").unwrap()), now).unwrap();
    assert!(matches!(progress(&heard)[..], [Progress::Deliver(_)]));
}

#[test]
fn more_sessions_than_allowed_are_turned_away() {
    let now = Instant::now();
    let mut daemon = connected(now);
    for id in 1..=3 {
        daemon.handle(init(sid(id), 2).1, now).unwrap();
    }
    let fourth = daemon.handle(init(sid(4), 2).1, now).unwrap();
    assert_eq!(signals(&fourth), [(sid(4), SignalKind::Close, Reason::Policy)]);
}

#[test]
fn sbrp_crypto_06_an_exhausted_session_ends() {
    let now = Instant::now();
    let mut daemon = connected(now);
    establish(&mut daemon, sid(1), now);
    daemon.sessions.get_mut(&sid(1)).unwrap().channel().sealer.skip_to(u64::MAX);
    let send = DaemonInput::Send { session: sid(1), plaintext: Plaintext::default() };
    let sent = daemon.handle(send, now).unwrap();
    assert_eq!(signals(&sent), [(sid(1), SignalKind::Close, Reason::Error)]);
    assert_eq!(progress(&sent), [&Progress::Ended(Some(SdkCode::SequenceError))]);
}

#[test]
fn sbrp_sdk_01_what_cannot_be_decrypted_closes_the_session_at_the_daemon() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let mut client = establish(&mut daemon, sid(1), now);
    establish(&mut daemon, sid(2), now);
    let good = client.sealer.seal(b"hello").unwrap();
    let mut bad = good.to_vec();
    *bad.last_mut().unwrap() ^= 1;
    let ended = daemon.handle(data(bad.into()), now).unwrap();
    assert_eq!(signals(&ended), [(sid(1), SignalKind::Close, Reason::Error)]);
    assert_eq!(progress(&ended), [&Progress::Ended(Some(SdkCode::DecryptFailed))]);
    assert!(daemon.session(sid(1)).is_none() && daemon.session(sid(2)).unwrap().is_active());
    // Nothing more of that session is accepted, not even what is authentic.
    assert!(daemon.handle(data(good), now).is_err());
    let send = DaemonInput::Send { session: sid(1), plaintext: Plaintext::default() };
    assert!(daemon.handle(send, now).is_err());
    // Nor is it resumed.
    daemon.handle(DaemonInput::Disconnected, now).unwrap();
    let up = daemon.handle(DaemonInput::Connected, now).unwrap();
    assert_eq!(signals(&up), [(sid(2), SignalKind::Ready, Reason::None)]);
}

#[test]
fn sbrp_sdk_01_a_repeated_message_is_rejected_and_the_session_goes_on_at_the_daemon() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let mut client = establish(&mut daemon, sid(1), now);
    let first = client.sealer.seal(b"one").unwrap();
    daemon.handle(data(first.clone()), now).unwrap();
    let repeated = daemon.handle(data(first), now).unwrap();
    assert_eq!(progress(&repeated), [&Progress::Refused(SdkCode::SequenceError)]);
    assert!(signals(&repeated).is_empty());
    let next = daemon.handle(data(client.sealer.seal(b"two").unwrap()), now).unwrap();
    let opened = Opened { seq: 1, plaintext: b"two".to_vec().into() };
    assert_eq!(progress(&next), [&Progress::Deliver(opened)]);
}

#[test]
fn sbrp_sdk_01_a_failed_handshake_closes_its_session() {
    let now = Instant::now();
    let mut daemon = connected(now);
    let payload = Bytes::from_static(&[0; 31]);
    daemon
        .handle(DaemonInput::Frame(Frame::HandshakeInit { session: sid(1), payload }), now)
        .unwrap();
    let answer = DaemonInput::Answer { session: sid(1), ephemeral: ephemeral(3) };
    let answered = daemon.handle(answer, now).unwrap();
    assert_eq!(signals(&answered), [(sid(1), SignalKind::Close, Reason::Error)]);
    assert_eq!(progress(&answered), [&Progress::Ended(Some(SdkCode::HandshakeFailed))]);
}

#[test]
fn what_does_not_fit_the_state_is_a_typed_error() {
    let now = Instant::now();
    let mut daemon = new(true);
    let ping =
        || DaemonInput::Frame(Frame::Ping(crate::frame::PingPayload::new(b"12345678").unwrap()));
    assert!(daemon.handle(ping(), now).is_err(), "nothing comes without a connection");
    daemon.handle(DaemonInput::Connected, now).unwrap();
    let pong = daemon.handle(ping(), now).unwrap();
    assert!(matches!(&pong[..], [DaemonAction::Send(frame)] if frame[0] == 0x11));
    let signal = DaemonInput::Frame(Frame::Signal { session: sid(1), signal: Signal::READY });
    for event in [DaemonInput::Connected, signal] {
        assert!(daemon.handle(event, now).is_err());
    }
    let shown = format!("{daemon:?}");
    assert!(!shown.contains("1, 1, 1, 1"), "{shown}");
}
