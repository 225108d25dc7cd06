//! The world's relay: it reads, asks the machine, and passes on.

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::{Frame, Inbound};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::impossible::Impossible;
use bowline_sbrp::relay::{self, Link, Route};
use bytes::Bytes;

use super::World;
use crate::socket::{Item, Owner};

impl World {
    /// The relay reads one message, or notices that there will be none.
    pub(super) fn up(&mut self, link: Link) -> bool {
        let Some(socket) = self.sockets.get_mut(&link).filter(|socket| socket.relay_open) else {
            return false;
        };
        let owner = socket.owner;
        if !socket.arrived {
            socket.arrived = true;
            socket.down.push_back(Item::Open);
            self.relay(match owner {
                Owner::Daemon => relay::Event::DaemonArrived { link, resumable: self.resumable },
                Owner::Client { session, .. } => relay::Event::ClientArrived { link, session },
            });
        } else if let Some(message) = socket.up.pop_front() {
            self.message(link, owner, message);
        } else if !socket.end_open {
            self.relay_notices(link);
        } else {
            return false;
        }
        true
    }

    fn message(&mut self, link: Link, owner: Owner, message: Bytes) {
        let role = match owner {
            Owner::Daemon => Role::Daemon,
            Owner::Client { .. } => Role::Client,
        };
        match Inbound::read(role, message) {
            Ok(Inbound::Ping(beat)) => self.send_down(link, Frame::Pong(beat).encode()),
            Ok(Inbound::Pong(_)) => {}
            Ok(Inbound::Signal { session, signal }) => {
                self.relay(relay::Event::Signalled { link, session, signal });
            }
            Ok(Inbound::Forward { session, message }) => {
                let route = match owner {
                    Owner::Daemon => self.berth.route_from_daemon(link, session),
                    Owner::Client { session: token, .. } => {
                        self.berth.route_from_client(link, token, session)
                    }
                };
                match route {
                    Route::To(other) => self.send_down(other, message),
                    Route::Refuse(code) => self.refuse(link, role, code, Some(session)),
                    Route::Stale => {}
                }
            }
            Err(violation) => {
                assert!(!self.honest, "{violation}");
                let (code, session) = violation.answer();
                self.refuse(link, role, code, session);
            }
        }
    }

    fn refuse(&mut self, link: Link, role: Role, code: ControlCode, session: Option<SessionId>) {
        self.send_down(link, Frame::control(code, session).encode());
        if code.closes(role) {
            self.relay_notices(link);
        }
    }

    fn send_down(&mut self, link: Link, frame: Bytes) {
        self.archive.push(frame.clone());
        if let Some(socket) = self.sockets.get_mut(&link) {
            socket.send_down(frame);
        }
    }

    /// The relay's side of a socket is closed, by whomever.
    pub(super) fn relay_notices(&mut self, link: Link) {
        let Some(socket) = self.sockets.get_mut(&link).filter(|socket| socket.relay_open) else {
            return;
        };
        socket.relay_open = false;
        let arrived = socket.arrived;
        let owner = socket.owner;
        if arrived {
            self.relay(match owner {
                Owner::Daemon => relay::Event::DaemonLeft { link },
                Owner::Client { session, .. } => relay::Event::ClientLeft { link, session },
            });
        }
    }

    pub(super) fn relay(&mut self, event: relay::Event) {
        let actions = self.berth.handle(event, self.now);
        let actions = self.possible(actions);
        for action in actions {
            match action {
                relay::Action::Tell { link, code, session } => {
                    self.send_down(link, Frame::control(code, session).encode());
                }
                relay::Action::Close { link } => self.relay_notices(link),
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
