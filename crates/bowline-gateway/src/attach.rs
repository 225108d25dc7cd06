//! What happens when a surface attaches, from top to bottom.
//!
//! Upgrade → `ATTACH_SESSION` → subscribe to the session → take its newest epoch → drain what is
//! pending → go live. One pump reads the log from where the surface stands and then the live
//! text; notifications only wake it. Nothing here decides what is delivered: that is
//! [`Delivery`]. Nothing here runs turns: that is the engine. Nor is anything rewritten here: a
//! translation is made elsewhere, and only its words come by.
//!
//! Invariants
//! - Subscribed before the log is read: a turn that ends in between is in one of the two.
//! - Everything this task does is conditional on its epoch (G6): a newer surface's arrival, seen
//!   by the store, makes it a bystander that only says goodbye.
//! - A surface that does not read is let go after the write timeout; nothing is lost, because
//!   nothing was confirmed (G12).

mod backlog;
mod held;
mod introduce;

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bowline_sbp::adapt::Form;
use bowline_sbp::delivery::{Delivery, LiveText, LoggedTurn, Mode};
use bowline_sbp::error::{Close, Code};
use bowline_sbp::frame::{Attach as AttachFrame, ClientFrame, ServerFrame, SessionAttached};
use bowline_sbp::id::SessionId;
use bowline_sbp::keepalive::{Keepalive, Rhythm, Verdict};
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::{SBP_LEVEL, SBP_VERSION, SBP_VERSION_0_9};
use bowline_store::{Attach, Attached};
use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use self::backlog::Backlog;
use self::introduce::{REVOKED, forbidden, introduce, not_found};
use crate::auth::Credentials;
use crate::clock;
use crate::errands::{self, Errands};
use crate::http::{ApiError, App, credentials};
use crate::hub::{Channel, Errand, Link};
use crate::input;
use crate::serve::Place;
use crate::shown::Shown;
use crate::socket::{End, READ_BUFFER, Received, Socket, WRITE_BATCH};
use crate::translate::{self, Outcome, Translator};

/// The most messages of one surface that are being taken on at once.
const INPUTS: usize = 32;

/// `GET /v1/sbp/ws/{session_id}`.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(place): Extension<Place>,
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
    let shown = credentials(&headers);
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
                let socket = Socket::new(socket, app.engine.limits.write_timeout);
                serve(&app, socket, session_id, shown).await;
            })
        })
}

/// The whole life of a socket.
async fn serve(app: &Arc<App>, mut socket: Socket, path: String, shown: Credentials) {
    let (session, frame, device) = match introduce(app, &mut socket, &path, &shown).await {
        Ok(introduced) => introduced,
        Err(end) => return socket.end(end).await,
    };
    let session_id = session.id;
    // Subscribe first, then read (see the invariants).
    let channel = app.engine.hub.channel(session_id);
    let pulse = channel.subscribe();
    let attach = Attach {
        session_id,
        surface: frame.surface.clone(),
        owner: app.engine.instance,
        device,
        at: clock::now(),
    };
    // What is probably to be sent is read while the attachment is written.
    let store = &app.engine.store;
    let backlog = (session.pending_turns > 0)
        .then(|| Backlog::after(Arc::clone(store), session_id, session.delivered_seq));
    let attached = match store.attach(attach).await {
        Ok(attached) => attached,
        Err(bowline_store::Error::NoSession) => return socket.end(not_found(&path)).await,
        Err(bowline_store::Error::Revoked) => return socket.end(forbidden(REVOKED)).await,
        Err(_) => return socket.end(End::Bare(Close::TryAgain)).await,
    };
    channel.attached(attached.epoch);
    // Whoever was away during a handoff is told when it is back.
    if let Some(to) = attached.session.handed_to
        && let Ok(Some(successor)) = app.engine.store.session(to).await
    {
        channel.handed_over(to, successor.agent_id);
    }
    let epoch = attached.epoch;
    // What the device is: what it said now, and before.
    let context = attached.session.surface.clone().unwrap_or_else(|| frame.surface.clone());
    let surface_id = context.surface_id.clone();
    let translated = app.translation.serves(&attached.session.agent_id, &context);
    let (link, errands) = link(app, context, translated, epoch);
    let registered = link.tools.iter().map(|tool| tool.name.clone()).collect();
    channel.linked(Arc::new(link));
    metrics::gauge!("bowline_surfaces_attached").increment(1.0);

    let errands = Errands::new(errands);
    let mut surface =
        Surface::new(app, &mut socket, Arc::clone(&channel), &frame, attached, backlog, errands);
    // A panic ends this surface, not the gateway, and not without detaching.
    let live = std::panic::AssertUnwindSafe(surface.live(pulse, &frame, surface_id, registered))
        .catch_unwind();
    let end = live.await.unwrap_or_else(|_| {
        metrics::counter!("bowline_panics_total").increment(1);
        End::Bare(Close::TryAgain)
    });
    channel.unlinked(epoch);
    drop(surface);
    metrics::gauge!("bowline_surfaces_attached").decrement(1.0);
    // A no-op when a newer surface has the session.
    if let Err(error) = app.engine.store.detach(session_id, epoch, clock::now()).await {
        tracing::warn!(%error, "a surface could not be detached");
    }
    socket.end(end).await;
}

