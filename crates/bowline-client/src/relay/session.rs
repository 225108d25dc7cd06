//! The program's handle of one sealed session; the same at both endpoints.
//!
//! A [`Session`] is a handle; the driver that owns the connection holds its [`SessionFeed`].
//! Outgoing messages go to the driver over a bounded queue; incoming ones arrive over a queue
//! bounded in bytes.
//!
//! Invariants
//! - Messages arrive in the order they were sent, each once. A gap or a repeat ends the session
//!   with `sequence_error`: nothing is lost silently.
//! - Unread messages are bounded; past the bound the session ends, so that it does not block the
//!   others.
//! - While the daemon is disconnected, outgoing messages wait in the queue; when it is full,
//!   senders wait too (SBRP-CLIENT-05).

use std::sync::Arc;
use std::time::Duration;

use bowline_sbrp::handshake::ChannelBinding;
use bowline_sbrp::id::SessionId;
use bowline_sbrp::identity::Fingerprint;
use bowline_sbrp::sealed::{MAX_PLAINTEXT, Opened, Plaintext};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::reasons::SessionEnd;

/// An established or ended session. Dropping it ends it.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    /// The fingerprint of the daemon's verified identity.
    fingerprint: Fingerprint,
    binding: ChannelBinding,
    outgoing: mpsc::Sender<Outgoing>,
    inbox: mpsc::UnboundedReceiver<Incoming>,
    room: Arc<Semaphore>,
    end: watch::Receiver<Option<SessionEnd>>,
    _drop: DropNotice,
}

/// Why a message was not accepted for sending.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message does not fit a frame; its length.
    #[error("a message of {0} bytes is longer than the {MAX_PLAINTEXT} that fit a frame")]
    TooLong(usize),
    /// There is no room for more messages now.
    #[error("there is no room for more messages now")]
    Full,
    /// The session is over.
    #[error(transparent)]
    Ended(#[from] SessionEnd),
}

impl Session {
    /// Its id at the relay.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The fingerprint of the daemon's identity key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// What a proof inside this session has to be bound to (SBRP-PEER-01).
    pub fn binding(&self) -> ChannelBinding {
        self.binding
    }

    /// Queues a message, and waits for room without a deadline. Success does not mean delivery: if
    /// the session ends, messages in flight are lost with it. A message lost before a pause is
    /// detected by the gap when the next one arrives, which ends the session.
    pub async fn send(&self, message: Vec<u8>) -> Result<(), SendError> {
        let outgoing = self.outgoing(message)?;
        self.outgoing.send(outgoing).await.map_err(|_| SendError::Ended(self.ended()))
    }

    /// Queues a message if there is room.
    pub fn try_send(&self, message: Vec<u8>) -> Result<(), SendError> {
        let outgoing = self.outgoing(message)?;
        self.outgoing.try_send(outgoing).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Ended(self.ended()),
        })
    }

    /// The next message; `None` when the session ended and all received messages were read. Cancel
    /// safe.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Incoming::Message(message, _room) = self.inbox.recv().await? {
                return Some(message.into_bytes().into());
            }
        }
    }

    /// The next message, or `Paused` if a pause may have lost earlier messages.
    pub(super) async fn recv_unpaused(&mut self) -> Unpaused {
        match self.inbox.recv().await {
            Some(Incoming::Message(message, _room)) => {
                Unpaused::Message(message.into_bytes().into())
            }
            Some(Incoming::Resumed) => Unpaused::Paused,
            None => Unpaused::Over,
        }
    }

    /// Why the session ended; `None` while it is open.
    pub fn end(&self) -> Option<SessionEnd> {
        self.end.borrow().clone()
    }

    fn outgoing(&self, message: Vec<u8>) -> Result<Outgoing, SendError> {
        if message.len() > MAX_PLAINTEXT {
            return Err(SendError::TooLong(message.len()));
        }
        match self.end() {
            Some(end) => Err(SendError::Ended(end)),
            None => Ok(Outgoing { session: self.id, plaintext: message.into() }),
        }
    }

    fn ended(&self) -> SessionEnd {
        self.end().unwrap_or(SessionEnd::Here)
    }

    /// For code that knows the peer and reads all that comes: the inbox may then hold a tunnel's window.
    pub(super) fn into_parts(self) -> Parts {
        self.room.add_permits(TUNNEL_ROOM - ROOM);
        let Self { id, outgoing, inbox, end, _drop, .. } = self;
        Parts { id, outgoing, inbox, end, _drop }
    }
}

