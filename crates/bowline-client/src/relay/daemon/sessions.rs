//! The sessions of a daemon: what its machine decides, carried out.
//!
//! Apart from staying connected, because sessions outlive connections. One connection at a time is
//! talked over; without one, sessions may still be dropped by the program.
//!
//! Invariants
//! - Every established session is moored here until it ends, and its handle learns how.
//! - Nothing a session does holds up another: what cannot be delivered ends it.

use std::collections::{BTreeMap, VecDeque};

use bowline_sbrp::control::SdkCode;
use bowline_sbrp::daemon::{Action, Daemon, Event, Progress};
use bowline_sbrp::frame::{Beat as PingBeat, Frame, Reason};
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::Fingerprint;
use bowline_sbrp::sealed::Opened;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::DaemonEvent;
use crate::relay::link::Link;
use crate::relay::pulse::{Beat, Pulse, Watch};
use crate::relay::random::ephemeral;
use crate::relay::session::{Mooring, Outgoing, Quay, Undelivered};
use crate::relay::why::{End, Why, told};

pub(super) struct Sessions {
    machine: Daemon,
    fingerprint: Fingerprint,
    watch: Watch,
    moorings: BTreeMap<SessionId, Mooring>,
    quay: Quay,
    sent: mpsc::Receiver<Outgoing>,
    left: mpsc::UnboundedReceiver<SessionId>,
    events: mpsc::Sender<DaemonEvent>,
}

impl Sessions {
    pub(super) fn new(
        machine: Daemon,
        fingerprint: Fingerprint,
        watch: Watch,
        events: mpsc::Sender<DaemonEvent>,
    ) -> Self {
        let (quay, sent, left) = Quay::new();
        let moorings = BTreeMap::new();
        Self { machine, fingerprint, watch, moorings, quay, sent, left, events }
    }

    /// The connection is gone; what can be resumed waits.
    pub(super) fn link_lost(&mut self) {
        self.offline(Event::LinkLost);
    }

    /// Waits without a connection until `then`; the program may drop sessions meanwhile.
    pub(super) async fn away(&mut self, then: Instant) {
        loop {
            tokio::select! {
                () = sleep_until(then) => return,
                Some(session) = self.left.recv() => {
                    self.unmoor(session, End::Here);
                    self.offline(Event::Close { session, reason: Reason::None });
                }
            }
        }
    }

    /// Ends all of them, while there is no connection to say so.
    pub(super) fn forget(&mut self, end: &End) {
        for (session, mooring) in std::mem::take(&mut self.moorings) {
            mooring.end(end.clone());
            self.offline(Event::Close { session, reason: Reason::StateLost });
        }
    }

    /// One connection, from its beginning to its end.
    /// Ends well only when the daemon is stopped.
    pub(super) async fn talk(
        &mut self,
        link: &mut Link,
        stop: &CancellationToken,
    ) -> Result<(), Why> {
        let outbox = link.outbox();
        let mut pulse = Pulse::new(self.watch, now());
        self.handle(Event::LinkUp, link).await?;
        loop {
            let due = self.machine.deadline().map_or(pulse.due(), |at| at.min(pulse.due()));
            let sent = async {
                // Room first: a message that is taken out of the queue must not be lost.
                let room = outbox.reserve().await;
                (room, self.sent.recv().await)
            };
            tokio::select! {
                heard = link.hear() => {
                    pulse.heard(now());
                    if let Some(frame) = heard? {
                        self.handle(Event::Frame(frame), link).await?;
                    }
                }
                (room, outgoing) = sent => {
                    drop(room.map_err(|_| Why::Stuck)?);
                    if let Some(Outgoing { session, plaintext }) = outgoing {
                        self.handle(Event::Send { session, plaintext }, link).await?;
                    }
                }
                Some(session) = self.left.recv() => self.leave(session, link).await?,
                () = sleep_until(due.into()) => {
                    match pulse.check(now()) {
                        Beat::Fine => {}
                        Beat::Ask => link.say(Frame::Ping(PingBeat::default()).encode()).await?,
                        Beat::Silent => return Err(Why::Silent),
                    }
                    self.handle(Event::Tick, link).await?;
                }
                () = stop.cancelled() => {
                    return self.handle(Event::Stop, link).await;
                }
            }
        }
    }

