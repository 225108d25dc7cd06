//! What happens when a surface attaches, from top to bottom.
//!
//! Upgrade → `ATTACH_SESSION` → watch the session → attach → drain what was missed → go live. One pump
//! reads the log from where the surface stands and then the live text; a change of what it watches
//! only wakes it. Nothing here decides what is delivered: that is [`Delivery`]. Nothing here runs
//! turns: that is the session's actor. Nor is anything rewritten here: a translation is made
//! elsewhere, and only its words come by.
//!
//! Invariants
//! - Watched before attached: a turn that ends in between is in the log or still to be seen.
//! - The socket is always read: results, cancels and pongs never wait behind messages.
//! - Everything this task does is conditional on its epoch (G6): once its owner has closed it, it is
//!   a bystander that only says goodbye.
//! - A surface that does not read is let go after the write timeout; nothing is lost, because
//!   nothing was confirmed (G12).

mod authenticate;
mod backlog;
mod confirm;
mod held;
mod inputs;
mod notices;
mod pump;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bowline_net::Peer;
use bowline_net::backoff::{Backoff, Retry};
use bowline_sbp::delivery::{Delivery, Mode};
use bowline_sbp::error::{Close, Code, Failure};
use bowline_sbp::frame::{ClientFrame, ServerFrame, SessionAttached};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::keepalive::{Keepalive, Rhythm, Verdict};
use bowline_sbp::session::{Attach, Command};
use bowline_sbp::{SBP_LEVEL, SBP_VERSION, SBP_VERSION_0_9};
use bowline_store::Arrival;
use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::authenticate::{Authenticated, REVOKED, authenticate, forbidden, not_found};
use self::backlog::Backlog;
use self::confirm::Confirming;
use self::inputs::{Answered, Inputs};
use self::notices::Notices;
use crate::auth::Credentials;
use crate::clock;
use crate::http::{ApiError, App, credentials};
use crate::session::{Attachment, Live, Reporter, SessionHandle, TextBuffer};
use crate::socket::{READ_BUFFER, Received, Socket, SocketEnd, WRITE_BATCH};
use crate::translate::{self, PassEnd, Translator};

/// The pause between two chunks of a turn: a model that is faster than anyone reads is credentials in
/// fewer, larger pieces, so that many surfaces can follow it.
const CHUNK_PAUSE: Duration = Duration::from_millis(4);
/// Verdicts and cancels of one surface that may be on their way to the session.
const COMMANDS: usize = 64;
/// The pauses before one that was not taken is sent again.
const COMMAND_BACKOFF: Backoff =
    Backoff { start: Duration::from_millis(100), cap: Duration::from_secs(2) };

/// `GET /v1/sbp/ws/{session_id}`.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(Peer { place, .. }): Extension<Peer>,
    Path(session_id): Path<String>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let message = format!("surfaces attach by WebSocket: {rejection}");
            return ApiError::new(Code::MalformedRequest, message).into_response();
        }
    };
    let largest = app.engine.limits.surface_message;
    let credentials = credentials(&headers);
    let tracker = app.surfaces.clone();
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BATCH)
        // Frames are fed one at a time, and each waits for a socket that is behind: the buffer
        // holds a batch and one frame. A bound here would only make that frame undeliverable.
        .max_write_buffer_size(usize::MAX)
        .max_message_size(largest)
        .max_frame_size(largest)
        .on_upgrade(move |socket| {
            tracker.track_future(async move {
                let _place = place;
                let socket = Box::new(Socket::new(socket, app.engine.limits.write_timeout));
                serve(&app, socket, session_id, credentials).await;
            })
        })
}

/// The whole life of a socket. What is handed over here is boxed: whatever moves is held twice, for
/// as long as the surface stays.
async fn serve(app: &Arc<App>, mut socket: Box<Socket>, path: String, credentials: Credentials) {
    let arrived = match Box::pin(arrive(app, &mut socket, path, credentials)).await {
        Ok(arrived) => arrived,
        Err(end) => return Box::pin(socket.end(end)).await,
    };
    let reporter = arrived.attachment.reporter();
    metrics::gauge!("bowline_surfaces_attached").increment(1.0);
    let mut surface = SurfaceTask::new(app, &mut socket, *arrived);
    // A panic ends this surface, not the gateway, and not without detaching.
    let live = std::panic::AssertUnwindSafe(surface.live()).catch_unwind();
    let end = live.await.unwrap_or_else(|_| {
        metrics::counter!("bowline_panics_total").increment(1);
        SocketEnd::Bare(Close::TryAgain)
    });
    // What it has confirmed is not asked of it again.
    surface.confirming.settle().await;
    drop(surface);
    metrics::gauge!("bowline_surfaces_attached").decrement(1.0);
    reporter.gone();
    Box::pin(socket.end(end)).await;
}

