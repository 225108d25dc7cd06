//! Daemons and their owners, and the checks before a token is signed.

use bowline_sbrp::api::{DaemonProcess, Registration, RenewPresence};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};
use uuid::Uuid;

use super::audit::{self, AuditEvent, OPERATOR};
use super::keys::{Signing, signing};
use super::relays::{Asks, AssignedRelay, assign, assigned};
use super::terms::{NewDaemons, PresenceTerms, Renewed, SessionTerms};
use super::users::{KeyOwner, caller};
use super::{Error, KeyHash, Registry, Result, retention};

const DAY: u64 = 24 * 3600;
/// The most revoked daemons of one user on the list for relays: nobody pushes the others' off it.
const LISTED_OF_ONE_USER: u32 = 1000;

/// A daemon's row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonRecord {
    pub id: String,
    /// The owner's name.
    pub owner: String,
    pub identity: IdentityKey,
    pub name: Option<String>,
    pub created_at: u64,
    /// When its last presence token was issued, and when that one expires.
    pub presence_at: u64,
    pub presence_until: u64,
    pub revoked_at: Option<u64>,
    /// Its relay; none: the configured one.
    pub relay: Option<AssignedRelay>,
}

/// A caller's daemons, and the signing key for status requests about them.
#[derive(Debug)]
pub struct Listed {
    /// The caller's user id in tokens.
    pub user: String,
    pub daemons: Vec<DaemonRecord>,
    pub signing: Signing,
}

impl Registry {
    /// Registers a daemon, or finds the one that its owner registered with the same identity key.
    pub fn register(
        &mut self,
        key: &KeyHash,
        asked: &Registration,
        terms: &PresenceTerms,
    ) -> Result<Renewed> {
        let (limits, now) = (terms.limits, terms.now);
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let known = known(tx, &owner, "identity", asked.identity.as_bytes())?;
            let (daemon, created) = match known {
                Some(known) => (known.in_force()?, false),
                None if retention::is_retired(tx, &owner, &asked.identity)? => {
                    return Err(Error::DaemonRevoked);
                }
                None => (insert(tx, &owner, asked, limits, now)?, true),
            };
            let process = &asked.process;
            // A daemon that never names its process has no epochs, only moves.
            let begins = tx
                .prepare_cached(
                    "UPDATE daemons SET name = coalesce(?2, name),
                                        resumable = coalesce(?3, resumable), region = ?4
                     WHERE id = ?1 RETURNING ?5 IS NOT NULL OR process IS NOT NULL",
                )?
                .query_row(
                    params![daemon, asked.name, asked.resumable, process.region, process.id],
                    |row| row.get(0),
                )?;
            tx.prepare_cached("UPDATE daemons SET process = ?2 WHERE id = ?1")?
                .execute(params![daemon, process.id])?;
            if created {
                audit::note(tx, now, &owner.name, AuditEvent::DaemonRegistered, &daemon)?;
            }
            let moved = assign(tx, &daemon, Asks::Begins, process, &terms.configured, now)?;
            renew(tx, &owner, Daemon { id: daemon, created, begins, moved }, terms)
        })
    }

    /// Renews a daemon's presence token. A process that says which one it is gets none once another
    /// one has registered.
    pub fn renew(
        &mut self,
        key: &KeyHash,
        id: &str,
        asked: &RenewPresence,
        terms: &PresenceTerms,
    ) -> Result<Renewed> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let id = own(tx, &owner, id)?.in_force()?;
            check_process(tx, &id, &asked.process)?;
            tx.prepare_cached(
                "UPDATE daemons SET resumable = coalesce(?2, resumable) WHERE id = ?1",
            )?
            .execute(params![id, asked.resumable])?;
            let (process, configured) = (&asked.process, &terms.configured);
            let moved = assign(tx, &id, Asks::GoesOn, process, configured, terms.now)?;
            renew(tx, &owner, Daemon { id, created: false, begins: false, moved }, terms)
        })
    }

    /// The data for a client's session token.
    pub fn open_session(
        &mut self,
        key: &KeyHash,
        id: &str,
        now: u64,
        until: u64,
    ) -> Result<SessionTerms> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let daemon = own(tx, &owner, id)?.in_force()?;
            audit::count(tx, now, &owner.name, AuditEvent::SessionIssued, &daemon, 1)?;
            session_terms(tx, owner, &daemon, until)
        })
    }

    /// The caller's daemons without the revoked ones.
    pub fn daemons_of(&mut self, key: &KeyHash, until: u64) -> Result<Listed> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let only = "WHERE d.owner = ?1 AND d.revoked_at IS NULL";
            let daemons = list(tx, only, [owner.number])?;
            Ok(Listed { user: owner.id, daemons, signing: signing(tx, until)? })
        })
    }

    /// The daemons of all users, including revoked ones, in the order of registration.
    pub fn daemons(&mut self) -> Result<Vec<DaemonRecord>> {
        self.look(|tx| list(tx, "", []))
    }

    /// The daemons revoked since then, the last `most` of them.
    pub fn revoked_since(&mut self, since: u64, most: u32) -> Result<Vec<DaemonId>> {
        self.look(|tx| {
            let mut ids = tx.prepare_cached(
                "SELECT id FROM (
                     SELECT id, revoked_at,
                            row_number() OVER (PARTITION BY owner ORDER BY revoked_at DESC) AS nth
                     FROM daemons WHERE revoked_at >= ?1
                 ) WHERE nth <= ?3 ORDER BY revoked_at DESC LIMIT ?2",
            )?;
            let ids =
                ids.query_map((since, most, LISTED_OF_ONE_USER), |row| row.get::<_, String>(0))?;
            Ok(ids.map(|id| id.map(DaemonId::new)).collect::<Result<_, _>>()?)
        })
    }

    /// Gives one of the caller's daemons another name.
    pub fn rename_own_daemon(
        &mut self,
        key: &KeyHash,
        id: &str,
        name: &str,
        now: u64,
    ) -> Result<()> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let daemon = own(tx, &owner, id)?.in_force()?;
            tx.execute("UPDATE daemons SET name = ?2 WHERE id = ?1", params![daemon, name])?;
            audit::count(tx, now, &owner.name, AuditEvent::DaemonRenamed, &daemon, 1)
        })
    }

    /// Revokes one of the caller's daemons. Idempotent.
    pub fn revoke_own_daemon(&mut self, key: &KeyHash, id: &str, now: u64) -> Result<()> {
        self.change(|tx| {
            let owner = caller(tx, key)?;
            let known = own(tx, &owner, id)?;
            if known.revoked { Ok(()) } else { revoke(tx, &owner.name, id, now) }
        })
    }

    /// Revokes any user's daemon; returns when its last presence token expires.
    pub fn revoke_daemon(&mut self, id: &str, now: u64) -> Result<u64> {
        self.change(|tx| {
            let one = "SELECT revoked_at IS NOT NULL, presence_until FROM daemons WHERE id = ?1";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            match tx.query_row(one, [id], read).optional()? {
                None => Err(Error::NoDaemon),
                Some((true, _)) => Err(Error::DaemonRevoked),
                Some((false, until)) => revoke(tx, OPERATOR, id, now).map(|()| until),
            }
        })
    }
}

