//! Export, import, fork and lineage; import and fork each in one transaction (G7, G8).

use bowline_sbp::federation::MovedTether;
use bowline_sbp::id::{ExportId, Seq, SessionId, UserId};
use bowline_sbp::lifecycle::{Change, Status};
use bowline_sbp::session::Placed;
use bowline_sbp::surface::SurfaceContext;
use bowline_sbp::title::Titles;

use super::error::Attempt;
use super::history::{self, Base};
use super::pool::Connection;
use super::rows::{self, millis};
use super::sessions::{self, Known};
use super::text::stored;
use super::{Postgres, exports, keys, lineage, log, memory};
use crate::failpoint::pass_as;
use crate::log_end::LogEnd;
use crate::roaming::Kept;
use crate::size::whole;
use crate::{
    Derived, Edge, EdgeKind, Error, Export, Family, IdempotencyKey, MemoryOwner, NewExport,
    NewFork, NewImport, NewSession, Packed, Result, Roaming, Session, SnapshotKind,
};

/// A position in a log and its step count.
pub(super) type Point = (Seq, u64);

#[async_trait::async_trait]
impl Roaming for Postgres {
    async fn pack(&self, id: SessionId) -> Result<Option<Packed>> {
        self.pool.snapshot(move |db| async move { history::pack(&db, id).await }).await
    }

    async fn keep_export(&self, export: NewExport) -> Result<Export> {
        let export = &export;
        self.pool
            .write(move |tx| async move { exports::keep(&tx, export, self.writer).await })
            .await
    }

    async fn export(&self, id: ExportId) -> Result<Option<(Export, Option<Vec<u8>>)>> {
        self.pool.read(move |db| async move { exports::read(&db, id).await }).await
    }

    async fn exports(&self, session: SessionId) -> Result<Vec<Export>> {
        self.pool.read(move |db| async move { exports::list(&db, session).await }).await
    }

    async fn import(&self, new: NewImport) -> Result<Derived> {
        let new = &new;
        self.pool.write(move |tx| async move { import(&tx, new).await }).await
    }

    async fn made_under(&self, key: IdempotencyKey) -> Result<Option<(Derived, Edge)>> {
        let key = &key;
        self.pool
            .snapshot(move |db| async move {
                let Some(known) = sessions::known_key(&db, key).await? else { return Ok(None) };
                let made = replayed(&db, &known).await?;
                let edge = lineage::birth(&db, made.session.id).await?;
                Ok(edge.map(|edge| (made, edge)))
            })
            .await
    }

    async fn fork(&self, new: NewFork) -> Result<Derived> {
        let new = &new;
        self.pool.write(move |tx| async move { fork(&tx, new).await }).await
    }

    async fn family(&self, session: String, user: UserId, most: u32) -> Result<Family> {
        let session = &session;
        self.pool
            .snapshot(move |db| async move { lineage::family(&db, session, user, most).await })
            .await
    }
}

pub(super) async fn import(tx: &Connection, import: &NewImport) -> Attempt<Derived> {
    let new = &import.session;
    pass_as("import", "begin");
    if let Some(made) = made_before(tx, import.key.as_ref(), new).await? {
        return Ok(made);
    }
    let used_up = match import.consume {
        true => Some(import.export_id.ok_or(Error::NoExport)?),
        false => None,
    };
    if let Some(export) = used_up {
        exports::lock_unused(tx, export, new.at).await?;
    }
    let mut titles = Titles { given: import.title.clone(), automatic: None };
    import.entries.iter().for_each(|part| titles.see(part.entry.kind, &part.entry.message));
    let (mut end, mut entries) = (LogEnd::default(), Vec::new());
    // The cost of imported entries counts as `cost_usd` of the session, not as `spent_usd`.
    let tether = import.tether.as_ref();
    end.restore(import.step_count, import.entries.clone(), tether, |placed| {
        entries.push(placed);
        Ok::<_, Error>(())
    })?;
    end.take_snapshot((SnapshotKind::Checkpoint, import.snapshot), new.at);
    let status = status_with(!entries.is_empty())?;
    let made =
        Made { new, status, end: &end, delivered: end.last_seq, base: None, titles: &titles };
    insert(tx, &made, &entries).await?;
    if let Some(tether) = tether {
        take_tether(tx, new, tether).await?;
    }
    pass_as("import", "entries");
    if let Some(payload) = &import.carried {
        let sql = "INSERT INTO carried (session, payload) VALUES ($1, $2)";
        tx.execute(sql, &[&new.id.0, &stored(payload)]).await?;
    }
    pass_as("import", "carried");
    memory::remember(tx, &owner_of(import), &import.memories).await?;
    pass_as("import", "memories");
    if let Some(export) = used_up
        && !exports::use_up(tx, export, new.id, new.at).await?
    {
        return Err(Error::Consumed.into());
    }
    pass_as("import", "used-up");
    let edge = Edge {
        kind: import.kind,
        origin: import.origin.clone(),
        session: new.id.to_string(),
        export_id: import.export_id,
        detail: import.detail.clone(),
        at: new.at,
    };
    let point = (end.last_seq, end.step_count);
    let derived = derived(tx, new, point, &edge, import.key.as_ref()).await?;
    pass_as("import", "key");
    Ok(derived)
}

