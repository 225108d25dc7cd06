//! The contract of every backend, by subject. `Ok` means durable (G4).
//!
//! Small traits of atomic operations. A live session is written by one operation alone:
//! [`Sessions::commit`], under its owner's lease. Committed data may be read without a lease.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::access::{CredentialId, Share};
use bowline_sbp::approval::Approval;
use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::budget::{Day, OwnLimits, Spender, Spent};
use bowline_sbp::cid::Cid;
use bowline_sbp::context::SessionLog;
use bowline_sbp::delivery::Logged;
use bowline_sbp::federation::migration::{Dropped, Stage};
use bowline_sbp::federation::reservation::Refusal;
use bowline_sbp::federation::{GatewayId, MovedTether, Pin, ReservationId};
use bowline_sbp::id::{ExportId, MemoryId, Seq, SessionId, UserId};
use bowline_sbp::session::{
    AttachmentRow, Commit, CommitError, DeviceRow, Fence, IdempotencyKey, KnownKey, Loaded,
    NewSession, ReplicaId, TokenHash,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    AnnouncedExport, Arrival, AskReservation, AuditEntry, AuditQuery, Created, DayOfUse, Derived,
    Edge, Entry, Export, Family, Forward, Hit, KeptMigration, KeptPeer, KeptReservation, LiveCount,
    Memory, MemoryOwner, Moved, NewExport, NewFork, NewImport, NewMemory, NewMigration, OfferUsed,
    Packed, Page, PairingOffer, PairingRate, ReplicaLease, Reserving, Result, Session,
    SharedSession, SpentToday, StoredSecret, ToolPin, TurnMemories, User, UserKey,
};

/// Sessions: create, look up, load, and commit under a lease.
#[async_trait::async_trait]
pub trait Sessions: Send + Sync {
    /// Creates a session without an owner. A retry with the same idempotency key returns the same
    /// session.
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created>;

    async fn session(&self, id: SessionId) -> Result<Option<Session>>;

    /// The session with that token, if the session is [`listed`](NewSession::listed).
    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>>;

    /// Sessions of a user, and those that are shared with it, newest first.
    async fn sessions(&self, page: Page) -> Result<Vec<Session>>;

    /// The sessions of a user, or shared with it, that a text names, newest first: by the whole id,
    /// else by the beginning of the id (four digits or more), else by the whole title, else by its
    /// beginning.
    async fn named(&self, user: UserId, text: String) -> Result<Vec<Session>>;

    /// The surfaces that are attached to a session, oldest first.
    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>>;

    /// What is stored for an idempotency key, and the session it belongs to (G3).
    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>>;

    /// The rows that the session's next owner needs.
    async fn load(&self, id: SessionId) -> Result<Option<Loaded>>;

    /// Writes a session in one transaction, and only under its owner's lease (G19).
    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError>;
}

/// Replicas, and the leases that they hold on sessions.
#[async_trait::async_trait]
pub trait Leases: Send + Sync {
    /// Whether several replicas may use this store at a time. Where not, a gateway is alone, and need not
    /// look for what others have changed.
    fn is_shared(&self) -> bool;

    /// Registers a replica: it may commit from now on, as long as it is not declared dead.
    async fn register(&self, me: ReplicaId) -> Result<()>;

    /// Extends the lease of a replica. False: it was declared dead, and stays so.
    async fn renew(&self, me: ReplicaId) -> Result<bool>;

    /// The replicas that are not dead, with their leases by the clock of the database.
    async fn replicas(&self) -> Result<Vec<ReplicaLease>>;

    /// Declares a replica dead, if its lease has expired and still ends at `seen`: its later commits are
    /// fenced, and other replicas may take its sessions. Returns whether it was declared dead.
    async fn declare_dead(&self, replica: ReplicaId, seen: Timestamp) -> Result<bool>;

    /// Retires a replica: its later commits are fenced, and other replicas may take its leases.
    async fn retire(&self, replica: ReplicaId) -> Result<()>;

    /// The live replica that owns a session, if any.
    async fn owner(&self, id: SessionId) -> Result<Option<ReplicaId>>;

    /// Releases leases.
    async fn release(&self, me: ReplicaId, sessions: Vec<(SessionId, Fence)>) -> Result<()>;

    /// Sessions with unfinished turns that no live replica owns, and the number of their turns.
    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>>;
}

/// Reading logs.
#[async_trait::async_trait]
pub trait Log: Send + Sync {
    /// What models see of a session: every message, turn and tool call, oldest first, and the
    /// current instruction.
    async fn history(&self, id: SessionId) -> Result<SessionLog>;

