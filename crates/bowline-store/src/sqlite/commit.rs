//! Commits of live sessions: the only way to write one, in one transaction and under its lease
//! (G19).
//!
//! Everything that can be refused is checked before the first write: the session's row has its
//! owner, fence and version. A commit that was applied before is recognised by its id alone.

use bowline_sbp::media::references;
use bowline_sbp::message::Message;
use bowline_sbp::session::{
    AskedRow, AttachmentRow, Commit, CommitError, DeviceRow, GrantRow, Head, IdempotencyKey,
    Placed, TurnRow, Write,
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use super::rows::{self, Key, kind_number, millis, place};
use super::sessions::{self, Known};
use super::{blobs, handoff, leases, usage};
use crate::about::AboutApproval;
use crate::size::{added_text, whole};
use crate::{Error, Result, failpoint};

/// The result of a commit, unless the database itself failed.
type Verdict = Result<(), CommitError>;

pub(super) fn commit(conn: &Connection, commit: &Commit) -> Result<Verdict> {
    let found = lookup(conn, commit)?;
    let key = match (&commit.make, found) {
        (_, Some(found)) if found.commit_id == Some(*commit.id.as_bytes()) => return Ok(Ok(())),
        (None, Some(found)) if found.is_open_to(commit) => {
            // Another request took the key after the owner had looked it up: a retry finds its
            // result.
            if is_key_taken(conn, commit)? {
                return Ok(Err(CommitError::Refused(
                    "the idempotency key was used already".into(),
                )));
            }
            found.key
        }
        (Some(new), None) if leases::is_alive(conn, commit.lease.owner)? => {
            if is_key_taken(conn, commit)? {
                return Ok(Err(CommitError::KeyTaken));
            }
            match sessions::insert(conn, new, commit.head.status) {
                Err(Error::TokenTaken) => return Ok(Err(CommitError::TokenTaken)),
                made => made?,
            }
        }
        _ => return Ok(Err(CommitError::Fenced)),
    };
    let hands_over = commit.writes.iter().any(|write| matches!(write, Write::HandOff(_)));
    if hands_over {
        failpoint::begin("handoff");
    }
    write_head(conn, key, commit)?;
    // Not for every commit: the batch may hold a fork or an import with failpoints of its own.
    if hands_over {
        failpoint::pass("retired");
    }
    let at = commit.head.updated_at;
    for write in &commit.writes {
        apply(conn, key, write, at)?;
    }
    Ok(Ok(()))
}

/// The owner of the session, from its row.
struct Found {
    key: Key,
    fence: u64,
    version: u64,
    commit_id: Option<[u8; 16]>,
    mine: bool,
    /// It has no owner, or its owner is dead.
    free: bool,
    alive: bool,
}

impl Found {
    /// Whether this commit may write: its replica is alive and holds the lease, or may take it.
    fn is_open_to(&self, commit: &Commit) -> bool {
        let owns = if commit.lease.take { self.mine || self.free } else { self.mine };
        let current = self.fence == commit.lease.fence && self.version == commit.version;
        self.alive && owns && current
    }
}

fn lookup(conn: &Connection, commit: &Commit) -> Result<Option<Found>> {
    let mut statement = conn.prepare_cached(
        "SELECT key, fence, version, commit_id, owner IS ?2,
                owner IS NULL OR NOT EXISTS
                    (SELECT 1 FROM replicas r WHERE r.id = sessions.owner AND NOT r.dead),
                EXISTS (SELECT 1 FROM replicas r WHERE r.id = ?2 AND NOT r.dead)
         FROM sessions WHERE id = ?1",
    )?;
    let me = commit.lease.owner.0.as_bytes();
    let found = statement.query_row(params![commit.session.as_bytes(), me], |row| {
        Ok(Found {
            key: row.get(0)?,
            fence: row.get::<_, i64>(1)? as u64,
            version: row.get::<_, i64>(2)? as u64,
            commit_id: row.get(3)?,
            mine: row.get(4)?,
            free: row.get(5)?,
            alive: row.get(6)?,
        })
    });
    Ok(found.optional()?)
}

/// Whether the commit accepts a turn under an idempotency key that another turn holds, unless the
/// same commit frees that key.
fn is_key_taken(conn: &Connection, commit: &Commit) -> Result<bool> {
    let mut holder =
        conn.prepare_cached("SELECT turn_id FROM keys WHERE scope = ?1 AND key = ?2")?;
    let mut freed = Vec::new();
    for write in &commit.writes {
        match write {
            Write::End { turn, result: None, .. } | Write::Forget { turn } => {
                freed.push(Some(*turn.as_bytes()));
            }
            Write::Accept { key: Some(key), .. } => {
                let found: Option<Option<[u8; 16]>> =
                    holder.query_row([&key.scope, &key.key], |row| row.get(0)).optional()?;
                if found.is_some_and(|turn| !freed.contains(&turn)) {
                    return Ok(true);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Writes the session's [`Head`].
fn write_head(conn: &Connection, key: Key, commit: &Commit) -> Result<()> {
    let Head {
        status,
        step_count,
        last_seq,
        delivered_seq,
        tethered_turns,
        cost_usd,
        spent_usd,
        tokens,
        attach_epoch,
        turns_accepted,
        snapshot,
        handed_to,
        updated_at,
        titles,
    } = &commit.head;
    conn.prepare_cached(
        "UPDATE sessions SET owner = ?2, fence = fence + ?3, version = version + 1, commit_id = ?4,
             status = ?5, step_count = ?6, last_seq = ?7, delivered_seq = ?8, tether_last = ?9,
             cost_usd = ?10, prompt_tokens = ?11, completion_tokens = ?12, attach_epoch = ?13,
             turns_accepted = ?14, snapshot_id = ?15, snapshot_seq = ?16, snapshot_at = ?17,
             snapshot_kind = ?18, handed_to = ?19, updated_at = ?20, spent_usd = ?21,
             title = ?22, auto_title = ?23, stored_bytes = min(stored_bytes + ?24, 1 << 60)
         WHERE key = ?1",
    )?
    .execute(params![
        key,
        commit.lease.owner.0.as_bytes(),
        commit.lease.take,
        commit.id.as_bytes(),
        status.as_str(),
        *step_count as i64,
        *last_seq as i64,
        *delivered_seq as i64,
        *tethered_turns as i64,
        cost_usd,
        tokens.prompt as i64,
        tokens.completion as i64,
        *attach_epoch as i64,
        *turns_accepted as i64,
        snapshot.as_ref().map(|snapshot| snapshot.id.as_bytes()),
        snapshot.as_ref().map(|snapshot| snapshot.seq as i64),
        snapshot.as_ref().map(|snapshot| millis(snapshot.at)),
        snapshot.as_ref().map(|snapshot| snapshot.kind.as_str()),
        handed_to.as_ref().map(|(id, _)| id.as_bytes()),
        millis(*updated_at),
        spent_usd,
        titles.given.as_deref(),
        titles.automatic.as_deref(),
        whole(added_text(&commit.writes)),
    ])?;
    Ok(())
}

/// Counts the blobs that the entry at this place uses and no earlier entry of its session does. Not by
/// the size in a reference: that is a text from the caller, who may never have sent the blob.
fn count_blobs(conn: &Connection, key: Key, at: i64) -> Result<()> {
    conn.prepare_cached(
        "UPDATE sessions SET stored_bytes = min(1 << 60, stored_bytes + (
             SELECT coalesce(sum(octet_length(blobs.bytes)), 0)
             FROM blob_uses AS used JOIN blobs ON blobs.hash = used.hash
             WHERE used.place = ?2 AND NOT EXISTS (
                 SELECT 1 FROM blob_uses AS earlier
                 WHERE earlier.hash = used.hash AND earlier.place > ?3 AND earlier.place < ?2)))
         WHERE key = ?1",
    )?
    .execute(params![key, at, place(key, 0)])?;
    Ok(())
}

fn apply(conn: &Connection, key: Key, write: &Write, at: Timestamp) -> Result<()> {
    match write {
        Write::Accept { turn, key: name, blobs } => {
            blobs::accept(conn, key, blobs)?;
            accept(conn, key, turn, name.as_ref(), at)
        }
        Write::Start { turn, attempt } => {
            let sql = "UPDATE turns SET started = 1, attempt = ?2 WHERE id = ?1";
            conn.prepare_cached(sql)?.execute(params![turn.as_bytes(), attempt])?;
            Ok(())
        }
        Write::LeaveOpen { turn, open } => {
            conn.prepare_cached("UPDATE turns SET open_calls = ?2 WHERE id = ?1")?
                .execute(params![turn.as_bytes(), open.to_json()])?;
            Ok(())
        }
        Write::Append { entries, advances } => {
            entries.iter().try_for_each(|placed| append(conn, key, placed))?;
            let Some(turn) = advances else { return Ok(()) };
            conn.prepare_cached("UPDATE turns SET advanced = 1 WHERE id = ?1")?
                .execute([turn.as_bytes()])?;
            Ok(())
        }
        Write::Spend { spender, spent } => usage::spend(conn, at, spender, spent),
        Write::End { turn, keyed, result } => {
            delete_turn(conn, key, turn.as_bytes())?;
            match result {
                _ if !keyed => 0,
                Some(result) => conn
                    .prepare_cached("UPDATE keys SET result = ?2 WHERE turn_id = ?1")?
                    .execute(params![turn.as_bytes(), result])?,
                None => delete_key(conn, turn.as_bytes())?,
            };
            Ok(())
        }
        Write::Forget { turn } => {
            delete_turn(conn, key, turn.as_bytes())?;
            delete_key(conn, turn.as_bytes())?;
            Ok(())
        }
        Write::Ask(asked) => ask(conn, key, asked),
        Write::StepApproval { id, state, decision } => {
            let decision = decision.as_ref().map(json);
            let sql = "UPDATE approvals SET state = ?2, decision = coalesce(?3, decision)
                       WHERE id = ?1";
            conn.prepare_cached(sql)?.execute(params![id.as_bytes(), state.as_str(), decision])?;
            Ok(())
        }
        Write::Grant(grant) => {
            let sql = "INSERT OR REPLACE INTO grants
                       (session, tool, device, definition, created_at) VALUES (?1, ?2, ?3, ?4, ?5)";
            let GrantRow { tool, device, definition, at } = grant;
            conn.prepare_cached(sql)?.execute(params![
                key,
                tool,
                device,
                definition,
                millis(*at)
            ])?;
            Ok(())
        }
        Write::Attach(row) => attach(conn, key, row),
        Write::Detach { epoch } => {
            conn.prepare_cached("DELETE FROM attachments WHERE session = ?1 AND epoch = ?2")?
                .execute(params![key, *epoch as i64])?;
            Ok(())
        }
        Write::Delivered { seq } => {
            conn.prepare_cached(
                "UPDATE sessions SET tether_done = max(tether_done, coalesce((
                     SELECT tether_no FROM entries
                     WHERE place > ?2 AND place <= ?3 AND tether_no IS NOT NULL
                     ORDER BY place DESC LIMIT 1), 0))
                 WHERE key = ?1",
            )?
            .execute(params![key, place(key, 0), place(key, *seq)])?;
            Ok(())
        }
        Write::Device(row) => device(conn, key, row),
        Write::ForgetDevice { surface_id } => {
            conn.prepare_cached("DELETE FROM surfaces WHERE session = ?1 AND surface_id = ?2")?
                .execute(params![key, surface_id])?;
            Ok(())
        }
        Write::HandOff(handed) => handoff::write(conn, key, handed),
        Write::Delete => sessions::forget(conn, key),
    }
}

fn accept(
    conn: &Connection,
    key: Key,
    turn: &TurnRow,
    name: Option<&IdempotencyKey>,
    at: Timestamp,
) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO turns
         (session, place, id, found, request, started, attempt, advanced, keyed, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        key,
        turn.place as i64,
        turn.id.as_bytes(),
        turn.found.map(|status| status.as_str()),
        turn.request,
        turn.started,
        turn.attempt,
        turn.advanced,
        turn.keyed,
        millis(at),
    ])?;
    if let Some(name) = name {
        let known = Known { session: key, turn_id: Some(*turn.id.as_bytes()), result: None };
        sessions::remember_key(conn, name, &known, at)?;
    }
    Ok(())
}

