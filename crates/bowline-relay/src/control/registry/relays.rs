//! The relays, and which of them each daemon is assigned to.
//!
//! Without rows there is one relay, which the control plane is configured with. A daemon keeps its
//! relay until it says that it cannot reach it, the relay is removed, or it registers anew after the
//! relay was drained or took it in from another region. Clients are sent to the daemon's relay,
//! whatever its state: that is where the daemon is.
//!
//! Invariant: a daemon that moves to another relay gets a greater epoch in the same transaction, so
//! that no relay pairs a client of the new epoch with what the daemon left behind elsewhere.

use bowline_net::outbound;
use bowline_sbrp::api::DaemonProcess;
use rusqlite::{OptionalExtension as _, Row, Transaction, params};
use url::Url;

use super::audit::{self, AuditEvent, OPERATOR};
use super::retention::RELAY_KEPT;
use super::{Error, Registry, Result};

const LONGEST_NAME: usize = 64;

/// A relay's row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRecord {
    pub name: String,
    pub url: String,
    pub region: Option<String>,
    pub added_at: u64,
    /// Since when it is drained; none while it is active.
    pub drained_at: Option<u64>,
    /// Daemons assigned to it that have a valid presence token.
    pub daemons: u32,
}

/// The relay that a daemon is assigned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedRelay {
    pub name: String,
    pub url: String,
    pub region: Option<String>,
}

impl Registry {
    /// Adds a relay, or makes a drained or removed one active again.
    pub fn add_relay(
        &mut self,
        name: &str,
        url: &Url,
        region: Option<&str>,
        now: u64,
    ) -> Result<()> {
        let plain = |text: &str| {
            let fits = (1..=LONGEST_NAME).contains(&text.len());
            fits && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if !plain(name) || !region.is_none_or(plain) {
            return Err(Error::BadRelayName);
        }
        if !matches!(url.scheme(), "ws" | "wss") || !outbound::is_private(url) {
            return Err(Error::BadRelayUrl);
        }
        let url = url.as_str();
        self.change(|tx| {
            let one = "SELECT number, url, drained_at IS NOT NULL, removed_at IS NOT NULL
                       FROM relays WHERE name = ?1";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            let known: Option<(i64, String, bool, bool)> =
                tx.query_row(one, [name], read).optional()?;
            let other = "SELECT EXISTS (SELECT 1 FROM relays
                         WHERE url = ?1 AND name != ?2 AND removed_at IS NULL)";
            let other: bool = tx.query_row(other, [url, name], |row| row.get(0))?;
            let insert = "INSERT INTO relays (name, url, region, added_at) VALUES (?1, ?2, ?3, ?4)";
            match known {
                _ if other => return Err(Error::RelayTaken),
                None => {
                    tx.execute(insert, params![name, url, region, now])?;
                }
                // Its daemons are at the old address.
                Some((_, old, true, false)) if old != url => return Err(Error::RelayTaken),
                Some((_, _, false, _)) => return Err(Error::RelayTaken),
                // Those that have not left yet are still found there. No name that is given has a '~'.
                Some((number, old, true, true)) if old != url => {
                    let keep = "UPDATE relays SET name = name || '~' || number WHERE number = ?1";
                    tx.execute(keep, [number])?;
                    tx.execute(insert, params![name, url, region, now])?;
                }
                Some((number, _, true, _)) => {
                    tx.execute(
                        "UPDATE relays SET url = ?2, region = ?3, added_at = ?4, drained_at = NULL,
                                           removed_at = NULL WHERE number = ?1",
                        params![number, url, region, now],
                    )?;
                }
            }
            audit::note(tx, now, OPERATOR, AuditEvent::RelayAdded, name)
        })
    }

    /// The relays, in the order in which they were added first.
    pub fn relays(&mut self, now: u64) -> Result<Vec<RelayRecord>> {
        self.look(|tx| listed(tx, now))
    }

