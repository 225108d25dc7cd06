//! The sessions of a daemon: executes the actions of the daemon's state machine.
//!
//! Separate from the driver that reconnects, because sessions outlive connections. There is at most
//! one connection at a time; without one, the program may still drop sessions.
//!
//! Invariants
//! - Every established session has its feed here until it ends, and its handle learns the reason.
//! - No session blocks another: a session whose message cannot be delivered is ended.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;

use bowline_sbrp::control::SdkCode;
use bowline_sbrp::daemon::{Daemon, DaemonAction, DaemonInput, Progress};
use bowline_sbrp::frame::{Frame, PingPayload, Reason};
use bowline_sbrp::handshake::ChannelBinding;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::Fingerprint;
use bowline_sbrp::sealed::Opened;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::DaemonEvent;
use crate::relay::liveness::{Liveness, LivenessCheck, LivenessConfig};
use crate::relay::random::ephemeral;
use crate::relay::reasons::{LossReason, SessionEnd, told};
use crate::relay::session::{Outgoing, SessionFactory, SessionFeed, Undelivered};
use crate::relay::socket::RelaySocket;

pub(super) struct DaemonSessions {
    machine: Daemon,
    fingerprint: Fingerprint,
    liveness: LivenessConfig,
    feeds: BTreeMap<SessionId, SessionFeed>,
    factory: SessionFactory,
    sent: mpsc::Receiver<Outgoing>,
    left: mpsc::UnboundedReceiver<SessionId>,
    events: mpsc::Sender<DaemonEvent>,
}

impl DaemonSessions {
    pub(super) fn new(
        machine: Daemon,
        fingerprint: Fingerprint,
        liveness: LivenessConfig,
        events: mpsc::Sender<DaemonEvent>,
    ) -> Self {
        let (factory, sent, left) = SessionFactory::new();
        let feeds = BTreeMap::new();
        Self { machine, fingerprint, liveness, feeds, factory, sent, left, events }
    }

    /// The connection is lost; sessions that can be resumed wait for the reconnect.
    pub(super) fn connection_lost(&mut self) {
        self.offline(DaemonInput::Disconnected);
    }

    /// Waits without a connection until `then`; the program may drop sessions meanwhile.
    pub(super) async fn away(&mut self, then: Instant) {
        loop {
            tokio::select! {
                () = sleep_until(then) => return,
                Some(session) = self.left.recv() => {
                    self.end_session(session, SessionEnd::Here);
                    self.offline(DaemonInput::Close { session, reason: Reason::None });
                }
            }
        }
    }

    /// Ends all sessions while there is no connection over which to signal it.
    pub(super) fn forget(&mut self, end: &SessionEnd) {
        for (session, feed) in std::mem::take(&mut self.feeds) {
            feed.end(end.clone());
            self.offline(DaemonInput::Close { session, reason: Reason::StateLost });
        }
    }

    /// Serves one connection until it ends, or `outdated` says why it is of no more use. Returns `Ok`
    /// only when the daemon is stopped.
    pub(super) async fn serve(
        &mut self,
        socket: &mut RelaySocket,
        stop: &CancellationToken,
        outdated: impl Future<Output = LossReason>,
    ) -> Result<(), LossReason> {
        let mut outdated = pin!(outdated);
        let outbox = socket.outbox();
        let mut liveness = Liveness::new(self.liveness, now());
        self.handle(DaemonInput::Connected, socket).await?;
        loop {
            let due = self.machine.deadline().map_or(liveness.due(), |at| at.min(liveness.due()));
            let sent = async {
                // Reserve room first: a message taken out of the queue must not be lost.
                let room = outbox.reserve().await;
                (room, self.sent.recv().await)
            };
            tokio::select! {
                heard = socket.recv() => {
                    liveness.heard(now());
                    if let Some(frame) = heard? {
                        self.handle(DaemonInput::Frame(frame), socket).await?;
                    }
                }
                (room, outgoing) = sent => {
                    drop(room.map_err(|_| LossReason::Stuck)?);
                    if let Some(Outgoing { session, plaintext }) = outgoing {
                        self.handle(DaemonInput::Send { session, plaintext }, socket).await?;
                    }
                }
                Some(session) = self.left.recv() => self.leave(session, socket).await?,
                () = sleep_until(due.into()) => {
                    if socket.shows_life() {
                        liveness.heard(now());
                    }
                    match liveness.check(now()) {
                        LivenessCheck::Fine => {}
                        LivenessCheck::Ask => socket.send(Frame::Ping(PingPayload::default()).encode()).await?,
                        LivenessCheck::Silent => return Err(LossReason::Silent),
                    }
                    self.handle(DaemonInput::Tick, socket).await?;
                }
                reason = &mut outdated => {
                    if reason == LossReason::Moved {
                        self.end_all(&reason, socket).await?;
                    }
                    return Err(reason);
                }
                () = stop.cancelled() => {
                    return self.handle(DaemonInput::Stop, socket).await;
                }
            }
        }
    }