    /// Log entries after `after`, oldest first, at most `limit`.
    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// The `limit` log entries just before `before`, oldest first.
    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>>;

    /// Those of the references that name a blob which the session's log, or one of its unfinished
    /// turns, refers to: the hash and the size are right. Reads no blob.
    async fn known_blobs(&self, id: SessionId, all: Vec<BlobRef>) -> Result<HashSet<BlobRef>>;

    /// The blobs with these hashes that the session's log, or one of its unfinished turns, refers
    /// to. Others are left out, whether they exist or not.
    async fn blobs(&self, id: SessionId, wanted: Vec<Cid>) -> Result<Vec<Blob>>;
}

/// Entries to be delivered to surfaces.
#[async_trait::async_trait]
pub trait Tether: Send + Sync {
    /// The entries after `after` that are delivered to surfaces, oldest first: Tether turns and, if
    /// `questions`, user messages. One page, bounded in number and bytes, empty only at the end of
    /// the log.
    async fn shown_after(&self, id: SessionId, after: Seq, questions: bool) -> Result<Vec<Logged>>;

    /// A session, and the delivery cursor of that device.
    async fn arrival(&self, id: SessionId, device: Option<String>) -> Result<Option<Arrival>>;
}

/// Devices that a session knows by their `surface_id`.
#[async_trait::async_trait]
pub trait Devices: Send + Sync {
    /// Most recently seen first.
    async fn devices(&self, id: SessionId) -> Result<Vec<DeviceRow>>;

    /// The device with this token, if the token has not expired at that time.
    async fn device_of(
        &self,
        id: SessionId,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<Option<String>>;
}

/// Approvals of tool calls.
#[async_trait::async_trait]
pub trait Approvals: Send + Sync {
    /// The approvals of a session, newest first.
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>>;

    /// The definitions of servers' tools that were seen first, or accepted last, by tool.
    async fn tool_pins(&self) -> Result<Vec<ToolPin>>;

    /// Pins the definitions of tools that have none. Returns those that count for these tools now: where
    /// another replica was faster, its own.
    async fn pin_new_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<Vec<ToolPin>>;

    /// Pins these definitions, in place of earlier ones of the same tools. Counts in
    /// [`Users::access_revision`].
    async fn pin_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<()>;
}

/// Full-text search in what users and agents said. What a deleted session said is not found.
#[async_trait::async_trait]
pub trait Search: Send + Sync {
    /// Indexes entries that were appended since the last time, in at most `steps` steps between
    /// which others can write. Returns whether all entries are indexed now.
    async fn index(&self, steps: u32) -> Result<bool>;

    /// The indexed messages that contain all words, at most a few of each session: the newest
    /// session first, and of each the newest message first. `word*` finds all words that begin so.
    /// Only in sessions of that user, and those that are shared with it.
    async fn search(&self, user: UserId, words: Vec<String>, limit: u32) -> Result<Vec<Hit>>;
}

/// Export, import, fork and lineage of sessions.
#[async_trait::async_trait]
pub trait Roaming: Send + Sync {
    /// The whole session, read in one transaction.
    async fn pack(&self, id: SessionId) -> Result<Option<Packed>>;

    /// Stores the bundle of a session until its roaming token expires.
    async fn keep_export(&self, export: NewExport) -> Result<Export>;

    /// An export, and its bundle unless that was dropped.
    async fn export(&self, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>>;

    /// The newest exports of a session, newest first; also of a deleted one.
    async fn exports(&self, session: SessionId) -> Result<Vec<Export>>;

    /// Creates a session from a bundle and marks its export as used, in one transaction. Of several
    /// concurrent imports of one export, one succeeds (G7).
    async fn import(&self, import: NewImport) -> Result<Derived>;

    /// The session that an import, fork or handoff created under this idempotency key, and its
    /// lineage edge.
    async fn made_under(&self, key: IdempotencyKey) -> Result<Option<(Derived, Edge)>>;

    /// Creates a session with the history of another one. The history is shared, not copied: the
    /// cost does not depend on its length.
    async fn fork(&self, fork: NewFork) -> Result<Derived>;

    /// The lineage tree of a session: its ancestors, descendants and their relatives; at most the
    /// `most` nearest sessions. Only as far as they are that user's.
    async fn family(&self, session: String, user: UserId, most: u32) -> Result<Family>;
}

/// Sessions that move between gateways (SBP-L6), and what is remembered of other gateways.
#[async_trait::async_trait]
pub trait Federation: Send + Sync {
    /// Uses up the one-time id of another gateway's token, which is remembered until then. Returns whether
    /// it was unused: true for one of all replicas.
    async fn use_peer_token(&self, issuer: GatewayId, jti: Uuid, until: Timestamp) -> Result<bool>;

