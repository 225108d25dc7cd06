use super::ControlCode::*;
use super::*;
use crate::control::Role;
use crate::frame::Reason;
use crate::relay::{Rejected, RouteCache};

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

/// What a client is told together with its new route.
fn reroute(link: Link, route: ClientRoute, code: ControlCode, session: u64) -> Action {
    Action::Reroute { link, route, tell: Some((code, sid(session))) }
}

fn close(link: Link, code: ControlCode) -> Action {
    Action::Close { link, reason: CloseReason::Told(code) }
}

fn expired(link: Link, session: u64) -> [Action; 2] {
    let told = reroute(link, ClientRoute::Closed, SessionExpired, session);
    [told, close(link, SessionExpired)]
}

fn from_client(berth: &Berth, link: Link, token: u64, session: u64) -> Route {
    berth.client_route(link, sid(token)).route(sid(token), sid(session))
}

fn arrived(link: Link, resumable: bool) -> Event {
    Event::DaemonArrived { link, resumable, max_sessions: 2 }
}

/// A resumable daemon with two clients, which is as many as it may have.
fn busy(now: Instant) -> Berth {
    let mut berth = Berth::new(GRACE);
    assert_eq!(berth.handle(arrived(DAEMON, true), now), Ok(vec![]));
    for (link, session) in [(ANN, sid(1)), (BOB, sid(2))] {
        let route = ClientRoute::Paired(DAEMON);
        let paired = vec![Action::Reroute { link, route, tell: None }];
        assert_eq!(berth.handle(Event::ClientArrived { link, session }, now), Ok(paired));
    }
    berth
}

#[test]
fn sbrp_relay_02_frames_go_to_the_other_end_of_their_session() {
    let berth = busy(Instant::now());
    assert_eq!(from_client(&berth, ANN, 1, 1), Route::To(DAEMON));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(1)), Route::To(ANN));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(2)), Route::To(BOB));
}

#[test]
fn sbrp_relay_06_a_client_reaches_no_session_but_its_own() {
    let berth = busy(Instant::now());
    let route = from_client(&berth, ANN, 1, 2);
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
    assert_eq!(arrived, Ok(vec![tell(ANN, DaemonOffline, 1), close(ANN, DaemonOffline)]));
    assert!(berth.is_empty());
}

