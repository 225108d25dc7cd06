//! The world's relay: it reads, asks the machine, and passes on.

use std::collections::BTreeSet;

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::{Frame, Inbound};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::impossible::Impossible;
use bowline_sbrp::relay::{
    ClientRoute, ConnectionId, PairState, Rejected, Route, TableAction, TableInput,
};
use bytes::Bytes;

use super::World;
use crate::socket::{Item, Owner, Routed};

impl World {
    /// The relay reads one message, hands on one that it has read, or notices that there will be
    /// none.
    pub(super) fn up(&mut self, connection: ConnectionId) -> bool {
        let Some(socket) = self.sockets.get_mut(&connection).filter(|socket| socket.relay_open)
        else {
            return false;
        };
        let (owner, closing) = (socket.owner, socket.closing);
        if !socket.arrived {
            socket.arrived = true;
            socket.down.push_back(Item::Open);
            self.relay(match owner {
                Owner::Daemon => TableInput::DaemonArrived {
                    epoch: 0,
                    connection,
                    resumable: self.resumable,
                    max_sessions: u64::MAX,
                },
                Owner::Client { session, .. } => {
                    TableInput::ClientArrived { connection, session, epoch: 0 }
                }
            });
        } else if let Some(routed) = socket.routed.take() {
            self.hand_on(connection, owner, routed);
        } else if let Some(message) = socket.up.pop_front() {
            self.message(connection, owner, message);
        } else if !socket.end_open {
            self.relay_notices(connection);
        } else if !closing {
            return false;
        }
        // A connection that is closed in the meantime reads no further.
        if closing {
            self.relay_notices(connection);
        }
        true
    }

    fn message(&mut self, connection: ConnectionId, owner: Owner, message: Bytes) {
        let role = role(owner);
        match Inbound::read(role, message) {
            Ok(Inbound::Ping(ping)) => self.send_down(connection, Frame::Pong(ping).encode()),
            Ok(Inbound::Pong(_)) => {}
            Ok(Inbound::Signal { session, signal }) => {
                self.relay(TableInput::Signalled { connection, session, signal });
            }
            Ok(Inbound::Forward { session, message }) => {
                self.route(connection, owner, session, message, true);
            }
            Err(violation) => {
                assert!(!self.honest, "{violation}");
                let (code, session) = violation.answer();
                self.refuse(connection, role, code, session);
            }
        }
    }

    /// Routes a frame as the running relay does: a client's by the route beside its queue, a
    /// daemon's by what its connection remembers, and by the table if that is nothing.
    fn route(
        &mut self,
        connection: ConnectionId,
        owner: Owner,
        session: SessionId,
        message: Bytes,
        first: bool,
    ) {
        let socket = &self.sockets[&connection];
        let route = match owner {
            Owner::Client { session: token, .. } => socket.route.route(token, session),
            Owner::Daemon => match socket.cache.find(session) {
                Some(to) => Route::To(*to),
                None => self.ask_table(connection, session),
            },
        };
        let socket = self.sockets.get_mut(&connection).unwrap();
        match route {
            Route::To(to) => socket.routed = Some(Routed { session, message, to, first }),
            Route::Refuse(code) => self.refuse(connection, role(owner), code, Some(session)),
            // It waits, and is lost with its connection, which is being closed.
            Route::Stale => assert!(socket.closing, "a current connection is stale: {owner:?}"),
        }
    }

    fn ask_table(&mut self, daemon: ConnectionId, session: SessionId) -> Route {
        let route = self.table.route_from_daemon(daemon, session);
        if let Route::To(to) = route {
            let open = self.sockets.iter().filter(|(_, socket)| socket.takes());
            let open: BTreeSet<_> = open.map(|(connection, _)| *connection).collect();
            let cache = &mut self.sockets.get_mut(&daemon).unwrap().cache;
            cache.learn(session, to, |to| open.contains(to));
        }
        route
    }

