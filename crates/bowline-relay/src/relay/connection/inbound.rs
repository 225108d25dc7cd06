//! Reading: decodes bytes into messages and passes them to [`dispatch`](super::dispatch).
//!
//! Bytes are read into a buffer that all connections of a thread share. A connection stores only
//! input that cannot be processed yet: an incomplete frame, or messages whose receiver has no
//! space. While messages are on hold nothing more is read, and TCP flow control slows the sender.

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

/// The most bytes of one read.
const READ: usize = 128 << 10;
/// Up to this size, an incomplete frame is completed in the shared buffer, in one read with the
/// bytes after it. A longer one is not, because the stored bytes are copied for every read.
const SHORT: usize = 4 << 10;
/// The same limit while reads fill their buffer, that is, while the sender is fast.
const LONG: usize = MAX_FRAME + LONGEST;

/// The read buffer that the connections of a thread share.
struct Scratch {
    bytes: Vec<u8>,
    wakes: Vec<Waker>,
}

thread_local! {
    static SCRATCH_OF_THREAD: RefCell<Scratch> =
        RefCell::new(Scratch { bytes: vec![0; LONG + READ], wakes: Vec::new() });
}

impl Connection {
    /// Processes the stored input, or reads more. Ready when there was progress.
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
            // Still on hold, and nothing was consumed: another task has to make progress first.
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
            // An incomplete long frame: read only its rest, directly behind the stored bytes.
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

    /// Processes the whole frames that can be forwarded now; returns the number of bytes consumed.
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
