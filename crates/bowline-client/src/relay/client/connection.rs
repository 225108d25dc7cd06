//! One connection of a client: executes the actions of the client's state machine.

use std::convert::Infallible;

use bowline_sbrp::client::{Client, ClientAction, ClientFailure, ClientInput, Notice};
use bowline_sbrp::control::SdkCode;
use bowline_sbrp::frame::{Frame, PingPayload};
use bowline_sbrp::handshake::{ChannelBinding, VerifiedIdentity};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::sealed::{Opened, Plaintext};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::driver::{ClientDriver, now};
use super::{ClientClosed, ClientEvent};
use crate::relay::liveness::{Liveness, LivenessCheck};
use crate::relay::random::ephemeral;
use crate::relay::reasons::{LossReason, SessionEnd};
use crate::relay::session::{
    Outgoing, READ_PATIENCE, SessionFactory, SessionFeed, Undelivered, weight,
};
use crate::relay::socket::RelaySocket;

/// One connection and the one session it carries.
pub(super) struct ClientConnection<'a> {
    driver: &'a ClientDriver,
    machine: &'a mut Client,
    session: SessionId,
    relay: String,
    first_use: &'a mut bool,
    /// Set when the handshake is done.
    feed: Option<(SessionFeed, mpsc::Receiver<Outgoing>, mpsc::UnboundedReceiver<SessionId>)>,
    /// A message that the full inbox could not take, and its deadline. Nothing is read meanwhile.
    stalled: Option<(Plaintext, Instant)>,
}

impl<'a> ClientConnection<'a> {
    pub(super) fn new(
        driver: &'a ClientDriver,
        machine: &'a mut Client,
        session: SessionId,
        relay: String,
        first_use: &'a mut bool,
    ) -> Self {
        Self { driver, machine, session, relay, first_use, feed: None, stalled: None }
    }

    pub(super) async fn run(mut self, mut socket: RelaySocket) -> ClientDisconnect {
        let ending = self.serve(&mut socket).await;
        let (event, end) = match &ending {
            ClientDisconnect::Lost(LossReason::Here) => {
                (ClientInput::Lost { session: self.session }, SessionEnd::Here)
            }
            ClientDisconnect::Lost(reason) => {
                (ClientInput::Lost { session: self.session }, SessionEnd::Lost(reason.clone()))
            }
            ClientDisconnect::Final(_) => (ClientInput::Close, SessionEnd::Here),
        };
        // Has no effect if the state machine ended the session itself.
        let _ = self.machine.handle(event, now());
        if let Some((feed, ..)) = self.feed {
            feed.end(end);
        }
        match &ending {
            ClientDisconnect::Lost(LossReason::Broken | LossReason::Silent | LossReason::Stuck) => {
                socket.abandon()
            }
            _ => socket.close().await,
        }
        ending
    }

    async fn serve(&mut self, socket: &mut RelaySocket) -> ClientDisconnect {
        match self.try_serve(socket).await {
            Ok(never) => match never {},
            Err(ending) => ending,
        }
    }

    async fn try_serve(
        &mut self,
        socket: &mut RelaySocket,
    ) -> Result<Infallible, ClientDisconnect> {
        let outbox = socket.outbox();
        let mut liveness = Liveness::new(self.driver.config.liveness, now());
        let opened = ClientInput::Opened { session: self.session, ephemeral: ephemeral()? };
        self.handle(opened, socket).await?;
        loop {
            let due = self.machine.deadline().map_or(liveness.due(), |at| at.min(liveness.due()));
            // While the daemon is disconnected, outgoing messages stay in the queue.
            let active = self.machine.is_active();
            let stalled_until = self.stalled.as_ref().map(|(_, until)| *until);
            let (room, mut sent, mut left) = match &mut self.feed {
                Some((feed, sent, left)) => (Some(feed.room()), Some(sent), Some(left)),
                None => (None, None, None),
            };
            let needed = self.stalled.as_ref().map_or(0, |(message, _)| weight(message.len()));
            tokio::select! {
                heard = socket.recv(), if stalled_until.is_none() => {
                    liveness.heard(now());
                    if let Some(frame) = heard? {
                        self.handle(ClientInput::Frame(frame), socket).await?;
                    }
                }
                room = async { room?.acquire_many_owned(needed).await.ok() },
                    if stalled_until.is_some() =>
                {
                    liveness.heard(now());
                    if let (Some(room), Some((message, _)), Some((feed, ..))) =
                        (room, self.stalled.take(), &self.feed)
                    {
                        feed.put(message, room);
                    }
                }
                () = sleep_until(stalled_until.unwrap_or_else(Instant::now)),
                    if stalled_until.is_some() =>
                {
                    return Err(LossReason::Unread.into());
                }
                (room, outgoing) = async {
                    // Reserve room first: a message taken out of the queue must not be lost.
                    let room = outbox.reserve().await;
                    (room, recv(&mut sent).await)
                }, if active => {
                    drop(room.map_err(|_| LossReason::Stuck)?);
                    self.handle(ClientInput::Send(outgoing.plaintext), socket).await?;
                }
                () = recv_left(&mut left) => {
                    self.leave(socket).await?;
                    return Err(LossReason::Here.into());
                }
                () = sleep_until(due.into()) => {
                    if socket.shows_life() {
                        liveness.heard(now());
                    }
                    match liveness.check(now()) {
                        LivenessCheck::Fine => {}
                        LivenessCheck::Ask => socket.send(Frame::Ping(PingPayload::default()).encode()).await?,
                        LivenessCheck::Silent => return Err(LossReason::Silent.into()),
                    }
                    self.handle(ClientInput::Tick, socket).await?;
                }
                () = self.driver.stop.cancelled() => {
                    self.leave(socket).await?;
                    return Err(STOPPED);
                }
            }
        }
    }