    /// Hands an event to the machine, and carries out what it says, and what follows from that.
    async fn handle(&mut self, event: Event, link: &Link) -> Result<(), Why> {
        let mut events = VecDeque::from([event]);
        // Once the connection fails, the rest is carried out all the same: sessions outlive it.
        let mut said = Ok(());
        while let Some(event) = events.pop_front() {
            let actions = match self.machine.handle(event, now()) {
                Ok(actions) => actions,
                Err(impossible) => {
                    // A session that ended while something of it was on its way; or a relay that
                    // makes things up, which may not do more than this.
                    tracing::debug!(%impossible, "ignored");
                    continue;
                }
            };
            for action in actions {
                match action {
                    Action::Send(message) => {
                        if said.is_ok() {
                            said = link.say(message).await;
                        }
                    }
                    Action::Offer(session) => events.push_back(match ephemeral() {
                        Ok(ephemeral) => Event::Answer { session, ephemeral },
                        Err(_) => Event::Close { session, reason: Reason::Error },
                    }),
                    Action::Session(session, progress) => {
                        events.extend(self.progress(session, progress));
                    }
                    Action::Told(code) => {
                        tracing::debug!(code = %told(code), "the relay says");
                    }
                }
            }
        }
        said
    }

    /// The same without a connection: nothing can be sent, and the machine knows.
    fn offline(&mut self, event: Event) {
        let actions = self.machine.handle(event, now()).unwrap_or_default();
        for action in actions {
            if let Action::Session(session, progress) = action {
                self.progress(session, progress);
            }
        }
    }

    /// What the program hears of a session, and what follows for the machine.
    fn progress(&mut self, session: SessionId, progress: Progress) -> Option<Event> {
        match progress {
            Progress::Established => self.established(session),
            Progress::Deliver(opened) => self.deliver(session, opened),
            Progress::Suspended => None,
            Progress::Resumed => {
                if let Some(mooring) = self.moorings.get(&session) {
                    mooring.resumed();
                }
                None
            }
            Progress::Refused(code) => self.give_up(session, Why::Sdk(code), Reason::Error),
            Progress::Ended(fault) => {
                self.unmoor(session, fault.map_or(End::Left, |code| End::Lost(Why::Sdk(code))));
                None
            }
        }
    }

    fn established(&mut self, id: SessionId) -> Option<Event> {
        let (session, mooring) = self.quay.moor(id, self.fingerprint);
        match self.events.try_send(DaemonEvent::SessionOpened(session)) {
            Ok(()) => {
                self.moorings.insert(id, mooring);
                None
            }
            // Nobody takes sessions on: better to turn the client away than to let it wait.
            Err(_) => Some(Event::Close { session: id, reason: Reason::Policy }),
        }
    }

    fn deliver(&mut self, session: SessionId, opened: Opened) -> Option<Event> {
        let Some(mooring) = self.moorings.get_mut(&session) else {
            return Some(Event::Close { session, reason: Reason::Error });
        };
        match mooring.deliver(opened) {
            Ok(()) => None,
            Err(Undelivered::Gap) => {
                self.give_up(session, Why::Sdk(SdkCode::SequenceError), Reason::Error)
            }
            Err(Undelivered::Full(_)) => self.give_up(session, Why::Unread, Reason::Policy),
        }
    }

    fn give_up(&mut self, session: SessionId, why: Why, reason: Reason) -> Option<Event> {
        tracing::debug!(%why, "session given up");
        self.unmoor(session, End::Lost(why));
        Some(Event::Close { session, reason })
    }

    /// The program dropped a handle. What it sent before goes out first.
    async fn leave(&mut self, session: SessionId, link: &Link) -> Result<(), Why> {
        while let Ok(Outgoing { session, plaintext }) = self.sent.try_recv() {
            self.handle(Event::Send { session, plaintext }, link).await?;
        }
        self.unmoor(session, End::Here);
        self.handle(Event::Close { session, reason: Reason::None }, link).await
    }

    fn unmoor(&mut self, session: SessionId, end: End) {
        if let Some(mooring) = self.moorings.remove(&session) {
            mooring.end(end);
        }
    }
}

/// By Tokio's clock, so that tests can move it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
