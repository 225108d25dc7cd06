//! A model of the store: one session's rows, the replicas with their leases, and the rule by which a
//! commit is accepted.

mod leases;
mod writes;

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_sbp::access::OWNER;
use bowline_sbp::approval::ApprovalState;
use bowline_sbp::id::{AgentId, Seq, SessionId, TurnId};
use bowline_sbp::lifecycle::Status;
use bowline_sbp::session::{
    AskedRow, AttachmentRow, Commit, CommitError, DeviceRow, Fence, GrantRow, Head, IdempotencyKey,
    KnownKey, Loaded, Placed, ReplicaId, TurnRow,
};
use jiff::Timestamp;
use uuid::Uuid;

use self::leases::ReplicaRow;
use super::past::Past;
use super::planted::Planted;

pub(super) fn session_id() -> SessionId {
    SessionId(Uuid::from_u128(7))
}

#[derive(Debug)]
pub(super) struct Rows {
    pub(super) head: Head,
    pub(super) owner: Option<ReplicaId>,
    pub(super) fence: Fence,
    version: u64,
    commit_id: Option<Uuid>,
    /// Fence and version of the last commit.
    numbers: Option<(Fence, u64)>,
    /// In the order of their positions.
    pub(super) turns: Vec<TurnRow>,
    pub(super) entries: Vec<Placed>,
    pub(super) attachments: Vec<AttachmentRow>,
    devices: Vec<DeviceRow>,
    pub(super) asked: Vec<AskedRow>,
    pub(super) grants: Vec<GrantRow>,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    key: IdempotencyKey,
    turn: Option<TurnId>,
    result: Option<String>,
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) rows: Option<Rows>,
    /// A session that was deleted is not made again by a late copy of its first commit.
    made: bool,
    replicas: BTreeMap<ReplicaId, ReplicaRow>,
    /// The clock of the database, which may be set.
    clock: Duration,
    /// The time that has really passed.
    elapsed: Duration,
    /// The database answers nobody.
    pub(super) paused: bool,
    pub(super) past: Past,
    planted: Option<Planted>,
    /// What was wrong with a commit that the rule accepted.
    pub(super) broken: Option<String>,
}

impl Store {
    /// With an existing session without turns, or (`made` is false) one that its first turn
    /// creates.
    pub(super) fn new(made: bool, planted: Option<Planted>) -> Self {
        let rows = made.then(Rows::new);
        let (replicas, past) = (BTreeMap::new(), Past::default());
        // A clock can also be set back.
        let (clock, elapsed) = (Duration::from_secs(1_000_000), Duration::ZERO);
        Self { rows, made, replicas, clock, elapsed, paused: false, past, planted, broken: None }
    }

    /// Nothing was ever stored.
    pub(super) fn is_new(&self) -> bool {
        !self.made
    }

    /// The live owner of the lease, if any.
    pub(super) fn owner(&self) -> Option<ReplicaId> {
        let owner = self.rows.as_ref()?.owner?;
        (!self.is_dead(owner)).then_some(owner)
    }

    pub(super) fn release(&mut self, replica: ReplicaId, fence: Fence) {
        if let Some(rows) = &mut self.rows
            && (rows.owner, rows.fence) == (Some(replica), fence)
        {
            rows.owner = None;
        }
    }

    pub(super) fn load(&self) -> Option<Loaded> {
        let rows = self.rows.as_ref()?;
        let unfinished = |turn: TurnId| rows.turns.iter().any(|row| row.id == turn);
        let open = |asked: &&AskedRow| {
            asked.approval.state == ApprovalState::Pending || unfinished(asked.approval.turn_id)
        };
        Some(Loaded {
            owner: None,
            id: session_id(),
            user: OWNER,
            agent_id: AgentId::fallback(),
            head: rows.head.clone(),
            fence: rows.fence,
            version: rows.version,
            turns: rows.turns.clone(),
            attachments: rows.attachments.clone(),
            devices: rows.devices.clone(),
            asked: rows.asked.iter().filter(open).cloned().collect(),
            grants: rows.grants.clone(),
            held: None,
        })
    }

    /// Looks up an idempotency key; if it is unknown, whether the log has the turn.
    pub(super) fn known(&self, key: Option<&IdempotencyKey>, turn: TurnId) -> Option<KnownKey> {
        let rows = self.rows.as_ref()?;
        let same = |known: &&Key| key.is_some_and(|key| key.key == known.key.key);
        if let (Some(known), Some(key)) = (rows.keys.iter().find(same), key) {
            let same_body = known.key.body_hash == key.body_hash;
            let (turn_id, result) = (known.turn, known.result.clone());
            return Some(KnownKey { same_body, turn_id, result });
        }
        let forgets = self.planted == Some(Planted::ForgetsTurns);
        let logged = !forgets && rows.entries.iter().any(|entry| entry.turn_id == turn);
        logged.then_some(KnownKey { same_body: true, turn_id: Some(turn), result: None })
    }

