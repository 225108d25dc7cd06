//! A relay for tests: the real state machine over real sockets, and hooks to misbehave.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::frame::{Frame, Inbound, Signal};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::relay::{ConnectionId, PairTable, Route, TableAction, TableInput};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// Sees every forwarded message and says what becomes of it.
type Hook = Box<dyn FnMut(Role, Bytes) -> Vec<Bytes> + Send>;

pub(crate) struct Relay {
    pub(crate) port: u16,
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
    next: AtomicU64,
    /// New daemons are turned away.
    pub(crate) no_daemons: AtomicBool,
    /// Nothing is read or answered any more.
    pub(crate) mute: AtomicBool,
    /// What a replaced daemon's connection is closed with.
    pub(crate) replaced_code: AtomicU64,
    pub(crate) daemons_seen: AtomicUsize,
    pub(crate) clients_seen: AtomicUsize,
    pub(crate) pings: AtomicUsize,
    /// Everything that passed through, as it was.
    pub(crate) passed: Mutex<Vec<u8>>,
    pub(crate) signals: Mutex<Vec<Signal>>,
    /// What daemons sent but pings, byte for byte and in order.
    pub(crate) from_daemons: Mutex<Vec<Bytes>>,
}

struct State {
    grace: Duration,
    tables: BTreeMap<String, PairTable>,
    connections: HashMap<ConnectionId, (Role, mpsc::UnboundedSender<Out>)>,
}

enum Out {
    Message(Bytes),
    Close(u16),
    /// Without a word.
    Cut,
}

/// What a test's token says: `daemon:<id>:<serial>:<resumable>` or `client:<id>:<sid>`.
#[derive(Clone)]
struct Token {
    role: Role,
    daemon: String,
    session: Option<SessionId>,
    resumable: bool,
}