/// The surface for the engine, with the tools that it declares and the configuration allows
/// (SBP-L5-01).
fn link(
    app: &App,
    surface: SurfaceContext,
    translated: bool,
    epoch: u64,
) -> (Link, Option<mpsc::Receiver<Errand>>) {
    let allowed = surface.mcp_tools.iter().filter(|tool| app.engine.tools.allows(&tool.name));
    let tools: Vec<_> = allowed.cloned().collect();
    let (calls, errands) = match tools.is_empty() {
        true => (None, None),
        false => {
            let (calls, errands) = mpsc::channel(errands::MOST);
            (Some(calls), Some(errands))
        }
    };
    (Link { epoch, surface, translated, tools, calls }, errands)
}

/// The next answer to a message of the surface's; none before it has sent one.
async fn next_reply(
    replies: &mut Option<(mpsc::Sender<ServerFrame>, mpsc::Receiver<ServerFrame>)>,
) -> Option<ServerFrame> {
    replies.as_mut()?.1.recv().await
}

/// Resolves when that time has come, if it ever does.
async fn over(until: Option<Timestamp>) {
    match until {
        None => std::future::pending().await,
        Some(until) => {
            let left = clock::now().duration_until(until);
            tokio::time::sleep(std::time::Duration::try_from(left).unwrap_or_default()).await;
        }
    }
}

/// An attached surface.
struct Surface<'a> {
    app: &'a Arc<App>,
    socket: &'a mut Socket,
    channel: Arc<Channel>,
    session_id: SessionId,
    epoch: u64,
    /// When the device's own token ends.
    until: Option<Timestamp>,
    pending: u64,
    delivery: Delivery,
    /// The log has been read up to here.
    read: u64,
    /// What was pending, read ahead.
    backlog: Option<Backlog>,
    keepalive: Keepalive,
    /// Made with the first message: most surfaces only read, and a channel each would cost them.
    replies: Option<(mpsc::Sender<ServerFrame>, mpsc::Receiver<ServerFrame>)>,
    inputs: Arc<Semaphore>,
    errands: Errands,
    shown: Shown,
    /// None for most: turns come as they are, or as the rules have them.
    translator: Option<Box<Translator>>,
}

impl<'a> Surface<'a> {
    fn new(
        app: &'a Arc<App>,
        socket: &'a mut Socket,
        channel: Arc<Channel>,
        frame: &AttachFrame,
        attached: Attached,
        backlog: Option<Backlog>,
        errands: Errands,
    ) -> Self {
        let session = attached.session;
        let context = session.surface.as_ref().unwrap_or(&frame.surface);
        let form = Form::of(context);
        let translator = app.translation.translator(&session.agent_id, context);
        let mode = if context.streams() { Mode::Chunks } else { Mode::Whole };
        let limits = &app.engine.limits;
        let rhythm = Rhythm { every: limits.ping_every, patience: limits.pong_timeout };
        Self {
            app,
            socket,
            channel,
            session_id: session.id,
            epoch: attached.epoch,
            until: attached.until,
            pending: session.pending_turns,
            delivery: Delivery::new(session.id, mode, session.delivered_seq, session.last_seq)
                .in_form(form)
                .translating(translator.is_some()),
            // With nothing pending there is nothing to read up to here.
            read: if session.pending_turns == 0 { session.last_seq } else { 0 },
            backlog,
            keepalive: Keepalive::new(rhythm, Instant::now()),
            replies: None,
            inputs: Arc::new(Semaphore::new(INPUTS)),
            errands,
            shown: Shown::default(),
            translator,
        }
    }

