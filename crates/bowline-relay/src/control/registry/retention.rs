//! How long rows of what was revoked are kept, so that the file does not grow without bound.
//!
//! Everybody who needs a revocation has seen it long before its row is deleted: tokens live for a day
//! at most, and the list for relays goes back a week. What happened stays in the audit log for as
//! long as that is kept.
//!
//! Invariants
//! - A revoked identity never comes back: of a deleted daemon, 16 bytes of a hash of its identity
//!   stay for as long as its owner does.
//! - A user is deleted with everything that was theirs; neither id nor keys are given again.

use bowline_sbrp::identity::IdentityKey;
use rusqlite::{Transaction, params};
use sha2::{Digest as _, Sha256};

use super::Result;
use super::users::KeyOwner;

const DAY: u64 = 24 * 3600;
/// How long the row of a removed relay is kept, in seconds: as long as it is on the list for relays,
/// so that one that is still running hands its daemons over.
pub(super) const RELAY_KEPT: u64 = 7 * DAY;
/// How long rows of revoked daemons, users and keys are kept, in seconds.
pub(super) const KEPT: u64 = 30 * DAY;
/// The most rows of each kind that one change deletes: it must not take long. A change adds fewer.
pub(super) const AT_ONCE: u32 = 100;

const CONTEXT: &[u8] = b"bowline-retired-identity\0";