    /// Gives a relay no new daemons, and has it hand over those it has. Idempotent; returns the relay
    /// as it is then. Without `force` the last active relay is not drained.
    pub fn drain_relay(&mut self, name: &str, force: bool, now: u64) -> Result<RelayRecord> {
        self.change(|tx| {
            let relay = found(tx, name, now)?;
            if relay.drained_at.is_some() {
                return Ok(relay);
            }
            let active = "SELECT count(*) FROM relays WHERE drained_at IS NULL";
            let active: u32 = tx.query_row(active, [], |row| row.get(0))?;
            if active == 1 && relay.daemons > 0 && !force {
                return Err(Error::LastRelay);
            }
            tx.execute("UPDATE relays SET drained_at = ?2 WHERE name = ?1", params![name, now])?;
            audit::note(tx, now, OPERATOR, AuditEvent::RelayDraining, name)?;
            Ok(RelayRecord { drained_at: Some(now), ..relay })
        })
    }

    /// Removes a relay. An active one with daemons is removed only with `force`. While its process
    /// goes on, it hands its daemons over as if it were drained; those that it keeps leave with their
    /// next token.
    pub fn remove_relay(&mut self, name: &str, force: bool, now: u64) -> Result<RelayRecord> {
        self.change(|tx| {
            let relay = found(tx, name, now)?;
            if relay.drained_at.is_none() && relay.daemons > 0 && !force {
                return Err(Error::RelayInUse(relay.daemons));
            }
            tx.execute(
                "UPDATE relays SET drained_at = coalesce(drained_at, ?2), removed_at = ?2
                 WHERE name = ?1",
                params![name, now],
            )?;
            audit::note(tx, now, OPERATOR, AuditEvent::RelayRemoved, name)?;
            Ok(relay)
        })
    }

    /// The names of the relays that have to hand their daemons over.
    pub fn draining(&mut self, now: u64) -> Result<Vec<String>> {
        self.look(|tx| {
            let mut names = tx.prepare_cached(
                "SELECT name FROM relays WHERE drained_at IS NOT NULL
                 AND (removed_at IS NULL OR removed_at >= ?1)",
            )?;
            let names = names.query_map([now.saturating_sub(RELAY_KEPT)], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        })
    }
}

fn listed(tx: &Transaction<'_>, now: u64) -> Result<Vec<RelayRecord>> {
    let mut relays = tx.prepare_cached(
        "SELECT r.name, r.url, r.region, r.added_at, r.drained_at,
                (SELECT count(*) FROM daemons d
                 WHERE d.relay = r.number AND d.presence_until > ?1 AND d.revoked_at IS NULL)
         FROM relays r WHERE r.removed_at IS NULL ORDER BY r.number",
    )?;
    let relays = relays.query_map([now], |row| {
        Ok(RelayRecord {
            name: row.get(0)?,
            url: row.get(1)?,
            region: row.get(2)?,
            added_at: row.get(3)?,
            drained_at: row.get(4)?,
            daemons: row.get(5)?,
        })
    })?;
    Ok(relays.collect::<rusqlite::Result<_>>()?)
}

fn found(tx: &Transaction<'_>, name: &str, now: u64) -> Result<RelayRecord> {
    listed(tx, now)?.into_iter().find(|relay| relay.name == name).ok_or(Error::NoRelay)
}

/// A daemon's relay; `None`: the configured one.
pub(super) fn assigned(tx: &Transaction<'_>, daemon: &str) -> Result<Option<AssignedRelay>> {
    let one = "SELECT r.name, r.url, r.region FROM daemons d JOIN relays r ON r.number = d.relay
               WHERE d.id = ?1";
    let read = |row: &Row<'_>| {
        Ok(AssignedRelay { name: row.get(0)?, url: row.get(1)?, region: row.get(2)? })
    };
    Ok(tx.prepare_cached(one)?.query_row([daemon], read).optional()?)
}

/// Why a daemon asks for its relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// A process begins.
    Begins,
    /// A process goes on, and is connected or about to be.
    GoesOn,
}

