//! The promises every backend keeps.

use bowline_sbp::approval::{Approval, Step};
use bowline_sbp::delivery::LoggedTurn;
use bowline_sbp::id::{AgentId, ApprovalId, ExportId, MemoryId, Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::message::Message;
use bowline_sbp::roaming_token::SigningKey;
use jiff::Timestamp;

use crate::{
    Accepted, Advance, Attach, Attached, Created, Derived, Edge, Entry, Export, Family, Finish,
    Forgotten, IdempotencyKey, InstanceId, KnownSurface, Memory, NewApproval, NewDeviceToken,
    NewExport, NewFork, NewHandoff, NewImport, NewMemory, NewSession, NewTurn, Packed, Page,
    Result, Session, TokenHash, Unfinished,
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

    /// Forgets a session and all it holds; its forks keep what they share. `false` if there was
    /// none.
    async fn delete_session(&self, id: SessionId) -> Result<bool>;

    /// What the model has to know: every message and turn, oldest first.
    async fn history(&self, id: SessionId) -> Result<Vec<Message>>;

    /// Log entries after `after`, oldest first, at most `limit`.
    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// The `limit` log entries just before `before`, oldest first.
    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// Turns in the Tether after `after`, oldest first: one page, bounded in number and bytes,
    /// empty only when there are no more.
    async fn tethered_after(&self, id: SessionId, after: Seq) -> Result<Vec<LoggedTurn>>;

    /// Takes a turn on: from now it survives a crash.
    async fn accept_turn(&self, turn: NewTurn) -> Result<Accepted>;

    /// A turn that waited, or was taken over, begins to run.
    async fn start_turn(&self, turn: TurnId, owner: InstanceId) -> Result<()>;

    /// Keeps what a turn has come to so far: from now on a crash does not lose it (SBP-L2-14).
    async fn advance_turn(&self, advance: Advance) -> Result<Session>;

    /// Ends a turn: its entries, counters, snapshot and result in one step.
    async fn finish_turn(&self, finish: Finish) -> Result<Seq>;

    /// Forgets a turn that came to nothing, its key, and the session made for it: as if it had
    /// never been asked for.
    async fn abandon_turn(&self, turn: TurnId, owner: InstanceId) -> Result<()>;

    /// Takes over what dead instances left: their attachments are ended, and their turns are
    /// given to `owner`, oldest first per session.
    async fn take_over(&self, owner: InstanceId, at: Timestamp) -> Result<Vec<Unfinished>>;

    /// Attaches a surface. A device that was here before is recognised: what it does not say now, it
    /// said then (SBP-L4-05). An older attachment loses its rights (SBP-L2-16).
    async fn attach(&self, attach: Attach) -> Result<Attached>;

    /// The devices that were attached to a session under a name of their own, newest first.
    async fn surfaces(&self, id: SessionId) -> Result<Vec<KnownSurface>>;

    /// Gives a device of a session a token of its own. One that is attached by its earlier one is
    /// cut off.
    async fn add_device_token(&self, token: NewDeviceToken) -> Result<Forgotten>;

    /// The device whose token this is, if it is still good at that time.
    async fn device_of(
        &self,
        id: SessionId,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<Option<String>>;

    /// Forgets a device and its token. One that is attached with its own token is cut off.
    async fn forget_surface(
        &self,
        id: SessionId,
        surface_id: String,
        at: Timestamp,
    ) -> Result<Forgotten>;

    /// Asks whether a tool may be called; of a call that was asked about before, how that stands.
    async fn ask_approval(&self, approval: NewApproval) -> Result<Approval>;

    /// Moves an approval along, if that is its next step. Gives it as it then stands: who finds it
    /// otherwise came too late.
    async fn step_approval(
        &self,
        id: SessionId,
        approval: ApprovalId,
        step: Step,
        at: Timestamp,
    ) -> Result<Option<Approval>>;

    /// What was asked in a session, the newest first.
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>>;

    /// Whether one of a turn's calls that are on record there was asked about and not made: the turn
    /// waited for someone.
    async fn awaits_approval(&self, turn: TurnId, calls: Seq) -> Result<bool>;

    /// Forgets approvals that ended before then. Gives their number.
    async fn forget_approvals(&self, before: Timestamp) -> Result<u64>;

    /// Ends an attachment. `false`, and nothing else, if a newer one has taken over.
    async fn detach(&self, id: SessionId, epoch: u64, at: Timestamp) -> Result<bool>;

    /// The surface has everything up to `seq`. Ignored from an older attachment; never moves
    /// back (G5).
    async fn confirm(&self, id: SessionId, epoch: u64, seq: Seq) -> Result<()>;

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

    /// Lets a session go on with another agent: a new session with all its history, and no more
    /// turns in the old one, in one step (G8).
    async fn hand_off(&self, handoff: NewHandoff) -> Result<Derived>;

    /// Where a session comes from, what came from it, and all their relatives: at most `most`
    /// sessions, the nearest ones.
    async fn family(&self, session: String, most: u32) -> Result<Family>;

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

    /// Forgets one memory of an agent, or all. Gives their number.
    async fn forget(&self, agent: AgentId, memory: Option<MemoryId>) -> Result<u64>;

    /// A secret of this installation: the stored one, or `fresh` which is stored now.
    async fn secret(&self, name: &'static str, fresh: [u8; 32]) -> Result<[u8; 32]>;

    /// The keys behind roaming tokens that may still be good, newest last. If there is none, `fresh`
    /// becomes the first.
    async fn signing_keys(&self, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>>;

    /// Makes `fresh` the newest of them.
    async fn add_signing_key(&self, fresh: [u8; 32], at: Timestamp) -> Result<Vec<SigningKey>>;

    /// Forgets idempotency keys older than `before`.
    async fn forget_keys(&self, before: Timestamp) -> Result<u64>;

    /// Drops the bundles of exports that expired before then. Gives their number.
    async fn forget_bundles(&self, before: Timestamp) -> Result<u64>;

    /// Whether the store can write now; for readiness.
    async fn check(&self) -> Result<()>;

    /// Resolves when the store has failed for good and the process should exit.
    async fn failed(&self) -> crate::Error;
}
