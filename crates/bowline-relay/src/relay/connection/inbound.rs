//! Reading: bytes into messages, which are then handed to [`dispatch`](super::dispatch).
//!
//! Bytes are read into a buffer that all connections of a thread share, and only what cannot be
//! taken yet is kept with the connection: a message that is not whole, or messages whose receiver
//! has no room. While anything is held, nothing more is read, and TCP tells the sender.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bowline_sbrp::frame::MAX_FRAME;
use tokio::io::{AsyncRead as _, ReadBuf};

use super::dispatch::broken;
use super::{Connection, ConnectionEnd, Hold};
use crate::relay::ws::decode::Decoded;
use crate::relay::ws::head::LONGEST;

/// What is read at once, at most.
const READ: usize = 128 << 10;
/// Up to here, the rest of a message is read together with what follows it, however slowly it
/// comes: what is kept is copied for every read.
const SHORT: usize = 4 << 10;
/// The longest that is kept of a message while its sender is in a rush.
const LONG: usize = MAX_FRAME + LONGEST;

/// What a thread's connections share while one of them reads.
struct Scratch {
    bytes: Vec<u8>,
    wakes: Vec<Waker>,
}

thread_local! {
    static SCRATCH_OF_THREAD: RefCell<Scratch> =
        RefCell::new(Scratch { bytes: vec![0; LONG + READ], wakes: Vec::new() });
}

impl Connection {
    /// Takes in what is there, or reads more. Ready when something was done.
    pub(super) fn poll_inbound(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        SCRATCH_OF_THREAD.with_borrow_mut(|Scratch { bytes, wakes }| {
            let done = self.poll_scratch(bytes, wakes, cx);
            for receiver in wakes.drain(..) {
                receiver.wake();
            }
            let (frames, count) = std::mem::take(&mut self.passed);
            if frames > 0 {
                self.shared.meters.forwarded(self.membership.side.other_role(), frames, count);
            }
            done
        })
    }

    fn poll_scratch(
        &mut self,
        scratch: &mut [u8],
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ConnectionEnd>> {
        if self.hold == Hold::Own && self.own_queue_full() {
            return Poll::Pending;
        }
        if self.again {
            let input = std::mem::take(&mut self.input);
            let before = self.hold;
            let used = self.take_in(&input, wakes, cx)?;
            let held = self.hold != Hold::No;
            self.keep(input, used);
            // Still held, and nothing was taken: another task has to make progress first.
            return match held && used == 0 && before != Hold::No {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            };
        }
        let kept = self.input.len();
        let short = self.needs.saturating_sub(kept) <= SHORT && kept <= SHORT;
        if short || (self.rushing && kept <= LONG) {
            scratch[..kept].copy_from_slice(&self.input);
            let mut buffer = ReadBuf::new(&mut scratch[kept..kept + READ]);
            let read = ready!(self.poll_read(&mut buffer, cx))?;
            let end = kept + read;
            let used = self.take_in(&scratch[..end], wakes, cx)?;
            self.input.clear();
            self.input.extend_from_slice(&scratch[used..end]);
        } else {
            // A long message, of which a part is here: its rest goes where it is needed.
            let most = (self.needs - kept).min(READ);
            let mut buffer = ReadBuf::new(&mut scratch[..most]);
            let read = ready!(self.poll_read(&mut buffer, cx))?;
            self.input.reserve_exact(self.needs - kept);
            self.input.extend_from_slice(&scratch[..read]);
            if self.input.len() >= self.needs {
                let input = std::mem::take(&mut self.input);
                let used = self.take_in(&input, wakes, cx)?;
                self.keep(input, used);
            }
        }
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(
        &mut self,
        buffer: &mut ReadBuf<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, ConnectionEnd>> {
        let read: io::Result<()> = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        match (read, buffer.filled().len()) {
            (Ok(()), 0) | (Err(_), _) => Poll::Ready(Err(ConnectionEnd::Lost)),
            (Ok(()), count) => {
                self.idle.heard(Instant::now());
                self.rushing = buffer.remaining() == 0;
                Poll::Ready(Ok(count))
            }
        }
    }

    fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        if used < input.len() {
            input.drain(..used);
            self.input = input;
        }
    }

    /// Takes in as much of the input as is whole and can be passed on; gives what that was.
    fn take_in(
        &mut self,
        input: &[u8],
        wakes: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> Result<usize, ConnectionEnd> {
        let before = std::mem::replace(&mut self.hold, Hold::No);
        self.again = false;
        let mut at = 0;
        let mut allowed = self.bucket.available(Instant::now());
        if let Some(whole) = self.gathered.take() {
            self.gathered(whole, before, wakes, cx)?;
        }
        while self.hold == Hold::No {
            let next = self.decoder.look(&input[at..]).map_err(broken)?;
            if let Decoded::Needs(needs) = next {
                self.needs = needs;
                return Ok(at);
            }
            if allowed == 0 {
                self.hold_for_rate();
                break;
            }
            match next {
                Decoded::Needs(_) => {}
                Decoded::Other { head, used } => {
                    let rest = &input[at..];
                    at += used;
                    self.other(head, rest, before, wakes, cx)?;
                    allowed -= 1;
                    self.bucket.spend(1);
                }
                Decoded::Message { message, used } => {
                    let rest = &input[at..];
                    let (used, frames) =
                        self.message(message, used, rest, allowed, before, wakes, cx)?;
                    at += used;
                    allowed -= frames;
                    self.bucket.spend(frames);
                }
            }
        }
        self.again = true;
        Ok(at)
    }
}
