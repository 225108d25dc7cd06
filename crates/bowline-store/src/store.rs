//! The promises every backend keeps, by subject. `Ok` means on disk (G4).
//!
//! Small traits of whole, atomic operations. A live session is written by one operation alone:
//! [`Sessions::commit`], under its owner's lease. What is committed may be read by anyone.

use std::sync::Arc;

use bowline_sbp::approval::Approval;
use bowline_sbp::delivery::Logged;
use bowline_sbp::id::{AgentId, ExportId, MemoryId, Seq, SessionId};
use bowline_sbp::message::Message;
use bowline_sbp::roaming_token::SigningKey;
use bowline_sbp::session::{
    AttachmentRow, Commit, CommitError, DeviceRow, Fence, IdempotencyKey, KnownKey, Loaded,
    NewSession, ReplicaId, TokenHash,
};
use jiff::Timestamp;

use crate::{
    Arrival, Created, Derived, Edge, Entry, Export, Family, Memory, NewExport, NewFork, NewImport,
    NewMemory, Packed, Page, Result, Session, TurnMemories,
};

/// Sessions: made, found, and written by their owners.
#[async_trait::async_trait]
pub trait Sessions: Send + Sync {
    /// Makes a session that nobody owns yet; under a key, the same one again.
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created>;

    async fn session(&self, id: SessionId) -> Result<Option<Session>>;

    /// The session with that token, if it was made to be found by it.
    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>>;

    /// Sessions, newest first.
    async fn sessions(&self, page: Page) -> Result<Vec<Session>>;

    /// The surfaces that are attached to a session, oldest first.
    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>>;

    /// What an idempotency key stands for, and the session it belongs to (G3).
    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>>;

    /// A session as its next owner finds it.
    async fn load(&self, id: SessionId) -> Result<Option<Loaded>>;

    /// Writes a session: all of it or nothing, and only under its owner's lease (G19).
    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError>;
}

/// Who is alive, and whose sessions were left.
#[async_trait::async_trait]
pub trait Leases: Send + Sync {
    /// A replica begins to write.
    async fn register(&self, me: ReplicaId) -> Result<()>;

    /// A replica writes no more: whatever it still sends is refused, and what it owned may be taken.
    async fn retire(&self, replica: ReplicaId) -> Result<()>;

    /// Gives sessions back.
    async fn release(&self, me: ReplicaId, sessions: Vec<(SessionId, Fence)>) -> Result<()>;

    /// Sessions with turns that nobody who is alive works on, and how many each has.
    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>>;
}

/// Reading logs.
#[async_trait::async_trait]
pub trait Log: Send + Sync {
    /// What the model has to know: every message and turn, oldest first.
    async fn history(&self, id: SessionId) -> Result<Vec<Message>>;

    /// Log entries after `after`, oldest first, at most `limit`.
    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// The `limit` log entries just before `before`, oldest first.
    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>>;
}

/// What surfaces missed.
#[async_trait::async_trait]
pub trait Tether: Send + Sync {
    /// What a surface is shown of the log after `after`, oldest first: the turns of the Tether, and
    /// `questions` as well if it wants those. One page, bounded in number and bytes, empty only
    /// when there is no more.
    async fn shown_after(&self, id: SessionId, after: Seq, questions: bool) -> Result<Vec<Logged>>;

    /// A session, and what the device of that name would get of it if it attached now.
    async fn arrival(&self, id: SessionId, device: Option<String>) -> Result<Option<Arrival>>;
}

/// Devices that a session knows by name.
#[async_trait::async_trait]
pub trait Devices: Send + Sync {
    /// The one that was here last first.
    async fn devices(&self, id: SessionId) -> Result<Vec<DeviceRow>>;

    /// The device whose token this is, if it is still good at that time.
    async fn device_of(
        &self,
        id: SessionId,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<Option<String>>;
}

/// Questions whether a tool may be called.
#[async_trait::async_trait]
pub trait Approvals: Send + Sync {
    /// What was asked in a session, the newest first.
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>>;
}

/// Sessions that leave, arrive and split.
#[async_trait::async_trait]
pub trait Roaming: Send + Sync {
    /// Everything a session is, read in one instant.
    async fn pack(&self, id: SessionId) -> Result<Option<Packed>>;

