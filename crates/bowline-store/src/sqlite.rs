//! The session log in one SQLite file: nothing to install, durable by default.
//!
//! WAL with `synchronous=FULL`: a commit is flushed before it is acknowledged (G4). One writer
//! thread groups commits, reader threads run queries concurrently. A lock file keeps a second
//! process from using the same folder.

mod audit;
pub mod backup;
mod blobs;
mod commit;
mod connect;
mod counts;
mod exports;
mod federation;
mod folder;
mod handoff;
mod history;
mod leases;
mod lineage;
mod load;
mod log;
mod memory;
mod pairing;
mod pins;
mod readers;
mod revision;
mod roaming;
mod rows;
mod schema;
mod secrets;
mod sessions;
mod tether;
mod titles;
mod trunks;
mod upkeep;
mod usage;
mod users;
mod wal;
mod words;
mod writer;

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::access::{CredentialId, Share};
use bowline_sbp::approval::Approval;
use bowline_sbp::blob::{Blob, BlobRef};
use bowline_sbp::budget::{Day, OwnLimits, Spender, Spent};
use bowline_sbp::cid::Cid;
use bowline_sbp::context::SessionLog;
use bowline_sbp::delivery::Logged;
use bowline_sbp::id::{ExportId, MemoryId, Seq, SessionId, UserId};
use bowline_sbp::session::{
    AttachmentRow, Commit, CommitError, DeviceRow, Fence, IdempotencyKey, KnownKey, Loaded,
    NewSession, ReplicaId, TokenHash, Write,
};
use jiff::Timestamp;
use rusqlite::Connection;
use uuid::Uuid;

pub(crate) use self::connect::connect;
pub use self::folder::{FILE, RESTORING, lock, own};
use self::folder::{make_private_file, make_private_folder};
use self::readers::Readers;
use self::rows::select_sessions;
pub(crate) use self::schema::{VERSION as SCHEMA_VERSION, version as schema_version};
use self::wal::Folding;
pub use self::wal::incomplete_since;
use self::writer::Writer;
use crate::{
    Approvals, Arrival, Audit, AuditEntry, AuditQuery, Created, DayOfUse, Derived, Devices, Edge,
    Entry, Error, Export, Family, Hit, Leases, LiveCount, Log, Memories, Memory, MemoryOwner,
    NewExport, NewFork, NewImport, NewMemory, OfferUsed, OpenError, Packed, Page, PairingOffer,
    PairingRate, Pairings, ReplicaLease, Result, Roaming, Search, Secrets, Session, Sessions,
    SharedSession, SpentToday, StoredSecret, Tether, ToolPin, TurnMemories, Upkeep, Usage, User,
    UserKey, Users,
};

/// Reader threads. More than two bring no more throughput.
const READERS: usize = 2;
/// How many steps of merging the index of words a deletion waits for.
const PURGED_AT_ONCE: u32 = 32;

/// A data folder that this process owns.
#[derive(Debug)]
pub struct Sqlite {
    writer: Writer,
    readers: Readers,
    searching: tokio::sync::Mutex<()>,
    is_shared: bool,
    _lock: File,
}

