//! One connection of a client: what its machine decides, carried out.

use std::convert::Infallible;

use bowline_sbrp::client::{Action, Client, Event, Failure, Notice};
use bowline_sbrp::control::SdkCode;
use bowline_sbrp::frame::{Beat as PingBeat, Frame};
use bowline_sbrp::handshake::VerifiedIdentity;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::sealed::{Opened, Plaintext};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::driver::{Driver, now};
use super::{ClientClosed, ClientEvent};
use crate::relay::link::Link;
use crate::relay::pulse::{Beat, Pulse};
use crate::relay::random::ephemeral;
use crate::relay::session::{Mooring, Outgoing, Quay, READ_PATIENCE, Undelivered, weight};
use crate::relay::why::{End, Why};

/// One connection and the one session it carries.
pub(super) struct Talk<'a> {
    driver: &'a Driver,
    machine: &'a mut Client,
    session: SessionId,
    relay: String,
    first_use: &'a mut bool,
    /// Once the handshake is done.
    mooring: Option<(Mooring, mpsc::Receiver<Outgoing>, mpsc::UnboundedReceiver<SessionId>)>,
    /// A message that the program has no room for, and until when. Nothing is read meanwhile.
    stalled: Option<(Plaintext, Instant)>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        driver: &'a Driver,
        machine: &'a mut Client,
        session: SessionId,
        relay: String,
        first_use: &'a mut bool,
    ) -> Self {
        Self { driver, machine, session, relay, first_use, mooring: None, stalled: None }
    }

    pub(super) async fn run(mut self, mut link: Link) -> Ending {
        let ending = self.talk(&mut link).await;
        let (event, end) = match &ending {
            Ending::Lost(Why::Here) => (Event::Lost { session: self.session }, End::Here),
            Ending::Lost(why) => (Event::Lost { session: self.session }, End::Lost(why.clone())),
            Ending::Final(_) => (Event::Close, End::Here),
        };
        // Where the machine ended the session itself, this changes nothing.
        let _ = self.machine.handle(event, now());
        if let Some((mooring, ..)) = self.mooring {
            mooring.end(end);
        }
        match &ending {
            Ending::Lost(Why::Broken | Why::Silent | Why::Stuck) => link.abandon(),
            _ => link.close().await,
        }
        ending
    }

    async fn talk(&mut self, link: &mut Link) -> Ending {
        match self.try_talk(link).await {
            Ok(never) => match never {},
            Err(ending) => ending,
        }
    }

    async fn try_talk(&mut self, link: &mut Link) -> Result<Infallible, Ending> {
        let outbox = link.outbox();
        let mut pulse = Pulse::new(self.driver.config.watch, now());
        let opened = Event::Opened { session: self.session, ephemeral: ephemeral()? };
        self.handle(opened, link).await?;
        loop {
            let due = self.machine.deadline().map_or(pulse.due(), |at| at.min(pulse.due()));
            // While the daemon is away, what is sent waits where it is.
            let active = self.machine.is_active();
            let stalled_until = self.stalled.as_ref().map(|(_, until)| *until);
            let (room, mut sent, mut left) = match &mut self.mooring {
                Some((mooring, sent, left)) => (Some(mooring.room()), Some(sent), Some(left)),
                None => (None, None, None),
            };
            let needed = self.stalled.as_ref().map_or(0, |(message, _)| weight(message.len()));
            tokio::select! {
                heard = link.hear(), if stalled_until.is_none() => {
                    pulse.heard(now());
                    if let Some(frame) = heard? {
                        self.handle(Event::Frame(frame), link).await?;
                    }
                }
                room = async { room?.acquire_many_owned(needed).await.ok() },
                    if stalled_until.is_some() =>
                {
                    pulse.heard(now());
                    if let (Some(room), Some((message, _)), Some((mooring, ..))) =
                        (room, self.stalled.take(), &self.mooring)
                    {
                        mooring.put(message, room);
                    }
                }
                () = sleep_until(stalled_until.unwrap_or_else(Instant::now)),
                    if stalled_until.is_some() =>
                {
                    return Err(Why::Unread.into());
                }
                (room, outgoing) = async {
                    // Room first: a message that is taken out of the queue must not be lost.
                    let room = outbox.reserve().await;
                    (room, recv(&mut sent).await)
                }, if active => {
                    drop(room.map_err(|_| Why::Stuck)?);
                    self.handle(Event::Send(outgoing.plaintext), link).await?;
                }
                () = recv_left(&mut left) => {
                    self.leave(link).await?;
                    return Err(Why::Here.into());
                }
                () = sleep_until(due.into()) => {
                    match pulse.check(now()) {
                        Beat::Fine => {}
                        Beat::Ask => link.say(Frame::Ping(PingBeat::default()).encode()).await?,
                        Beat::Silent => return Err(Why::Silent.into()),
                    }
                    self.handle(Event::Tick, link).await?;
                }
                () = self.driver.stop.cancelled() => return Err(STOPPED),
            }
        }
    }

    /// The program dropped its handle. What it sent before goes out first.
    async fn leave(&mut self, link: &Link) -> Result<(), Ending> {
        while self.machine.is_active()
            && let Some((_, sent, _)) = &mut self.mooring
            && let Ok(outgoing) = sent.try_recv()
        {
            self.handle(Event::Send(outgoing.plaintext), link).await?;
        }
        Ok(())
    }

    /// Hands an event to the machine, and carries out what it says.
    async fn handle(&mut self, event: Event, link: &Link) -> Result<(), Ending> {
        let actions = match self.machine.handle(event, now()) {
            Ok(actions) => actions,
            Err(impossible) => {
                tracing::debug!(%impossible, "ignored");
                return Ok(());
            }
        };
        // Why the session is about to be given up, if it is.
        let mut why = None;
        for action in actions {
            match action {
                Action::Send(message) => link.say(message).await?,
                Action::Pin(identity) => {
                    // The handle first needs its fingerprint; keeping it may take a while.
                    self.driver.keep(identity).await;
                    self.established(identity).await;
                }
                // Said with the pin, which comes just before.
                Action::Established => {}
                Action::Deliver(opened) => self.deliver(opened)?,
                Action::Show(notice) => {
                    if let Some(reason) = self.show(notice).await? {
                        why = Some(reason);
                    }
                }
                // Ends the session: the relay, which alone can do this, gains nothing by it that
                // it could not have by closing the connection.
                Action::Refused(code) => why = Some(Why::Sdk(code)),
                // Their session's handle ends, and says so.
                Action::Unsent(_) => {}
                Action::CloseSocket | Action::Connect => {}
                Action::ConnectLater => return Err(Ending::Lost(why.unwrap_or(Why::Broken))),
                Action::Failed(failure) => return Err(Ending::Final(closed(failure))),
            }
        }
        match why {
            Some(Why::Sdk(code)) => Err(Ending::Lost(Why::Sdk(code))),
            _ => Ok(()),
        }
    }

    async fn established(&mut self, identity: VerifiedIdentity) {
        let (quay, sent, left) = Quay::new();
        let (session, mooring) = quay.moor(self.session, identity.key().fingerprint());
        self.mooring = Some((mooring, sent, left));
        let (relay, first_use) = (self.relay.clone(), std::mem::take(self.first_use));
        self.driver.tell(ClientEvent::Established { session, relay, first_use }).await;
    }

    fn deliver(&mut self, opened: Opened) -> Result<(), Ending> {
        let Some((mooring, ..)) = &mut self.mooring else { return Ok(()) };
        match mooring.deliver(opened) {
            Ok(()) => Ok(()),
            Err(Undelivered::Gap) => Err(Why::Sdk(SdkCode::SequenceError).into()),
            Err(Undelivered::Full(message)) => {
                self.stalled = Some((message, Instant::now() + READ_PATIENCE));
                Ok(())
            }
        }
    }

    /// Tells the program; gives what is the reason if the session ends next.
    async fn show(&mut self, notice: Notice) -> Result<Option<Why>, Ending> {
        let event = match notice {
            Notice::Paused => ClientEvent::Paused,
            Notice::Pending => ClientEvent::Pending,
            Notice::Resumed => {
                if let Some((mooring, ..)) = &self.mooring {
                    mooring.resumed();
                }
                ClientEvent::Resumed
            }
            // What came after it would show a gap to the daemon: better to begin anew at once.
            Notice::Discarded => return Err(Why::Discarded.into()),
            Notice::Told(code) => return Ok(Some(Why::Told(code))),
        };
        self.driver.tell(event).await;
        Ok(None)
    }
}

fn closed(failure: Failure) -> ClientClosed {
    match failure {
        Failure::KeyChanged(change) => ClientClosed::KeyChanged(change),
        Failure::Sdk(code) => ClientClosed::Handshake(code),
        Failure::Relay(code) => ClientClosed::Relay(code),
    }
}

/// The next message; never, if there is no session or nobody who could send.
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
            // None means the same: every handle is gone.
            let _ = left.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Why a try or a connection ended.
pub(super) enum Ending {
    /// Worth another try.
    Lost(Why),
    Final(ClientClosed),
}

impl From<Why> for Ending {
    fn from(why: Why) -> Self {
        match why {
            Why::Control(error) if !error.may_pass() => Self::Final(ClientClosed::Control(error)),
            why => Self::Lost(why),
        }
    }
}

pub(super) const STOPPED: Ending = Ending::Final(ClientClosed::Stopped);
