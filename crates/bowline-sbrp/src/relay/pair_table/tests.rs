use super::ControlCode::*;
use super::*;
use crate::control::Role;
use crate::frame::Reason;
use crate::relay::{Rejected, RouteCache};

const GRACE: Duration = Duration::from_secs(30);
const DAEMON: ConnectionId = ConnectionId(1);
const NEWER: ConnectionId = ConnectionId(2);
const ANN: ConnectionId = ConnectionId(10);
const BOB: ConnectionId = ConnectionId(11);

fn sid(id: u64) -> SessionId {
    SessionId::from_wire(id).unwrap()
}

fn tell(connection: ConnectionId, code: ControlCode, session: u64) -> TableAction {
    TableAction::Tell { connection, code, session: SessionId::from_wire(session) }
}

/// The control code that a client gets together with its new route.
fn reroute(
    connection: ConnectionId,
    route: ClientRoute,
    code: ControlCode,
    session: u64,
) -> TableAction {
    TableAction::Reroute { connection, route, tell: Some((code, sid(session))) }
}

fn close(connection: ConnectionId, code: ControlCode) -> TableAction {
    TableAction::Close { connection, reason: CloseReason::Told(code) }
}

fn expired(connection: ConnectionId, session: u64) -> [TableAction; 2] {
    let told = reroute(connection, ClientRoute::Closed, SessionExpired, session);
    [told, close(connection, SessionExpired)]
}

fn from_client(table: &PairTable, connection: ConnectionId, token: u64, session: u64) -> Route {
    table.client_route(connection, sid(token)).route(sid(token), sid(session))
}

fn arrived(connection: ConnectionId, resumable: bool) -> TableInput {
    TableInput::DaemonArrived { connection, epoch: 0, resumable, max_sessions: 2 }
}

/// A resumable daemon with two clients, which is its session limit.
fn busy(now: Instant) -> PairTable {
    let mut table = PairTable::new(GRACE);
    assert_eq!(table.handle(arrived(DAEMON, true), now), Ok(vec![]));
    for (connection, session) in [(ANN, sid(1)), (BOB, sid(2))] {
        let route = ClientRoute::Paired(DAEMON);
        let paired = vec![TableAction::Reroute { connection, route, tell: None }];
        assert_eq!(
            table.handle(TableInput::ClientArrived { connection, session, epoch: 0 }, now),
            Ok(paired)
        );
    }
    table
}

#[test]
fn sbrp_relay_02_frames_go_to_the_other_end_of_their_session() {
    let table = busy(Instant::now());
    assert_eq!(from_client(&table, ANN, 1, 1), Route::To(DAEMON));
    assert_eq!(table.route_from_daemon(DAEMON, sid(1)), Route::To(ANN));
    assert_eq!(table.route_from_daemon(DAEMON, sid(2)), Route::To(BOB));
}

#[test]
fn sbrp_relay_06_a_client_reaches_no_session_but_its_own() {
    let table = busy(Instant::now());
    let route = from_client(&table, ANN, 1, 2);
    assert_eq!(route, Route::Refuse(SessionNotFound));
    assert!(route.closes(Role::Client));
}

#[test]
fn a_daemon_that_names_an_unknown_session_is_told_and_stays() {
    let now = Instant::now();
    let mut table = busy(now);
    let route = table.route_from_daemon(DAEMON, sid(9));
    assert_eq!(route, Route::Refuse(SessionNotFound));
    assert!(!route.closes(Role::Daemon));
    let signalled =
        TableInput::Signalled { connection: DAEMON, session: sid(9), signal: Signal::READY };
    assert_eq!(table.handle(signalled, now), Ok(vec![tell(DAEMON, SessionNotFound, 9)]));
}

#[test]
fn sbrp_relay_13_a_client_without_a_daemon_is_turned_away() {
    let now = Instant::now();
    let mut table = PairTable::new(GRACE);
    let arrived =
        table.handle(TableInput::ClientArrived { connection: ANN, session: sid(1), epoch: 0 }, now);
    assert_eq!(arrived, Ok(vec![tell(ANN, DaemonOffline, 1), close(ANN, DaemonOffline)]));
    assert!(table.is_empty());
}