    /// Deletes ids of tokens that expired before then. Returns their number.
    async fn forget_peer_tokens(&self, before: Timestamp) -> Result<u64>;

    /// The newest exports with that content id that have not expired, and whose bundle is there. Without the bundles:
    /// they are all the same, and may be large.
    async fn exports_with_cid(&self, cid: Cid, at: Timestamp) -> Result<Vec<Export>>;

    /// The newest exports of which trackers are told and that have not expired at that time.
    async fn announced_exports(&self, at: Timestamp, most: u32) -> Result<Vec<AnnouncedExport>>;

    /// Reserves a session for a peer. `fresh` is the bundle of the session at that entry; without it, one
    /// is asked for when it is needed.
    async fn reserve(
        &self,
        ask: AskReservation,
        fresh: Option<(NewExport, Seq)>,
    ) -> Result<Reserving>;

    /// Confirms a reservation, in one transaction: the token is used up, the session is suspended and
    /// fenced off from its owner here, and where it went is noted (G7).
    async fn confirm_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        forward: Forward,
        at: Timestamp,
    ) -> Result<Result<KeptReservation, Refusal>>;

    /// Ends a reservation that was not confirmed, and deletes its bundle.
    async fn release_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        at: Timestamp,
    ) -> Result<Result<(), Refusal>>;

    async fn reservation(&self, id: ReservationId) -> Result<Option<KeptReservation>>;

    /// Where a session went.
    async fn forward(&self, session: SessionId) -> Result<Option<Forward>>;

    /// The same, and what its surfaces are told; at most `most` of their messages.
    async fn moved(&self, session: SessionId, most: u32) -> Result<Option<Moved>>;

    /// What the surfaces of a session have not got yet, for the gateway that it moves to.
    async fn moved_tether(&self, session: SessionId) -> Result<MovedTether>;

    /// The migration of an export of another gateway that was begun and not dropped.
    async fn migration_of(
        &self,
        origin: GatewayId,
        export: ExportId,
    ) -> Result<Option<KeptMigration>>;

    /// Begins a migration, or returns the one of the same export that was begun and not dropped.
    async fn begin_migration(&self, new: NewMigration) -> Result<KeptMigration>;

    async fn migration(&self, id: ReservationId) -> Result<Option<KeptMigration>>;

    /// Migrations that are neither active nor dropped, oldest first.
    async fn open_migrations(&self) -> Result<Vec<KeptMigration>>;

    /// Keeps the bundle of a migration that is reserving, which is staged then. Returns the stage now.
    /// Refuses ([`Error::MemoryFull`], [`Error::KeyReused`]) what could not be imported now: nothing is
    /// kept then.
    async fn stage_migration(
        &self,
        id: ReservationId,
        bundle: Vec<u8>,
        import: NewImport,
    ) -> Result<Stage>;

    /// The bundle of a staged migration.
    async fn staged_bundle(&self, id: ReservationId) -> Result<Option<Vec<u8>>>;

    /// Makes the session of a staged migration, which is active then, in one transaction. Returns the
    /// stage now.
    async fn activate_migration(&self, id: ReservationId, import: NewImport) -> Result<Stage>;

    /// Drops a migration that is at that stage, and deletes its bundle. Returns the stage now.
    async fn drop_migration(&self, id: ReservationId, from: Stage, why: Dropped) -> Result<Stage>;

    /// What is remembered of a gateway.
    async fn peer(&self, id: GatewayId) -> Result<Option<KeptPeer>>;

    /// All gateways of which something is remembered, by their ids.
    async fn peers(&self) -> Result<Vec<KeptPeer>>;

    /// Remembers this of a gateway, instead of what was there.
    async fn keep_peer(&self, peer: KeptPeer) -> Result<()>;

    /// The same, if the pin is still `before`. False: somebody else has stored another one.
    async fn pin_peer(&self, peer: KeptPeer, before: Option<Pin>) -> Result<bool>;

    /// Returns whether something was remembered.
    async fn forget_peer(&self, id: GatewayId) -> Result<bool>;
}