impl Sqlite {
    /// Opens the store in `folder`, creating both as needed.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let unusable = |error: std::io::Error| OpenError::Folder {
            path: folder.display().to_string(),
            reason: error.to_string(),
        };
        make_private_folder(folder).map_err(unusable)?;
        let lock = lock(folder)?;
        if folder.join(RESTORING).exists() {
            return Err(OpenError::Restoring { path: folder.display().to_string() });
        }
        let path = folder.join(FILE);
        make_private_file(&path).map_err(unusable)?;

        // Before the first connection, which makes a log.
        let log_is_missing = wal::is_missing(&path);
        let mut conn = connect(&path, false)?;
        schema::migrate(&mut conn, &path.display().to_string())?;
        let failed = |error: rusqlite::Error| OpenError::Database(error.to_string());
        let copying = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'copying')";
        if conn.query_row(copying, [], |row| row.get(0)).map_err(failed)? {
            return Err(OpenError::Copying { path: folder.display().to_string() });
        }
        let now = Timestamp::now();
        let tx = conn.unchecked_transaction().map_err(failed)?;
        wal::open(&tx, now, log_is_missing).map_err(failed)?;
        leases::take_folder(&tx, now).map_err(failed)?;
        tx.commit().map_err(failed)?;
        wal::warn_if_missing(&conn, folder).map_err(failed)?;
        let readers = (0..READERS).map(|_| connect(&path, true)).collect::<Result<_, _>>()?;
        // A process that was killed may have erased something that is still in the log.
        let folding = Folding::new(!log_is_missing, wal::bring_mark_in(path).map_err(unusable)?);
        Ok(Self {
            writer: Writer::start(conn, folding).map_err(unusable)?,
            readers: Readers::start(readers).map_err(unusable)?,
            searching: Default::default(),
            is_shared: false,
            _lock: lock,
        })
    }

    /// The same, for several gateways in this process: for tests of replicas.
    #[must_use]
    pub fn for_several_gateways(self) -> Self {
        Self { is_shared: true, ..self }
    }
}

/// The schema version of the database in a folder; 0 if there is none.
pub fn version_of(folder: &Path) -> Result<u32, OpenError> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(0);
    }
    schema::version(&connect(&path, true)?, &path.display().to_string())
}

#[async_trait::async_trait]
impl Sessions for Sqlite {
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created> {
        self.writer.run(move |conn| sessions::create(conn, &session, key.as_ref())).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.readers.ask(move |conn| Ok(rows::session(conn, id)?.map(|(_, s)| s))).await
    }

    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>> {
        let find = move |conn: &Connection| {
            let listed = select_sessions!("WHERE token_hash = ?1 AND token_listed = 1");
            Ok(rows::sessions(conn, listed, [token.0])?.pop().map(|(_, s)| s))
        };
        self.readers.ask(find).await
    }

    async fn sessions(&self, page: Page) -> Result<Vec<Session>> {
        self.readers.ask(move |conn| sessions::list(conn, &page)).await
    }

    async fn named(&self, user: UserId, text: String) -> Result<Vec<Session>> {
        self.readers.ask(move |conn| titles::named(conn, user, &text)).await
    }

    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>> {
        self.readers.ask(move |conn| with_key(conn, id, load::attachments)).await
    }

    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>> {
        self.readers.ask(move |conn| load::known(conn, &key)).await
    }

    async fn load(&self, id: SessionId) -> Result<Option<Loaded>> {
        self.readers.ask(move |conn| load::load(conn, id)).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError> {
        let erases = commit.writes.iter().any(|write| matches!(write, Write::Delete));
        let write = move |conn: &Connection| commit::commit(conn, &commit);
        let written = match erases {
            true => self.writer.erase(write).await,
            false => self.writer.run(write).await,
        };
        if erases && matches!(written, Ok(Ok(()))) {
            // Of a small index at once; the rest of a large one, or after an error, in the background.
            let _ = self.purge_words(PURGED_AT_ONCE).await;
        }
        written.unwrap_or_else(|error| match error {
            Error::Fatal(why) => Err(CommitError::Fatal(why)),
            error => Err(CommitError::NotStored(error.to_string())),
        })
    }
}

#[async_trait::async_trait]
impl Leases for Sqlite {
    fn is_shared(&self) -> bool {
        self.is_shared
    }

    async fn register(&self, me: ReplicaId) -> Result<()> {
        self.writer.run(move |conn| leases::register(conn, me)).await
    }

    async fn renew(&self, me: ReplicaId) -> Result<bool> {
        self.readers.ask(move |conn| leases::is_alive(conn, me)).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaLease>> {
        self.readers.ask(leases::living).await
    }

    async fn declare_dead(&self, _: ReplicaId, _: Timestamp) -> Result<bool> {
        // No lease here ever expires.
        Ok(false)
    }

    async fn retire(&self, replica: ReplicaId) -> Result<()> {
        self.writer.run(move |conn| leases::retire(conn, replica)).await
    }

    async fn owner(&self, id: SessionId) -> Result<Option<ReplicaId>> {
        self.readers.ask(move |conn| leases::owner(conn, id)).await
    }

    async fn release(&self, me: ReplicaId, sessions: Vec<(SessionId, Fence)>) -> Result<()> {
        self.writer.run(move |conn| leases::release(conn, me, &sessions)).await
    }

    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
        self.readers.ask(move |conn| load::unfinished(conn, me)).await
    }
}

#[async_trait::async_trait]
impl Log for Sqlite {
    async fn history(&self, id: SessionId) -> Result<SessionLog> {
        self.readers.ask(move |conn| history::for_models(conn, id)).await
    }