#[test]
fn sbrp_relay_16_a_revoked_daemon_and_its_clients_are_told_apart() {
    let now = Instant::now();
    let mut table = busy(now);
    let told = vec![
        reroute(ANN, ClientRoute::Closed, DaemonNotFound, 1),
        close(ANN, DaemonNotFound),
        reroute(BOB, ClientRoute::Closed, DaemonNotFound, 2),
        close(BOB, DaemonNotFound),
        tell(DAEMON, Unauthorized, 0),
        close(DAEMON, Unauthorized),
    ];
    assert_eq!(table.handle(TableInput::Revoked, now), Ok(told));
    assert!(table.is_empty());
    assert_eq!(table.deadline(), None);
    // Their connections end later; the events have no effect.
    for input in [
        TableInput::DaemonLeft { connection: DAEMON },
        TableInput::ClientLeft { connection: ANN, session: sid(1) },
        TableInput::Signalled { connection: DAEMON, session: sid(1), signal: Signal::READY },
        TableInput::Revoked,
    ] {
        assert_eq!(table.handle(input, now), Ok(vec![]));
    }
}

#[test]
fn a_paused_session_ends_with_its_daemons_revocation() {
    let now = Instant::now();
    let mut table = busy(now);
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    let told = vec![
        reroute(ANN, ClientRoute::Closed, DaemonNotFound, 1),
        close(ANN, DaemonNotFound),
        reroute(BOB, ClientRoute::Closed, DaemonNotFound, 2),
        close(BOB, DaemonNotFound),
    ];
    assert_eq!(table.handle(TableInput::Revoked, now), Ok(told));
}

#[test]
fn a_client_that_is_not_served_is_told_why_and_changes_nothing() {
    let now = Instant::now();
    let mut table = busy(now);
    let (connection, session) = (ConnectionId(12), sid(3));
    for (refusal, code, told) in [
        (ClientRefusal::DaemonRevoked, DaemonNotFound, 3),
        (ClientRefusal::UserLimit, Forbidden, 0),
    ] {
        let refused = table.handle(TableInput::ClientRefused { connection, session, refusal }, now);
        assert_eq!(refused, Ok(vec![tell(connection, code, told), close(connection, code)]));
        let left = table.handle(TableInput::ClientLeft { connection, session }, now);
        assert_eq!((left, table.pairs().len()), (Ok(vec![]), 2));
    }
}

#[test]
fn sbrp_relay_20_a_session_in_use_is_not_taken_over() {
    let now = Instant::now();
    let mut table = busy(now);
    let arrived = table.handle(
        TableInput::ClientArrived { connection: ConnectionId(12), session: sid(1), epoch: 0 },
        now,
    );
    assert_eq!(
        arrived,
        Ok(vec![tell(ConnectionId(12), Forbidden, 0), close(ConnectionId(12), Forbidden)])
    );
    // The end of the second connection does not end the first one's session either.
    let left =
        table.handle(TableInput::ClientLeft { connection: ConnectionId(12), session: sid(1) }, now);
    assert_eq!(left, Ok(vec![]));
    assert_eq!(from_client(&table, ConnectionId(12), 1, 1), Route::Stale);
    assert_eq!(from_client(&table, ANN, 1, 1), Route::To(DAEMON));
}

#[test]
fn a_daemon_carries_as_many_sessions_as_it_may() {
    let now = Instant::now();
    let mut table = busy(now);
    let third =
        TableInput::ClientArrived { connection: ConnectionId(12), session: sid(3), epoch: 0 };
    let refused = vec![tell(ConnectionId(12), Forbidden, 0), close(ConnectionId(12), Forbidden)];
    assert_eq!(table.handle(third, now), Ok(refused));
    // Without a daemon connection, `daemon_offline` takes precedence.
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    let offline =
        vec![tell(ConnectionId(12), DaemonOffline, 3), close(ConnectionId(12), DaemonOffline)];
    assert_eq!(table.handle(third, now), Ok(offline));
    // The newest token sets the limit.
    let max_sessions = 3;
    let newer =
        TableInput::DaemonArrived { connection: NEWER, epoch: 0, resumable: true, max_sessions };
    table.handle(newer, now).unwrap();
    let route = ClientRoute::Paired(NEWER);
    let paired = vec![TableAction::Reroute { connection: ConnectionId(12), route, tell: None }];
    assert_eq!(table.handle(third, now), Ok(paired));
}

