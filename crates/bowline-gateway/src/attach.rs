//! The WebSocket of one surface: upgrade, authentication, attach, catch-up, live delivery.
//!
//! Upgrade → `ATTACH_SESSION` → subscribe to the session → attach → send missed turns → live. One
//! pump reads the log from the surface's cursor on, then the text of the running turn; a change of
//! the session's state only wakes it. What is delivered is decided by [`Delivery`]. Turns run in
//! the session actor. Translations are made in [`crate::translate`]; only their text passes through
//! here.
//!
//! Invariants
//! - Subscribed before attached: a turn that ends in between is in the log, or wakes the pump.
//! - None is attached while this replica may have lost its lease.
//! - The socket is always read: tool results, cancels and pongs never wait behind user messages.
//! - Everything this task does is conditional on its epoch (G6): once the session actor has closed
//!   the attachment, this task only sends the close frame.
//! - A surface that does not read is disconnected after the write timeout. Nothing is lost, because
//!   its cursor moves only when it confirms (G12).

mod arrive;
mod authenticate;
mod backlog;
mod confirm;
mod held;
mod inputs;
mod moved;
mod notices;
mod pump;
mod rights;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bowline_net::Peer;
use bowline_net::backoff::{Backoff, Retry};
use bowline_sbp::delivery::{Delivery, Mode};
use bowline_sbp::error::{Close, Code, Failure};
use bowline_sbp::frame::{ClientFrame, ServerFrame};
use bowline_sbp::id::{SessionId, TurnId};
use bowline_sbp::keepalive::{Keepalive, KeepaliveConfig, Verdict};
use bowline_sbp::session::Command;
use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::arrive::{Arrived, arrive};
use self::authenticate::{REVOKED, forbidden};
use self::backlog::Backlog;
use self::confirm::Confirming;
use self::inputs::{Answered, Inputs};
use self::notices::Notices;
use self::rights::Rights;
use crate::auth::Credentials;
use crate::clock;
use crate::http::{ApiError, App};
use crate::session::{Live, Reporter, SessionHandle, TextBuffer};
use crate::socket::{READ_BUFFER, Received, Socket, SocketEnd, WRITE_BATCH};
use crate::translate::{self, PassEnd, Translator};

/// The shortest time between two chunks of a turn: a model that is faster than that is sent in
/// fewer, larger chunks, so that many surfaces can follow it.
const CHUNK_PAUSE: Duration = Duration::from_millis(4);
/// The most approval decisions and cancels of one surface that wait for the session actor.
const COMMANDS: usize = 64;
/// The back-off before such a command is sent again.
const COMMAND_BACKOFF: Backoff =
    Backoff { start: Duration::from_millis(100), cap: Duration::from_secs(2) };

/// `GET /v1/sbp/ws/{session_id}`.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(Peer { place, .. }): Extension<Peer>,
    Path(session_id): Path<String>,
    credentials: Credentials,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let message = format!("surfaces attach by WebSocket: {rejection}");
            return ApiError::new(Code::MalformedRequest, message).into_response();
        }
    };
    // Who shows nothing yet may show a token in the first frame. Through a proxy to an open gateway that
    // is refused as every other request is, and a page can read why only here.
    if credentials.shows_nothing()
        && let Err(denied) = app.engine.access.is_open_to(&credentials)
    {
        return ApiError::from(denied).into_response();
    }
    // Refused here, so that a load balancer may choose another replica.
    if !app.sessions.gate.is_open() {
        let message = "the lease of this replica cannot be renewed; another one serves surfaces";
        let retry_after = Some(1);
        return ApiError::from(Failure { retry_after, ..Failure::new(Code::NotNow, message) })
            .into_response();
    }
    let largest = app.engine.limits.surface_message;
    let tracker = app.surfaces.clone();
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BATCH)
        // Frames are fed one at a time, and each waits until a slow socket has room: the buffer
        // holds at most one batch and one frame. A limit here would only make a large frame
        // undeliverable.
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

/// Runs a socket from upgrade to close. Large values are boxed: one that is moved into another
/// future takes its memory twice, for as long as the surface stays attached.
async fn serve(app: &Arc<App>, mut socket: Box<Socket>, path: String, credentials: Credentials) {
    let (note, from) = (Arc::clone(&credentials.note), credentials.from.clone());
    let arrived = match Box::pin(arrive(app, &mut socket, path, credentials)).await {
        Ok(arrived) => arrived,
        Err(end) => {
            if matches!(end, SocketEnd::With(_, Close::Forbidden)) {
                app.engine.audit.refused(note.credential.get(), true, from);
            }
            return Box::pin(socket.end(end)).await;
        }
    };
    let reporter = arrived.attachment.reporter();
    metrics::gauge!("bowline_surfaces_attached").increment(1.0);
    let mut surface = SurfaceTask::new(app, &mut socket, *arrived);
    // A panic ends this surface only, and the surface is still detached below.
    let live = std::panic::AssertUnwindSafe(surface.live()).catch_unwind();
    let end = live.await.unwrap_or_else(|_| {
        metrics::counter!("bowline_panics_total").increment(1);
        SocketEnd::Bare(Close::TryAgain)
    });
    // Turns that the surface has confirmed must not be delivered again.
    surface.confirming.settle().await;
    drop(surface);
    metrics::gauge!("bowline_surfaces_attached").decrement(1.0);
    reporter.gone(end.restarts());
    Box::pin(socket.end(end)).await;
}