    async fn entries_after(&self, id: SessionId, after: Seq, limit: u32) -> Result<Vec<Entry>> {
        self.readers.ask(move |conn| history::after(conn, id, after, limit)).await
    }

    async fn entries_before(&self, id: SessionId, before: Seq, limit: u32) -> Result<Vec<Entry>> {
        self.readers.ask(move |conn| history::before(conn, id, before, limit)).await
    }

    async fn known_blobs(&self, id: SessionId, all: Vec<BlobRef>) -> Result<HashSet<BlobRef>> {
        self.readers.ask(move |conn| blobs::known(conn, id, &all)).await
    }

    async fn blobs(&self, id: SessionId, wanted: Vec<Cid>) -> Result<Vec<Blob>> {
        self.readers.ask(move |conn| blobs::read(conn, id, &wanted)).await
    }
}

#[async_trait::async_trait]
impl Tether for Sqlite {
    async fn shown_after(&self, id: SessionId, after: Seq, questions: bool) -> Result<Vec<Logged>> {
        self.readers.ask(move |conn| tether::shown_after(conn, id, after, questions)).await
    }

    async fn arrival(&self, id: SessionId, device: Option<String>) -> Result<Option<Arrival>> {
        self.readers.ask(move |conn| tether::arrival(conn, id, device.as_deref())).await
    }
}

#[async_trait::async_trait]
impl Devices for Sqlite {
    async fn devices(&self, id: SessionId) -> Result<Vec<DeviceRow>> {
        self.readers.ask(move |conn| with_key(conn, id, load::devices)).await
    }

    async fn device_of(
        &self,
        id: SessionId,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<Option<String>> {
        self.readers.ask(move |conn| tether::device_of(conn, id, token, at)).await
    }
}

#[async_trait::async_trait]
impl Approvals for Sqlite {
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>> {
        self.readers.ask(move |conn| load::approvals(conn, id)).await
    }

    async fn tool_pins(&self) -> Result<Vec<ToolPin>> {
        self.readers.ask(pins::all).await
    }

    async fn pin_new_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<Vec<ToolPin>> {
        self.writer.run(move |conn| pins::pin_new(conn, &pins, at)).await
    }

    async fn pin_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<()> {
        self.writer.run(move |conn| pins::pin(conn, &pins, at)).await
    }
}

#[async_trait::async_trait]
impl Search for Sqlite {
    async fn index(&self, steps: u32) -> Result<bool> {
        // A new segment would make the merge of those before it begin anew, and never end.
        if self.readers.ask(words::is_purge_due).await? {
            return Ok(false);
        }
        let mut left = steps;
        loop {
            let mut logs = self.readers.ask(words::backlog).await?;
            if logs.is_empty() {
                return Ok(true);
            }
            while !logs.is_empty() {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                logs = self.writer.run(move |conn| words::index(conn, logs)).await?;
            }
        }
    }

    async fn search(&self, user: UserId, words: Vec<String>, limit: u32) -> Result<Vec<Hit>> {
        // A search of a large index takes long: one at a time, so that other reads go on.
        let _one = self.searching.lock().await;
        self.readers.ask(move |conn| words::search(conn, user, &words, limit)).await
    }
}

#[async_trait::async_trait]
impl Roaming for Sqlite {
    async fn pack(&self, id: SessionId) -> Result<Option<Packed>> {
        self.readers.ask(move |conn| history::pack(conn, id)).await
    }

    async fn keep_export(&self, export: NewExport) -> Result<Export> {
        self.writer.run(move |conn| exports::keep(conn, &export)).await
    }