    /// Ends every session at both ends, so that clients do not wait for a daemon that goes elsewhere:
    /// another relay could not resume them.
    async fn end_all(
        &mut self,
        reason: &LossReason,
        socket: &RelaySocket,
    ) -> Result<(), LossReason> {
        for feed in std::mem::take(&mut self.feeds).into_values() {
            feed.end(SessionEnd::Lost(reason.clone()));
        }
        self.handle(DaemonInput::Stop, socket).await
    }

    /// Passes an event to the state machine, executes its actions, and passes on the events that
    /// follow.
    async fn handle(&mut self, event: DaemonInput, socket: &RelaySocket) -> Result<(), LossReason> {
        let mut events = VecDeque::from([event]);
        // After the connection fails, the remaining actions are still executed: sessions outlive
        // it.
        let mut said = Ok(());
        while let Some(event) = events.pop_front() {
            let actions = match self.machine.handle(event, now()) {
                Ok(actions) => actions,
                Err(impossible) => {
                    // The session ended while a frame of it was in flight, or the relay sent an
                    // invalid frame. Both are ignored.
                    tracing::debug!(%impossible, "ignored");
                    continue;
                }
            };
            for action in actions {
                match action {
                    DaemonAction::Send(message) => {
                        if said.is_ok() {
                            said = socket.send(message).await;
                        }
                    }
                    DaemonAction::Offer(session) => events.push_back(match ephemeral() {
                        Ok(ephemeral) => DaemonInput::Answer { session, ephemeral },
                        Err(_) => DaemonInput::Close { session, reason: Reason::Error },
                    }),
                    DaemonAction::Session(session, progress) => {
                        events.extend(self.progress(session, progress));
                    }
                    DaemonAction::Told(code) => {
                        tracing::debug!(code = %told(code), "the relay says");
                    }
                }
            }
        }
        said
    }

    /// As `handle`, but without a connection: the state machine then sends nothing.
    fn offline(&mut self, event: DaemonInput) {
        let actions = self.machine.handle(event, now()).unwrap_or_default();
        for action in actions {
            if let DaemonAction::Session(session, progress) = action {
                self.progress(session, progress);
            }
        }
    }

    /// Reports progress to the session's handle; returns an event for the state machine, if one
    /// follows.
    fn progress(&mut self, session: SessionId, progress: Progress) -> Option<DaemonInput> {
        match progress {
            Progress::Established(binding) => self.established(session, binding),
            Progress::Deliver(opened) => self.deliver(session, opened),
            Progress::Suspended => None,
            Progress::Resumed => {
                if let Some(feed) = self.feeds.get(&session) {
                    feed.resumed();
                }
                None
            }
            Progress::Refused(code) => {
                tracing::debug!(code = code.name(), "message refused");
                None
            }
            Progress::Ended(fault) => {
                self.end_session(
                    session,
                    fault.map_or(SessionEnd::Left, |code| SessionEnd::Lost(LossReason::Sdk(code))),
                );
                None
            }
        }
    }

    fn established(&mut self, id: SessionId, binding: ChannelBinding) -> Option<DaemonInput> {
        let (session, feed) = self.factory.open(id, self.fingerprint, binding);
        match self.events.try_send(DaemonEvent::SessionOpened(session)) {
            Ok(()) => {
                self.feeds.insert(id, feed);
                None
            }
            // The program does not read its events: refuse the client instead of letting it wait.
            Err(_) => Some(DaemonInput::Close { session: id, reason: Reason::Policy }),
        }
    }

    fn deliver(&mut self, session: SessionId, opened: Opened) -> Option<DaemonInput> {
        let Some(feed) = self.feeds.get_mut(&session) else {
            return Some(DaemonInput::Close { session, reason: Reason::Error });
        };
        match feed.deliver(opened) {
            Ok(()) => None,
            Err(Undelivered::Gap) => {
                self.give_up(session, LossReason::Sdk(SdkCode::SequenceError), Reason::Error)
            }
            Err(Undelivered::Full(_)) => self.give_up(session, LossReason::Unread, Reason::Policy),
        }
    }

    fn give_up(
        &mut self,
        session: SessionId,
        loss: LossReason,
        reason: Reason,
    ) -> Option<DaemonInput> {
        tracing::debug!(%loss, "session given up");
        self.end_session(session, SessionEnd::Lost(loss));
        Some(DaemonInput::Close { session, reason })
    }

    /// The program dropped a handle. Messages it sent before are sent first.
    async fn leave(&mut self, session: SessionId, socket: &RelaySocket) -> Result<(), LossReason> {
        while let Ok(Outgoing { session, plaintext }) = self.sent.try_recv() {
            self.handle(DaemonInput::Send { session, plaintext }, socket).await?;
        }
        self.end_session(session, SessionEnd::Here);
        self.handle(DaemonInput::Close { session, reason: Reason::None }, socket).await
    }

    fn end_session(&mut self, session: SessionId, end: SessionEnd) {
        if let Some(feed) = self.feeds.remove(&session) {
            feed.end(end);
        }
    }
}

/// Uses Tokio's clock, so that tests can advance it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