/// Sends a surface's approval decisions and cancels to the session actor, in order. Each is retried
/// with back-off, because the device will not send it again. They name the approval or turn, so
/// sending one twice has no further effect.
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
                    tracing::warn!(code, "a surface's approval decision or cancel was refused");
                    break;
                }
                Ok(()) => break,
            }
        }
    }
}

/// Resolves at `until`; never if there is none.
async fn over(until: Option<Timestamp>) {
    match until {
        None => std::future::pending().await,
        Some(until) => {
            let left = clock::now().duration_until(until);
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
        }
    }
}

/// Resolves at `at`; never if there is none.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the running turn has more text; never if there is none.
async fn grew(text: &mut Option<(Arc<TextBuffer>, watch::Receiver<()>)>) {
    let open = match text {
        Some((_, grew)) => grew.changed().await.is_ok(),
        None => false,
    };
    // The writer is gone: the end of the turn is seen in the log.
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
    /// It is sent the questions of other surfaces and the list of attached surfaces (SBP-L2-20).
    joined: bool,
    /// When the device's own token expires.
    until: Option<Timestamp>,
    pending: u64,
    delivery: Delivery,
    /// The log has been read up to here.
    read: u64,
    /// Pings that came while missed turns were sent.
    pinged_meanwhile: u32,
    /// Pending turns, read ahead.
    backlog: Option<Backlog>,
    /// The running turn's text, and the receiver that wakes when it grows.
    text: Option<(Arc<TextBuffer>, watch::Receiver<()>)>,
    /// When the next chunk may be sent, and whether one waits for that.
    next_chunk: Instant,
    chunk_waits: bool,
    keepalive: Keepalive,
    inputs: Inputs,
    confirming: Confirming,
    /// Approval decisions and cancels for the session actor; `None` before the first.
    commands: Option<mpsc::Sender<Command>>,
    notices: Notices,
    /// Turns whose question this surface sent or was sent, and whose answer it was not sent yet.
    asked: HashSet<TurnId>,
    /// `None` for most surfaces: no model rewrites their turns.
    translator: Option<Box<Translator>>,
    /// What its credential may do in this session.
    rights: Box<Rights>,
    /// Tells when keys and users have changed.
    keys: watch::Receiver<u64>,
    /// They have, and what that means is not known yet.
    unchecked: bool,
}

impl<'a> SurfaceTask<'a> {
    fn new(app: &'a Arc<App>, socket: &'a mut Socket, arrived: Arrived) -> Self {
        let Arrived {
            handle,
            attachment,
            joined,
            explicit_ack,
            reads_0_9,
            pending,
            backlog,
            translator,
            rights,
            keys,
        } = arrived;
        let attached = &attachment.attached;
        let session_id = handle.id();
        let mode = if attached.context.streams() { Mode::Chunks } else { Mode::Whole };
        let limits = &app.engine.limits;
        let config = KeepaliveConfig { every: limits.ping_every, patience: limits.pong_timeout };
        Self {
            app,
            socket,
            confirming: Confirming::new(handle.clone(), attached.epoch),
            inputs: Inputs::new(
                handle.clone(),
                attached.epoch,
                rights.author(),
                rights.identity.spender(),
            ),
            handle,
            reporter: attachment.reporter(),
            watched: attachment.live.clone(),
            session_id,
            epoch: attached.epoch,
            joined,
            until: [attached.until, rights.expires_at].into_iter().flatten().min(),
            pending,
            delivery: Delivery::new(session_id, mode, attached.cursor, attached.head)
                .in_form(attached.context.form())
                .translating(translator.is_some())
                .acked_explicitly(explicit_ack)
                .for_0_9(reads_0_9),
            // With nothing pending the log need not be read up to `head`, except for the questions
            // that a joined surface is sent.
            read: if pending == 0 && !joined { attached.head } else { 0 },
            pinged_meanwhile: 0,
            backlog,
            text: None,
            next_chunk: Instant::now(),
            chunk_waits: false,
            keepalive: Keepalive::new(config, Instant::now()),
            commands: None,
            notices: Notices::new(attached.epoch, joined),
            asked: HashSet::new(),
            translator,
            rights,
            keys,
            unchecked: false,
        }
    }