/// The memories of agents.
#[async_trait::async_trait]
pub trait Memories: Send + Sync {
    /// Adds memories of an agent; if `instead`, replaces all it has. Returns all given memories,
    /// including those that were stored before.
    async fn remember(
        &self,
        agent: MemoryOwner,
        memories: Vec<NewMemory>,
        instead: bool,
    ) -> Result<Vec<Memory>>;

    /// The memories of an agent, newest first, older than `before`.
    async fn memories(
        &self,
        agent: MemoryOwner,
        before: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>>;

    /// Full-text search in the memories of an agent, best match first.
    async fn recall(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<Vec<Memory>>;

    /// The memories of an agent for one turn, read in one transaction; at most `limit` of each
    /// kind.
    async fn memories_for_turn(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<TurnMemories>;

    /// Deletes one memory of an agent, or all. Returns their number.
    async fn forget(&self, agent: MemoryOwner, memory: Option<MemoryId>) -> Result<u64>;
}

/// Users, their keys, and sessions that they share.
#[async_trait::async_trait]
pub trait Users: Send + Sync {
    /// The number of changes of what gateways keep in memory: users, keys, shares, tokens of sessions,
    /// secrets, and definitions of tools. Each change counts in its own transaction, so that whoever reads
    /// a number sees all changes up to it.
    async fn access_revision(&self) -> Result<u64>;

    async fn add_user(&self, user: User) -> Result<()>;

    /// All users, the owner first.
    async fn users(&self) -> Result<Vec<User>>;

    /// Disables a user from that time on, or enables it again. Returns the user as it is now. The
    /// owner is never disabled.
    async fn disable_user(&self, user: UserId, at: Option<Timestamp>) -> Result<Option<User>>;

    /// Gives a user other limits of its own. Returns the user as it is now.
    async fn limit_user(&self, user: UserId, limits: OwnLimits) -> Result<Option<User>>;

    /// Adds a key. A device has one that is not revoked: an older one is revoked in the same
    /// transaction, and its id returned.
    async fn add_key(&self, key: UserKey) -> Result<Option<CredentialId>>;

    /// The keys of a user, or of all users, newest first.
    async fn keys(&self, user: Option<UserId>) -> Result<Vec<UserKey>>;

    /// The key of that id, whether it is valid or not, and its user.
    async fn key(&self, id: CredentialId) -> Result<Option<(UserKey, User)>>;

    /// The key of a paired device that is not revoked, and its user.
    async fn key_of_device(&self, device: [u8; 32]) -> Result<Option<(UserKey, User)>>;

    /// Revokes a key. Returns whether there was one that was not revoked before.
    async fn revoke_key(&self, id: CredentialId, at: Timestamp) -> Result<bool>;

    /// Records when keys were used last.
    async fn keys_used(&self, keys: Vec<(CredentialId, Timestamp)>) -> Result<()>;

    /// Shares a session with a user; `None`: no more.
    async fn share(&self, session: SessionId, user: UserId, share: Option<Share>) -> Result<()>;

    /// With whom a session is shared.
    async fn shares(&self, session: SessionId) -> Result<Vec<SharedSession>>;

    /// Replaces the token of a session whose token has the number `before` by one with the next number.
    /// Returns whether it had that number.
    async fn replace_token(
        &self,
        session: SessionId,
        before: u64,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<bool>;

    /// How a session is shared with a user.
    async fn shared_with(&self, session: SessionId, user: UserId) -> Result<Option<Share>>;
}

/// Codes with which devices are paired.
#[async_trait::async_trait]
pub trait Pairings: Send + Sync {
    /// Has an offer wait, unless `most` do already. Returns whether it waits.
    async fn offer_pairing(&self, offer: PairingOffer, most: u32, at: Timestamp) -> Result<bool>;

    /// The offers that wait at that time, the oldest first.
    async fn pairing_offers(&self, at: Timestamp) -> Result<Vec<PairingOffer>>;

    /// Whether a code may be tried now; if so, the try is counted.
    async fn may_try_pairing(&self, rate: PairingRate, at: Timestamp) -> Result<bool>;

    /// Uses an offer up and adds the key of the device that knew its code, in one transaction (G7).
    async fn use_offer(&self, offer: Uuid, key: UserKey, at: Timestamp) -> Result<OfferUsed>;
}

/// What users and keys have used. Turns and exports count themselves, in the transaction that stores
/// them.
#[async_trait::async_trait]
pub trait Usage: Send + Sync {
    /// Counts what is not stored: answers that passed through, and translations. Durable with the next
    /// commit, for which nobody waits.
    fn spend(&self, spender: Spender, spent: Spent, at: Timestamp);

    /// What a user and one of its keys have used on a day, without what [`Usage::spend`] still holds.
    async fn spent_on(&self, day: Day, spender: Spender) -> Result<SpentToday>;

    /// Stores what a replica counts now, in place of what it reported of the same users and keys before.
    async fn report_counts(&self, me: ReplicaId, counts: Vec<LiveCount>) -> Result<()>;

    /// What other replicas that are not dead have reported: turns that run, and the requests of that
    /// minute and later ones.
    async fn counts_of_others(&self, me: ReplicaId, minute: i64) -> Result<Vec<LiveCount>>;

    /// The bytes that the sessions of a user hold: their messages, and the blobs these refer to.
    async fn stored_bytes(&self, user: UserId) -> Result<u64>;

    /// The days from `since` on, of one user or of all, the newest first.
    async fn days_of_use(&self, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>>;
}

/// What was done at the gateway, and by whom. Entries are never changed.
#[async_trait::async_trait]
pub trait Audit: Send + Sync {
    /// Records entries; they are durable when it returns.
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()>;

    /// Records entries with the next commit, for which nobody waits.
    fn record_later(&self, entries: Vec<AuditEntry>);

    /// Entries, newest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>>;
}

/// Secrets of the installation. The store keeps bytes: the gateway seals them, so that a stolen
/// database opens nothing.
#[async_trait::async_trait]
pub trait Secrets: Send + Sync {
    /// The stored secret of that name, or `fresh` which is stored now.
    async fn secret(&self, name: &'static str, fresh: Vec<u8>) -> Result<Vec<u8>>;

    /// The signing keys of roaming tokens that may still be valid, newest last. If there is none,
    /// `fresh` becomes the first.
    async fn signing_keys(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>>;

    /// Adds `fresh` as the newest signing key.
    async fn add_signing_key(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>>;

    /// Everything that the others return.
    async fn all_secrets(&self) -> Result<Vec<StoredSecret>>;

    /// Stores other bytes for these secrets. What was there before is in no file any more.
    async fn replace_secrets(&self, all: Vec<StoredSecret>) -> Result<()>;

    /// Stores these secrets, also such as are new, if the one of that name is still `before`. Returns whether it
    /// was; if not, nothing is stored.
    async fn swap_secret(
        &self,
        name: &'static str,
        before: Vec<u8>,
        after: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<bool>;
}

/// Periodic maintenance, health and shutdown.
#[async_trait::async_trait]
pub trait Upkeep: Send + Sync {
    /// Whether it is the caller's turn to do a periodic task: true for one replica in that time, by the
    /// clock of the database. Advisory: two replicas may still do it at once if one of them is late.
    async fn take_upkeep(&self, task: &'static str, every: Duration) -> Result<bool>;

    /// Deletes idempotency keys older than `before`. Returns their number.
    async fn forget_keys(&self, before: Timestamp) -> Result<u64>;

    /// Deletes the bundles of exports that expired before then. Returns their number.
    async fn forget_bundles(&self, before: Timestamp) -> Result<u64>;

    /// Deletes approvals that expired before then. Returns their number.
    async fn forget_approvals(&self, before: Timestamp) -> Result<u64>;

    /// Deletes what was used before that day. Returns the number of rows.
    async fn forget_days(&self, before: Day) -> Result<u64>;

    /// Deletes entries of the audit from before then. Returns their number.
    async fn forget_audit(&self, before: Timestamp) -> Result<u64>;

    /// Writes what waits for the next commit, if there is something.
    async fn settle(&self) -> Result<()>;

    /// Removes the words of deleted sessions from the search index's files, in at most `steps` steps
    /// between which others can write. Returns whether none is left.
    async fn purge_words(&self, steps: u32) -> Result<bool>;

    /// Whether this is to be told once, and was not yet.
    async fn take_notice(&self, name: &'static str) -> Result<bool>;

    /// Whether the store can write now; for readiness checks.
    async fn check(&self) -> Result<()>;

    /// Resolves when the store has failed permanently and the process should exit.
    async fn failed(&self) -> crate::Error;

    /// Commits what is queued and closes the database. Nothing is written after it.
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
    + Search
    + Roaming
    + Federation
    + Memories
    + Users
    + Pairings
    + Usage
    + Audit
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
        + Search
        + Roaming
        + Federation
        + Memories
        + Users
        + Pairings
        + Usage
        + Audit
        + Secrets
        + Upkeep
        + std::fmt::Debug
        + 'static
{
}