/// Deletes rows of what was revoked long ago, `most` of each kind.
pub(super) fn compact(tx: &Transaction<'_>, now: u64, most: u32) -> Result<()> {
    let before = now.saturating_sub(KEPT);
    let numbers = |one: &str| -> Result<Vec<i64>> {
        let mut rows = tx.prepare_cached(one)?;
        let rows = rows.query_map((before, most), |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    };
    for user in numbers("SELECT number FROM users WHERE revoked_at < ?1 LIMIT ?2")? {
        for table in ["api_keys", "daemons", "retired_identities"] {
            tx.execute(&format!("DELETE FROM {table} WHERE owner = ?1"), [user])?;
        }
        tx.execute("DELETE FROM users WHERE number = ?1", [user])?;
    }
    for daemon in numbers("SELECT number FROM daemons WHERE revoked_at < ?1 LIMIT ?2")? {
        let delete = "DELETE FROM daemons WHERE number = ?1 RETURNING owner, identity";
        let (owner, identity): (i64, [u8; 32]) =
            tx.prepare_cached(delete)?.query_row([daemon], |row| Ok((row.get(0)?, row.get(1)?)))?;
        tx.prepare_cached(
            "INSERT OR IGNORE INTO retired_identities (owner, hash) VALUES (?1, ?2)",
        )?
        .execute(params![owner, hash(&identity)])?;
    }
    for key in numbers("SELECT number FROM api_keys WHERE revoked_at < ?1 LIMIT ?2")? {
        tx.execute("DELETE FROM api_keys WHERE number = ?1", [key])?;
    }
    // Daemons leave a removed relay with their next token. One that cannot is still found there.
    let removed = "SELECT number FROM relays r WHERE removed_at < ?1 AND NOT EXISTS (
                       SELECT 1 FROM daemons d WHERE d.relay = r.number
                       AND d.presence_until > ?2 AND d.revoked_at IS NULL)";
    let removed = tx
        .prepare_cached(removed)?
        .query_map((now.saturating_sub(RELAY_KEPT), now), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for relay in removed {
        tx.execute("UPDATE daemons SET relay = NULL WHERE relay = ?1", [relay])?;
        tx.execute("DELETE FROM relays WHERE number = ?1", [relay])?;
    }
    let old = "SELECT number FROM signing_keys WHERE published_until < ?1 LIMIT ?2";
    for key in numbers(old)? {
        tx.execute("DELETE FROM signing_keys WHERE number = ?1", [key])?;
    }
    Ok(())
}

/// Whether the owner revoked a daemon with this identity whose row was deleted since.
pub(super) fn is_retired(
    tx: &Transaction<'_>,
    owner: &KeyOwner,
    identity: &IdentityKey,
) -> Result<bool> {
    let known = "SELECT EXISTS (SELECT 1 FROM retired_identities WHERE owner = ?1 AND hash = ?2)";
    let known = tx
        .prepare_cached(known)?
        .query_row(params![owner.number, hash(identity.as_bytes())], |row| row.get(0))?;
    Ok(known)
}

/// Short, because nobody gains by finding another key with the same hash: it would only be refused.
fn hash(identity: &[u8; 32]) -> [u8; 16] {
    let hash: [u8; 32] =
        Sha256::new().chain_update(CONTEXT).chain_update(identity).finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    short
}

#[cfg(test)]
mod tests {
    use bowline_sbrp::api::{DaemonProcess, Registration};
    use bowline_sbrp::identity::IdentitySecret;

    use super::super::{Configured, Error, KeyHash, NewDaemons, PresenceTerms, Registry};
    use super::*;

    const START: u64 = 1_000_000_000;
    const LIMITS: NewDaemons = NewDaemons { most: 4, per_day: 100 };

    fn terms(limits: NewDaemons, now: u64) -> PresenceTerms {
        let configured = Configured { url: "wss://r.example/relay".into(), region: None };
        PresenceTerms { limits, configured, now, until: now + 60 }
    }

    fn asked(seed: u8) -> Registration {
        Registration {
            api_key: None,
            identity: IdentitySecret::from_seed(&[seed; 32]).public(),
            name: None,
            resumable: None,
            process: DaemonProcess::default(),
        }
    }

    fn registry() -> (tempfile::TempDir, Registry, KeyHash) {
        let folder = tempfile::tempdir().unwrap();
        let mut registry = Registry::open(folder.path()).unwrap();
        let key = registry.add_user("alice", START).unwrap();
        let key = KeyHash::of(key.reveal());
        (folder, registry, key)
    }

    fn count(registry: &Registry, table: &str) -> u32 {
        let all = format!("SELECT count(*) FROM {table}");
        registry.conn.query_row(&all, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_revoked_daemon_leaves_a_hash_and_never_comes_back() {
        let (_folder, mut registry, key) = registry();
        let made = registry.register(&key, &asked(1), &terms(LIMITS, START)).unwrap();
        let kept = registry.register(&key, &asked(2), &terms(LIMITS, START)).unwrap();
        registry.revoke_own_daemon(&key, &made.daemon, START).unwrap();
        let later = START + KEPT;
        registry.change(|tx| compact(tx, later, AT_ONCE)).unwrap();
        assert_eq!((count(&registry, "daemons"), count(&registry, "retired_identities")), (2, 0));
        registry.change(|tx| compact(tx, later + 1, AT_ONCE)).unwrap();
        assert_eq!((count(&registry, "daemons"), count(&registry, "retired_identities")), (1, 1));
        let again = registry.register(&key, &asked(1), &terms(LIMITS, later));
        assert_eq!(again.unwrap_err(), Error::DaemonRevoked);
        registry.register(&key, &asked(2), &terms(LIMITS, later)).unwrap();
        assert_eq!(registry.daemons().unwrap()[0].id, kept.daemon);
        // To somebody else the identity is as good as any other, as before.
        let bob = KeyHash::of(registry.add_user("bob", later).unwrap().reveal());
        registry.register(&bob, &asked(1), &terms(LIMITS, later)).unwrap();
    }

    #[test]
    fn a_revoked_user_goes_with_all_that_was_theirs() {
        let (_folder, mut registry, key) = registry();
        let made = registry.register(&key, &asked(1), &terms(LIMITS, START)).unwrap();
        registry.revoke_own_daemon(&key, &made.daemon, START).unwrap();
        registry.change(|tx| compact(tx, START + KEPT + 1, AT_ONCE)).unwrap();
        registry.register(&key, &asked(2), &terms(LIMITS, START)).unwrap();
        registry.revoke_user("alice", START).unwrap();
        // Ended by the clock, which the test cannot set: its time is the real one.
        registry.conn.execute("UPDATE users SET revoked_at = ?1", [START]).unwrap();
        let bob = registry.add_user("bob", START).unwrap();
        registry.change(|tx| compact(tx, START + KEPT + 1, AT_ONCE)).unwrap();
        for table in ["daemons", "retired_identities"] {
            assert_eq!(count(&registry, table), 0, "{table}");
        }
        assert_eq!((count(&registry, "users"), count(&registry, "api_keys")), (1, 1));
        registry.check_key(&KeyHash::of(bob.reveal())).unwrap();
    }

    #[test]
    fn replaced_keys_and_retired_signing_keys_do_not_pile_up() {
        let (_folder, mut registry, _) = registry();
        for at in 0..250 {
            registry.add_key("alice", true, START + at * DAY).unwrap();
            registry.rotate(START + at * DAY).unwrap();
        }
        assert!(count(&registry, "api_keys") <= 32, "{}", count(&registry, "api_keys"));
        assert!(count(&registry, "signing_keys") <= 34, "{}", count(&registry, "signing_keys"));
    }

    #[test]
    fn a_user_who_makes_and_revokes_daemons_all_day_is_slowed_down() {
        let (_folder, mut registry, key) = registry();
        let limits = NewDaemons { most: 4, per_day: 3 };
        let mut make = |seed: u8, now: u64| {
            let made = registry.register(&key, &asked(seed), &terms(limits, now))?;
            registry.revoke_own_daemon(&key, &made.daemon, now)
        };
        for seed in 1..=3 {
            make(seed, START).unwrap();
        }
        assert_eq!(make(4, START + 10).unwrap_err(), Error::TooManyNewDaemons(3));
        make(4, START + DAY + 1).unwrap();
    }
}
