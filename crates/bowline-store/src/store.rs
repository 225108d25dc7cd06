//! The promises every backend keeps.

use bowline_sbp::id::{Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::message::Message;
use jiff::Timestamp;

use crate::{
    Accepted, Attach, Attached, Created, Entry, Finish, IdempotencyKey, InstanceId, NewSession,
    NewTurn, Page, Result, Session, TokenHash, Unfinished,
};

/// The durable session log. `Ok` means on disk (G4).
#[async_trait::async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// Makes a session; under a key, the same one again.
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

    /// Moves a session along its lifecycle.
    async fn change_status(&self, id: SessionId, change: Change, at: Timestamp) -> Result<Session>;

    /// Forgets a session and all it holds. `false` if there was none.
    async fn delete_session(&self, id: SessionId) -> Result<bool>;

    /// What the model has to know: every message and turn, oldest first.
    async fn history(&self, id: SessionId) -> Result<Vec<Message>>;

    /// Log entries after `after`, oldest first, at most `limit`.
    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// The `limit` log entries just before `before`, oldest first.
    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// Turns in the Tether after `after`, oldest first: one page, bounded in number and bytes,
    /// empty only when there are no more.
    async fn tethered_after(&self, id: SessionId, after: Seq) -> Result<Vec<Entry>>;

    /// Takes a turn on: from now it survives a crash.
    async fn accept_turn(&self, turn: NewTurn) -> Result<Accepted>;

    /// A turn that waited, or was taken over, begins to run.
    async fn start_turn(&self, turn: TurnId, owner: InstanceId) -> Result<()>;

    /// Ends a turn: its entries, counters, snapshot and result in one step.
    async fn finish_turn(&self, finish: Finish) -> Result<Session>;

    /// Forgets a turn that came to nothing, its key, and the session made for it: as if it had
    /// never been asked for.
    async fn abandon_turn(&self, turn: TurnId, owner: InstanceId) -> Result<()>;

    /// Takes over what dead instances left: their attachments are ended, and their turns are
    /// given to `owner`, oldest first per session.
    async fn take_over(&self, owner: InstanceId, at: Timestamp) -> Result<Vec<Unfinished>>;

    /// Attaches a surface; an older attachment loses its rights (SBP-L2-16).
    async fn attach(&self, attach: Attach) -> Result<Attached>;

    /// Ends an attachment. `false`, and nothing else, if a newer one has taken over.
    async fn detach(&self, id: SessionId, epoch: u64, at: Timestamp) -> Result<bool>;

    /// The surface has everything up to `seq`. Ignored from an older attachment; never moves
    /// back (G5).
    async fn confirm(&self, id: SessionId, epoch: u64, seq: Seq) -> Result<()>;

    /// A secret of this installation: the stored one, or `fresh` which is stored now.
    async fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Result<[u8; 32]>;

    /// Forgets idempotency keys older than `before`.
    async fn forget_keys(&self, before: Timestamp) -> Result<u64>;

    /// Whether the store can write now; for readiness.
    async fn check(&self) -> Result<()>;

    /// Resolves when the store has failed for good and the process should exit.
    async fn failed(&self) -> crate::Error;
}