#[derive(Debug)]
pub(super) struct Known {
    id: String,
    revoked: bool,
}

impl Known {
    pub(super) fn in_force(self) -> Result<String> {
        if self.revoked { Err(Error::DaemonRevoked) } else { Ok(self.id) }
    }
}

/// One of the owner's daemons, found by the given column.
fn known(
    tx: &Transaction<'_>,
    owner: &KeyOwner,
    column: &str,
    value: impl rusqlite::ToSql,
) -> Result<Option<Known>> {
    let one = format!(
        "SELECT id, revoked_at IS NOT NULL FROM daemons WHERE owner = ?1 AND {column} = ?2"
    );
    let read = |row: &Row<'_>| Ok(Known { id: row.get(0)?, revoked: row.get(1)? });
    let found = tx.prepare_cached(&one)?.query_row(params![owner.number, value], read);
    Ok(found.optional()?)
}

/// The caller's daemon of this id. A daemon of another user gives the same error as none.
pub(super) fn own(tx: &Transaction<'_>, owner: &KeyOwner, id: &str) -> Result<Known> {
    known(tx, owner, "id", id)?.ok_or(Error::NoDaemon)
}

fn insert(
    tx: &Transaction<'_>,
    owner: &KeyOwner,
    asked: &Registration,
    limits: NewDaemons,
    now: u64,
) -> Result<String> {
    let count = "SELECT count(*) FILTER (WHERE revoked_at IS NULL),
                        count(*) FILTER (WHERE created_at > ?2)
                 FROM daemons WHERE owner = ?1";
    let (in_force, new): (u32, u32) = tx
        .prepare_cached(count)?
        .query_row((owner.number, now.saturating_sub(DAY)), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if in_force >= limits.most {
        return Err(Error::TooManyDaemons(limits.most));
    }
    if new >= limits.per_day {
        return Err(Error::TooManyNewDaemons(limits.per_day));
    }
    let id = Uuid::new_v4().to_string();
    tx.prepare_cached(
        "INSERT INTO daemons (id, owner, identity, resumable, created_at, presence_at,
                              presence_until)
         VALUES (?1, ?2, ?3, 1, ?4, ?4, ?4)",
    )?
    .execute(params![id, owner.number, asked.identity.as_bytes(), now])?;
    Ok(id)
}