impl Relay {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            state: Mutex::new(State {
                grace: Duration::from_secs(30),
                tables: BTreeMap::new(),
                connections: HashMap::new(),
            }),
            hook: Mutex::new(None),
            next: AtomicU64::new(1),
            no_daemons: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            replaced_code: AtomicU64::new(4009),
            daemons_seen: AtomicUsize::new(0),
            clients_seen: AtomicUsize::new(0),
            pings: AtomicUsize::new(0),
            passed: Mutex::new(Vec::new()),
            signals: Mutex::new(Vec::new()),
            from_daemons: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&relay);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        let ticking = Arc::clone(&relay);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let ids: Vec<_> = ticking.state.lock().unwrap().tables.keys().cloned().collect();
                ids.iter().for_each(|id| ticking.happened(id, TableInput::Tick));
            }
        });
        relay
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/relay", self.port)
    }

    /// From now on each forwarded message goes through `hook`.
    pub(crate) fn meddle(&self, hook: impl FnMut(Role, Bytes) -> Vec<Bytes> + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn set_grace(&self, grace: Duration) {
        self.state.lock().unwrap().grace = grace;
    }

    /// Every connection of that kind breaks off.
    pub(crate) fn cut(&self, role: Role) {
        let state = self.state.lock().unwrap();
        for (_, out) in state.connections.values().filter(|(one, _)| *one == role) {
            let _ = out.send(Out::Cut);
        }
    }

    /// Every connection of that kind is closed with this code.
    pub(crate) fn close(&self, role: Role, code: u16) {
        let state = self.state.lock().unwrap();
        for (_, out) in state.connections.values().filter(|(one, _)| *one == role) {
            let _ = out.send(Out::Close(code));
        }
    }

    /// All connections break off, and nothing is remembered.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock().unwrap();
        state.tables.clear();
        for (_, (_, out)) in state.connections.drain() {
            let _ = out.send(Out::Cut);
        }
    }

    /// Sends to every connection of that kind what the protocol does not foresee.
    pub(crate) fn inject(&self, role: Role, message: Bytes) {
        let state = self.state.lock().unwrap();
        for (_, out) in state.connections.values().filter(|(one, _)| *one == role) {
            let _ = out.send(Out::Message(message.clone()));
        }
    }

    pub(crate) fn is_online(&self, daemon: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        let grace = state.grace;
        let table = state.tables.entry(daemon.to_owned()).or_insert_with(|| PairTable::new(grace));
        table.daemon().is_some()
    }

    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let mut token = None;
        let look = |request: &Request, response: Response| {
            assert_eq!((request.uri().path(), request.uri().query()), ("/relay", None));
            let bearer = request.headers()["authorization"].to_str().unwrap();
            let read = Token::read(bearer.strip_prefix("Bearer ").unwrap());
            let refuse = |status: u16| {
                let mut refusal = ErrorResponse::new(None);
                *refusal.status_mut() = status.try_into().unwrap();
                Err(refusal)
            };
            match read {
                None => return refuse(401),
                Some(read)
                    if read.role == Role::Daemon && self.no_daemons.load(Ordering::SeqCst) =>
                {
                    return refuse(503);
                }
                read => token = read,
            }
            Ok(response)
        };
        let Ok(socket) = accept_hdr_async(stream, look).await else { return };
        let token = token.unwrap();
        let connection = ConnectionId(self.next.fetch_add(1, Ordering::SeqCst));
        let (mut sink, mut source) = socket.split();
        let (out, mut outgoing) = mpsc::unbounded_channel();
        self.state.lock().unwrap().connections.insert(connection, (token.role, out.clone()));
        let (arrived, left) = token.events(connection);
        match token.role {
            Role::Daemon => self.daemons_seen.fetch_add(1, Ordering::SeqCst),
            Role::Client => self.clients_seen.fetch_add(1, Ordering::SeqCst),
        };
        self.happened(&token.daemon, arrived);
        loop {
            tokio::select! {
                message = source.next() => match message {
                    _ if self.mute.load(Ordering::SeqCst) => std::future::pending().await,
                    Some(Ok(Message::Binary(message))) => self.heard(&token, connection, &out, message),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                },
                Some(next) = outgoing.recv() => match next {
                    Out::Message(message) => {
                        if sink.send(Message::Binary(message)).await.is_err() {
                            break;
                        }
                    }
                    Out::Close(code) => {
                        let close = CloseFrame { code: code.into(), reason: "".into() };
                        let _ = sink.send(Message::Close(Some(close))).await;
                    }
                    Out::Cut => break,
                },
            }
        }
        self.state.lock().unwrap().connections.remove(&connection);
        self.happened(&token.daemon, left);
    }

    fn heard(
        &self,
        token: &Token,
        connection: ConnectionId,
        out: &mpsc::UnboundedSender<Out>,
        message: Bytes,
    ) {
        if token.role == Role::Daemon && message[0] < 0x10 {
            self.from_daemons.lock().unwrap().push(message.clone());
        }
        match Inbound::read(token.role, message).unwrap() {
            Inbound::Ping(ping) => {
                self.pings.fetch_add(1, Ordering::SeqCst);
                let _ = out.send(Out::Message(Frame::Pong(ping).encode()));
            }
            Inbound::Pong(_) => {}
            Inbound::Signal { session, signal } => {
                self.signals.lock().unwrap().push(signal);
                self.happened(&token.daemon, TableInput::Signalled { connection, session, signal });
            }
            Inbound::Forward { session, message } => {
                self.passed.lock().unwrap().extend_from_slice(&message);
                let route = {
                    let mut state = self.state.lock().unwrap();
                    let table = state.tables.get_mut(&token.daemon);
                    match (token.session, table) {
                        (_, None) => Route::Stale,
                        (Some(own), Some(table)) => {
                            table.client_route(connection, own).route(own, session)
                        }
                        (None, Some(table)) => table.route_from_daemon(connection, session),
                    }
                };
                match route {
                    Route::To(peer) => {
                        let messages = match &mut *self.hook.lock().unwrap() {
                            Some(hook) => hook(token.role, message),
                            None => vec![message],
                        };
                        messages.into_iter().for_each(|one| self.send(peer, Out::Message(one)));
                    }
                    Route::Refuse(code) => self.tell(connection, code, Some(session)),
                    Route::Stale => {}
                }
            }
        }
    }

    /// Hands an event to the table and carries out what it says.
    fn happened(&self, daemon: &str, event: TableInput) {
        let actions = {
            let mut state = self.state.lock().unwrap();
            let grace = state.grace;
            let table =
                state.tables.entry(daemon.to_owned()).or_insert_with(|| PairTable::new(grace));
            table.handle(event, Instant::now()).unwrap_or_default()
        };
        for action in actions {
            match action {
                TableAction::Tell { connection, code, session } => {
                    self.tell(connection, code, session)
                }
                TableAction::Reroute { connection, tell, .. } => {
                    if let Some((code, session)) = tell {
                        self.tell(connection, code, Some(session));
                    }
                }
                TableAction::Close { connection, .. } => {
                    let role =
                        self.state.lock().unwrap().connections.get(&connection).map(|one| one.0);
                    let code = match role {
                        Some(Role::Daemon) => self.replaced_code.load(Ordering::SeqCst) as u16,
                        _ => 1000,
                    };
                    self.send(connection, Out::Close(code));
                }
            }
        }
    }

    fn tell(&self, connection: ConnectionId, code: ControlCode, session: Option<SessionId>) {
        self.send(connection, Out::Message(Frame::control(code, session).encode()));
    }

    fn send(&self, connection: ConnectionId, out: Out) {
        if let Some((_, sender)) = self.state.lock().unwrap().connections.get(&connection) {
            let _ = sender.send(out);
        }
    }
}

impl Token {
    fn read(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(':').collect();
        match *parts {
            ["daemon", id, _, resumable] => Some(Self {
                role: Role::Daemon,
                daemon: id.into(),
                session: None,
                resumable: resumable.parse().ok()?,
            }),
            ["client", id, session] => Some(Self {
                role: Role::Client,
                daemon: id.into(),
                session: Some(session.parse().ok()?),
                resumable: false,
            }),
            _ => None,
        }
    }

    fn events(&self, connection: ConnectionId) -> (TableInput, TableInput) {
        match self.session {
            Some(session) => (
                TableInput::ClientArrived { connection, session, epoch: 0 },
                TableInput::ClientLeft { connection, session },
            ),
            None => (
                TableInput::DaemonArrived {
                    epoch: 0,
                    connection,
                    resumable: self.resumable,
                    max_sessions: u64::MAX,
                },
                TableInput::DaemonLeft { connection },
            ),
        }
    }
}