/// The result of [`Session::recv_unpaused`].
#[derive(Debug)]
pub(super) enum Unpaused {
    Message(Vec<u8>),
    Paused,
    Over,
}

/// The parts of a session, for code that polls.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) id: SessionId,
    pub(super) outgoing: mpsc::Sender<Outgoing>,
    pub(super) inbox: mpsc::UnboundedReceiver<Incoming>,
    pub(super) end: watch::Receiver<Option<SessionEnd>>,
    pub(super) _drop: DropNotice,
}

/// Tells the driver that a handle was dropped.
#[derive(Debug)]
pub(super) struct DropNotice(SessionId, mpsc::UnboundedSender<SessionId>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) session: SessionId,
    pub(super) plaintext: Plaintext,
}

#[derive(Debug)]
pub(super) enum Incoming {
    Message(Plaintext, OwnedSemaphorePermit),
    /// The session was paused and resumed: messages in flight in either direction may be lost. To
    /// detect a loss at once, send a message now: its sequence number shows the gap.
    Resumed,
}

/// The driver's queues, from which it creates session handles.
#[derive(Debug)]
pub(super) struct SessionFactory {
    outgoing: mpsc::Sender<Outgoing>,
    drops: mpsc::UnboundedSender<SessionId>,
}

impl SessionFactory {
    /// Returns also the queue ends that the driver reads. The second queue holds one entry per
    /// session, so it is bounded by their number.
    pub(super) fn new() -> (Self, mpsc::Receiver<Outgoing>, mpsc::UnboundedReceiver<SessionId>) {
        let (outgoing, sent) = mpsc::channel(OUTGOING);
        let (drops, left) = mpsc::unbounded_channel();
        (Self { outgoing, drops }, sent, left)
    }

    pub(super) fn open(
        &self,
        id: SessionId,
        fingerprint: Fingerprint,
        binding: ChannelBinding,
    ) -> (Session, SessionFeed) {
        // Bounded by the semaphore: each message holds permits for its weight.
        let (tell, inbox) = mpsc::unbounded_channel();
        let (end, told) = watch::channel(None);
        let room = Arc::new(Semaphore::new(ROOM));
        let session = Session {
            id,
            fingerprint,
            binding,
            outgoing: self.outgoing.clone(),
            inbox,
            room: Arc::clone(&room),
            end: told,
            _drop: DropNotice(id, self.drops.clone()),
        };
        (session, SessionFeed { inbox: tell, room, end, next: 0 })
    }
}

/// The driver's side of a session.
#[derive(Debug)]
pub(super) struct SessionFeed {
    inbox: mpsc::UnboundedSender<Incoming>,
    room: Arc<Semaphore>,
    end: watch::Sender<Option<SessionEnd>>,
    /// The expected sequence number of the next message.
    next: u64,
}

/// Why a message was not delivered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undelivered {
    /// Messages were dropped on the way.
    Gap,
    /// The program does not read, and the inbox is full.
    Full(Plaintext),
}

impl SessionFeed {
    pub(super) fn deliver(&mut self, opened: Opened) -> Result<(), Undelivered> {
        if opened.seq != self.next {
            return Err(Undelivered::Gap);
        }
        self.next += 1;
        let room = Arc::clone(&self.room).try_acquire_many_owned(weight(opened.plaintext.len()));
        match room {
            Ok(room) => {
                self.put(opened.plaintext, room);
                Ok(())
            }
            Err(_) => Err(Undelivered::Full(opened.plaintext)),
        }
    }