    /// Sends missed turns, then live ones. Returns why the connection ends.
    async fn live(&mut self) -> SocketEnd {
        // Pending turns are read even if no state change wakes the pump.
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
                confirmed = self.confirming.next() => self.confirmed(confirmed).await,
                Some(said) = translate::next(&mut self.translator) => self.said(said).await,
                () = tokio::time::sleep_until(deadline) => {
                    match self.keepalive.poll(Instant::now()) {
                        Verdict::Wait => Ok(()),
                        Verdict::Dead => Err(SocketEnd::Silent),
                        Verdict::Ping => {
                            // Reading the log at every ping covers a wake-up that was lost between
                            // replicas.
                            look_at_log = true;
                            match Box::pin(self.check_rights()).await {
                                Ok(()) => self.ask_for_life().await,
                                end => end,
                            }
                        }
                    }
                }
                Ok(()) = self.keys.changed() => {
                    self.unchecked = true;
                    Box::pin(self.check_rights()).await
                }
                () = self.app.stop.cancelled() => Err(SocketEnd::Bare(Close::ServiceRestart)),
                () = self.app.sessions.suspended() => {
                    Err(SocketEnd::Bare(Close::ServiceRestart))
                }
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn ask_for_life(&mut self) -> Result<(), SocketEnd> {
        // Both the protocol's own ping, and a WebSocket ping, which every library answers by
        // itself.
        self.socket.feed(&ServerFrame::Ping {}).await?;
        self.socket.ping([0; 8]).await
    }

    async fn heard(&mut self, received: Received) -> Result<(), SocketEnd> {
        let frame = match received {
            Received::Gone(end) => return Err(end),
            Received::Pong(payload) => {
                let reached = self.delivery.pong(&payload);
                self.confirm(reached);
                return Ok(());
            }
            Received::Unreadable(detail) => {
                return self.socket.send(&ServerFrame::ProtocolError { detail }).await;
            }
            Received::Frame(frame) => frame,
        };
        if let Some(refused) = self.rights.refusal(&frame, self.session_id, &self.app.default_model)
        {
            return self.socket.send(&refused).await;
        }
        match *frame {
            ClientFrame::Detach => Err(SocketEnd::Bare(Close::Normal)),
            ClientFrame::Ping => self.pinged().await,
            ClientFrame::Ack { seq } => {
                let reached = self.delivery.ack(seq);
                self.confirm(reached);
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
            ClientFrame::Decide { approval_id: approval, approved, always } => {
                let by = self.rights.identity.decider(self.rights.from.as_ref());
                self.tell(Command::Decide { approval, approved, always, by }).await
            }
            // A repeated attach changes nothing (SBP-L2-16).
            ClientFrame::Attach(_) | ClientFrame::Pong | ClientFrame::Unknown => Ok(()),
        }
    }

    /// Cancels the running turn, and every waiting turn and message of this surface.
    async fn cancel(&mut self) -> Result<(), SocketEnd> {
        for frame in self.inputs.discard() {
            self.socket.send(&frame).await?;
        }
        let state = Arc::clone(&self.watched.borrow().state);
        let mine = |sender: Option<u64>| sender == Some(self.epoch);
        let turns = state.turns.iter().filter(|turn| turn.running || mine(turn.sender));
        let turns: Vec<_> = turns.map(|turn| turn.id).collect();
        // With no turn running or waiting, only a translation can be cancelled.
        if turns.is_empty() {
            return self.release(PassEnd::Dropped).await;
        }
        self.tell(Command::Cancel { turns, running: false }).await
    }

    /// Sends a command to the session actor, in order, even if the surface disconnects meanwhile.
    /// The reply is not awaited.
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
                let detail =
                    format!("refused: more than {COMMANDS} approval decisions and cancels wait");
                self.socket.send(&ServerFrame::ProtocolError { detail }).await
            }
        }
    }

    /// Handles the replies to this surface's messages that have arrived. A message is accepted
    /// before its turn is in the log, so `asked` knows the turn by the time its entry is sent.
    async fn take_replies(&mut self) -> Result<(), SocketEnd> {
        while let Some(answered) = self.inputs.next().now_or_never() {
            self.answered(answered).await?;
        }
        Ok(())
    }

    /// A message of this surface was accepted or refused.
    async fn answered(&mut self, answered: Answered) -> Result<(), SocketEnd> {
        let Answered { frame, turn, cancelled, handed_over } = answered;
        // Its client sends it again where the session is now. To say that it failed would lose it.
        if handed_over && let Some(end) = Box::pin(self.moved()).await {
            return Err(end);
        }
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