fn delete_turn(conn: &Connection, key: Key, turn: &[u8; 16]) -> Result<()> {
    conn.prepare_cached("DELETE FROM turns WHERE id = ?1")?.execute([turn])?;
    blobs::release(conn, key)
}

fn delete_key(conn: &Connection, turn: &[u8; 16]) -> Result<usize> {
    Ok(conn.prepare_cached("DELETE FROM keys WHERE turn_id = ?1")?.execute([turn])?)
}

/// Writes an entry at its log position (G1), and counts its blobs.
pub(super) fn append(conn: &Connection, key: Key, placed: &Placed) -> Result<()> {
    let (entry, at) = (&placed.entry, place(key, placed.seq));
    conn.prepare_cached(
        "INSERT INTO entries (place, kind, turn_id, message, model, cost_usd, status, step,
         tether_no, created_at, agent_id, carried, caller, replaces, author)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?
    .execute(params![
        at,
        kind_number(entry.kind),
        placed.turn_id.as_bytes(),
        entry.message.as_json(),
        entry.model,
        entry.cost_usd,
        entry.status.as_str(),
        placed.step as i64,
        placed.tether_no.map(|number| number as i64),
        millis(placed.at),
        entry.agent_id.as_ref().map(|agent| agent.as_str()),
        entry.carried,
        entry.caller.map(|caller| caller.0 as i64),
        entry.replaces.map(|seq| seq as i64),
        entry.author,
    ])?;
    blobs::append(conn, key, at, &entry.message, &entry.blobs)?;
    if !entry.blobs.is_empty() || !references(&entry.message).is_empty() {
        count_blobs(conn, key, at)?;
    }
    match &entry.instruction {
        Some(messages) => instruct(conn, key, messages),
        None => Ok(()),
    }
}