/// Whether a session that comes from another gateway could be imported now: its origin is asked to give it up after this.
pub(super) async fn check_import(tx: &Connection, import: &NewImport) -> Attempt<()> {
    if let Some(key) = &import.key
        && sessions::known_key(tx, key).await?.is_some()
    {
        return Err(Error::KeyReused.into());
    }
    memory::check_room(tx, &owner_of(import), &import.memories).await
}

/// Whose memory an import writes to.
fn owner_of(import: &NewImport) -> MemoryOwner {
    MemoryOwner { user: import.session.user, agent: import.session.agent_id.clone() }
}

/// The cursors of a session that comes from another gateway.
async fn take_tether(tx: &Connection, new: &NewSession, tether: &MovedTether) -> Attempt<()> {
    let context = serde_json::to_string(&SurfaceContext::default());
    let context = context.map_err(|_| Error::Corrupt("a surface that is not JSON".into()))?;
    for (device, seq) in &tether.devices {
        let sql = "INSERT INTO surfaces
                       (session, surface_id, context, first_seen, last_seen, delivered_seq)
                   SELECT id, $2::text, $3::text, $4::bigint, 0, least($5::bigint, last_seq)
                   FROM sessions WHERE id = $1";
        let seq = whole(*seq);
        tx.execute(sql, &[&new.id.0, &stored(device), &context, &millis(new.at), &seq]).await?;
    }
    let sql =
        "UPDATE sessions SET delivered_seq = least($2::bigint, last_seq), tether_done = coalesce((
                   SELECT max(tether_no) FROM entries WHERE session = $1 AND seq <= $2), 0)
               WHERE id = $1";
    tx.execute(sql, &[&new.id.0, &whole(tether.delivered)]).await?;
    Ok(())
}

async fn fork(tx: &Connection, fork: &NewFork) -> Attempt<Derived> {
    let mut new = NewSession {
        id: fork.id,
        token_hash: fork.token_hash,
        listed: false,
        user: bowline_sbp::access::OWNER,
        agent_id: bowline_sbp::id::AgentId::fallback(),
        metadata: String::new(),
        at: fork.at,
    };
    pass_as("fork", "begin");
    if let Some(made) = made_before(tx, fork.key.as_ref(), &new).await? {
        return Ok(made);
    }
    // Until the commit it cannot be deleted, nor what it shares with others (see `trunks`). Its owner
    // goes on writing.
    let lock = "SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE";
    tx.query_opt(lock, &[&fork.origin.0]).await?.ok_or(Error::NoSession)?;
    let origin = rows::existing(tx, fork.origin).await?;
    let point = match fork.at_step {
        None => (origin.last_seq, origin.step_count),
        Some(step) => (history::at_step(tx, &origin, step).await?, step),
    };
    new.user = origin.user;
    new.agent_id = origin.agent_id.clone();
    new.metadata = origin.metadata.clone();
    let Titles { given, automatic } = origin.titles.clone();
    let titles = Titles { given: fork.title.clone().or(given), automatic };
    let mut end = LogEnd { last_seq: point.0, step_count: point.1, ..LogEnd::default() };
    end.take_snapshot((SnapshotKind::Checkpoint, fork.snapshot), fork.at);
    branch(tx, &origin, point, &new, (&end, &[]), &titles).await?;
    pass_as("fork", "log");
    let edge = Edge {
        kind: EdgeKind::Fork,
        origin: origin.id.to_string(),
        session: new.id.to_string(),
        export_id: None,
        detail: fork.detail.clone(),
        at: fork.at,
    };
    let derived = derived(tx, &new, point, &edge, fork.key.as_ref()).await?;
    pass_as("fork", "key");
    Ok(derived)
}