#[test]
fn sbrp_relay_19_frames_for_an_absent_daemon_are_refused_by_name() {
    let now = Instant::now();
    let mut table = busy(now);
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    let route = from_client(&table, ANN, 1, 1);
    assert_eq!(route, Route::Refuse(SessionPaused));
    assert!(!route.closes(Role::Client));
    table.handle(arrived(NEWER, true), now).unwrap();
    assert_eq!(from_client(&table, ANN, 1, 1), Route::Refuse(SessionPending));
    assert_eq!(table.route_from_daemon(NEWER, sid(1)), Route::Refuse(SessionNotFound));
    assert_eq!(table.route_from_daemon(DAEMON, sid(1)), Route::Stale);
}

#[test]
fn sbrp_relay_18_a_newer_daemon_connection_replaces_the_older_at_once() {
    let now = Instant::now();
    let mut table = busy(now);
    let arrived = table.handle(arrived(NEWER, true), now);
    let told = vec![
        TableAction::Close { connection: DAEMON, reason: CloseReason::Replaced },
        reroute(ANN, ClientRoute::Paused, SessionPaused, 1),
        reroute(BOB, ClientRoute::Paused, SessionPaused, 2),
        reroute(ANN, ClientRoute::Pending, SessionPending, 1),
        reroute(BOB, ClientRoute::Pending, SessionPending, 2),
    ];
    assert_eq!(arrived, Ok(told));
    // Later events of the old connection, including its end, are ignored.
    let ready =
        |connection| TableInput::Signalled { connection, session: sid(1), signal: Signal::READY };
    assert_eq!(table.handle(ready(DAEMON), now), Ok(vec![]));
    assert_eq!(table.handle(TableInput::DaemonLeft { connection: DAEMON }, now), Ok(vec![]));
    let resumed = vec![reroute(ANN, ClientRoute::Paired(NEWER), SessionResumed, 1)];
    assert_eq!(table.handle(ready(NEWER), now), Ok(resumed));
    assert_eq!(from_client(&table, ANN, 1, 1), Route::To(NEWER));
}

#[test]
fn sbrp_relay_11_a_newer_connection_that_cannot_resume_ends_all_sessions() {
    let now = Instant::now();
    let mut table = busy(now);
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    let arrived = table.handle(arrived(NEWER, false), now);
    assert_eq!(arrived, Ok([expired(ANN, 1), expired(BOB, 2)].concat()));
    assert_eq!(table.state(sid(1)), None);
}

#[test]
fn a_daemon_that_remembers_a_client_that_came_again_is_routed_to_the_new_connection() {
    let now = Instant::now();
    let mut table = busy(now);
    let mut cache = RouteCache::default();
    cache.learn(sid(1), ANN, |_| true);
    table.handle(TableInput::ClientLeft { connection: ANN, session: sid(1) }, now).unwrap();
    table
        .handle(
            TableInput::ClientArrived { connection: ConnectionId(12), session: sid(1), epoch: 0 },
            now,
        )
        .unwrap();
    let known = *cache.find(sid(1)).unwrap();
    assert!(!table.client_route(known, sid(1)).accepts(DAEMON));
    assert_eq!(Rejected::after(Role::Daemon, true), Rejected::RouteAgain);
    assert_eq!(table.route_from_daemon(DAEMON, sid(1)), Route::To(ConnectionId(12)));
    assert!(table.client_route(ConnectionId(12), sid(1)).accepts(DAEMON));
}

#[test]
fn sbrp_relay_12_one_client_leaves_and_the_other_stays() {
    let now = Instant::now();
    let mut table = busy(now);
    let left = table.handle(TableInput::ClientLeft { connection: ANN, session: sid(1) }, now);
    assert_eq!(left, Ok(vec![tell(DAEMON, SessionEnded, 1)]));
    assert_eq!(table.state(sid(2)), Some(PairState::Paired));
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    let left = table.handle(TableInput::ClientLeft { connection: BOB, session: sid(2) }, now);
    assert_eq!(left, Ok(vec![]), "nobody to tell");
    assert!(table.is_empty());
}

#[test]
fn sbrp_relay_03_close_ends_one_session_only() {
    let now = Instant::now();
    let mut table = busy(now);
    let signal = Signal::close(Reason::Policy);
    let closed =
        table.handle(TableInput::Signalled { connection: DAEMON, session: sid(1), signal }, now);
    assert_eq!(closed, Ok(expired(ANN, 1).to_vec()));
    assert_eq!(table.state(sid(2)), Some(PairState::Paired));
}