    /// Between reading and this, anything may have happened: the receiver decides.
    fn hand_on(&mut self, connection: ConnectionId, owner: Owner, routed: Routed) {
        let Routed { session, message, to, first } = routed;
        let accepts = self.sockets.get(&to).is_some_and(|receiver| {
            receiver.takes() && (owner != Owner::Daemon || receiver.route.accepts(connection))
        });
        if accepts {
            // What a client accepts from its daemon, the table would have let through.
            if owner == Owner::Daemon {
                let asked = self.table.route_from_daemon(connection, session);
                assert_eq!(asked, Route::To(to), "in {session}");
            }
            return self.send_down(to, message);
        }
        match Rejected::after(role(owner), first) {
            Rejected::Wait => self.sockets.get_mut(&connection).unwrap().up.push_front(message),
            Rejected::RouteAgain => {
                self.sockets.get_mut(&connection).unwrap().cache.forget(session);
                self.route(connection, owner, session, message, false);
            }
            Rejected::Discard => {}
        }
    }

    fn refuse(
        &mut self,
        connection: ConnectionId,
        role: Role,
        code: ControlCode,
        session: Option<SessionId>,
    ) {
        self.send_down(connection, Frame::control(code, session).encode());
        if code.closes(role) {
            self.relay_notices(connection);
        }
    }

    fn send_down(&mut self, connection: ConnectionId, frame: Bytes) {
        self.archive.push(frame.clone());
        if let Some(socket) = self.sockets.get_mut(&connection) {
            socket.send_down(frame);
        }
    }

    /// The relay's side of a socket is closed, by whomever.
    pub(super) fn relay_notices(&mut self, connection: ConnectionId) {
        let Some(socket) = self.sockets.get_mut(&connection).filter(|socket| socket.relay_open)
        else {
            return;
        };
        socket.relay_open = false;
        socket.routed = None;
        socket.route = ClientRoute::Closed;
        let arrived = socket.arrived;
        let owner = socket.owner;
        if arrived {
            self.relay(match owner {
                Owner::Daemon => TableInput::DaemonLeft { connection },
                Owner::Client { session, .. } => TableInput::ClientLeft { connection, session },
            });
        }
    }

    pub(super) fn relay(&mut self, event: TableInput) {
        let actions = self.table.handle(event, self.now);
        let actions = self.possible(actions);
        for action in actions {
            match action {
                TableAction::Reroute { connection, route, tell } => {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        socket.route = route;
                    }
                    if let Some((code, session)) = tell {
                        self.send_down(connection, Frame::control(code, Some(session)).encode());
                    }
                }
                TableAction::Tell { connection, code, session } => {
                    self.send_down(connection, Frame::control(code, session).encode());
                }
                TableAction::Close { connection, .. } => {
                    if let Some(socket) = self.sockets.get_mut(&connection) {
                        socket.closing = true;
                    }
                }
            }
        }
        self.check_routes();
    }

    /// What was handed out is what the table says.
    fn check_routes(&self) {
        for (connection, socket) in self.sockets.iter().filter(|(_, socket)| socket.relay_open) {
            if let Owner::Client { session, .. } = socket.owner {
                assert_eq!(
                    socket.route,
                    self.table.client_route(*connection, session),
                    "of {connection:?}"
                );
                if let Some(daemon) = socket.route.daemon() {
                    assert_eq!(self.table.state(session), Some(PairState::Paired));
                    assert_eq!(self.table.daemon(), Some(daemon));
                }
            }
        }
    }

    /// With an honest relay, nothing impossible happens; with another one, it is refused.
    pub(super) fn possible<T: Default>(&self, done: Result<T, Impossible>) -> T {
        match done {
            Ok(actions) => actions,
            // The client's last words to a session that the daemon has just ended.
            Err(Impossible { state: "not in this session", event: "data" }) => T::default(),
            Err(impossible) => {
                assert!(!self.honest, "{impossible}");
                T::default()
            }
        }
    }
}

fn role(owner: Owner) -> Role {
    match owner {
        Owner::Daemon => Role::Daemon,
        Owner::Client { .. } => Role::Client,
    }
}