    /// Says hello, drains, goes live; gives the reason for the end.
    async fn live(
        &mut self,
        mut pulse: tokio::sync::watch::Receiver<u64>,
        frame: &AttachFrame,
        surface_id: Option<String>,
        registered: Vec<String>,
    ) -> End {
        let hello = ServerFrame::SessionAttached(SessionAttached {
            session_id: self.session_id,
            surface_id,
            device_type: frame.surface.device_type.as_str().to_owned(),
            queued_turns: self.pending,
            tether_turns_pending: self.pending,
            mcp_tools_registered: registered,
            sbp_version: match frame.sbp_version.as_deref() {
                Some(SBP_VERSION_0_9) => SBP_VERSION_0_9.into(),
                Some(_) => SBP_VERSION.into(),
                None => self.app.wire_version.as_str().into(),
            },
            sbp_level: SBP_LEVEL.into(),
        });
        // What was pending is read even if nothing wakes us.
        let mut look_at_log = self.pending > 0;
        if let Err(end) = self.socket.send(&hello).await {
            return end;
        }
        loop {
            if let Err(end) = self.pump(look_at_log).await {
                return end;
            }
            look_at_log = false;
            let deadline = tokio::time::Instant::from_std(self.keepalive.deadline());
            let until = self.until;
            tokio::select! {
                () = over(until) => return forbidden(REVOKED),
                received = self.socket.frame() => {
                    self.keepalive.heard(Instant::now());
                    if let Err(end) = self.heard(received).await {
                        return end;
                    }
                }
                changed = pulse.changed() => {
                    if changed.is_err() {
                        return End::Bare(Close::TryAgain);
                    }
                }
                Some(call) = self.errands.next() => {
                    if let Err(end) = self.socket.send(&call).await {
                        return end;
                    }
                }
                Some(reply) = next_reply(&mut self.replies) => {
                    if let Err(end) = self.socket.send(&reply).await {
                        return end;
                    }
                }
                Some(said) = translate::next(&mut self.translator) => {
                    if let Err(end) = self.said(said).await {
                        return end;
                    }
                }
                () = tokio::time::sleep_until(deadline) => match self.keepalive.poll(Instant::now()) {
                    Verdict::Wait => {}
                    Verdict::Dead => return End::Silent,
                    Verdict::Ping => {
                        if let Err(end) = self.ask_for_life().await {
                            return end;
                        }
                        // A slow look that covers a wake-up lost between replicas.
                        look_at_log = true;
                    }
                },
                () = self.app.stop.cancelled() => return End::Bare(Close::ServiceRestart),
            }
        }
    }

    /// Brings the surface up to date: the log first, then the live text, then a barrier.
    async fn pump(&mut self, look_at_log: bool) -> Result<(), End> {
        let now = self.channel.now();
        if now.gone {
            return Err(not_found(&self.session_id.to_string()));
        }
        if now.epoch > self.epoch {
            let revoked = now.revoked == Some(self.epoch + 1);
            return Err(if revoked { forbidden(REVOKED) } else { End::Bare(Close::Replaced) });
        }
        // Whoever is sent on is not kept waiting.
        if now.handed_to.is_some() {
            self.release(Outcome::Dropped).await?;
        }
        if (look_at_log || now.head > self.read) && self.delivery.held().is_none() {
            self.drain().await?;
            self.read = self.read.max(now.head).max(self.delivery.sent());
        }
        // After the log: the turn that a handoff waited for is not cut off in the middle.
        if let Some((new_session_id, to_agent_id)) = now.handed_to {
            let session_id = self.session_id;
            let frame = ServerFrame::SessionHandedOff { session_id, new_session_id, to_agent_id };
            return Err(End::with(frame, Close::HandedOff));
        }
        if let Some(turn) = now.live.filter(|turn| turn.tethered)
            && let Some(seq) = turn.seq()
        {
            let (turn_id, attempt) = (turn.id, turn.attempt);
            let chunk =
                turn.with_text(|text| self.delivery.live(LiveText { turn_id, seq, attempt, text }));
            if let Some(chunk) = chunk {
                self.socket.send(&chunk).await?;
            }
        }
        for frame in self.shown.update(&now.asked) {
            self.socket.send(&frame).await?;
        }
        if let Some(payload) = self.delivery.barrier() {
            self.socket.ping(payload).await?;
        }
        Ok(())
    }

