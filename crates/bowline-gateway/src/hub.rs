//! Where turns being generated meet those who watch them.
//!
//! The engine writes a turn's text here as it comes; surfaces and HTTP callers read it, each at
//! its own pace, by position. Nothing is queued per reader, so a slow one costs nothing and can
//! neither miss nor block anything: it just gets more at once. Notifications only wake readers;
//! what they then read is the truth (the log, and the live text after it).
//!
//! Invariants
//! - A session's live turn and log head are read together, so whoever has read the log up to
//!   that head may go on with that live turn (SBP-L2-05).
//! - A turn leaves the live place only after its commit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bowline_sbp::api::SbpInfo;
use bowline_sbp::approval::{Approval, State};
use bowline_sbp::error::Code;
use bowline_sbp::id::{AgentId, Seq, SessionId, TurnId};
use bowline_sbp::surface::{SurfaceContext, SurfaceTool};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most approvals of a session that are remembered here: as many as calls can wait, twice.
const MOST_ASKED: usize = 128;

/// All sessions that someone is watching or running.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: Mutex<HashMap<SessionId, Weak<Channel>>>,
}

impl Hub {
    /// The session's meeting point, made when needed and gone with its last user.
    pub(crate) fn channel(self: &Arc<Self>, session: SessionId) -> Arc<Channel> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(&session).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Arc::new(Channel {
            session,
            hub: Arc::downgrade(self),
            now: Mutex::default(),
            pulse: watch::Sender::new(0),
        });
        channels.insert(session, Arc::downgrade(&channel));
        channel
    }

    /// Every attached surface that has tools.
    pub(crate) fn linked(&self) -> Vec<(SessionId, Arc<Link>)> {
        // Let go of after the lock: the last user of a channel takes it again.
        let all: Vec<_> = lock(&self.channels).values().filter_map(Weak::upgrade).collect();
        let links = all.iter().filter_map(|channel| Some((channel.session, channel.now().link?)));
        links.filter(|(_, link)| !link.tools.is_empty()).collect()
    }

    /// Sessions with a meeting point.
    pub(crate) fn len(&self) -> usize {
        lock(&self.channels).len()
    }

    /// The session's meeting point, if anyone is there.
    pub(crate) fn existing(&self, session: SessionId) -> Option<Arc<Channel>> {
        lock(&self.channels).get(&session).and_then(Weak::upgrade)
    }
}

/// One session's meeting point.
#[derive(Debug)]
pub(crate) struct Channel {
    session: SessionId,
    hub: Weak<Hub>,
    now: Mutex<Now>,
    pulse: watch::Sender<u64>,
}

/// What is going on in a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Now {
    /// The turn being generated.
    pub live: Option<Arc<LiveTurn>>,
    /// The newest log position known here.
    pub head: Seq,
    /// The newest attachment.
    pub epoch: u64,
    /// The session was deleted.
    pub gone: bool,
    /// The attached surface, and the way to its tools.
    pub link: Option<Arc<Link>>,
    /// Calls that wait for a person's leave, and those that lately did.
    pub asked: Vec<Arc<Approval>>,
    /// The epoch that began when a device's own token was taken back, which ended the one before.
    pub revoked: Option<u64>,
    /// The session that goes on in this one's place, and its agent.
    pub handed_to: Option<(SessionId, AgentId)>,
}

impl Channel {
    /// A wake-up call for every change from now on. Subscribe before reading the log.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// The state at one instant.
    pub(crate) fn now(&self) -> Now {
        lock(&self.now).clone()
    }

    /// Whether a surface is listening.
    pub(crate) fn is_watched(&self) -> bool {
        self.pulse.receiver_count() > 0
    }

    /// A turn begins to be generated.
    pub(crate) fn begin(&self, turn: &Arc<LiveTurn>) {
        self.change(|now| now.live = Some(Arc::clone(turn)));
    }

    /// The log has grown to `head`; the live turn, if any, is in it.
    pub(crate) fn committed(&self, head: Seq) {
        self.change(|now| {
            now.live = None;
            now.head = now.head.max(head);
        });
    }

    /// The live turn came to nothing.
    pub(crate) fn dropped(&self) {
        self.change(|now| now.live = None);
    }

    /// A newer surface took the session.
    pub(crate) fn attached(&self, epoch: u64) {
        self.change(|now| now.epoch = now.epoch.max(epoch));
    }