    async fn export(&self, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>> {
        self.readers.ask(move |conn| exports::read(conn, id)).await
    }

    async fn exports(&self, session: SessionId) -> Result<Vec<Export>> {
        self.readers.ask(move |conn| exports::list(conn, session)).await
    }

    async fn import(&self, import: NewImport) -> Result<Derived> {
        self.writer.run(move |conn| roaming::import(conn, import)).await
    }

    async fn made_under(&self, key: IdempotencyKey) -> Result<Option<(Derived, Edge)>> {
        self.readers
            .ask(move |conn| {
                let Some(made) = roaming::replayed(conn, Some(&key))? else { return Ok(None) };
                let edge = lineage::birth(conn, &made.session.id.to_string())?;
                Ok(edge.map(|edge| (made, edge)))
            })
            .await
    }

    async fn fork(&self, fork: NewFork) -> Result<Derived> {
        self.writer.run(move |conn| roaming::fork(conn, fork)).await
    }

    async fn family(&self, session: String, user: UserId, most: u32) -> Result<Family> {
        self.readers.ask(move |conn| lineage::family(conn, session, user, most)).await
    }
}

#[async_trait::async_trait]
impl Memories for Sqlite {
    async fn remember(
        &self,
        agent: MemoryOwner,
        memories: Vec<NewMemory>,
        instead: bool,
    ) -> Result<Vec<Memory>> {
        match instead {
            true => self.writer.erase(move |conn| memory::replace(conn, &agent, &memories)).await,
            false => self.writer.run(move |conn| memory::remember(conn, &agent, &memories)).await,
        }
    }

    async fn memories(
        &self,
        agent: MemoryOwner,
        before: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        self.readers.ask(move |conn| memory::list(conn, &agent, before, limit)).await
    }

    async fn recall(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<Vec<Memory>> {
        self.readers.ask(move |conn| memory::recall(conn, &agent, &words, limit)).await
    }

    async fn memories_for_turn(
        &self,
        agent: MemoryOwner,
        words: Vec<String>,
        limit: u32,
    ) -> Result<TurnMemories> {
        self.readers.ask(move |conn| memory::for_turn(conn, &agent, &words, limit)).await
    }

    async fn forget(&self, agent: MemoryOwner, memory: Option<MemoryId>) -> Result<u64> {
        self.writer.erase(move |conn| memory::forget(conn, &agent, memory)).await
    }
}

#[async_trait::async_trait]
impl Pairings for Sqlite {
    async fn offer_pairing(&self, offer: PairingOffer, most: u32, at: Timestamp) -> Result<bool> {
        self.writer.run(move |conn| pairing::offer(conn, &offer, most, at)).await
    }

    async fn pairing_offers(&self, at: Timestamp) -> Result<Vec<PairingOffer>> {
        self.readers.ask(move |conn| pairing::waiting(conn, at)).await
    }

    async fn may_try_pairing(&self, rate: PairingRate, at: Timestamp) -> Result<bool> {
        self.writer.run(move |conn| pairing::may_try(conn, rate, at)).await
    }

    async fn use_offer(&self, offer: Uuid, key: UserKey, at: Timestamp) -> Result<OfferUsed> {
        self.writer.run(move |conn| pairing::pair(conn, offer, &key, at)).await
    }
}

#[async_trait::async_trait]
impl Users for Sqlite {
    async fn access_revision(&self) -> Result<u64> {
        self.readers.ask(revision::read).await
    }

    async fn add_user(&self, user: User) -> Result<()> {
        self.writer.run(move |conn| users::add(conn, &user)).await
    }

    async fn users(&self) -> Result<Vec<User>> {
        self.readers.ask(users::list).await
    }

    async fn disable_user(&self, user: UserId, at: Option<Timestamp>) -> Result<Option<User>> {
        self.writer.run(move |conn| users::disable(conn, user, at)).await
    }

    async fn limit_user(&self, user: UserId, limits: OwnLimits) -> Result<Option<User>> {
        self.writer.run(move |conn| users::limit(conn, user, &limits)).await
    }