    /// The program dropped its handle, or stops. Messages it sent before are sent first: a goodbye is
    /// the last of them.
    async fn leave(&mut self, socket: &RelaySocket) -> Result<(), ClientDisconnect> {
        while self.machine.is_active()
            && let Some((_, sent, _)) = &mut self.feed
            && let Ok(outgoing) = sent.try_recv()
        {
            self.handle(ClientInput::Send(outgoing.plaintext), socket).await?;
        }
        Ok(())
    }

    /// Passes an event to the state machine and executes its actions.
    async fn handle(
        &mut self,
        event: ClientInput,
        socket: &RelaySocket,
    ) -> Result<(), ClientDisconnect> {
        let actions = match self.machine.handle(event, now()) {
            Ok(actions) => actions,
            Err(impossible) => {
                tracing::debug!(%impossible, "ignored");
                return Ok(());
            }
        };
        // The reason to report if one of the following actions ends the session.
        let mut reason = None;
        // `Pin` always precedes `Established`.
        let mut pinned = None;
        for action in actions {
            match action {
                ClientAction::Send(message) => socket.send(message).await?,
                ClientAction::Pin(identity) => {
                    // Pins the key before the session is announced; writing the file may take a
                    // while.
                    self.driver.keep(identity).await.map_err(ClientDisconnect::Final)?;
                    pinned = Some(identity);
                }
                ClientAction::Established(binding) => {
                    if let Some(identity) = pinned {
                        self.established(identity, binding).await;
                    }
                }
                ClientAction::Deliver(opened) => self.deliver(opened)?,
                ClientAction::Show(notice) => {
                    if let Some(told) = self.show(notice).await? {
                        reason = Some(told);
                    }
                }
                // If the session is over, `ConnectLater` follows.
                ClientAction::Refused(code) => reason = Some(LossReason::Sdk(code)),
                // Their session's handle ends and reports it.
                ClientAction::Unsent(_) => {}
                ClientAction::CloseSocket | ClientAction::Connect => {}
                ClientAction::ConnectLater => {
                    return Err(ClientDisconnect::Lost(reason.unwrap_or(LossReason::Broken)));
                }
                ClientAction::Failed(failure) => {
                    return Err(ClientDisconnect::Final(closed(failure)));
                }
            }
        }
        Ok(())
    }

    async fn established(&mut self, identity: VerifiedIdentity, binding: ChannelBinding) {
        let (factory, sent, left) = SessionFactory::new();
        let fingerprint = identity.key().fingerprint();
        let (session, feed) = factory.open(self.session, fingerprint, binding);
        self.feed = Some((feed, sent, left));
        let (relay, first_use) = (self.relay.clone(), std::mem::take(self.first_use));
        let identity = Box::new(identity);
        let established = ClientEvent::Established { session, identity, relay, first_use };
        self.driver.tell(established).await;
    }

    fn deliver(&mut self, opened: Opened) -> Result<(), ClientDisconnect> {
        let Some((feed, ..)) = &mut self.feed else { return Ok(()) };
        match feed.deliver(opened) {
            Ok(()) => Ok(()),
            Err(Undelivered::Gap) => Err(LossReason::Sdk(SdkCode::SequenceError).into()),
            Err(Undelivered::Full(message)) => {
                self.stalled = Some((message, Instant::now() + READ_PATIENCE));
                Ok(())
            }
        }
    }

    /// Reports a notice to the program; returns the reason if the session is about to end.
    async fn show(&mut self, notice: Notice) -> Result<Option<LossReason>, ClientDisconnect> {
        let event = match notice {
            Notice::Paused => ClientEvent::Paused,
            Notice::Pending => ClientEvent::Pending,
            Notice::Resumed => {
                if let Some((feed, ..)) = &self.feed {
                    feed.resumed();
                }
                ClientEvent::Resumed
            }
            // The daemon would see a gap at the next message: start a new session at once.
            Notice::Discarded => return Err(LossReason::Discarded.into()),
            Notice::Told(code) => return Ok(Some(LossReason::Told(code))),
            _ => return Ok(None),
        };
        self.driver.tell(event).await;
        Ok(None)
    }
}

fn closed(failure: ClientFailure) -> ClientClosed {
    match failure {
        ClientFailure::KeyChanged(change) => ClientClosed::KeyChanged(change),
        ClientFailure::Sdk(code) => ClientClosed::Handshake(code),
        ClientFailure::Relay(code) => ClientClosed::Relay(code),
    }
}

/// The next outgoing message; never returns if there is no session or no sender.
async fn recv(sent: &mut Option<&mut mpsc::Receiver<Outgoing>>) -> Outgoing {
    if let Some(sent) = sent
        && let Some(outgoing) = sent.recv().await
    {
        return outgoing;
    }
    std::future::pending().await
}

async fn recv_left(left: &mut Option<&mut mpsc::UnboundedReceiver<SessionId>>) {
    match left {
        Some(left) => {
            // `None` means the same: every handle was dropped.
            let _ = left.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Why a connection or an attempt ended.
pub(super) enum ClientDisconnect {
    /// Reconnect.
    Lost(LossReason),
    Final(ClientClosed),
}

impl From<LossReason> for ClientDisconnect {
    fn from(reason: LossReason) -> Self {
        match reason {
            LossReason::Control(error) if !error.may_pass() => {
                Self::Final(ClientClosed::Control(error))
            }
            reason => Self::Lost(reason),
        }
    }
}

pub(super) const STOPPED: ClientDisconnect = ClientDisconnect::Final(ClientClosed::Stopped);