    /// The surface that had the session may not have it any more.
    pub(crate) fn revoked(&self, epoch: u64) {
        self.change(|now| {
            now.epoch = now.epoch.max(epoch);
            now.revoked = Some(epoch);
        });
    }

    /// A call waits for leave, or its wait has ended.
    pub(crate) fn asked(&self, mut approval: Approval) {
        // Of one that has ended, only how it ended is of use.
        if approval.state != State::Pending {
            approval.tool_input = Value::Null;
        }
        self.change(|now| {
            now.asked.retain(|known| known.approval_id != approval.approval_id);
            now.asked.push(Arc::new(approval));
            while now.asked.len() > MOST_ASKED {
                let ended = now.asked.iter().position(|known| known.state != State::Pending);
                now.asked.remove(ended.unwrap_or(0));
            }
        });
    }

    /// A surface is there.
    pub(crate) fn linked(&self, link: Arc<Link>) {
        self.change(|now| {
            if now.link.as_ref().is_none_or(|known| known.epoch <= link.epoch) {
                now.link = Some(link);
            }
        });
    }

    /// It is gone, and its tools with it.
    pub(crate) fn unlinked(&self, epoch: u64) {
        self.change(|now| {
            now.link.take_if(|link| link.epoch == epoch);
        });
    }

    /// The session goes on as another one.
    pub(crate) fn handed_over(&self, to: SessionId, agent: AgentId) {
        self.change(|now| now.handed_to = Some((to, agent)));
    }

    /// The session is no more.
    pub(crate) fn deleted(&self) {
        self.change(|now| now.gone = true);
    }

    /// The live turn has more text. Who comes to watch reads it after that.
    pub(crate) fn grew(&self) {
        if self.is_watched() {
            self.pulse.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Now)) {
        change(&mut lock(&self.now));
        self.grew();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(hub) = self.hub.upgrade() else { return };
        let mut channels = lock(&hub.channels);
        // A new channel may have taken the place since.
        if channels.get(&self.session).is_some_and(|weak| weak.strong_count() == 0) {
            channels.remove(&self.session);
        }
    }
}

/// An attached surface as the engine sees it: what it is, and the way to its tools (SBP-L4-02,
/// SBP-L5-02).
#[derive(Debug)]
pub(crate) struct Link {
    pub epoch: u64,
    pub surface: SurfaceContext,
    /// Its turns are translated for it: they are written as for anyone.
    pub translated: bool,
    /// Those that may be called.
    pub tools: Vec<SurfaceTool>,
    /// None without tools: most surfaces have none, and a channel each would cost them.
    pub calls: Option<mpsc::Sender<Errand>>,
}

/// A call on its way to a device. The answer may never come: whoever waits has a deadline.
#[derive(Debug)]
pub(crate) struct Errand {
    pub call_id: String,
    pub tool: String,
    pub input: Value,
    /// How long the answer is waited for.
    pub deadline: Instant,
    pub answer: oneshot::Sender<Result<Value, String>>,
}

/// A turn from its acceptance to its end, for all who wait for it.
#[derive(Debug)]
pub(crate) struct LiveTurn {
    pub id: TurnId,
    pub session: SessionId,
    /// Which run of the turn this is.
    pub attempt: u32,
    /// Whether surfaces get to see it (SBP-L2-19).
    pub tethered: bool,
    /// Zero until it runs.
    seq: AtomicU64,
    written: Mutex<Written>,
    progress: watch::Sender<u64>,
    outcome: OnceLock<Outcome>,
    over: Notify,
    cancel: CancellationToken,
}

#[derive(Debug, Default)]
struct Written {
    /// The answer's chunks, as OpenAI-shaped JSON.
    chunks: Vec<Bytes>,
    text: String,
}

/// How a turn ended.
pub(crate) type Outcome = Result<Arc<Done>, Failure>;

/// A turn that ended with an answer on disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Done {
    /// The `chat.completion` object, without `sbp`.
    pub completion: String,
    pub info: SbpInfo,
    /// The last chunk of its stream, if it was one, kept back until the turn was on disk: it
    /// carries `sbp`.
    pub closing: Option<String>,
}