    /// Sends the log from where the surface stands, page by page, each behind a barrier.
    async fn drain(&mut self) -> Result<(), End> {
        let store = Arc::clone(&self.app.engine.store);
        let (session_id, mut backlog) = (self.session_id, self.backlog.take());
        let mut read = async |after| {
            if let Some(ahead) = &mut backlog
                && let Some(page) = ahead.next().await
            {
                return Ok(page);
            }
            backlog = None;
            store.tethered_after(session_id, after).await.map_err(|_| End::Bare(Close::TryAgain))
        };
        let mut page = read(self.delivery.sent()).await?;
        while let Some(last) = page.last().map(|turn| turn.seq) {
            // The newest turn may be one to translate. Whether it is the newest, the next page says.
            let newest = self.translator.as_ref().and_then(|_| page.pop());
            // The next page is read while this one goes out.
            let (next, sent) = tokio::join!(read(last), self.send_page(page));
            sent?;
            if self.channel.now().epoch > self.epoch {
                return Err(End::Bare(Close::Replaced));
            }
            page = next?;
            match newest {
                Some(newest) if page.is_empty() => self.newest(newest).await?,
                Some(older) => page.insert(0, older),
                None => {}
            }
        }
        Ok(())
    }

    async fn send_page(&mut self, page: Vec<LoggedTurn>) -> Result<(), End> {
        metrics::counter!("bowline_turns_sent_total").increment(page.len() as u64);
        for turn in page {
            for frame in self.delivery.logged(turn) {
                self.socket.feed(&frame).await?;
            }
        }
        if let Some(payload) = self.delivery.barrier() {
            self.socket.feed_ping(payload).await?;
        }
        self.socket.flush().await
    }

    async fn ask_for_life(&mut self) -> Result<(), End> {
        // Both kinds: the protocol's frame, and the one that every library answers by itself.
        self.socket.feed(&ServerFrame::Ping {}).await?;
        self.socket.ping([0; 8]).await
    }

    async fn heard(&mut self, received: Received) -> Result<(), End> {
        let frame = match received {
            Received::Gone(end) => return Err(end),
            Received::Pong(payload) => {
                let confirmed = self.delivery.pong(&payload);
                return self.confirm(confirmed).await;
            }
            Received::Unreadable(detail) => {
                return self.socket.send(&ServerFrame::ProtocolError { detail }).await;
            }
            Received::Frame(frame) => frame,
        };
        match frame {
            ClientFrame::Detach => Err(End::Bare(Close::Normal)),
            ClientFrame::Ping => self.socket.send(&ServerFrame::Pong {}).await,
            ClientFrame::Ack { seq } => {
                let confirmed = self.delivery.ack(seq);
                self.confirm(confirmed).await
            }
            ClientFrame::UserMessage(message) => {
                // In a task of its own: the disk must not hold up what the surface is reading.
                let (reply, _) = self.replies.get_or_insert_with(|| mpsc::channel(INPUTS));
                let (app, reply) = (Arc::clone(self.app), reply.clone());
                let session_id = self.session_id;
                let Ok(place) = Arc::clone(&self.inputs).try_acquire_owned() else {
                    return self.socket.send(&input::too_many(session_id, message)).await;
                };
                tokio::spawn(async move {
                    let answer = input::take(&app, session_id, message).await;
                    let _ = reply.send(answer).await;
                    drop(place);
                });
                Ok(())
            }
            // With no turn running, what is still on its way is a translation.
            ClientFrame::Cancel => match self.app.engine.cancel(self.session_id) {
                Some(_) => Ok(()),
                None => self.release(Outcome::Dropped).await,
            },
            ClientFrame::ToolResult { call_id, result, error } => {
                self.errands.done(&call_id, error.map_or(Ok(result), Err));
                Ok(())
            }
            ClientFrame::Decide { approval_id, approved } => {
                let Ok(place) = Arc::clone(&self.inputs).try_acquire_owned() else { return Ok(()) };
                let (engine, session_id) = (Arc::clone(&self.app.engine), self.session_id);
                // How it went is seen where it is waited for.
                tokio::spawn(async move {
                    if let Err(error) = engine.decide(session_id, approval_id, approved).await {
                        tracing::warn!(%error, "a verdict could not be stored");
                    }
                    drop(place);
                });
                Ok(())
            }
            // A repeated attach changes nothing (SBP-L2-16).
            ClientFrame::Attach(_) | ClientFrame::Pong | ClientFrame::Unknown => Ok(()),
        }
    }

    /// The surface has everything up to there: the Tether lets go of it.
    async fn confirm(&mut self, seq: Option<u64>) -> Result<(), End> {
        let Some(seq) = seq else { return Ok(()) };
        let store = &self.app.engine.store;
        match store.confirm(self.session_id, self.epoch, seq).await {
            Ok(()) => Ok(()),
            // Unconfirmed turns come again; that is all that can happen.
            Err(_) => Err(End::Bare(Close::TryAgain)),
        }
    }
}
