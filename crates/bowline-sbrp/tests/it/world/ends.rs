//! The world's daemon and clients: they read, ask their machines, and report to the ledger.

use bowline_sbrp::client::{Client, ClientAction, ClientInput, Notice};
use bowline_sbrp::control::SdkCode;
use bowline_sbrp::daemon::{DaemonAction, DaemonInput, Progress};
use bowline_sbrp::frame::Frame;
use bowline_sbrp::handshake::Trust;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::ConnectionId;

use super::{World, daemon_id, identity};
use crate::ledger::{Ledger, To};
use crate::socket::{Item, Owner};

impl World {
    /// An end reads one message, or notices that there will be none.
    pub(super) fn down(&mut self, connection: ConnectionId) -> bool {
        let Some(socket) = self.sockets.get_mut(&connection).filter(|socket| socket.end_open)
        else {
            return false;
        };
        let owner = socket.owner;
        match socket.down.pop_front() {
            Some(item) => self.arrives(owner, connection, item),
            None if !socket.relay_open => self.end_notices(connection),
            None => return false,
        }
        true
    }

    fn arrives(&mut self, owner: Owner, connection: ConnectionId, item: Item) {
        match (owner, item) {
            (Owner::Daemon, Item::Open) => self.daemon(DaemonInput::Connected),
            (Owner::Client { at, session }, Item::Open) => {
                let ephemeral = self.ephemeral();
                self.client(at, ClientInput::Opened { session, ephemeral });
            }
            (owner, Item::Frame(frame)) => match (owner, Frame::decode(frame)) {
                (Owner::Daemon, Ok(frame)) => self.daemon(DaemonInput::Frame(frame)),
                (Owner::Client { at, .. }, Ok(frame)) => {
                    self.client(at, ClientInput::Frame(frame));
                }
                // What cannot be read ends the connection.
                (_, Err(violation)) => {
                    assert!(!self.honest, "{violation}");
                    self.end_notices(connection);
                }
            },
        }
    }

    /// The end's side of a socket is closed, by whomever.
    pub(super) fn end_notices(&mut self, connection: ConnectionId) {
        let Some(socket) = self.sockets.get_mut(&connection).filter(|socket| socket.end_open)
        else {
            return;
        };
        socket.end_open = false;
        match socket.owner {
            Owner::Daemon if self.daemon_socket == Some(connection) => {
                self.daemon_socket = None;
                self.daemon_lost();
            }
            Owner::Daemon => {}
            Owner::Client { at, session } if self.clients[at].1 == Some(connection) => {
                self.clients[at].1 = None;
                if self.clients[at].0.state() == "connecting" {
                    self.client(at, ClientInput::Unreachable);
                } else {
                    self.client(at, ClientInput::Lost { session });
                }
            }
            Owner::Client { .. } => {}
        }
    }

    fn daemon_lost(&mut self) {
        let lost = self.daemon.handle(DaemonInput::Disconnected, self.now);
        // A connection that never came up was never lost, either.
        self.daemon_actions(lost.unwrap_or_default());
    }

    pub(super) fn connect(&mut self, at: usize) {
        // Whom a lying relay made give up is started again by its user.
        if !self.honest && self.clients[at].0.state() == "closed" {
            self.clients[at] = (Client::new(daemon_id(), Trust::Key(identity().public())), None);
        }
        if ["idle", "reconnecting"].contains(&self.clients[at].0.state()) {
            self.client(at, ClientInput::Connect);
        }
    }

    /// The old socket is given up without a word: the relay has to find out.
    pub(super) fn daemon_connect(&mut self) {
        if let Some(old) = self.daemon_socket.take() {
            self.daemon_lost();
            if let Some(socket) = self.sockets.get_mut(&old) {
                socket.end_open = false;
            }
        }
        self.daemon_socket = Some(self.open(|_| Owner::Daemon));
    }

    pub(super) fn client_says(&mut self, at: usize) -> Option<Vec<u8>> {
        let client = &self.clients[at].0;
        let session = client.session().filter(|_| client.state() != "handshaking")?;
        let text = format!("client {at} says {}", self.fresh()).into_bytes();
        self.ledger.said(session, To::Daemon, &text);
        self.client(at, ClientInput::Send(text.clone().into()));
        Some(text)
    }

    pub(super) fn daemon_says(&mut self, session: SessionId) -> Option<Vec<u8>> {
        self.daemon.session(session).filter(|session| session.is_active())?;
        let text = format!("daemon says {}", self.fresh()).into_bytes();
        self.ledger.said(session, To::Client, &text);
        self.daemon(DaemonInput::Send { session, plaintext: text.clone().into() });
        Some(text)
    }

    pub(super) fn client(&mut self, at: usize, event: ClientInput) {
        let (client, connection) = &mut self.clients[at];
        let (connection, from, session) = (*connection, client.state(), client.session());
        let done = client.handle(event, self.now);
        Ledger::stepped(from, client.state());
        let session = session.or(client.session());
        let actions = self.possible(done);
        for action in actions {
            use ClientAction::*;
            match action {
                Connect => {
                    let connection = self.open(|number| Owner::Client {
                        at,
                        session: SessionId::from_wire(number).unwrap(),
                    });
                    self.clients[at].1 = Some(connection);
                    continue;
                }
                Send(frame) => {
                    self.send_up(connection, frame);
                    continue;
                }
                CloseSocket => {
                    if let Some(socket) =
                        connection.and_then(|connection| self.sockets.get_mut(&connection))
                    {
                        socket.end_open = false;
                        self.clients[at].1 = None;
                    }
                }
                Pin(proven) => {
                    assert_eq!(proven.key(), &identity().public());
                    continue;
                }
                Established(_) => continue,
                Deliver(opened) => {
                    self.ledger.heard(session.unwrap(), To::Client, opened);
                    continue;
                }
                Refused(code) => {
                    assert!(!self.honest || code == SdkCode::HandshakeTimeout, "{code:?}");
                }
                Failed(failure) => assert!(!self.honest, "{failure:?}"),
                Show(Notice::Resumed) => self.resumed += 1,
                Show(_) | ConnectLater | Unsent(_) => {}
            }
            // Whatever got here tells the program that its session was disturbed.
            session.into_iter().for_each(|session| self.ledger.disturbed(session));
        }
    }

    pub(super) fn daemon(&mut self, event: DaemonInput) {
        let done = self.daemon.handle(event, self.now);
        let actions = self.possible(done);
        self.daemon_actions(actions);
    }

    fn daemon_actions(&mut self, actions: Vec<DaemonAction>) {
        for action in actions {
            match action {
                DaemonAction::Send(frame) => self.send_up(self.daemon_socket, frame),
                DaemonAction::Offer(session) => {
                    let ephemeral = self.ephemeral();
                    self.daemon(DaemonInput::Answer { session, ephemeral });
                }
                DaemonAction::Session(session, progress) => match progress {
                    Progress::Established(_) => self.ledger.daemon_agreed(session),
                    Progress::Deliver(opened) => self.ledger.heard(session, To::Daemon, opened),
                    Progress::Refused(code) => assert!(!self.honest, "{code:?}"),
                    Progress::Suspended | Progress::Resumed | Progress::Ended(_) => {
                        self.ledger.disturbed(session);
                    }
                },
                DaemonAction::Told(_) => {}
            }
        }
    }
}