    async fn add_key(&self, key: UserKey) -> Result<Option<CredentialId>> {
        self.writer.run(move |conn| users::add_key(conn, &key)).await
    }

    async fn keys(&self, user: Option<UserId>) -> Result<Vec<UserKey>> {
        self.readers.ask(move |conn| users::keys(conn, user)).await
    }

    async fn key(&self, id: CredentialId) -> Result<Option<(UserKey, User)>> {
        self.readers.ask(move |conn| users::key(conn, &id)).await
    }

    async fn key_of_device(&self, device: [u8; 32]) -> Result<Option<(UserKey, User)>> {
        self.readers.ask(move |conn| users::key_of_device(conn, &device)).await
    }

    async fn revoke_key(&self, id: CredentialId, at: Timestamp) -> Result<bool> {
        self.writer.run(move |conn| users::revoke(conn, &id, at)).await
    }

    async fn keys_used(&self, keys: Vec<(CredentialId, Timestamp)>) -> Result<()> {
        self.writer.run(move |conn| users::used(conn, &keys)).await
    }

    async fn share(&self, session: SessionId, user: UserId, share: Option<Share>) -> Result<()> {
        self.writer.run(move |conn| users::share(conn, session, user, share)).await
    }

    async fn shares(&self, session: SessionId) -> Result<Vec<SharedSession>> {
        self.readers.ask(move |conn| users::shares(conn, session)).await
    }

    async fn replace_token(
        &self,
        session: SessionId,
        before: u64,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<bool> {
        self.writer.run(move |conn| sessions::replace_token(conn, session, before, token, at)).await
    }

    async fn shared_with(&self, session: SessionId, user: UserId) -> Result<Option<Share>> {
        self.readers.ask(move |conn| users::shared_with(conn, session, user)).await
    }
}

#[async_trait::async_trait]
impl Usage for Sqlite {
    fn spend(&self, spender: Spender, spent: Spent, at: Timestamp) {
        self.writer.later(move |conn| usage::spend(conn, at, &spender, &spent));
    }

    async fn spent_on(&self, day: Day, spender: Spender) -> Result<SpentToday> {
        self.readers.ask(move |conn| usage::spent_on(conn, day, &spender)).await
    }

    async fn report_counts(&self, me: ReplicaId, counts: Vec<LiveCount>) -> Result<()> {
        self.writer.run(move |conn| counts::report(conn, me, &counts)).await
    }

    async fn counts_of_others(&self, me: ReplicaId, minute: i64) -> Result<Vec<LiveCount>> {
        self.readers.ask(move |conn| counts::of_others(conn, me, minute)).await
    }

    async fn stored_bytes(&self, user: UserId) -> Result<u64> {
        self.readers.ask(move |conn| usage::stored_bytes(conn, user)).await
    }

    async fn days_of_use(&self, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>> {
        self.readers.ask(move |conn| usage::days(conn, since, user)).await
    }
}

#[async_trait::async_trait]
impl Audit for Sqlite {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        self.writer.run(move |conn| audit::record(conn, &entries)).await
    }

    fn record_later(&self, entries: Vec<AuditEntry>) {
        self.writer.later(move |conn| audit::record(conn, &entries));
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.readers.ask(move |conn| audit::read(conn, &query)).await
    }
}

#[async_trait::async_trait]
impl Secrets for Sqlite {
    async fn secret(&self, name: &'static str, fresh: Vec<u8>) -> Result<Vec<u8>> {
        self.writer.run(move |conn| secrets::named(conn, name, &fresh)).await
    }

    async fn signing_keys(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        self.writer.run(move |conn| secrets::signing_keys(conn, &fresh, at)).await
    }

    async fn add_signing_key(&self, fresh: Vec<u8>, at: Timestamp) -> Result<Vec<StoredSecret>> {
        self.writer.run(move |conn| secrets::add_signing_key(conn, &fresh, at)).await
    }

    async fn all_secrets(&self) -> Result<Vec<StoredSecret>> {
        self.readers.ask(secrets::all).await
    }

    async fn replace_secrets(&self, all: Vec<StoredSecret>) -> Result<()> {
        self.writer.erase(move |conn| secrets::replace(conn, &all)).await
    }

