//! The shared state of a tunnel at one end: the machine, and who waits for it.
//!
//! Streams and the task that carries messages share it by a lock that is held for a few instructions.
//! Wakers are called after the lock is released.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bowline_sbrp::tunnel::{
    EndDelivery, ReadOutcome, ResetReason, StreamId, Tunnel, TunnelBudget, TunnelEvent,
    TunnelFault, TunnelSide, WriteOutcome,
};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use super::stream::TunnelStream;

/// A stream that the client opened, and the service that it asked for.
pub(super) type Accepted = (TunnelStream, String);

#[derive(Debug)]
pub(super) struct TunnelCore {
    state: Mutex<CoreState>,
    /// The last stream was dropped.
    emptied: Notify,
}

#[derive(Debug)]
struct CoreState {
    tunnel: Tunnel,
    waiting: HashMap<StreamId, StreamWakers>,
    /// Streams whose writers wait for what is unacknowledged, in the order in which they began to.
    line: VecDeque<StreamId>,
    /// The stream that wrote last while others waited: it lets them go first.
    wrote: Option<StreamId>,
    /// Where opened streams go, at the daemon. Bounded by the tunnel's limit of streams.
    accepted: Option<mpsc::UnboundedSender<Accepted>>,
    /// The session that carries the tunnel now.
    carrier: Carrier,
    /// There may be a message for it. Each has its own, so that an older one takes no wake-up from it.
    messages: Arc<Notify>,
}

/// Which session carries a tunnel. A task that carries an older one may still run for a moment on another
/// thread; it gets nothing to send any more, and what it brings does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carrier(u64);

#[derive(Debug, Default)]
struct StreamWakers {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Those who wait until the peer has received everything.
    finishers: Vec<Waker>,
}

impl TunnelCore {
    pub(super) fn client() -> Arc<Self> {
        Self::new(Tunnel::new(TunnelSide::Client), None)
    }

    pub(super) fn daemon(budget: TunnelBudget) -> (Arc<Self>, mpsc::UnboundedReceiver<Accepted>) {
        let (accepted, streams) = mpsc::unbounded_channel();
        (Self::new(Tunnel::within(TunnelSide::Daemon, budget), Some(accepted)), streams)
    }