/// A surface that was attached and has been told so.
struct Arrived {
    handle: SessionHandle,
    attachment: Attachment,
    joined: bool,
    explicit_ack: bool,
    pending: u64,
    backlog: Option<Backlog>,
    translator: Option<Box<Translator>>,
}

/// Finds out who comes, attaches the surface and says hello.
async fn arrive(
    app: &Arc<App>,
    socket: &mut Socket,
    path: String,
    credentials: Credentials,
) -> Result<Box<Arrived>, SocketEnd> {
    let Authenticated { arrival, frame, device } =
        authenticate(app, socket, &path, &credentials).await?;
    let session_id = arrival.session.id;
    let handle = app.sessions.handle(session_id);
    let store = &app.engine.store;
    // What is probably to be sent is read while the attachment is written.
    let backlog = (arrival.pending > 0)
        .then(|| Backlog::after(Arc::clone(store), session_id, arrival.cursor, frame.join));
    let tools = frame.surface.mcp_tools.iter().filter(|tool| app.engine.tools.allows(&tool.name));
    let attach = Attach {
        socket: Uuid::new_v4(),
        edge: app.sessions.me(),
        surface: frame.surface.clone(),
        tools: tools.cloned().collect(),
        device,
        join: frame.join,
        take_over: frame.take_over,
    };
    let registered = attach.tools.iter().map(|tool| tool.name.clone()).collect();
    let attachment = handle.attach(attach).await.map_err(|failure| refused(&failure, &path))?;
    let pending = pending(app, &arrival, &attachment).await.map_err(|_| {
        attachment.reporter().gone();
        SocketEnd::Bare(Close::TryAgain)
    })?;
    let context = &attachment.attached.context;
    let translator = app.translation.translator(&arrival.session.agent_id, context);
    let hello = ServerFrame::SessionAttached(SessionAttached {
        session_id,
        surface_id: context.surface_id.clone(),
        device_type: frame.surface.device_type.as_str().to_owned(),
        queued_turns: pending,
        tether_turns_pending: pending,
        mcp_tools_registered: registered,
        sbp_version: match frame.sbp_version.as_deref() {
            Some(SBP_VERSION_0_9) => SBP_VERSION_0_9.into(),
            Some(_) => SBP_VERSION.into(),
            None => app.wire_version.as_str().into(),
        },
        sbp_level: SBP_LEVEL.into(),
    });
    if let Err(end) = socket.send(&hello).await {
        attachment.reporter().gone();
        return Err(end);
    }
    let (joined, explicit_ack) = (frame.join, frame.explicit_ack);
    Ok(Box::new(Arrived { handle, attachment, joined, explicit_ack, pending, backlog, translator }))
}

/// How many turns the surface will get: what was read before it attached, if that still holds.
async fn pending(
    app: &App,
    arrival: &Arrival,
    attachment: &Attachment,
) -> bowline_store::Result<u64> {
    let attached = &attachment.attached;
    if (arrival.cursor, arrival.session.last_seq) == (attached.cursor, attached.head) {
        return Ok(arrival.pending);
    }
    let device = attached.context.surface_id.clone();
    let now = app.engine.store.arrival(arrival.session.id, device).await?;
    Ok(now.map_or(0, |now| now.pending))
}

/// Why a surface could not be attached.
fn refused(failure: &Failure, path: &str) -> SocketEnd {
    match failure.code {
        Code::SessionNotFound => not_found(path),
        Code::Forbidden => forbidden(REVOKED),
        Code::RateLimited => {
            let detail = failure.message.clone();
            SocketEnd::with(ServerFrame::ProtocolError { detail }, Close::TryAgain)
        }
        _ => SocketEnd::Bare(Close::TryAgain),
    }
}

/// Passes a surface's verdicts and cancels on, one after the other, each for as long as it takes: it
/// was given, and nobody will give it again. They name what they are about, so twice is once.
async fn pass_on(
    handle: SessionHandle,
    stop: CancellationToken,
    mut commands: mpsc::Receiver<Command>,
) {
    while let Some(command) = commands.recv().await {
        let mut retry = Retry::new(COMMAND_BACKOFF);
        loop {
            match handle.done(command.clone()).await {
                Err(failure) if failure.code == Code::NotNow && !stop.is_cancelled() => {
                    tokio::time::sleep(retry.wait(getrandom::u32().unwrap_or_default())).await;
                }
                Err(failure) => {
                    let code = failure.code.as_str();
                    tracing::warn!(code, "a surface's verdict or cancel was not taken");
                    break;
                }
                Ok(()) => break,
            }
        }
    }
}