    async fn swap_secret(
        &self,
        name: &'static str,
        before: Vec<u8>,
        after: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<bool> {
        self.writer.erase(move |conn| secrets::swap(conn, name, &before, &after)).await
    }
}

#[async_trait::async_trait]
impl Upkeep for Sqlite {
    async fn take_upkeep(&self, task: &'static str, every: Duration) -> Result<bool> {
        self.writer.run(move |conn| upkeep::take(conn, task, every, Timestamp::now())).await
    }

    async fn forget_keys(&self, before: Timestamp) -> Result<u64> {
        self.in_steps(sessions::FORGOTTEN_AT_ONCE, move |conn| sessions::forget_keys(conn, before))
            .await
    }

    async fn forget_bundles(&self, before: Timestamp) -> Result<u64> {
        self.in_steps(exports::DROPPED_AT_ONCE, move |conn| exports::drop_expired(conn, before))
            .await
    }

    async fn forget_approvals(&self, before: Timestamp) -> Result<u64> {
        let forget = move |conn: &Connection| sessions::forget_approvals(conn, before);
        self.in_steps(sessions::FORGOTTEN_AT_ONCE, forget).await
    }

    async fn forget_days(&self, before: Day) -> Result<u64> {
        self.in_steps(usage::FORGOTTEN_AT_ONCE, move |conn| usage::forget(conn, before)).await
    }

    async fn forget_audit(&self, before: Timestamp) -> Result<u64> {
        self.in_steps(audit::FORGOTTEN_AT_ONCE, move |conn| audit::forget(conn, before)).await
    }

    async fn settle(&self) -> Result<()> {
        match self.writer.has_later() {
            true => self.writer.run(|_| Ok(())).await,
            false => Ok(()),
        }
    }

    async fn purge_words(&self, steps: u32) -> Result<bool> {
        let mut due = self.readers.ask(words::is_purge_due).await?;
        let begun = due;
        for _ in 0..steps {
            if !due {
                break;
            }
            due = self.writer.run(words::purge).await?;
        }
        if begun && !due {
            // What was merged away leaves the log, too.
            self.writer.erase(|_| Ok(())).await?;
        }
        Ok(!due)
    }

    async fn take_notice(&self, name: &'static str) -> Result<bool> {
        self.writer.run(move |conn| pins::take_notice(conn, name)).await
    }

    async fn check(&self) -> Result<()> {
        // A real write: on a full disk a write that changes nothing would still succeed.
        self.writer
            .run(|conn| {
                conn.prepare_cached(
                    "INSERT INTO secrets (name, secret) VALUES ('probe', randomblob(8))
                     ON CONFLICT (name) DO UPDATE SET secret = excluded.secret",
                )?
                .execute([])?;
                Ok(())
            })
            .await
    }

    async fn failed(&self) -> Error {
        self.writer.failed().await
    }

    async fn close(&self) {
        self.writer.close().await;
    }
}

/// Runs a query with the session's row number; empty if there is no such session.
fn with_key<T>(
    conn: &Connection,
    id: SessionId,
    read: impl FnOnce(&Connection, rows::Key) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    rows::key_of(conn, id)?.map_or_else(|| Ok(Vec::new()), |key| read(conn, key))
}

impl Sqlite {
    /// Runs maintenance in steps of a limited number of rows, so that commits can run in between.
    async fn in_steps(
        &self,
        at_once: u64,
        step: impl Fn(&Connection) -> Result<u64> + Copy + Send + 'static,
    ) -> Result<u64> {
        let mut all = 0;
        loop {
            let some = self.writer.run(step).await?;
            all += some;
            if some < at_once {
                return Ok(all);
            }
        }
    }

    /// The number of accepted turns that have not ended; for metrics.
    pub async fn unfinished_turns(&self) -> Result<usize> {
        let count = |conn: &Connection| {
            let mut statement = conn.prepare_cached("SELECT count(*) FROM turns")?;
            Ok(statement.query_row([], |row| row.get::<_, i64>(0))? as usize)
        };
        self.readers.ask(count).await
    }
}