    fn new(tunnel: Tunnel, accepted: Option<mpsc::UnboundedSender<Accepted>>) -> Arc<Self> {
        let (waiting, line, wrote) = (HashMap::new(), VecDeque::new(), None);
        let (carrier, messages) = (Carrier::default(), Arc::default());
        let state = CoreState { tunnel, waiting, line, wrote, accepted, carrier, messages };
        Arc::new(Self { state: Mutex::new(state), emptied: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, CoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the tunnel, and tells the carrier if there is something to send.
    fn change<T>(&self, change: impl FnOnce(&mut CoreState) -> T) -> T {
        let mut state = self.state();
        let done = change(&mut state);
        let messages = state.tunnel.has_message().then(|| Arc::clone(&state.messages));
        drop(state);
        if let Some(messages) = messages {
            messages.notify_one();
        }
        done
    }

    // For streams.

    /// A new stream; `None` if there are as many as there may be.
    pub(super) fn open(self: &Arc<Self>, service: &str) -> Option<TunnelStream> {
        let id = self.change(|state| state.tunnel.open(service))?;
        Some(TunnelStream::new(Arc::clone(self), id))
    }

    pub(super) fn poll_read(
        &self,
        id: StreamId,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<ReadOutcome> {
        self.change(|state| match state.tunnel.read(id, most) {
            ReadOutcome::Blocked => {
                state.waiting.entry(id).or_default().reader = Some(cx.waker().clone());
                Poll::Pending
            }
            outcome => Poll::Ready(outcome),
        })
    }

    pub(super) fn poll_write(
        &self,
        id: StreamId,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<WriteOutcome> {
        self.change(|state| {
            let others_wait = state.line.iter().any(|waiting| *waiting != id);
            if others_wait && state.wrote.take_if(|wrote| *wrote == id).is_some() {
                // They were woken; this one comes after them, however much it has to write.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match state.tunnel.write(id, bytes) {
                WriteOutcome::Blocked => {
                    match state.tunnel.is_window_full() {
                        true if !state.line.contains(&id) => state.line.push_back(id),
                        true => {}
                        // It waits for credit.
                        false => state.line.retain(|waiting| *waiting != id),
                    }
                    state.waiting.entry(id).or_default().writer = Some(cx.waker().clone());
                    Poll::Pending
                }
                outcome => {
                    state.line.retain(|waiting| *waiting != id);
                    state.wrote = Some(id);
                    Poll::Ready(outcome)
                }
            }
        })
    }

    pub(super) fn end(&self, id: StreamId) {
        self.change(|state| state.tunnel.end(id));
    }

    /// Ready when the peer has received everything up to the end, or will not.
    pub(super) fn poll_delivered(&self, id: StreamId, cx: &mut Context<'_>) -> Poll<EndDelivery> {
        let mut state = self.state();
        match state.tunnel.delivery(id) {
            EndDelivery::Waiting => {
                let finishers = &mut state.waiting.entry(id).or_default().finishers;
                if !finishers.iter().any(|one| one.will_wake(cx.waker())) {
                    finishers.push(cx.waker().clone());
                }
                Poll::Pending
            }
            delivery => Poll::Ready(delivery),
        }
    }

    pub(super) fn reset(&self, id: StreamId, reason: ResetReason) {
        self.change(|state| state.tunnel.reset(id, reason));
    }

    pub(super) fn forget(&self, id: StreamId) {
        let is_last = self.change(|state| {
            state.tunnel.forget(id);
            state.waiting.remove(&id);
            state.line.retain(|waiting| *waiting != id);
            state.tunnel.streams() == 0
        });
        if is_last {
            self.emptied.notify_one();
        }
    }

    // For the task that carries messages.

    /// A new session takes the tunnel over. Also how many records were received: what the hello or the
    /// welcome says, and from now on only this session can change it.
    pub(super) fn take_over(&self) -> (Carrier, u64) {
        let mut state = self.state();
        state.carrier.0 += 1;
        // The older one sees that it is.
        std::mem::take(&mut state.messages).notify_one();
        (state.carrier, state.tunnel.received())
    }

    pub(super) fn is_current(&self, carrier: Carrier) -> bool {
        self.state().carrier == carrier
    }

    pub(super) fn streams(&self) -> usize {
        self.state().tunnel.streams()
    }

    /// Returns when programs have dropped all streams. For one who waits.
    pub(super) async fn without_streams(&self) {
        while self.streams() > 0 {
            self.emptied.notified().await;
        }
    }

    /// The peer has received so many records; the others are sent in this session.
    pub(super) fn resume(
        self: &Arc<Self>,
        carrier: Carrier,
        peer_received: u64,
    ) -> Result<(), TunnelFault> {
        self.told(carrier, |tunnel| tunnel.resume(peer_received))
    }

    pub(super) fn next_message(&self, carrier: Carrier) -> Option<Bytes> {
        let mut state = self.state();
        if state.carrier == carrier { state.tunnel.next_message(now()) } else { None }
    }

    pub(super) fn has_message(&self, carrier: Carrier) -> bool {
        let state = self.state();
        state.carrier == carrier && state.tunnel.has_message()
    }

    pub(super) fn owes_ack(&self) -> bool {
        self.state().tunnel.owes_ack()
    }

    /// Says that the tunnel is needed no more.
    pub(super) fn close(&self) {
        self.change(|state| state.tunnel.close());
    }

    /// Either end has said that the tunnel is needed no more.
    pub(super) fn is_closed(&self) -> bool {
        let state = self.state();
        state.tunnel.peer_has_closed() || state.tunnel.has_said_close()
    }

    /// Whether a stream's service can go on without the peer: it has everything that the peer wrote.
    pub(super) fn peer_has_ended(&self, id: StreamId) -> bool {
        self.state().tunnel.peer_has_ended(id)
    }

    /// All that has come was received.
    pub(super) fn drained(&self) {
        self.change(|state| state.tunnel.drained());
    }

    pub(super) fn acknowledge(&self) {
        self.change(|state| state.tunnel.acknowledge());
    }

    /// Returns when there may be a message, or a newer session took the tunnel over. Cancel safe.
    pub(super) async fn message_ready(&self, carrier: Carrier) {
        let messages = {
            let state = self.state();
            (state.carrier == carrier).then(|| Arc::clone(&state.messages))
        };
        if let Some(messages) = messages {
            messages.notified().await;
        }
    }

    pub(super) fn receive(
        self: &Arc<Self>,
        carrier: Carrier,
        message: &Bytes,
    ) -> Result<(), TunnelFault> {
        self.told(carrier, |tunnel| tunnel.receive(message, now()))
    }

    /// Changes the tunnel, and tells the streams what came of it. Nothing, if the session is not the one
    /// that carries it.
    fn told(
        self: &Arc<Self>,
        carrier: Carrier,
        change: impl FnOnce(&mut Tunnel) -> Result<Vec<TunnelEvent>, TunnelFault>,
    ) -> Result<(), TunnelFault> {
        let mut woken = Vec::new();
        let done = self.change(|state| {
            if state.carrier != carrier {
                return Ok(());
            }
            for event in change(&mut state.tunnel)? {
                state.told(event, self, &mut woken);
            }
            Ok(())
        });
        woken.into_iter().for_each(Waker::wake);
        done
    }

    /// The tunnel is gone: its streams end with an error, at both of its directions.
    pub(super) fn abort(&self) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            for id in state.tunnel.abort() {
                state.wake_reader(id, &mut woken);
                state.wake_writer(id, &mut woken);
            }
            state.accepted = None;
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Uses Tokio's clock, so that tests can advance it.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

impl CoreState {
    fn told(&mut self, event: TunnelEvent, core: &Arc<TunnelCore>, woken: &mut Vec<Waker>) {
        match event {
            TunnelEvent::Opened(id, service) => {
                if let Some(accepted) = &self.accepted {
                    // If nobody accepts, the stream is dropped, which resets it. Not here: its drop
                    // takes the lock.
                    let stream = TunnelStream::new(Arc::clone(core), id);
                    if let Err(mpsc::error::SendError((stream, _))) =
                        accepted.send((stream, service))
                    {
                        stream.disarm();
                        self.tunnel.forget(id);
                    }
                }
            }
            TunnelEvent::Readable(id) => self.wake_reader(id, woken),
            TunnelEvent::Writable(id) | TunnelEvent::Delivered(id) => self.wake_writer(id, woken),
            // No stream is opened any more.
            TunnelEvent::Closed => self.accepted = None,
            TunnelEvent::Room => {
                for id in &self.line {
                    let writer = self.waiting.get_mut(id).and_then(|one| one.writer.take());
                    woken.extend(writer);
                }
            }
        }
    }

    fn wake_reader(&mut self, id: StreamId, woken: &mut Vec<Waker>) {
        woken.extend(self.waiting.get_mut(&id).and_then(|waiting| waiting.reader.take()));
    }

    /// And who waits until everything has arrived.
    fn wake_writer(&mut self, id: StreamId, woken: &mut Vec<Waker>) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        woken.extend(waiting.writer.take());
        woken.append(&mut waiting.finishers);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// A record of the other end: credit for stream 1.
    fn credit(bytes: u32) -> Bytes {
        [&[0x12][..], &[0; 8], &[0, 0, 0, 1], &bytes.to_be_bytes()].concat().into()
    }

    #[tokio::test]
    async fn a_writer_goes_on_when_the_next_session_says_that_everything_arrived() {
        let core = TunnelCore::client();
        let (carrier, _) = core.take_over();
        let mut stream = core.open("tcp").unwrap();
        core.receive(carrier, &credit(4 << 20)).unwrap();
        // More than may be unacknowledged.
        let writing = tokio::spawn(async move { stream.write_all(&vec![7; 2 << 20]).await });
        let mut sent = 0;
        let sessions = async {
            while !writing.is_finished() {
                tokio::task::yield_now().await;
                let (carrier, _) = core.take_over();
                sent += std::iter::from_fn(|| core.next_message(carrier)).count() as u64;
                // Lost before anything was acknowledged; and the other end has it all.
                let (carrier, _) = core.take_over();
                core.resume(carrier, sent).unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(10), sessions).await.expect("the writer is woken");
    }

    #[tokio::test]
    async fn writers_that_wait_for_the_window_take_turns() {
        let core = TunnelCore::client();
        let (carrier, _) = core.take_over();
        let mut streams: Vec<_> = (0..3).map(|_| core.open("tcp").unwrap()).collect();
        for (number, id) in (1..=3u32).enumerate() {
            let head = [&[0x12][..], &(number as u64).to_be_bytes(), &id.to_be_bytes()].concat();
            let credit = [&head[..], &(4u32 << 20).to_be_bytes()].concat();
            core.receive(carrier, &credit.into()).unwrap();
        }
        let mut writing = tokio::task::JoinSet::new();
        for mut stream in streams.drain(..) {
            writing.spawn(async move { stream.write_all(&vec![7; 1 << 20]).await });
        }
        // A slow path: one acknowledgement for a record or two at a time.
        let mut records = [0; 4];
        let (mut sent, mut acked) = (0u64, 0);
        for _ in 0..150 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            while let Some(message) = core.next_message(carrier) {
                if message[0] == 0x11 {
                    records[usize::from(message[12])] += 1;
                }
                sent += u64::from(message[0] < 0x20);
            }
            acked = (acked + 1).min(sent);
            let ack = [&[0x20][..], &acked.to_be_bytes(), &3u64.to_be_bytes()].concat();
            core.receive(carrier, &ack.into()).unwrap();
        }
        let [_, counts @ ..] = records;
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        // The first to come filled the first window.
        assert!(*least > 10 && most - least <= 6, "{counts:?}");
    }

    #[tokio::test]
    async fn an_older_session_takes_no_wake_up_from_the_newer_one() {
        let core = TunnelCore::client();
        let (older, _) = core.take_over();
        // It waits first, and is still there when the newer one waits.
        let mut older_waits = std::pin::pin!(core.message_ready(older));
        assert!(poll!(&mut older_waits).is_pending());
        let (newer, _) = core.take_over();
        let mut newer_waits = std::pin::pin!(core.message_ready(newer));
        assert!(poll!(&mut newer_waits).is_pending());
        let _stream = core.open("tcp").unwrap();
        assert!(poll!(&mut newer_waits).is_ready());
        assert!(core.next_message(newer).is_some());
        assert!(poll!(&mut older_waits).is_ready() && !core.is_current(older));
        assert!(
            poll!(std::pin::pin!(core.message_ready(older))).is_ready(),
            "it never waits again"
        );
    }

    #[test]
    fn an_older_session_neither_takes_nor_brings_anything() {
        let core = TunnelCore::client();
        let (older, _) = core.take_over();
        let stream = core.open("tcp").unwrap();
        let (newer, received) = core.take_over();
        assert_eq!(received, 0);
        assert_eq!(core.next_message(older), None);
        core.receive(older, &credit(1)).unwrap();
        assert_eq!(core.resume(older, 77), Ok(()), "it is not asked");
        assert_eq!(core.take_over().1, 0, "nothing was received");
        assert!(!core.has_message(newer), "a newer one took over again");
        drop(stream);
    }
}
