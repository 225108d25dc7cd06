use super::ControlCode::*;
use super::*;
use crate::frame::Reason;

const GRACE: Duration = Duration::from_secs(30);
const DAEMON: Link = Link(1);
const NEWER: Link = Link(2);
const ANN: Link = Link(10);
const BOB: Link = Link(11);

fn sid(id: u64) -> SessionId {
    SessionId::from_wire(id).unwrap()
}

fn tell(link: Link, code: ControlCode, session: u64) -> Action {
    Action::Tell { link, code, session: SessionId::from_wire(session) }
}

fn close(link: Link) -> Action {
    Action::Close { link }
}

/// A resumable daemon with two clients.
fn busy(now: Instant) -> Berth {
    let mut berth = Berth::new(GRACE);
    for event in [
        Event::DaemonArrived { link: DAEMON, resumable: true },
        Event::ClientArrived { link: ANN, session: sid(1) },
        Event::ClientArrived { link: BOB, session: sid(2) },
    ] {
        assert_eq!(berth.handle(event, now), Ok(vec![]));
    }
    berth
}

#[test]
fn sbrp_relay_02_frames_go_to_the_other_end_of_their_session() {
    let berth = busy(Instant::now());
    assert_eq!(berth.route_from_client(ANN, sid(1), sid(1)), Route::To(DAEMON));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(1)), Route::To(ANN));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(2)), Route::To(BOB));
}

#[test]
fn sbrp_relay_06_a_client_reaches_no_session_but_its_own() {
    let berth = busy(Instant::now());
    let route = berth.route_from_client(ANN, sid(1), sid(2));
    assert_eq!(route, Route::Refuse(SessionNotFound));
    assert!(route.closes(Role::Client));
}

#[test]
fn a_daemon_that_names_an_unknown_session_is_told_and_stays() {
    let now = Instant::now();
    let mut berth = busy(now);
    let route = berth.route_from_daemon(DAEMON, sid(9));
    assert_eq!(route, Route::Refuse(SessionNotFound));
    assert!(!route.closes(Role::Daemon));
    let signalled = Event::Signalled { link: DAEMON, session: sid(9), signal: Signal::READY };
    assert_eq!(berth.handle(signalled, now), Ok(vec![tell(DAEMON, SessionNotFound, 9)]));
}

#[test]
fn sbrp_relay_13_a_client_without_a_daemon_is_turned_away() {
    let now = Instant::now();
    let mut berth = Berth::new(GRACE);
    let arrived = berth.handle(Event::ClientArrived { link: ANN, session: sid(1) }, now);
    assert_eq!(arrived, Ok(vec![tell(ANN, DaemonOffline, 1), close(ANN)]));
    assert!(berth.is_empty());
}

#[test]
fn sbrp_relay_16_a_revoked_daemon_and_its_clients_are_told_apart() {
    let now = Instant::now();
    let mut berth = busy(now);
    let told = vec![
        tell(ANN, DaemonNotFound, 1),
        close(ANN),
        tell(BOB, DaemonNotFound, 2),
        close(BOB),
        tell(DAEMON, Unauthorized, 0),
        close(DAEMON),
    ];
    assert_eq!(berth.handle(Event::Revoked, now), Ok(told));
    assert!(berth.is_empty());
    assert_eq!(berth.deadline(), None);
    // Their connections end later, and nobody is left to hear of it.
    for event in [
        Event::DaemonLeft { link: DAEMON },
        Event::ClientLeft { link: ANN, session: sid(1) },
        Event::Signalled { link: DAEMON, session: sid(1), signal: Signal::READY },
        Event::Revoked,
    ] {
        assert_eq!(berth.handle(event, now), Ok(vec![]));
    }
}

#[test]
fn a_paused_session_ends_with_its_daemons_revocation() {
    let now = Instant::now();
    let mut berth = busy(now);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let told =
        vec![tell(ANN, DaemonNotFound, 1), close(ANN), tell(BOB, DaemonNotFound, 2), close(BOB)];
    assert_eq!(berth.handle(Event::Revoked, now), Ok(told));
}

#[test]
fn sbrp_relay_20_a_session_in_use_is_not_taken_over() {
    let now = Instant::now();
    let mut berth = busy(now);
    let arrived = berth.handle(Event::ClientArrived { link: Link(12), session: sid(1) }, now);
    assert_eq!(arrived, Ok(vec![tell(Link(12), Forbidden, 0), close(Link(12))]));
    // Nor does the end of the second connection end the first one's session.
    let left = berth.handle(Event::ClientLeft { link: Link(12), session: sid(1) }, now);
    assert_eq!(left, Ok(vec![]));
    assert_eq!(berth.route_from_client(Link(12), sid(1), sid(1)), Route::Stale);
    assert_eq!(berth.route_from_client(ANN, sid(1), sid(1)), Route::To(DAEMON));
}