#[test]
fn sbrp_relay_10_one_timer_serves_all_sessions() {
    let start = Instant::now();
    let mut table = busy(start);
    assert_eq!(table.deadline(), None);
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, start).unwrap();
    assert_eq!(table.deadline(), Some(start + GRACE));
    assert_eq!(table.handle(TableInput::Tick, start + GRACE).unwrap().len(), 4);
    assert!(table.is_empty());
}

#[test]
fn a_second_ready_is_a_typed_error_and_changes_nothing() {
    let now = Instant::now();
    let mut table = busy(now);
    let ready =
        TableInput::Signalled { connection: DAEMON, session: sid(1), signal: Signal::READY };
    assert_eq!(table.handle(ready, now), Err(Impossible { state: "paired", event: "ready" }));
    assert_eq!(table.state(sid(1)), Some(PairState::Paired));
}

#[test]
fn a_table_says_who_is_there() {
    let now = Instant::now();
    let mut table = busy(now);
    assert_eq!(table.daemon(), Some(DAEMON));
    let states: Vec<_> = table.pairs().collect();
    assert_eq!(states, [(sid(1), PairState::Paired), (sid(2), PairState::Paired)]);
    table.handle(TableInput::DaemonLeft { connection: DAEMON }, now).unwrap();
    assert_eq!((table.daemon(), table.pairs().len()), (None, 2));
}

fn of_epoch(connection: ConnectionId, epoch: u64) -> TableInput {
    TableInput::DaemonArrived { connection, epoch, resumable: true, max_sessions: 2 }
}

#[test]
fn sbrp_relay_18_a_presence_of_an_older_epoch_replaces_nobody() {
    let now = Instant::now();
    let mut table = PairTable::new(GRACE);
    table.handle(of_epoch(NEWER, 8), now).unwrap();
    let refused = TableAction::Close { connection: DAEMON, reason: CloseReason::Replaced };
    assert_eq!(table.handle(of_epoch(DAEMON, 7), now), Ok(vec![refused]));
    assert_eq!(table.daemon(), Some(NEWER));
    // Nor does it come in while the newer one is away.
    table.handle(TableInput::DaemonLeft { connection: NEWER }, now).unwrap();
    assert_eq!(table.handle(of_epoch(DAEMON, 7), now), Ok(vec![refused]));
    assert_eq!(table.daemon(), None);
    // A reconnect of the same presence, and a later one, do.
    table.handle(of_epoch(DAEMON, 8), now).unwrap();
    assert_eq!(table.daemon(), Some(DAEMON));
    table.handle(of_epoch(NEWER, 9), now).unwrap();
    assert_eq!(table.daemon(), Some(NEWER));
}

#[test]
fn a_client_is_not_paired_with_a_presence_that_was_replaced() {
    let now = Instant::now();
    let mut table = PairTable::new(GRACE);
    table.handle(of_epoch(DAEMON, 7), now).unwrap();
    let client = |connection, session, epoch| TableInput::ClientArrived {
        connection,
        session: sid(session),
        epoch,
    };
    let offline = vec![tell(ANN, DaemonOffline, 1), close(ANN, DaemonOffline)];
    assert_eq!(table.handle(client(ANN, 1, 8), now), Ok(offline));
    // A token from before the daemon's present presence leads to this one.
    for (connection, session, epoch) in [(ANN, 1, 7), (BOB, 2, 6)] {
        table.handle(client(connection, session, epoch), now).unwrap();
        assert_eq!(table.state(sid(session)), Some(PairState::Paired));
    }
}

#[test]
fn a_session_that_the_relay_ends_leaves_the_others_alone() {
    let now = Instant::now();
    let mut table = busy(now);
    let told = table.handle(TableInput::Over { session: sid(1) }, now).unwrap();
    let [route, end] = expired(ANN, 1);
    assert_eq!(told, [route, end, tell(DAEMON, SessionEnded, 1)]);
    assert_eq!((table.state(sid(1)), table.state(sid(2))), (None, Some(PairState::Paired)));
    assert_eq!(table.handle(TableInput::Over { session: sid(1) }, now), Ok(vec![]), "once");
}