/// Creates a session that shares the log of another one up to `point`, and has more entries of its
/// own. Carried data of that session is copied; its cost is not counted as spent here. The caller
/// has locked the row of the other session.
pub(super) async fn branch(
    tx: &Connection,
    origin: &Session,
    (seq, step): Point,
    new: &NewSession,
    (end, entries): (&LogEnd, &[Placed]),
    titles: &Titles,
) -> Attempt<()> {
    let base = history::base_at(tx, origin.id, seq).await?;
    let made = Made { new, status: status_with(step > 0)?, end, delivered: seq, base, titles };
    insert(tx, &made, entries).await?;
    for sql in [
        "INSERT INTO carried (session, payload)
         SELECT $1, payload FROM carried WHERE session = $2",
        "INSERT INTO instructions (session, messages)
         SELECT $1, messages FROM instructions WHERE session = $2
         ON CONFLICT (session) DO NOTHING",
    ] {
        tx.execute(sql, &[&new.id.0, &origin.id.0]).await?;
    }
    Ok(())
}

/// A session that is created with a history.
struct Made<'a> {
    new: &'a NewSession,
    status: Status,
    end: &'a LogEnd,
    delivered: Seq,
    base: Option<Base>,
    titles: &'a Titles,
}

async fn insert(tx: &Connection, made: &Made<'_>, entries: &[Placed]) -> Attempt<()> {
    let Made { new, status, end, delivered, base, titles } = made;
    let snapshot = end.snapshot.as_ref();
    let inserted = tx
        .execute(
            "INSERT INTO sessions
                 (id, token_hash, token_listed, user_id, agent_id, status, metadata, created_at,
                  updated_at, step_count, last_seq, delivered_seq, tether_last, cost_usd,
                  stored_bytes, snapshot_id, snapshot_seq, snapshot_at, snapshot_kind, base,
                  base_seq, title, auto_title)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                     $18, $19, $20, $21, $22)
             ON CONFLICT DO NOTHING",
            &[
                &new.id.0,
                &new.token_hash.0.as_slice(),
                &new.listed,
                &new.user.0,
                &new.agent_id.as_str(),
                &status.as_str(),
                &stored(&new.metadata),
                &millis(new.at),
                &(end.step_count as i64),
                &(end.last_seq as i64),
                &(*delivered as i64),
                &(end.tethered as i64),
                &end.cost_usd,
                &whole(end.added),
                &snapshot.map(|snapshot| snapshot.id.0),
                &snapshot.map(|snapshot| snapshot.seq as i64),
                &snapshot.map(|snapshot| millis(snapshot.at)),
                &snapshot.map(|snapshot| snapshot.kind.as_str()),
                &base.map(|(base, _)| base),
                &base.map(|(_, seq)| seq as i64),
                &titles.given.as_deref().map(stored),
                &titles.automatic.as_deref().map(stored),
            ],
        )
        .await?;
    // Session ids are random: a conflict means that the token exists.
    if inserted == 0 {
        return Err(Error::TokenTaken.into());
    }
    log::append(tx, new.id, entries).await
}

/// `Running` for a session with history, `Idle` for an empty one.
fn status_with(past: bool) -> Result<Status> {
    Ok(if past { Status::Idle.after(Change::TurnTaken)? } else { Status::Idle })
}

/// Writes the lineage edge of a new session, and the result of its idempotency key, which it has
/// claimed.
pub(super) async fn derived(
    tx: &Connection,
    new: &NewSession,
    point: Point,
    edge: &Edge,
    key: Option<&IdempotencyKey>,
) -> Attempt<Derived> {
    lineage::add(tx, edge, new.user).await?;
    if let Some(key) = key {
        let kept = Kept { point, export_id: edge.export_id };
        keys::keep_result(tx, key, &kept.to_json()?).await?;
    }
    let session = rows::existing(tx, new.id).await?;
    Ok(Derived { session, point, export_id: edge.export_id, replayed: false })
}

/// Claims the idempotency key for a new session; returns the session that an earlier request made
/// under it.
async fn made_before(
    tx: &Connection,
    key: Option<&IdempotencyKey>,
    new: &NewSession,
) -> Attempt<Option<Derived>> {
    let Some(key) = key else { return Ok(None) };
    match keys::claim(tx, key, new.id, new.at).await? {
        Some(known) => replayed(tx, &known).await.map(Some),
        None => Ok(None),
    }
}

/// The result of an earlier request with the same idempotency key.
async fn replayed(db: &Connection, known: &Known) -> Attempt<Derived> {
    // The key belongs to a turn, or to a new session: that was another request.
    let (None, Some(result)) = (known.turn_id, &known.result) else {
        return Err(Error::KeyReused.into());
    };
    let Kept { point, export_id } = Kept::of_json(result)?;
    let session = rows::existing(db, known.session).await?;
    Ok(Derived { session, point, export_id, replayed: true })
}