    /// Delivers a message for which room was acquired later.
    pub(super) fn put(&self, message: Plaintext, room: OwnedSemaphorePermit) {
        // If the handle was dropped, the driver learns it from the [`DropNotice`].
        let _ = self.inbox.send(Incoming::Message(message, room));
    }

    pub(super) fn room(&self) -> Arc<Semaphore> {
        Arc::clone(&self.room)
    }

    pub(super) fn resumed(&self) {
        let _ = self.inbox.send(Incoming::Resumed);
    }

    pub(super) fn end(self, end: SessionEnd) {
        self.end.send_replace(Some(end));
    }
}

/// The room that a message takes in the inbox. The minimum accounts for the overhead of small ones.
pub(super) fn weight(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX).max(LEAST)
}

/// The limit of unread messages: 1 MiB, or 256 messages.
const ROOM: usize = 1 << 20;
/// The same for a tunnel: what its peer may have on the way, and as much again beside data.
const TUNNEL_ROOM: usize = 8 << 20;
pub(super) const LEAST: u32 = 4096;
/// The most messages queued for sealing.
const OUTGOING: usize = 32;
/// How long a full inbox may stay unread before the session is ended.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use bowline_sbrp::identity::Fingerprint;

    use super::*;

    fn session_and_feed() -> (Session, SessionFeed, mpsc::Receiver<Outgoing>) {
        let (factory, sent, _) = SessionFactory::new();
        let id = SessionId::from_wire(7).unwrap();
        let (session, feed) =
            factory.open(id, Fingerprint::of(&[0; 32]), ChannelBinding::from_bytes([0; 32]));
        (session, feed, sent)
    }

    fn opened(seq: u64, length: usize) -> Opened {
        Opened { seq, plaintext: vec![seq as u8; length].into() }
    }

    #[tokio::test]
    async fn messages_come_in_order_and_a_gap_is_noticed() {
        let (mut session, mut feed, _sent) = session_and_feed();
        feed.deliver(opened(0, 1)).unwrap();
        feed.deliver(opened(1, 1)).unwrap();
        assert_eq!(feed.deliver(opened(3, 1)), Err(Undelivered::Gap));
        assert_eq!(session.recv().await, Some(vec![0]));
        assert_eq!(session.recv().await, Some(vec![1]));
        feed.end(SessionEnd::Left);
        assert_eq!((session.recv().await, session.end()), (None, Some(SessionEnd::Left)));
        assert_eq!(session.send(vec![]).await, Err(SendError::Ended(SessionEnd::Left)));
    }

    #[tokio::test]
    async fn what_is_not_read_is_bounded_in_bytes_and_in_number() {
        for (length, most) in [(60_000, 17), (1, 256)] {
            let (mut session, mut feed, _sent) = session_and_feed();
            for seq in 0..most {
                feed.deliver(opened(seq, length)).unwrap();
            }
            let full = feed.deliver(opened(most, length));
            assert!(matches!(full, Err(Undelivered::Full(_))), "{length}");
            session.recv().await.unwrap();
            feed.deliver(opened(most + 1, length)).unwrap();
        }
    }

    #[tokio::test]
    async fn sbrp_client_05_what_waits_to_be_sent_is_bounded() {
        let (session, _mooring, mut sent) = session_and_feed();
        for _ in 0..OUTGOING {
            session.try_send(vec![1]).unwrap();
        }
        assert_eq!(session.try_send(vec![1]), Err(SendError::Full));
        sent.recv().await.unwrap();
        session.try_send(vec![1]).unwrap();
        let long = vec![0; MAX_PLAINTEXT + 1];
        assert_eq!(session.send(long).await, Err(SendError::TooLong(MAX_PLAINTEXT + 1)));
    }
}
