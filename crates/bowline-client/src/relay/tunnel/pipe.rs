//! A byte stream over a session's messages, for yamux to run on.
//!
//! Separate from the mux, because it adds a flow-control window for the whole session. yamux limits
//! each stream, not their sum: a hundred simultaneous downloads would put 25 MiB in flight, and a
//! relay buffers about 1 MiB for a slow reader before it closes the connection (SBRP-RELAY-08). So
//! each side counts the bytes that the other has not acknowledged, and stops at [`WINDOW`].
//!
//! Invariants
//! - Unacknowledged messages weigh at most [`WINDOW`] together, each at least 4 KiB: 128 messages.
//! - Received messages are always taken from the session, also while writing is blocked: they
//!   contain the acknowledgements.
//! - After a pause an acknowledgement is sent at once: its sequence number shows the peer whether a
//!   message is missing, even if no more data follows.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_sbrp::sealed::MAX_PLAINTEXT;
use futures_util::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::PollSender;

use crate::relay::session::{Incoming, Outgoing, Parts, Session, weight};

/// The most bytes in flight and not acknowledged.
pub(super) const WINDOW: u32 = 512 << 10;

#[derive(Debug)]
pub(super) struct Pipe {
    session: Parts,
    outgoing: PollSender<Outgoing>,
    /// Received pieces that are not read yet; the first is unread from `read_from` on.
    arrived: VecDeque<Vec<u8>>,
    read_from: usize,
    /// The weight of the peer's messages that we have not acknowledged.
    unread: u32,
    /// The weight that was read here and not acknowledged yet.
    untold: u32,
    /// Send an acknowledgement even if it is below the threshold.
    probe: bool,
    /// The next piece to send, with its kind byte in front.
    piece: Vec<u8>,
    in_flight: u32,
    over: bool,
}

impl Pipe {
    pub(super) fn new(session: Session) -> Self {
        let session = session.into_parts();
        Self {
            outgoing: PollSender::new(session.outgoing.clone()),
            session,
            arrived: VecDeque::new(),
            read_from: 0,
            unread: 0,
            untold: 0,
            probe: false,
            piece: Vec::new(),
            in_flight: 0,
            over: false,
        }
    }

    /// Takes all received messages from the session, and sends an acknowledgement if one is due.
    fn pump(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.over {
            match self.session.inbox.poll_recv(cx) {
                Poll::Ready(Some(Incoming::Message(message, _room))) => {
                    self.take_in(message.into_bytes())?;
                }
                Poll::Ready(Some(Incoming::Resumed)) => self.probe = true,
                Poll::Ready(None) => self.over = true,
                Poll::Pending => break,
            }
        }
        if (self.untold >= WINDOW / 4 || self.probe)
            && let Poll::Ready(ready) = self.outgoing.poll_reserve(cx)
        {
            ready.map_err(|_| self.ended())?;
            let told = [&[TAKEN], self.untold.to_be_bytes().as_slice()].concat();
            self.unread = self.unread.saturating_sub(self.untold);
            (self.untold, self.probe) = (0, false);
            self.send(told)?;
        }
        Ok(())
    }

    fn take_in(&mut self, mut message: Vec<u8>) -> io::Result<()> {
        match message.first() {
            Some(&PIECE) => {
                let cost = weight(message.len());
                self.unread = self.unread.saturating_add(cost);
                if self.unread > WINDOW {
                    return Err(garbled("more on its way than was allowed"));
                }
                message.drain(..1);
                self.arrived.push_back(message);
                Ok(())
            }
            Some(&TAKEN) => {
                let taken = message[1..].try_into().map(u32::from_be_bytes);
                let taken = taken.map_err(|_| garbled("an acknowledgement of another size"))?;
                let left = self.in_flight.checked_sub(taken);
                self.in_flight = left.ok_or_else(|| garbled("more taken than was sent"))?;
                Ok(())
            }
            _ => Err(garbled("a message of no kind")),
        }
    }

    /// Sends the piece, once the queue has room and the window allows it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pump(cx)?;
        let cost = weight(self.piece.len());
        if self.in_flight + cost > WINDOW {
            return match self.over {
                true => Poll::Ready(Err(self.ended())),
                // The acknowledgement arrives through the inbox, which wakes this task.
                false => Poll::Pending,
            };
        }
        ready!(self.outgoing.poll_reserve(cx)).map_err(|_| self.ended())?;
        let piece = std::mem::take(&mut self.piece);
        self.in_flight += cost;
        self.send(piece)?;
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        let outgoing = Outgoing { session: self.session.id, plaintext: message.into() };
        self.outgoing.send_item(outgoing).map_err(|_| self.ended())
    }

    fn ended(&self) -> io::Error {
        let end = self.session.end.borrow().clone();
        let why = end.map_or_else(|| "the session is over".to_owned(), |end| end.to_string());
        io::Error::new(io::ErrorKind::ConnectionAborted, why)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.pump(cx)?;
        loop {
            let from = self.read_from;
            let Some(piece) = self.arrived.front() else {
                // The end of the session is always an error: yamux closes its connection before an
                // orderly end.
                return if self.over { Poll::Ready(Err(self.ended())) } else { Poll::Pending };
            };
            let count = buf.len().min(piece.len() - from);
            buf[..count].copy_from_slice(&piece[from..from + count]);
            let whole = piece.len();
            self.read_from += count;
            if from + count == whole {
                self.arrived.pop_front();
                self.read_from = 0;
                self.untold += weight(whole + 1);
                // Sends an acknowledgement, if one is due.
                self.pump(cx)?;
            }
            if count > 0 || buf.is_empty() {
                return Poll::Ready(Ok(count));
            }
        }
    }
}