#[test]
fn sbrp_relay_19_frames_for_an_absent_daemon_are_refused_by_name() {
    let now = Instant::now();
    let mut berth = busy(now);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let route = berth.route_from_client(ANN, sid(1), sid(1));
    assert_eq!(route, Route::Refuse(SessionPaused));
    assert!(!route.closes(Role::Client));
    berth.handle(Event::DaemonArrived { link: NEWER, resumable: true }, now).unwrap();
    assert_eq!(berth.route_from_client(ANN, sid(1), sid(1)), Route::Refuse(SessionPending));
    assert_eq!(berth.route_from_daemon(NEWER, sid(1)), Route::Refuse(SessionNotFound));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(1)), Route::Stale);
}

#[test]
fn sbrp_relay_18_a_newer_daemon_connection_replaces_the_older_at_once() {
    let now = Instant::now();
    let mut berth = busy(now);
    let arrived = berth.handle(Event::DaemonArrived { link: NEWER, resumable: true }, now);
    let told = vec![
        close(DAEMON),
        tell(ANN, SessionPaused, 1),
        tell(BOB, SessionPaused, 2),
        tell(ANN, SessionPending, 1),
        tell(BOB, SessionPending, 2),
    ];
    assert_eq!(arrived, Ok(told));
    // What the old connection still says, its end included, is of no interest.
    let ready = |link| Event::Signalled { link, session: sid(1), signal: Signal::READY };
    assert_eq!(berth.handle(ready(DAEMON), now), Ok(vec![]));
    assert_eq!(berth.handle(Event::DaemonLeft { link: DAEMON }, now), Ok(vec![]));
    assert_eq!(berth.handle(ready(NEWER), now), Ok(vec![tell(ANN, SessionResumed, 1)]));
    assert_eq!(berth.route_from_client(ANN, sid(1), sid(1)), Route::To(NEWER));
}

#[test]
fn sbrp_relay_11_a_newer_connection_that_cannot_resume_ends_all_sessions() {
    let now = Instant::now();
    let mut berth = busy(now);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let arrived = berth.handle(Event::DaemonArrived { link: NEWER, resumable: false }, now);
    let told =
        vec![tell(ANN, SessionExpired, 1), close(ANN), tell(BOB, SessionExpired, 2), close(BOB)];
    assert_eq!(arrived, Ok(told));
    assert_eq!(berth.state(sid(1)), None);
}

#[test]
fn sbrp_relay_12_one_client_leaves_and_the_other_stays() {
    let now = Instant::now();
    let mut berth = busy(now);
    let left = berth.handle(Event::ClientLeft { link: ANN, session: sid(1) }, now);
    assert_eq!(left, Ok(vec![tell(DAEMON, SessionEnded, 1)]));
    assert_eq!(berth.state(sid(2)), Some(PairState::Paired));
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let left = berth.handle(Event::ClientLeft { link: BOB, session: sid(2) }, now);
    assert_eq!(left, Ok(vec![]), "nobody to tell");
    assert!(berth.is_empty());
}

#[test]
fn sbrp_relay_03_close_ends_one_session_only() {
    let now = Instant::now();
    let mut berth = busy(now);
    let signal = Signal::close(Reason::Policy);
    let closed = berth.handle(Event::Signalled { link: DAEMON, session: sid(1), signal }, now);
    assert_eq!(closed, Ok(vec![tell(ANN, SessionExpired, 1), close(ANN)]));
    assert_eq!(berth.state(sid(2)), Some(PairState::Paired));
}

#[test]
fn sbrp_relay_10_one_timer_serves_all_sessions() {
    let start = Instant::now();
    let mut berth = busy(start);
    assert_eq!(berth.deadline(), None);
    berth.handle(Event::DaemonLeft { link: DAEMON }, start).unwrap();
    assert_eq!(berth.deadline(), Some(start + GRACE));
    assert_eq!(berth.handle(Event::Tick, start + GRACE).unwrap().len(), 4);
    assert!(berth.is_empty());
}

#[test]
fn a_second_ready_is_a_typed_error_and_changes_nothing() {
    let now = Instant::now();
    let mut berth = busy(now);
    let ready = Event::Signalled { link: DAEMON, session: sid(1), signal: Signal::READY };
    assert_eq!(berth.handle(ready, now), Err(Impossible { state: "paired", event: "ready" }));
    assert_eq!(berth.state(sid(1)), Some(PairState::Paired));
}

#[test]
fn a_berth_says_who_is_there() {
    let now = Instant::now();
    let mut berth = busy(now);
    assert_eq!(berth.daemon(), Some(DAEMON));
    let states: Vec<_> = berth.pairs().collect();
    assert_eq!(states, [(sid(1), PairState::Paired), (sid(2), PairState::Paired)]);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    assert_eq!((berth.daemon(), berth.pairs().len()), (None, 2));
}