    /// Applies a commit of this actor, or returns why it is refused.
    pub(super) fn commit(&mut self, commit: &Commit, actor: u64) -> Result<(), CommitError> {
        match &self.rows {
            Some(rows) if self.is_resend(rows, commit) => return Ok(()),
            Some(rows) if commit.make.is_none() && self.is_allowed(rows, commit) => {}
            None if commit.make.is_some() && !self.made && !self.is_dead(commit.lease.owner) => {
                self.made = true;
                self.rows = Some(Rows::new());
            }
            _ => return Err(CommitError::Fenced),
        }
        self.check_lease(commit, actor);
        let Some(mut rows) = self.rows.take() else { return Err(CommitError::Fenced) };
        let before = rows.head.clone();
        rows.numbers = Some((commit.lease.fence, commit.version));
        rows.commit_id = Some(commit.id);
        rows.version += 1;
        rows.owner = Some(commit.lease.owner);
        rows.fence += u64::from(commit.lease.take);
        rows.head = commit.head.clone();
        for write in &commit.writes {
            self.write(&mut rows, write);
        }
        self.check_head(&before, &rows);
        self.rows = (!self.past.deleted).then_some(rows);
        Ok(())
    }

    fn is_resend(&self, rows: &Rows, commit: &Commit) -> bool {
        match self.planted {
            Some(Planted::ResendByNumbers) => {
                rows.numbers == Some((commit.lease.fence, commit.version))
            }
            _ => rows.commit_id == Some(commit.id),
        }
    }

    fn is_allowed(&self, rows: &Rows, commit: &Commit) -> bool {
        let lease = &commit.lease;
        let is_owner = rows.owner == Some(lease.owner);
        let is_free = || rows.owner.is_none_or(|owner| self.is_dead(owner));
        let leased = rows.fence == lease.fence
            && !self.is_dead(lease.owner)
            && (is_owner || (lease.take && is_free()));
        (leased || self.planted == Some(Planted::IgnoresLease))
            && (rows.version == commit.version || self.planted == Some(Planted::IgnoresVersion))
    }

    /// One actor to a fence, no writes of an older one, none of a dead replica, none twice (G19).
    fn check_lease(&mut self, commit: &Commit, actor: u64) {
        let fence = commit.lease.fence + u64::from(commit.lease.take);
        let versions = u64::try_from(self.past.commits.len()).unwrap();
        if !self.past.commits.insert(commit.id) {
            self.breaks(format!("the commit {} was applied twice", commit.id));
        }
        if commit.version != versions {
            self.breaks(format!("commit number {versions} has the version {}", commit.version));
        }
        if self.is_dead(commit.lease.owner) {
            self.breaks("a replica that was declared dead wrote".into());
        }
        if self.past.writers.keys().next_back().is_some_and(|newest| *newest > fence) {
            self.breaks(format!("a write by the older fence {fence} was applied"));
        }
        if *self.past.writers.entry(fence).or_insert(actor) != actor {
            self.breaks(format!("two actors wrote under the fence {fence}"));
        }
    }

    fn check_head(&mut self, before: &Head, rows: &Rows) {
        let head = &rows.head;
        let counts = |head: &Head| {
            [
                head.last_seq,
                head.delivered_seq,
                head.step_count,
                head.tethered_turns,
                head.attach_epoch,
                head.turns_accepted,
            ]
        };
        if counts(before).iter().zip(counts(head)).any(|(before, after)| *before > after) {
            self.breaks(format!("a count went back: {before:?}, then {head:?}"));
        }
        if head.last_seq != length(&rows.entries) {
            self.breaks(format!("{} entries, but {head:?}", rows.entries.len()));
        }
        let furthest = rows.devices.iter().filter_map(|device| device.delivered_seq).max();
        if furthest.is_some_and(|seq| seq > head.delivered_seq)
            || head.delivered_seq > head.last_seq
        {
            self.breaks(format!("a device has {furthest:?}, but {head:?}"));
        }
    }

    pub(super) fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }
}

impl Rows {
    fn new() -> Self {
        Self {
            head: Head::new(Status::Idle, Timestamp::UNIX_EPOCH),
            owner: None,
            fence: 0,
            version: 0,
            commit_id: None,
            numbers: None,
            turns: Vec::new(),
            entries: Vec::new(),
            attachments: Vec::new(),
            devices: Vec::new(),
            asked: Vec::new(),
            grants: Vec::new(),
            keys: Vec::new(),
        }
    }
}

fn length(entries: &[Placed]) -> Seq {
    u64::try_from(entries.len()).unwrap()
}