#[test]
fn sbrp_relay_16_a_revoked_daemon_and_its_clients_are_told_apart() {
    let now = Instant::now();
    let mut berth = busy(now);
    let told = vec![
        reroute(ANN, ClientRoute::Closed, DaemonNotFound, 1),
        close(ANN, DaemonNotFound),
        reroute(BOB, ClientRoute::Closed, DaemonNotFound, 2),
        close(BOB, DaemonNotFound),
        tell(DAEMON, Unauthorized, 0),
        close(DAEMON, Unauthorized),
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
    let told = vec![
        reroute(ANN, ClientRoute::Closed, DaemonNotFound, 1),
        close(ANN, DaemonNotFound),
        reroute(BOB, ClientRoute::Closed, DaemonNotFound, 2),
        close(BOB, DaemonNotFound),
    ];
    assert_eq!(berth.handle(Event::Revoked, now), Ok(told));
}

#[test]
fn sbrp_relay_20_a_session_in_use_is_not_taken_over() {
    let now = Instant::now();
    let mut berth = busy(now);
    let arrived = berth.handle(Event::ClientArrived { link: Link(12), session: sid(1) }, now);
    assert_eq!(arrived, Ok(vec![tell(Link(12), Forbidden, 0), close(Link(12), Forbidden)]));
    // Nor does the end of the second connection end the first one's session.
    let left = berth.handle(Event::ClientLeft { link: Link(12), session: sid(1) }, now);
    assert_eq!(left, Ok(vec![]));
    assert_eq!(from_client(&berth, Link(12), 1, 1), Route::Stale);
    assert_eq!(from_client(&berth, ANN, 1, 1), Route::To(DAEMON));
}

#[test]
fn a_daemon_carries_as_many_sessions_as_it_may() {
    let now = Instant::now();
    let mut berth = busy(now);
    let third = Event::ClientArrived { link: Link(12), session: sid(3) };
    let refused = vec![tell(Link(12), Forbidden, 0), close(Link(12), Forbidden)];
    assert_eq!(berth.handle(third, now), Ok(refused));
    // Without its daemon, that it is offline matters more.
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let offline = vec![tell(Link(12), DaemonOffline, 3), close(Link(12), DaemonOffline)];
    assert_eq!(berth.handle(third, now), Ok(offline));
    // The newest token decides how many.
    let max_sessions = 3;
    let newer = Event::DaemonArrived { link: NEWER, resumable: true, max_sessions };
    berth.handle(newer, now).unwrap();
    let route = ClientRoute::Paired(NEWER);
    let paired = vec![Action::Reroute { link: Link(12), route, tell: None }];
    assert_eq!(berth.handle(third, now), Ok(paired));
}

#[test]
fn sbrp_relay_19_frames_for_an_absent_daemon_are_refused_by_name() {
    let now = Instant::now();
    let mut berth = busy(now);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let route = from_client(&berth, ANN, 1, 1);
    assert_eq!(route, Route::Refuse(SessionPaused));
    assert!(!route.closes(Role::Client));
    berth.handle(arrived(NEWER, true), now).unwrap();
    assert_eq!(from_client(&berth, ANN, 1, 1), Route::Refuse(SessionPending));
    assert_eq!(berth.route_from_daemon(NEWER, sid(1)), Route::Refuse(SessionNotFound));
    assert_eq!(berth.route_from_daemon(DAEMON, sid(1)), Route::Stale);
}

#[test]
fn sbrp_relay_18_a_newer_daemon_connection_replaces_the_older_at_once() {
    let now = Instant::now();
    let mut berth = busy(now);
    let arrived = berth.handle(arrived(NEWER, true), now);
    let told = vec![
        Action::Close { link: DAEMON, reason: CloseReason::Replaced },
        reroute(ANN, ClientRoute::Paused, SessionPaused, 1),
        reroute(BOB, ClientRoute::Paused, SessionPaused, 2),
        reroute(ANN, ClientRoute::Pending, SessionPending, 1),
        reroute(BOB, ClientRoute::Pending, SessionPending, 2),
    ];
    assert_eq!(arrived, Ok(told));
    // What the old connection still says, its end included, is of no interest.
    let ready = |link| Event::Signalled { link, session: sid(1), signal: Signal::READY };
    assert_eq!(berth.handle(ready(DAEMON), now), Ok(vec![]));
    assert_eq!(berth.handle(Event::DaemonLeft { link: DAEMON }, now), Ok(vec![]));
    let resumed = vec![reroute(ANN, ClientRoute::Paired(NEWER), SessionResumed, 1)];
    assert_eq!(berth.handle(ready(NEWER), now), Ok(resumed));
    assert_eq!(from_client(&berth, ANN, 1, 1), Route::To(NEWER));
}

#[test]
fn sbrp_relay_11_a_newer_connection_that_cannot_resume_ends_all_sessions() {
    let now = Instant::now();
    let mut berth = busy(now);
    berth.handle(Event::DaemonLeft { link: DAEMON }, now).unwrap();
    let arrived = berth.handle(arrived(NEWER, false), now);
    assert_eq!(arrived, Ok([expired(ANN, 1), expired(BOB, 2)].concat()));
    assert_eq!(berth.state(sid(1)), None);
}

#[test]
fn a_daemon_that_remembers_a_client_that_came_again_is_routed_to_the_new_connection() {
    let now = Instant::now();
    let mut berth = busy(now);
    let mut cache = RouteCache::default();
    cache.learn(sid(1), ANN, |_| true);
    berth.handle(Event::ClientLeft { link: ANN, session: sid(1) }, now).unwrap();
    berth.handle(Event::ClientArrived { link: Link(12), session: sid(1) }, now).unwrap();
    let known = *cache.find(sid(1)).unwrap();
    assert!(!berth.client_route(known, sid(1)).accepts(DAEMON));
    assert_eq!(Rejected::after(Role::Daemon, true), Rejected::RouteAgain);
    assert_eq!(berth.route_from_daemon(DAEMON, sid(1)), Route::To(Link(12)));
    assert!(berth.client_route(Link(12), sid(1)).accepts(DAEMON));
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
    assert_eq!(closed, Ok(expired(ANN, 1).to_vec()));
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