impl AsyncWrite for Pipe {
    /// Appends what fits into one message; it is sent on flush, or when it is full.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.piece.len() == MAX_PLAINTEXT {
            ready!(self.poll_send(cx))?;
        }
        if self.piece.is_empty() {
            self.piece.push(PIECE);
        }
        let count = buf.len().min(MAX_PLAINTEXT - self.piece.len());
        self.piece.extend_from_slice(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.piece.is_empty() {
            true => Poll::Ready(Ok(())),
            false => self.poll_send(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

fn garbled(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const PIECE: u8 = 0x00;
const TAKEN: u8 = 0x01;

#[cfg(test)]
mod tests {
    use bowline_sbrp::id::SessionId;
    use bowline_sbrp::identity::Fingerprint;
    use bowline_sbrp::sealed::Opened;
    use futures_util::FutureExt;
    use futures_util::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    use super::*;
    use crate::relay::session::{SessionFactory, SessionFeed};

    struct PipeEnd {
        pipe: Pipe,
        feed: SessionFeed,
        sent: mpsc::Receiver<Outgoing>,
        said: u64,
    }

    impl PipeEnd {
        fn new() -> Self {
            let (factory, sent, _) = SessionFactory::new();
            let id = SessionId::from_wire(1).unwrap();
            let (session, feed) = factory.open(id, Fingerprint::of(&[0; 32]));
            Self { pipe: Pipe::new(session), feed, sent, said: 0 }
        }

        /// Receives a message from the peer.
        fn hear(&mut self, kind: u8, rest: &[u8]) {
            let plaintext = [&[kind], rest].concat().into();
            self.feed.deliver(Opened { seq: self.said, plaintext }).unwrap();
            self.said += 1;
        }

        /// Writes and flushes until blocked; returns the sent messages.
        fn write_all_that_goes(&mut self, piece: &[u8]) -> Vec<Vec<u8>> {
            let mut went = Vec::new();
            for _ in 0..10_000 {
                let done = async {
                    self.pipe.write_all(piece).await?;
                    self.pipe.flush().await
                };
                let done = done.now_or_never();
                while let Ok(outgoing) = self.sent.try_recv() {
                    went.push(outgoing.plaintext.into_bytes());
                }
                match done {
                    Some(done) => done.unwrap(),
                    // Blocked by the queue, which is empty now; or by the window.
                    None if self.pipe.flush().now_or_never().is_none() => break,
                    None => {}
                }
            }
            while let Ok(outgoing) = self.sent.try_recv() {
                went.push(outgoing.plaintext.into_bytes());
            }
            went
        }
    }

    #[test]
    fn no_more_is_on_its_way_than_the_window_in_bytes_and_in_number() {
        for size in [1, 5_000, 40_000, 200_000] {
            let mut end = PipeEnd::new();
            let went = end.write_all_that_goes(&vec![7; size]);
            let weight: u32 = went.iter().map(|message| weight(message.len())).sum();
            assert!(weight <= WINDOW && weight > WINDOW / 2, "{size}: {weight}");
            assert!(went.len() <= 128, "{size}: {}", went.len());
            assert!(went.iter().all(|message| message.len() <= MAX_PLAINTEXT));
            // An acknowledgement makes room for as much again.
            end.hear(TAKEN, &weight.to_be_bytes());
            assert!(!end.write_all_that_goes(&vec![7; size]).is_empty(), "{size}");
        }
    }

    #[test]
    fn what_is_read_is_told_before_the_peer_runs_dry() {
        let mut end = PipeEnd::new();
        let mut heard = vec![0; 40_000];
        let mut told = 0;
        for _ in 0..100 {
            end.hear(PIECE, &[7; 40_000]);
            end.pipe.read_exact(&mut heard).now_or_never().unwrap().unwrap();
            while let Ok(outgoing) = end.sent.try_recv() {
                let message = outgoing.plaintext.into_bytes();
                assert_eq!(message[0], TAKEN);
                told += u32::from_be_bytes(message[1..].try_into().unwrap());
            }
        }
        assert!(told <= 100 * 40_001 && told > 100 * 40_001 - WINDOW / 2, "{told}");
    }

    #[test]
    fn after_a_pause_something_is_said_at_once() {
        let mut end = PipeEnd::new();
        end.feed.resumed();
        assert!(end.pipe.read(&mut [0; 1]).now_or_never().is_none());
        let said = end.sent.try_recv().unwrap().plaintext.into_bytes();
        assert_eq!(said, [TAKEN, 0, 0, 0, 0]);
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_not_listened_to() {
        for (kind, rest) in [(TAKEN, &[0, 0, 0, 1][..]), (TAKEN, &[0, 0, 0]), (0x02, b"?")] {
            let mut end = PipeEnd::new();
            end.hear(kind, rest);
            let read = end.pipe.read(&mut [0; 1]).now_or_never().unwrap();
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData, "{kind} {rest:?}");
        }
        let mut end = PipeEnd::new();
        for _ in 0..=WINDOW / 60_000 {
            end.hear(PIECE, &[0; 60_000]);
        }
        let read = end.pipe.read(&mut [0; 1]).now_or_never().unwrap();
        assert_eq!(read.unwrap_err().to_string(), "more on its way than was allowed");
    }
}
