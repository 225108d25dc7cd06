//! A store that fails on demand, around a real store on disk.
//!
//! A commit is named by its writes: `accept` fails the next commit with an accepted turn in it,
//! `status` one that changes nothing but the session's own row.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
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
use bowline_store::sqlite::Sqlite;
use bowline_store::{
    AnnouncedExport, Approvals, Arrival, AskReservation, Audit, AuditEntry, AuditQuery, Created,
    DayOfUse, Derived, Devices, Edge, Entry, Error, Export, Family, Federation, Forward, Hit,
    KeptMigration, KeptPeer, KeptReservation, Leases, LiveCount, Log, Memories, Memory,
    MemoryOwner, Moved, NewExport, NewFork, NewImport, NewMemory, NewMigration, OfferUsed, Packed,
    Page, PairingOffer, PairingRate, Pairings, ReplicaLease, Reserving, Result, Roaming, Search,
    Secrets, Session, Sessions, SharedSession, SpentToday, StoredSecret, Tether, ToolPin,
    TurnMemories, Upkeep, Usage, User, UserKey, Users,
};
use jiff::Timestamp;
use tokio::sync::oneshot;
use uuid::Uuid;

#[derive(Debug)]
pub(crate) struct Failing {
    store: Arc<Sqlite>,
    next: Mutex<Option<(&'static str, Error)>>,
    /// The kind of write whose commits are refused, and how many were.
    refused: Mutex<(Option<&'static str>, usize)>,
    /// The kind of write whose next commit is fenced: another replica owns the session.
    fenced: Mutex<Option<&'static str>>,
    /// The kind of write whose next commit is stored, and whose answer is lost.
    unanswered: Mutex<Option<&'static str>>,
    /// The operation whose next call waits for this signal.
    held: Mutex<Option<(&'static str, oneshot::Receiver<()>)>>,
    /// The operations that have completed.
    ended: Mutex<Vec<&'static str>>,
    leases: Mutex<LeasesEnd>,
}

/// Whether leases end, as they do where several replicas share the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeasesEnd {
    Never,
    UnlessRenewed,
    /// None can be renewed.
    Always,
}

impl Failing {
    pub(crate) fn new(store: Arc<Sqlite>) -> Self {
        Self {
            store,
            next: Mutex::default(),
            refused: Mutex::default(),
            fenced: Mutex::default(),
            unanswered: Mutex::default(),
            held: Mutex::default(),
            ended: Mutex::default(),
            leases: Mutex::new(LeasesEnd::Never),
        }
    }

    pub(crate) fn leases_end(&self, end: LeasesEnd) {
        *self.leases.lock().unwrap() = end;
    }

    /// The next call of that operation fails with this error, once.
    pub(crate) fn fail(&self, operation: &'static str, error: Error) {
        *self.next.lock().unwrap() = Some((operation, error));
    }

    /// From now on, commits with that kind of write are refused; `None`: no commit is.
    pub(crate) fn refuse(&self, operation: Option<&'static str>) {
        self.refused.lock().unwrap().0 = operation;
    }

    /// How many commits were refused.
    pub(crate) fn refusals(&self) -> usize {
        self.refused.lock().unwrap().1
    }

    /// The next commit with that kind of write is fenced, once: another replica owns the session.
    pub(crate) fn fence(&self, operation: &'static str) {
        *self.fenced.lock().unwrap() = Some(operation);
    }

    /// The next commit with that kind of write is stored, and its answer is lost, once.
    pub(crate) fn lose_answer(&self, operation: &'static str) {
        *self.unanswered.lock().unwrap() = Some(operation);
    }

    /// The next call of that operation waits for the signal.
    pub(crate) fn hold(&self, operation: &'static str) -> oneshot::Sender<()> {
        let (go, held) = oneshot::channel();
        *self.held.lock().unwrap() = Some((operation, held));
        go
    }

    /// Whether the operation that is to wait does.
    pub(crate) fn waits(&self) -> bool {
        self.held.lock().unwrap().is_none()
    }

    /// How often that operation has completed.
    pub(crate) fn ended(&self, operation: &str) -> usize {
        self.ended.lock().unwrap().iter().filter(|name| **name == operation).count()
    }

    async fn until_let_go(&self, is_it: impl Fn(&str) -> bool) {
        let held = self.held.lock().unwrap().take_if(|(name, _)| is_it(name));
        if let Some((_, held)) = held {
            let _ = held.await;
        }
    }

    fn refuses(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let (refused, times) = &mut *self.refused.lock().unwrap();
        let refuses = refused.is_some_and(is_it);
        *times += usize::from(refuses);
        refuses
    }

    /// Whether the failure has happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.next.lock().unwrap().is_none()
    }

    fn may(&self, is_it: impl Fn(&str) -> bool) -> Result<()> {
        let failure = self.next.lock().unwrap().take_if(|(name, _)| is_it(name));
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }
}

macro_rules! fails_when_told {
    ($($group:ident $([$plain:ident -> $says:ty])? {
        $($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*
    })*) => {$(
        #[async_trait::async_trait]
        impl $group for Failing {
            $(fn $plain(&self) -> $says {
                self.store.$plain()
            })?
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$out> {
                let is_it = |name: &str| name == stringify!($name);
                self.may(is_it)?;
                self.until_let_go(is_it).await;
                let outcome = self.store.$name($($arg),*).await;
                self.ended.lock().unwrap().push(stringify!($name));
                outcome
            })*
        }
    )*};
}

fails_when_told! {
    Log {
        history(id: SessionId) -> SessionLog;
        entries_after(id: SessionId, after: Seq, limit: u32) -> Vec<Entry>;
        entries_before(id: SessionId, before: Seq, limit: u32) -> Vec<Entry>;
        known_blobs(id: SessionId, all: Vec<BlobRef>) -> HashSet<BlobRef>;
        blobs(id: SessionId, wanted: Vec<Cid>) -> Vec<Blob>;
    }
    Tether {
        shown_after(id: SessionId, after: Seq, questions: bool) -> Vec<Logged>;
        arrival(id: SessionId, device: Option<String>) -> Option<Arrival>;
    }
    Devices {
        devices(id: SessionId) -> Vec<DeviceRow>;
        device_of(id: SessionId, token: TokenHash, at: Timestamp) -> Option<String>;
    }
    Approvals {
        approvals(id: SessionId) -> Vec<Approval>;
        tool_pins() -> Vec<ToolPin>;
        pin_new_tools(pins: Vec<ToolPin>, at: Timestamp) -> Vec<ToolPin>;
        pin_tools(pins: Vec<ToolPin>, at: Timestamp) -> ();
    }
    Search {
        index(steps: u32) -> bool;
        search(user: UserId, words: Vec<String>, limit: u32) -> Vec<Hit>;
    }
    Roaming {
        pack(id: SessionId) -> Option<Packed>;
        keep_export(export: NewExport) -> Export;
        export(id: ExportId) -> Option<(Export, Option<Vec<u8>>)>;
        exports(session: SessionId) -> Vec<Export>;
        import(import: NewImport) -> Derived;
        made_under(key: IdempotencyKey) -> Option<(Derived, Edge)>;
        fork(fork: NewFork) -> Derived;
        family(session: String, user: UserId, most: u32) -> Family;
    }
    Federation {
        use_peer_token(issuer: GatewayId, jti: Uuid, until: Timestamp) -> bool;
        forget_peer_tokens(before: Timestamp) -> u64;
        exports_with_cid(cid: Cid, at: Timestamp) -> Vec<Export>;
        announced_exports(at: Timestamp, most: u32) -> Vec<AnnouncedExport>;
        reserve(ask: AskReservation, fresh: Option<(NewExport, Seq)>) -> Reserving;
        confirm_reservation(
            id: ReservationId,
            peer: GatewayId,
            forward: Forward,
            at: Timestamp
        ) -> Result<KeptReservation, Refusal>;
        release_reservation(id: ReservationId, peer: GatewayId, at: Timestamp) -> Result<(), Refusal>;
        reservation(id: ReservationId) -> Option<KeptReservation>;
        forward(session: SessionId) -> Option<Forward>;
        moved(session: SessionId, most: u32) -> Option<Moved>;
        moved_tether(session: SessionId) -> MovedTether;
        migration_of(origin: GatewayId, export: ExportId) -> Option<KeptMigration>;
        begin_migration(new: NewMigration) -> KeptMigration;
        migration(id: ReservationId) -> Option<KeptMigration>;
        open_migrations() -> Vec<KeptMigration>;
        stage_migration(id: ReservationId, bundle: Vec<u8>, import: NewImport) -> Stage;
        staged_bundle(id: ReservationId) -> Option<Vec<u8>>;
        activate_migration(id: ReservationId, import: NewImport) -> Stage;
        drop_migration(id: ReservationId, from: Stage, why: Dropped) -> Stage;
        peer(id: GatewayId) -> Option<KeptPeer>;
        peers() -> Vec<KeptPeer>;
        keep_peer(peer: KeptPeer) -> ();
        pin_peer(peer: KeptPeer, before: Option<Pin>) -> bool;
        forget_peer(id: GatewayId) -> bool;
    }
    Memories {
        remember(agent: MemoryOwner, memories: Vec<NewMemory>, instead: bool) -> Vec<Memory>;
        memories(agent: MemoryOwner, before: Option<MemoryId>, limit: u32) -> Vec<Memory>;
        recall(agent: MemoryOwner, words: Vec<String>, limit: u32) -> Vec<Memory>;
        memories_for_turn(agent: MemoryOwner, words: Vec<String>, limit: u32) -> TurnMemories;
        forget(agent: MemoryOwner, memory: Option<MemoryId>) -> u64;
    }
    Users {
        access_revision() -> u64;
        add_user(user: User) -> ();
        users() -> Vec<User>;
        disable_user(user: UserId, at: Option<Timestamp>) -> Option<User>;
        limit_user(user: UserId, limits: OwnLimits) -> Option<User>;
        add_key(key: UserKey) -> Option<CredentialId>;
        keys(user: Option<UserId>) -> Vec<UserKey>;
        key(id: CredentialId) -> Option<(UserKey, User)>;
        key_of_device(device: [u8; 32]) -> Option<(UserKey, User)>;
        revoke_key(id: CredentialId, at: Timestamp) -> bool;
        keys_used(keys: Vec<(CredentialId, Timestamp)>) -> ();
        share(session: SessionId, user: UserId, share: Option<Share>) -> ();
        shares(session: SessionId) -> Vec<SharedSession>;
        replace_token(session: SessionId, before: u64, token: TokenHash, at: Timestamp) -> bool;
        shared_with(session: SessionId, user: UserId) -> Option<Share>;
    }
    Pairings {
        offer_pairing(offer: PairingOffer, most: u32, at: Timestamp) -> bool;
        pairing_offers(at: Timestamp) -> Vec<PairingOffer>;
        may_try_pairing(rate: PairingRate, at: Timestamp) -> bool;
        use_offer(offer: Uuid, key: UserKey, at: Timestamp) -> OfferUsed;
    }
    Secrets {
        secret(name: &'static str, fresh: Vec<u8>) -> Vec<u8>;
        signing_keys(fresh: Vec<u8>, at: Timestamp) -> Vec<StoredSecret>;
        add_signing_key(fresh: Vec<u8>, at: Timestamp) -> Vec<StoredSecret>;
        all_secrets() -> Vec<StoredSecret>;
        replace_secrets(all: Vec<StoredSecret>) -> ();
        swap_secret(
            name: &'static str,
            before: Vec<u8>,
            after: Vec<(&'static str, Vec<u8>)>
        ) -> bool;
    }
}

#[async_trait::async_trait]
impl Leases for Failing {
    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn register(&self, me: ReplicaId) -> Result<()> {
        self.store.register(me).await
    }

    async fn renew(&self, me: ReplicaId) -> Result<bool> {
        let end = *self.leases.lock().unwrap();
        match end {
            LeasesEnd::Always => Err(Error::Unavailable("a test says so".into())),
            LeasesEnd::Never | LeasesEnd::UnlessRenewed => self.store.renew(me).await,
        }
    }

    async fn replicas(&self) -> Result<Vec<ReplicaLease>> {
        let end = *self.leases.lock().unwrap();
        let mut leases = self.store.replicas().await?;
        if end != LeasesEnd::Never {
            let soon = Timestamp::now() + Duration::from_secs(3);
            leases.iter_mut().for_each(|lease| lease.expires_at = Some(soon));
        }
        Ok(leases)
    }

    async fn declare_dead(&self, replica: ReplicaId, seen: Timestamp) -> Result<bool> {
        self.store.declare_dead(replica, seen).await
    }

    async fn owner(&self, id: SessionId) -> Result<Option<ReplicaId>> {
        self.store.owner(id).await
    }

    async fn retire(&self, replica: ReplicaId) -> Result<()> {
        self.store.retire(replica).await
    }

    async fn release(&self, me: ReplicaId, sessions: Vec<(SessionId, Fence)>) -> Result<()> {
        self.store.release(me, sessions).await
    }

    async fn unfinished(&self, me: ReplicaId) -> Result<Vec<(SessionId, u64)>> {
        self.store.unfinished(me).await
    }
}

#[async_trait::async_trait]
impl Sessions for Failing {
    async fn create_session(
        &self,
        session: NewSession,
        key: Option<IdempotencyKey>,
    ) -> Result<Created> {
        self.may(|name| name == "create_session")?;
        self.store.create_session(session, key).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.store.session(id).await
    }

    async fn session_by_token(&self, token: TokenHash) -> Result<Option<Session>> {
        self.store.session_by_token(token).await
    }

    async fn sessions(&self, page: Page) -> Result<Vec<Session>> {
        self.store.sessions(page).await
    }

    async fn named(&self, user: UserId, text: String) -> Result<Vec<Session>> {
        self.store.named(user, text).await
    }

    async fn attached(&self, id: SessionId) -> Result<Vec<AttachmentRow>> {
        self.store.attached(id).await
    }

    async fn known(&self, key: IdempotencyKey) -> Result<Option<(SessionId, KnownKey)>> {
        self.store.known(key).await
    }

    async fn load(&self, id: SessionId) -> Result<Option<Loaded>> {
        self.may(|name| name == "load")?;
        self.store.load(id).await
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<(), CommitError> {
        let writes: Vec<_> = commit.writes.iter().map(|write| write.name()).collect();
        let is_it = |name: &str| writes.contains(&name) || (name == "status" && writes.is_empty());
        self.may(is_it).map_err(|error| match error {
            Error::Fatal(why) => CommitError::Fatal(why),
            error => CommitError::NotStored(error.to_string()),
        })?;
        if self.fenced.lock().unwrap().take_if(|name| is_it(name)).is_some() {
            return Err(CommitError::Fenced);
        }
        if self.refuses(is_it) {
            return Err(CommitError::NotStored("a test says so".into()));
        }
        self.until_let_go(is_it).await;
        let outcome = self.store.commit(commit).await;
        self.ended.lock().unwrap().extend(&writes);
        if self.unanswered.lock().unwrap().take_if(|name| is_it(name)).is_some() {
            return Err(CommitError::Unknown("a test says so".into()));
        }
        outcome
    }
}

#[async_trait::async_trait]
impl Usage for Failing {
    fn spend(&self, spender: Spender, spent: Spent, at: Timestamp) {
        self.store.spend(spender, spent, at);
    }

    async fn spent_on(&self, day: Day, spender: Spender) -> Result<SpentToday> {
        self.store.spent_on(day, spender).await
    }

    async fn report_counts(&self, me: ReplicaId, counts: Vec<LiveCount>) -> Result<()> {
        self.store.report_counts(me, counts).await
    }

    async fn counts_of_others(&self, me: ReplicaId, minute: i64) -> Result<Vec<LiveCount>> {
        self.store.counts_of_others(me, minute).await
    }

    async fn stored_bytes(&self, user: UserId) -> Result<u64> {
        self.store.stored_bytes(user).await
    }

    async fn days_of_use(&self, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>> {
        self.store.days_of_use(since, user).await
    }
}

#[async_trait::async_trait]
impl Audit for Failing {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        self.may(|name| name == "record")?;
        self.store.record(entries).await
    }

    fn record_later(&self, entries: Vec<AuditEntry>) {
        self.store.record_later(entries);
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        self.store.audit(query).await
    }
}

#[async_trait::async_trait]
impl Upkeep for Failing {
    async fn take_upkeep(&self, task: &'static str, every: Duration) -> Result<bool> {
        self.store.take_upkeep(task, every).await
    }

    async fn forget_keys(&self, before: Timestamp) -> Result<u64> {
        self.store.forget_keys(before).await
    }

    async fn forget_bundles(&self, before: Timestamp) -> Result<u64> {
        self.store.forget_bundles(before).await
    }

    async fn forget_approvals(&self, before: Timestamp) -> Result<u64> {
        self.store.forget_approvals(before).await
    }

    async fn take_notice(&self, name: &'static str) -> Result<bool> {
        self.store.take_notice(name).await
    }

    async fn forget_days(&self, before: Day) -> Result<u64> {
        self.store.forget_days(before).await
    }

    async fn forget_audit(&self, before: Timestamp) -> Result<u64> {
        self.store.forget_audit(before).await
    }

    async fn settle(&self) -> Result<()> {
        self.store.settle().await
    }

    async fn purge_words(&self, steps: u32) -> Result<bool> {
        self.store.purge_words(steps).await
    }

    async fn check(&self) -> Result<()> {
        self.may(|name| name == "check")?;
        self.store.check().await
    }

    async fn failed(&self) -> Error {
        self.store.failed().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