    /// Keeps a session's bundle for whoever comes with its token.
    async fn keep_export(&self, export: NewExport) -> Result<Export>;

    /// An export, and its bundle as long as that is kept.
    async fn export(&self, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>>;

    /// The newest exports of a session, newest first; also of one that is gone.
    async fn exports(&self, session: SessionId) -> Result<Vec<Export>>;

    /// Makes a session from a bundle and uses its export up, in one step. Of many who try to use
    /// one export up, one succeeds (G7).
    async fn import(&self, import: NewImport) -> Result<Derived>;

    /// What an import, a fork or a handoff under this key made before, and how it came to be.
    async fn made_under(&self, key: IdempotencyKey) -> Result<Option<(Derived, Edge)>>;

    /// Makes a session that begins where another one was. Their history is shared, not copied:
    /// it costs the same however long that is.
    async fn fork(&self, fork: NewFork) -> Result<Derived>;

    /// Where a session comes from, what came from it, and all their relatives: at most `most`
    /// sessions, the nearest ones.
    async fn family(&self, session: String, most: u32) -> Result<Family>;
}

/// What agents remember.
#[async_trait::async_trait]
pub trait Memories: Send + Sync {
    /// Adds to what an agent remembers, or puts it in the place of everything. Gives all that was
    /// named, also what was known before.
    async fn remember(
        &self,
        agent: AgentId,
        memories: Vec<NewMemory>,
        instead: bool,
    ) -> Result<Vec<Memory>>;

    /// What an agent remembers, newest first, older than `before`.
    async fn memories(
        &self,
        agent: AgentId,
        before: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>>;

    /// What an agent remembers that has to do with these words, best first.
    async fn recall(&self, agent: AgentId, words: Vec<String>, limit: u32) -> Result<Vec<Memory>>;

    /// What an agent remembers that may help it with a turn, read at once; at most `limit` of
    /// each.
    async fn memories_for_turn(
        &self,
        agent: AgentId,
        words: Vec<String>,
        limit: u32,
    ) -> Result<TurnMemories>;

    /// Forgets one memory of an agent, or all. Gives their number.
    async fn forget(&self, agent: AgentId, memory: Option<MemoryId>) -> Result<u64>;
}

/// Secrets of the installation.
#[async_trait::async_trait]
pub trait Secrets: Send + Sync {
    /// The stored secret of that name, or `fresh` which is stored now.
    async fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Result<[u8; 32]>;

    /// The keys behind roaming tokens that may still be good, newest last. If there is none, `fresh`
    /// becomes the first.
    async fn signing_keys(&self, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>>;

    /// Makes `fresh` the newest of them.
    async fn add_signing_key(&self, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>>;
}

/// What has to be done now and then.
#[async_trait::async_trait]
pub trait Upkeep: Send + Sync {
    /// Forgets idempotency keys older than `before`. Gives their number.
    async fn forget_keys(&self, before: Timestamp) -> Result<u64>;

    /// Drops the bundles of exports that expired before then. Gives their number.
    async fn forget_bundles(&self, before: Timestamp) -> Result<u64>;

    /// Forgets approvals that ended before then. Gives their number.
    async fn forget_approvals(&self, before: Timestamp) -> Result<u64>;

    /// Whether the store can write now; for readiness.
    async fn check(&self) -> Result<()>;

    /// Resolves when the store has failed for good and the process should exit.
    async fn failed(&self) -> crate::Error;

    /// Writes what is queued and leaves a clean file. Nothing is written after it.
    async fn close(&self);
}

/// Everything a gateway needs.
pub trait Store:
    Sessions
    + Leases
    + Log
    + Tether
    + Devices
    + Approvals
    + Roaming
    + Memories
    + Secrets
    + Upkeep
    + std::fmt::Debug
    + 'static
{
}

impl<T> Store for T where
    T: Sessions
        + Leases
        + Log
        + Tether
        + Devices
        + Approvals
        + Roaming
        + Memories
        + Secrets
        + Upkeep
        + std::fmt::Debug
        + 'static
{
}