/// A daemon that is about to get a presence token.
struct Daemon {
    id: String,
    created: bool,
    /// Another process than before.
    begins: bool,
    /// To another relay than before.
    moved: bool,
}

fn renew(
    tx: &Transaction<'_>,
    owner: &KeyOwner,
    Daemon { id: daemon, created, begins, moved }: Daemon,
    &PresenceTerms { now, until, .. }: &PresenceTerms,
) -> Result<Renewed> {
    // An epoch is also a time, so that a registry from a backup does not begin again with old ones:
    // relays remember the greatest they have seen.
    let (resumable, epoch) = tx
        .prepare_cached(
            "UPDATE daemons SET presence_at = ?2, presence_until = ?3,
                                epoch = CASE WHEN ?4 THEN max(epoch + 1, ?2) ELSE epoch END
             WHERE id = ?1 RETURNING resumable, epoch",
        )?
        .query_row(params![daemon, now, until, begins || moved], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if !created {
        audit::count(tx, now, &owner.name, AuditEvent::PresenceRenewed, &daemon, 1)?;
    }
    if moved && !created {
        audit::count(tx, now, &owner.name, AuditEvent::DaemonMoved, &daemon, 1)?;
    }
    let relay = assigned(tx, &daemon)?;
    let (owner, signing) = (owner.id.clone(), signing(tx, until)?);
    Ok(Renewed { daemon, owner, resumable, relay, epoch, created, signing })
}

/// Refuses a process that is not the one that registered last.
fn check_process(tx: &Transaction<'_>, daemon: &str, process: &DaemonProcess) -> Result<()> {
    let last = "SELECT process FROM daemons WHERE id = ?1";
    let last: Option<String> = tx.prepare_cached(last)?.query_row([daemon], |row| row.get(0))?;
    match &process.id {
        Some(asks) if last.as_ref() != Some(asks) => Err(Error::Replaced),
        _ => Ok(()),
    }
}

/// The data for a session token of this daemon, for its owner or a device.
pub(super) fn session_terms(
    tx: &Transaction<'_>,
    owner: KeyOwner,
    daemon: &str,
    until: u64,
) -> Result<SessionTerms> {
    let epoch = "SELECT epoch FROM daemons WHERE id = ?1";
    Ok(SessionTerms {
        user: owner.id,
        relay: assigned(tx, daemon)?,
        epoch: tx.prepare_cached(epoch)?.query_row([daemon], |row| row.get(0))?,
        signing: signing(tx, until)?,
    })
}

fn revoke(tx: &Transaction<'_>, actor: &str, id: &str, now: u64) -> Result<()> {
    let set = "UPDATE daemons SET revoked_at = ?2 WHERE id = ?1";
    tx.execute(set, params![id, now])?;
    retention::compact(tx, now, retention::AT_ONCE)?;
    audit::note(tx, now, actor, AuditEvent::DaemonRevoked, id)
}

fn list(
    tx: &Transaction<'_>,
    only: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<DaemonRecord>> {
    let all = format!(
        "SELECT d.id, u.name, d.identity, d.name, d.created_at, d.presence_at, d.presence_until,
                d.revoked_at, r.name, r.url, r.region
         FROM daemons d JOIN users u ON u.number = d.owner
                        LEFT JOIN relays r ON r.number = d.relay {only} ORDER BY d.number"
    );
    let mut all = tx.prepare_cached(&all)?;
    let mut rows = all.query(values)?;
    let mut daemons = Vec::new();
    while let Some(row) = rows.next()? {
        let identity = IdentityKey::from_bytes(&row.get(2)?)
            .map_err(|unfit| Error::Database(unfit.to_string()))?;
        daemons.push(DaemonRecord {
            id: row.get(0)?,
            owner: row.get(1)?,
            identity,
            name: row.get(3)?,
            created_at: row.get(4)?,
            presence_at: row.get(5)?,
            presence_until: row.get(6)?,
            revoked_at: row.get(7)?,
            relay: match row.get(8)? {
                Some(name) => Some(AssignedRelay { name, url: row.get(9)?, region: row.get(10)? }),
                None => None,
            },
        });
    }
    Ok(daemons)
}