/// Assigns the daemon to a relay, if it has none, or must or wants to leave it. `region` is preferred
/// if the daemon itself prefers none; `configured` is the relay of daemons without an assignment.
/// Returns whether the daemon is to go somewhere else than before.
pub(super) fn assign(
    tx: &Transaction<'_>,
    daemon: &str,
    asks: Asks,
    process: &DaemonProcess,
    configured: &Configured,
    now: u64,
) -> Result<bool> {
    let Current { number: current, url, region: of, is_active, is_removed, prefers } =
        current(tx, daemon)?;
    let url = url.as_deref().unwrap_or(&configured.url);
    let region = prefers.as_deref().or(configured.region.as_deref());
    let cannot = process.unreachable.iter().any(|unreachable| unreachable == url);
    let may_stay = match asks {
        Asks::Begins => is_active,
        // One that does not say which process it is cannot ask for another relay, either: when it was
        // sent away, it connects to what its next token names.
        Asks::GoesOn => is_active || process.id.is_some() && !is_removed || current.is_none(),
    };
    let must_leave = !may_stay || cannot;
    // Its region was away for a while. A process that begins has no connection to lose; without a name
    // it may also be one that goes on.
    let begins = asks == Asks::Begins && process.id.is_some();
    let may_return = begins && region.is_some() && of.as_deref() != region;
    if !must_leave && !may_return {
        return Ok(false);
    }
    let Some(chosen) = choose(tx, region, &process.unreachable, now)? else {
        // There are no relays but the configured one, or none that takes new daemons. One that is
        // there already may stay, unless it was sent away.
        let any = "SELECT EXISTS (SELECT 1 FROM relays WHERE removed_at IS NULL)";
        let any: bool = tx.query_row(any, [], |row| row.get(0))?;
        if any && (cannot || asks == Asks::Begins) {
            return Err(Error::NoActiveRelay);
        }
        return Ok(false);
    };
    // Nothing else can be reached, either, or nothing in its region: it stays where it is.
    let is_no_better = chosen.is_unreachable && is_active || chosen.is_elsewhere && !must_leave;
    if current == Some(chosen.number) || is_no_better {
        return Ok(false);
    }
    tx.prepare_cached("UPDATE daemons SET relay = ?2 WHERE id = ?1")?
        .execute(params![daemon, chosen.number])?;
    Ok(chosen.url != url)
}

/// The relay of daemons that are assigned to none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    pub url: String,
    pub region: Option<String>,
}

/// A daemon's relay as it is now, and the region that the daemon prefers.
struct Current {
    number: Option<i64>,
    url: Option<String>,
    region: Option<String>,
    is_active: bool,
    is_removed: bool,
    prefers: Option<String>,
}

fn current(tx: &Transaction<'_>, daemon: &str) -> Result<Current> {
    let one = "SELECT r.number, r.url, r.region, r.number IS NOT NULL AND r.drained_at IS NULL,
                      r.removed_at IS NOT NULL, d.region
               FROM daemons d LEFT JOIN relays r ON r.number = d.relay WHERE d.id = ?1";
    let read = |row: &Row<'_>| {
        Ok(Current {
            number: row.get(0)?,
            url: row.get(1)?,
            region: row.get(2)?,
            is_active: row.get(3)?,
            is_removed: row.get(4)?,
            prefers: row.get(5)?,
        })
    };
    Ok(tx.prepare_cached(one)?.query_row([daemon], read)?)
}

struct Choice {
    number: i64,
    url: String,
    is_unreachable: bool,
    /// Not in the preferred region.
    is_elsewhere: bool,
}

/// The active relay for a daemon: one that it can reach, in its region, with the fewest daemons.
fn choose(
    tx: &Transaction<'_>,
    region: Option<&str>,
    unreachable: &[String],
    now: u64,
) -> Result<Option<Choice>> {
    let mut active = tx.prepare_cached(
        "SELECT r.number, r.url, r.region,
                (SELECT count(*) FROM daemons d
                 WHERE d.relay = r.number AND d.presence_until > ?1 AND d.revoked_at IS NULL)
         FROM relays r WHERE r.drained_at IS NULL",
    )?;
    let mut rows = active.query([now])?;
    let mut best: Option<((bool, bool, u32, i64), Choice)> = None;
    while let Some(row) = rows.next()? {
        let (number, url): (i64, String) = (row.get(0)?, row.get(1)?);
        let of: Option<String> = row.get(2)?;
        let is_unreachable = unreachable.contains(&url);
        let is_elsewhere = region.is_some() && of.as_deref() != region;
        let rank = (is_unreachable, is_elsewhere, row.get(3)?, number);
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            best = Some((rank, Choice { number, url, is_unreachable, is_elsewhere }));
        }
    }
    Ok(best.map(|(_, choice)| choice))
}

#[cfg(test)]
mod tests;