fn instruct(conn: &Connection, key: Key, messages: &[Message]) -> Result<()> {
    let messages = serde_json::to_string(messages).expect("raw JSON serialises");
    conn.prepare_cached("INSERT OR REPLACE INTO instructions (session, messages) VALUES (?1, ?2)")?
        .execute(params![key, messages])?;
    Ok(())
}

fn ask(conn: &Connection, key: Key, asked: &AskedRow) -> Result<()> {
    let approval = &asked.approval;
    conn.prepare_cached(
        "INSERT INTO approvals (id, session, turn_id, seq, nth, tool, input, state, created_at,
                                expires_at, about, definition)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        approval.approval_id.as_bytes(),
        key,
        approval.turn_id.as_bytes(),
        asked.place.0 as i64,
        asked.place.1,
        approval.tool_name,
        approval.tool_input.to_string(),
        approval.state.as_str(),
        millis(approval.created_at),
        millis(approval.expires_at),
        json(&AboutApproval::of(approval)),
        asked.definition,
    ])?;
    Ok(())
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data serialises")
}

fn attach(conn: &Connection, key: Key, row: &AttachmentRow) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO attachments (session, epoch, edge, joined, context, guest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        key,
        row.epoch as i64,
        row.edge.0.as_bytes(),
        row.joined,
        rows::context_text(&row.context)?,
        row.guest,
    ])?;
    Ok(())
}

fn device(conn: &Connection, key: Key, row: &DeviceRow) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO surfaces (session, surface_id, context, first_seen, last_seen, token_hash,
                               token_expires_at, delivered_seq)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (session, surface_id) DO UPDATE SET context = ?3, last_seen = ?5,
             token_hash = ?6, token_expires_at = ?7, delivered_seq = ?8",
    )?
    .execute(params![
        key,
        row.surface_id,
        rows::context_text(&row.context)?,
        millis(row.first_seen),
        // 0: it has never attached.
        row.last_seen.map_or(0, millis),
        row.token.map(|(hash, _)| hash.0),
        row.token.map(|(_, expires)| millis(expires)),
        row.delivered_seq.map(|seq| seq as i64),
    ])?;
    Ok(())
}