/// Resolves when that time has come, if it ever does.
async fn over(until: Option<Timestamp>) {
    match until {
        None => std::future::pending().await,
        Some(until) => {
            let left = clock::now().duration_until(until);
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        }
    }
}

/// Resolves at that time, if there is one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the running turn has more text.
async fn grew(text: &mut Option<(Arc<TextBuffer>, watch::Receiver<()>)>) {
    let open = match text {
        Some((_, grew)) => grew.changed().await.is_ok(),
        None => false,
    };
    // With nobody who writes it, its end is seen in the log.
    if !open {
        std::future::pending().await
    }
}

/// An attached surface.
struct SurfaceTask<'a> {
    app: &'a Arc<App>,
    socket: &'a mut Socket,
    handle: SessionHandle,
    reporter: Reporter,
    watched: watch::Receiver<Live>,
    session_id: SessionId,
    epoch: u64,
    /// It is credentials what others ask, and who is there (SBP-L2-20).
    joined: bool,
    /// When the device's own token ends.
    until: Option<Timestamp>,
    pending: u64,
    delivery: Delivery,
    /// The log has been read up to here.
    read: u64,
    /// What was pending, read ahead.
    backlog: Option<Backlog>,
    /// The running turn's text, and how to hear of more.
    text: Option<(Arc<TextBuffer>, watch::Receiver<()>)>,
    /// When the next chunk may go out, and whether one waits for that.
    next_chunk: Instant,
    chunk_waits: bool,
    keepalive: Keepalive,
    inputs: Inputs,
    confirming: Confirming,
    /// Verdicts and cancels on their way to the session; none before the first.
    commands: Option<mpsc::Sender<Command>>,
    notices: Notices,
    /// Turns whose question it has seen, its own or one that it was credentials, and not yet the answer.
    asked: HashSet<TurnId>,
    /// None for most: turns come as they are, or as the rules have them.
    translator: Option<Box<Translator>>,
}

impl<'a> SurfaceTask<'a> {
    fn new(app: &'a Arc<App>, socket: &'a mut Socket, arrived: Arrived) -> Self {
        let Arrived { handle, attachment, joined, explicit_ack, pending, backlog, translator } =
            arrived;
        let attached = &attachment.attached;
        let session_id = handle.id();
        let mode = if attached.context.streams() { Mode::Chunks } else { Mode::Whole };
        let limits = &app.engine.limits;
        let rhythm = Rhythm { every: limits.ping_every, patience: limits.pong_timeout };
        Self {
            app,
            socket,
            confirming: Confirming::new(handle.clone(), attached.epoch),
            inputs: Inputs::new(handle.clone(), attached.epoch),
            handle,
            reporter: attachment.reporter(),
            watched: attachment.live.clone(),
            session_id,
            epoch: attached.epoch,
            joined,
            until: attached.until,
            pending,
            delivery: Delivery::new(session_id, mode, attached.cursor, attached.head)
                .in_form(attached.context.form())
                .translating(translator.is_some())
                .acked_explicitly(explicit_ack),
            // With nothing pending there is nothing to read up to here; but for questions.
            read: if pending == 0 && !joined { attached.head } else { 0 },
            backlog,
            text: None,
            next_chunk: Instant::now(),
            chunk_waits: false,
            keepalive: Keepalive::new(rhythm, Instant::now()),
            commands: None,
            notices: Notices::new(attached.epoch, joined),
            asked: HashSet::new(),
            translator,
        }
    }