impl Done {
    /// As text, to be given again under an idempotency key. The cost is there as bits, too: read
    /// back as a number it may differ in its last digit, and a replay must not (G3).
    pub(crate) fn to_json(&self) -> String {
        let cost = self.info.cost_usd.to_bits();
        serde_json::to_string(&(&self.completion, &self.info, cost)).expect("results serialise")
    }

    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let (completion, mut info, cost): (_, SbpInfo, u64) = serde_json::from_str(text).ok()?;
        info.cost_usd = f64::from_bits(cost);
        Some(Self { completion, info, closing: None })
    }
}

/// A turn that ended without one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// Seconds after which it may work.
    pub retry_after: Option<u64>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }
}

impl LiveTurn {
    pub(crate) fn new(id: TurnId, session: SessionId, attempt: u32, tethered: bool) -> Self {
        Self {
            id,
            session,
            attempt,
            tethered,
            seq: AtomicU64::new(0),
            written: Mutex::default(),
            progress: watch::Sender::new(0),
            outcome: OnceLock::new(),
            over: Notify::new(),
            cancel: CancellationToken::new(),
        }
    }

    /// The log position it will take, known once it runs. What is logged on the way moves it on.
    pub(crate) fn seq(&self) -> Option<Seq> {
        Some(self.seq.load(Ordering::Acquire)).filter(|seq| *seq > 0)
    }

    pub(crate) fn set_seq(&self, seq: Seq) {
        self.seq.store(seq, Ordering::Release);
    }

    /// Adds a chunk for HTTP readers and its text for surfaces.
    pub(crate) fn push(&self, chunk: Option<Bytes>, text: &str) {
        {
            let mut written = lock(&self.written);
            written.chunks.extend(chunk);
            written.text.push_str(text);
        }
        // Who begins to wait for more looks at what is written first.
        if self.progress.receiver_count() > 0 {
            self.progress.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    /// Chunks from position `from` on.
    pub(crate) fn chunks(&self, from: usize) -> Vec<Bytes> {
        lock(&self.written).chunks.get(from..).unwrap_or_default().to_vec()
    }

    /// Looks at the text so far.
    pub(crate) fn with_text<T>(&self, look: impl FnOnce(&str) -> T) -> T {
        look(&lock(&self.written).text)
    }

    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Ends the turn. The first end counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() {
            self.over.notify_waiters();
        }
        self.progress.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// How it ended, if it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.get().cloned()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Outcome {
        // Listens before it looks.
        let mut over = pin!(self.over.notified());
        over.as_mut().enable();
        if self.outcome.get().is_none() {
            over.await;
        }
        self.outcome().unwrap_or_else(|| Err(lost()))
    }

    /// Asks it to stop; what was produced is kept.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    pub(crate) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

fn lost() -> Failure {
    Failure::new(Code::Internal, "the turn ended without saying how")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is a plain value that every change leaves whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn session() -> SessionId {
        SessionId(Uuid::from_u128(1))
    }

    #[test]
    fn a_channel_is_shared_while_used_and_forgotten_after() {
        let hub = Arc::new(Hub::default());
        let one = hub.channel(session());
        assert!(Arc::ptr_eq(&one, &hub.channel(session())));
        drop(one);
        assert!(hub.existing(session()).is_none());
        assert!(lock(&hub.channels).is_empty());
    }

    #[tokio::test]
    async fn every_reader_reads_at_its_own_pace() {
        let turn = LiveTurn::new(TurnId(Uuid::nil()), session(), 1, true);
        turn.push(Some(Bytes::from_static(b"1")), "a");
        turn.push(Some(Bytes::from_static(b"2")), "b");
        assert_eq!(turn.chunks(0).len(), 2);
        assert_eq!(turn.chunks(1), [Bytes::from_static(b"2")]);
        assert!(turn.chunks(9).is_empty());
        assert_eq!(turn.with_text(str::len), 2);
    }

    #[tokio::test]
    async fn the_first_end_counts() {
        let turn = LiveTurn::new(TurnId(Uuid::nil()), session(), 1, true);
        turn.end(Err(Failure::new(Code::Upstream, "first")));
        turn.end(Err(Failure::new(Code::Internal, "second")));
        assert_eq!(turn.ended().await.unwrap_err().message, "first");
    }

    #[test]
    fn an_older_epoch_or_head_never_comes_back() {
        let hub = Arc::new(Hub::default());
        let channel = hub.channel(session());
        channel.attached(5);
        channel.attached(3);
        channel.committed(9);
        channel.committed(4);
        assert_eq!((channel.now().epoch, channel.now().head), (5, 9));
    }
}