    /// Drains, goes live; gives the reason for the end.
    async fn live(&mut self) -> SocketEnd {
        // What was pending is read even if nothing wakes us.
        let mut look_at_log = self.pending > 0;
        loop {
            if let Err(end) = self.pump(look_at_log).await {
                return end;
            }
            look_at_log = false;
            let deadline = tokio::time::Instant::from_std(self.keepalive.deadline());
            let until = self.until;
            let chunk_due = self.chunk_waits.then_some(self.next_chunk);
            let step = tokio::select! {
                () = over(until) => Err(forbidden(REVOKED)),
                received = self.socket.frame() => {
                    self.keepalive.heard(Instant::now());
                    self.heard(received).await
                }
                changed = self.watched.changed() => {
                    changed.map_err(|_| SocketEnd::Bare(Close::TryAgain))
                }
                () = grew(&mut self.text), if !self.chunk_waits => Ok(()),
                () = due(chunk_due) => Ok(()),
                answered = self.inputs.next() => self.answered(answered).await,
                confirmed = self.confirming.next() => {
                    // Unconfirmed turns come again; that is all that can happen.
                    confirmed.map_err(|()| SocketEnd::Bare(Close::TryAgain))
                }
                Some(said) = translate::next(&mut self.translator) => self.said(said).await,
                () = tokio::time::sleep_until(deadline) => {
                    match self.keepalive.poll(Instant::now()) {
                        Verdict::Wait => Ok(()),
                        Verdict::Dead => Err(SocketEnd::Silent),
                        Verdict::Ping => {
                            // A slow look that covers a wake-up lost between replicas.
                            look_at_log = true;
                            self.ask_for_life().await
                        }
                    }
                }
                () = self.app.stop.cancelled() => Err(SocketEnd::Bare(Close::ServiceRestart)),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn ask_for_life(&mut self) -> Result<(), SocketEnd> {
        // Both kinds: the protocol's frame, and the one that every library answers by itself.
        self.socket.feed(&ServerFrame::Ping {}).await?;
        self.socket.ping([0; 8]).await
    }

    async fn heard(&mut self, received: Received) -> Result<(), SocketEnd> {
        let frame = match received {
            Received::Gone(end) => return Err(end),
            Received::Pong(payload) => {
                self.confirming.reached(self.delivery.pong(&payload));
                return Ok(());
            }
            Received::Unreadable(detail) => {
                return self.socket.send(&ServerFrame::ProtocolError { detail }).await;
            }
            Received::Frame(frame) => frame,
        };
        match frame {
            ClientFrame::Detach => Err(SocketEnd::Bare(Close::Normal)),
            ClientFrame::Ping => self.socket.send(&ServerFrame::Pong {}).await,
            ClientFrame::Ack { seq } => {
                self.confirming.reached(self.delivery.ack(seq));
                Ok(())
            }
            ClientFrame::UserMessage(message) => match self.inputs.push(message) {
                Ok(()) => {
                    self.inputs.start(self.app);
                    Ok(())
                }
                Err(refused) => self.socket.send(&refused).await,
            },
            ClientFrame::Cancel => Box::pin(self.cancel()).await,
            ClientFrame::ToolResult { call_id, result, error } => {
                if let Some(call) = self.notices.answered(&call_id) {
                    self.reporter.answered(call, error.map_or(Ok(result), Err));
                }
                Ok(())
            }
            ClientFrame::Decide { approval_id: approval, approved } => {
                self.tell(Command::Decide { approval, approved }).await
            }
            // A repeated attach changes nothing (SBP-L2-16).
            ClientFrame::Attach(_) | ClientFrame::Pong | ClientFrame::Unknown => Ok(()),
        }
    }

    /// Stops the running turn that the surface sees, and all that it sent before.
    async fn cancel(&mut self) -> Result<(), SocketEnd> {
        for frame in self.inputs.discard() {
            self.socket.send(&frame).await?;
        }
        let state = Arc::clone(&self.watched.borrow().state);
        let mine = |sender: Option<u64>| sender == Some(self.epoch);
        let turns = state.turns.iter().filter(|turn| turn.running || mine(turn.sender));
        let turns: Vec<_> = turns.map(|turn| turn.id).collect();
        // With no turn running, what is still on its way is a translation.
        if turns.is_empty() {
            return self.release(PassEnd::Dropped).await;
        }
        self.tell(Command::Cancel { turns, running: false }).await
    }

    /// Passes something on to the session, after all that was passed on before, and also if the
    /// surface leaves meanwhile. How it went is seen where it is waited for.
    async fn tell(&mut self, command: Command) -> Result<(), SocketEnd> {
        let (handle, stop) = (&self.handle, &self.app.stop);
        let commands = self.commands.get_or_insert_with(|| {
            let (commands, waiting) = mpsc::channel(COMMANDS);
            tokio::spawn(pass_on(handle.clone(), stop.clone(), waiting));
            commands
        });
        match commands.try_send(command) {
            Ok(()) => Ok(()),
            Err(_) => {
                let detail = format!("more than {COMMANDS} verdicts and cancels wait: not taken");
                self.socket.send(&ServerFrame::ProtocolError { detail }).await
            }
        }
    }

    /// Messages of this surface whose reply is there. A turn that it asked for is replied to before it
    /// is in the log: its question is known here by then.
    async fn take_replies(&mut self) -> Result<(), SocketEnd> {
        while let Some(answered) = self.inputs.next().now_or_never() {
            self.answered(answered).await?;
        }
        Ok(())
    }

    /// A message of this surface was accepted or refused.
    async fn answered(&mut self, answered: Answered) -> Result<(), SocketEnd> {
        let Answered { frame, turn, cancelled } = answered;
        if let Some(turn) = turn {
            self.asked.insert(turn);
            if cancelled {
                self.tell(Command::Cancel { turns: vec![turn], running: false }).await?;
            }
        }
        self.inputs.start(self.app);
        match frame {
            Some(frame) => self.socket.send(&frame).await,
            None => Ok(()),
        }
    }
}
