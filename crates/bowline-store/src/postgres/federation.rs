//! Sessions that move between gateways, and what is remembered of these.
//!
//! Who reserves, confirms or releases locks the session's row first and the export of the roaming token then, as
//! whoever deletes a session does. So two of them are one after the other, and no commit of the session's owner comes
//! between the look and the write.

use std::sync::Arc;

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::migration::{Dropped, Stage};
use bowline_sbp::federation::reservation::{
    self, Ask, Facts, Refusal, Reservation, ReservationState, SessionFacts, Verdict,
};
use bowline_sbp::federation::wire::{MOST_MOVED_DEVICES, MOST_MOVED_TURNS};
use bowline_sbp::federation::{GatewayId, MovedTether, Pin, ReservationId};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_sbp::id::{ExportId, Seq, SessionId, TurnId, UserId};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Connection, Params};
use super::rows::{self, column, corrupt, millis};
use super::{Postgres, exports, roaming};
use crate::federation::{stage_of, stage_text, state_of, state_text};
use crate::{
    AnnouncedExport, AskReservation, Error, Export, Federation, Forward, KeptMigration, KeptPeer,
    KeptReservation, Moved, NewExport, NewImport, NewMigration, Reserving, Result,
};

/// The most rows deleted in one transaction.
const FORGOTTEN_AT_ONCE: u64 = 1000;

#[async_trait::async_trait]
impl Federation for Postgres {
    async fn use_peer_token(&self, issuer: GatewayId, jti: Uuid, until: Timestamp) -> Result<bool> {
        let issuer = &issuer;
        self.pool
            .write(move |tx| async move {
                let sql = "INSERT INTO peer_tokens (issuer, jti, expires_at) VALUES ($1, $2, $3)
                           ON CONFLICT DO NOTHING";
                let added = tx.execute(sql, &[&issuer.as_str(), &jti, &millis(until)]).await?;
                Ok(added == 1)
            })
            .await
    }

    async fn forget_peer_tokens(&self, before: Timestamp) -> Result<u64> {
        let step = move |tx: Arc<Connection>| async move {
            let sql = "DELETE FROM peer_tokens WHERE (issuer, jti) IN (
                           SELECT issuer, jti FROM peer_tokens WHERE expires_at < $1 LIMIT $2)";
            tx.execute(sql, &[&millis(before), &(FORGOTTEN_AT_ONCE as i64)]).await
        };
        self.in_steps(FORGOTTEN_AT_ONCE, step).await
    }

    async fn exports_with_cid(&self, cid: Cid, at: Timestamp) -> Result<Vec<Export>> {
        self.pool
            .snapshot(move |db| async move { exports::with_cid(&db, cid.as_bytes(), at).await })
            .await
    }

    async fn announced_exports(&self, at: Timestamp, most: u32) -> Result<Vec<AnnouncedExport>> {
        self.pool.snapshot(move |db| async move { exports::announced(&db, at, most).await }).await
    }

    async fn reserve(
        &self,
        ask: AskReservation,
        fresh: Option<(NewExport, Seq)>,
    ) -> Result<Reserving> {
        let (ask, fresh) = (&ask, fresh.as_ref());
        self.pool.write(move |tx| async move { reserve(&tx, ask, fresh).await }).await
    }

    async fn confirm_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        forward: Forward,
        at: Timestamp,
    ) -> Result<Result<KeptReservation, Refusal>> {
        let (peer, forward) = (&peer, &forward);
        self.pool.write(move |tx| async move { confirm(&tx, id, peer, forward, at).await }).await
    }

    async fn release_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        at: Timestamp,
    ) -> Result<Result<(), Refusal>> {
        let peer = &peer;
        self.pool.write(move |tx| async move { release(&tx, id, peer, at).await }).await
    }

    async fn reservation(&self, id: ReservationId) -> Result<Option<KeptReservation>> {
        self.pool.read(move |db| async move { find(&db, id).await }).await
    }

    async fn forward(&self, session: SessionId) -> Result<Option<Forward>> {
        self.pool
            .read(move |db| async move {
                let sql = "SELECT peer, url, moved_to FROM forwards WHERE session_id = $1";
                let Some(row) = db.query_opt(sql, &[&session.0]).await? else { return Ok(None) };
                Ok(Some(Forward {
                    peer: rows::parsed(&row, "peer", "a gateway id")?,
                    url: rows::parsed(&row, "url", "a URL")?,
                    session: SessionId(column(&row, "moved_to")?),
                }))
            })
            .await
    }

    async fn moved(&self, session: SessionId, most: u32) -> Result<Option<Moved>> {
        let Some(forward) = self.forward(session).await? else { return Ok(None) };
        let forward = &forward;
        self.pool
            .read(move |db| async move {
                let sql = "SELECT id FROM reservations
                           WHERE session_id = $1 AND state = 'confirmed'";
                let Some(row) = db.query_opt(sql, &[&session.0]).await? else { return Ok(None) };
                let sql = "SELECT key, turn_id FROM keys
                           WHERE session = $1 AND scope = $2 AND turn_id IS NOT NULL
                           ORDER BY created_at DESC, key DESC LIMIT $3";
                let scope = session.to_string();
                let accepted =
                    |row: &Row| Ok((rows::told(row, "key")?, TurnId(column(row, "turn_id")?)));
                let found = db.query(sql, &[&session.0, &scope, &i64::from(most)]).await?;
                Ok(Some(Moved {
                    forward: forward.clone(),
                    reservation: ReservationId(column(&row, "id")?),
                    accepted: found.iter().map(accepted).collect::<Attempt<_>>()?,
                }))
            })
            .await
    }

    async fn moved_tether(&self, session: SessionId) -> Result<MovedTether> {
        self.pool.snapshot(move |db| async move { moved_tether(&db, session).await }).await
    }

    async fn migration_of(
        &self,
        origin: GatewayId,
        export: ExportId,
    ) -> Result<Option<KeptMigration>> {
        let origin = &origin;
        self.pool
            .read(move |db| async move {
                let rest = "WHERE origin = $1 AND export_id = $2 AND stage <> 'dropped'";
                Ok(migrations(&db, rest, &[&origin.as_str(), &export.0]).await?.pop())
            })
            .await
    }

    async fn begin_migration(&self, new: NewMigration) -> Result<KeptMigration> {
        let new = &new;
        self.pool.write(move |tx| async move { begin(&tx, new).await }).await
    }

    async fn migration(&self, id: ReservationId) -> Result<Option<KeptMigration>> {
        self.pool.read(move |db| async move { migration(&db, id).await }).await
    }

    async fn open_migrations(&self) -> Result<Vec<KeptMigration>> {
        self.pool
            .read(move |db| async move {
                let rest = "WHERE stage IN ('reserving', 'staged') ORDER BY created_at, id";
                migrations(&db, rest, &[]).await
            })
            .await
    }

    async fn stage_migration(
        &self,
        id: ReservationId,
        bundle: Vec<u8>,
        import: NewImport,
    ) -> Result<Stage> {
        let (bundle, import) = (&bundle, &import);
        self.pool
            .write(move |tx| async move {
                if advance(&tx, id, Stage::Reserving, Stage::Staged).await? {
                    roaming::check_import(&tx, import).await?;
                    let sql = "INSERT INTO staged (migration, bundle) VALUES ($1, $2)";
                    tx.execute(sql, &[&id.0, bundle]).await?;
                }
                stage(&tx, id).await
            })
            .await
    }

    async fn staged_bundle(&self, id: ReservationId) -> Result<Option<Vec<u8>>> {
        self.pool
            .read(move |db| async move {
                let sql = "SELECT bundle FROM staged WHERE migration = $1";
                let row = db.query_opt(sql, &[&id.0]).await?;
                Ok(row.map(|row| row.try_get(0)).transpose()?)
            })
            .await
    }

    async fn activate_migration(&self, id: ReservationId, import: NewImport) -> Result<Stage> {
        let import = &import;
        self.pool
            .write(move |tx| async move {
                // Of several processes one makes the session.
                if !advance(&tx, id, Stage::Staged, Stage::Active).await? {
                    return stage(&tx, id).await;
                }
                let made = roaming::import(&tx, import).await?;
                // Another request made a session under the key: this one is not made by that.
                if made.replayed {
                    return Err(Error::KeyReused.into());
                }
                let made = made.session.id;
                let sql = "UPDATE migrations SET session_id = $2 WHERE id = $1";
                tx.execute(sql, &[&id.0, &made.0]).await?;
                unstage(&tx, id).await?;
                stage(&tx, id).await
            })
            .await
    }

    async fn drop_migration(&self, id: ReservationId, from: Stage, why: Dropped) -> Result<Stage> {
        self.pool
            .write(move |tx| async move {
                if advance(&tx, id, from, Stage::Dropped(why)).await? {
                    unstage(&tx, id).await?;
                }
                stage(&tx, id).await
            })
            .await
    }

    async fn peer(&self, id: GatewayId) -> Result<Option<KeptPeer>> {
        let id = &id;
        self.pool
            .read(move |db| async move {
                Ok(peers(&db, "WHERE gateway_id = $1", &[&id.as_str()]).await?.pop())
            })
            .await
    }

    async fn peers(&self) -> Result<Vec<KeptPeer>> {
        self.pool.read(|db| async move { peers(&db, "ORDER BY gateway_id", &[]).await }).await
    }

    async fn keep_peer(&self, peer: KeptPeer) -> Result<()> {
        let peer = &peer;
        self.pool
            .write(move |tx| async move {
                let sql = "INSERT INTO peers (gateway_id, url, key, issued_at, shown)
                           VALUES ($1, $2, $3, $4, $5)
                           ON CONFLICT (gateway_id) DO UPDATE SET url = excluded.url,
                               key = excluded.key, issued_at = excluded.issued_at,
                               shown = excluded.shown";
                write_peer(&tx, sql, peer).await.map(|_| ())
            })
            .await
    }

    async fn pin_peer(&self, peer: KeptPeer, before: Option<Pin>) -> Result<bool> {
        let peer = &peer;
        self.pool
            .write(move |tx| async move {
                let rest = "WHERE gateway_id = $1 FOR UPDATE";
                let known = peers(&tx, rest, &[&peer.id.as_str()]).await?.pop();
                if known.as_ref().map(|known| known.pin) != before {
                    return Ok(false);
                }
                let sql = match known {
                    Some(_) => {
                        "UPDATE peers SET url = $2, key = $3, issued_at = $4, shown = $5
                         WHERE gateway_id = $1"
                    }
                    None => {
                        "INSERT INTO peers (gateway_id, url, key, issued_at, shown)
                         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
                    }
                };
                Ok(write_peer(&tx, sql, peer).await? == 1)
            })
            .await
    }

    async fn forget_peer(&self, id: GatewayId) -> Result<bool> {
        let id = &id;
        self.pool
            .write(move |tx| async move {
                let sql = "DELETE FROM peers WHERE gateway_id = $1";
                Ok(tx.execute(sql, &[&id.as_str()]).await? == 1)
            })
            .await
    }
}

/// Whether a peer holds the token of that export at that time. The caller has locked the export.
pub(super) async fn is_reserved(tx: &Connection, export: ExportId, at: Timestamp) -> Attempt<bool> {
    let sql = "SELECT 1 FROM reservations
               WHERE export_id = $1 AND state = 'reserved' AND expires_at > $2 LIMIT 1";
    Ok(tx.query_opt(sql, &[&export.0, &millis(at)]).await?.is_some())
}

/// A column that may name a gateway.
pub(super) fn gateway_of(text: Option<&str>) -> Attempt<Option<GatewayId>> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|_| corrupt("a gateway id").into())
}

/// Locks a session, if it is there, until the end of the transaction.
async fn lock(tx: &Connection, session: SessionId) -> Attempt<()> {
    tx.query_opt("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", &[&session.0]).await.map(|_| ())
}

async fn reserve(
    tx: &Connection,
    ask: &AskReservation,
    fresh: Option<&(NewExport, Seq)>,
) -> Attempt<Reserving> {
    let gone = Ok(Reserving::Refused(Refusal::Gone));
    let Some((_, export)) = exports::find(tx, ask.export).await? else { return gone };
    lock(tx, export.session_id).await?;
    let Some(export) = exports::locked(tx, ask.export).await? else { return gone };
    let own = find(tx, ask.id).await?;
    if own.as_ref().is_some_and(|own| own.export != ask.export) {
        return Ok(Reserving::Refused(Refusal::Unknown));
    }
    let other = other(tx, export.session_id, ask.id).await?;
    let session = session_facts(tx, export.session_id).await?;
    let facts = Facts {
        own: own.as_ref().map(|own| &own.reservation),
        other: other.as_ref().map(|other| &other.reservation),
        session,
        token_used: export.imported.is_some(),
    };
    let until = ask.until;
    match reservation::decide(Ask::Reserve { until }, &ask.peer, facts, ask.at) {
        Verdict::Reserve { .. } if fresh.is_none() => {
            return Ok(Reserving::NeedsBundle(export.session_id));
        }
        // The session went on while it was packed.
        Verdict::Reserve { .. }
            if fresh.is_none_or(|(_, seq)| session != SessionFacts::Resting(*seq)) =>
        {
            return Ok(Reserving::Refused(Refusal::Working));
        }
        Verdict::Reserve { until, .. } => {
            if let Some(other) = &other {
                end(tx, other).await?;
            }
            if let Some((new, seq)) = fresh {
                exports::insert(tx, new).await?;
                insert(tx, ask, new, *seq, until).await?;
            }
        }
        Verdict::Renew { until } => {
            let sql = "UPDATE reservations SET expires_at = $2 WHERE id = $1";
            tx.execute(sql, &[&ask.id.0, &millis(until)]).await?;
        }
        Verdict::Refuse(why) | Verdict::EndAndRefuse(why) => return Ok(Reserving::Refused(why)),
        Verdict::Done | Verdict::Confirm | Verdict::End => {}
    }
    let kept = find(tx, ask.id).await?;
    Ok(Reserving::Reserved(kept.ok_or_else(|| corrupt("a reservation that was just made"))?))
}

/// The reservation that has not ended, for the owner of the session.
pub(super) async fn held(
    db: &Connection,
    session: SessionId,
) -> Attempt<Option<(Uuid, Timestamp)>> {
    let rest = "WHERE session_id = $1 AND state = 'reserved' ORDER BY expires_at DESC LIMIT 1";
    let kept = select(db, rest, &[&session.0]).await?;
    Ok(kept.map(|kept| (kept.reservation.id.0, kept.reservation.until)))
}

async fn moved_tether(db: &Connection, id: SessionId) -> Attempt<MovedTether> {
    let delivered = rows::existing(db, id).await?.delivered_seq;
    let sql = "SELECT surface_id, delivered_seq FROM surfaces
               WHERE session = $1 AND delivered_seq < $2
               ORDER BY last_seen DESC, surface_id LIMIT $3";
    let most = MOST_MOVED_DEVICES as i64;
    let device =
        |row: &Row| Ok((rows::told(row, "surface_id")?, rows::number(row, "delivered_seq")?));
    let found = db.query(sql, &[&id.0, &(delivered as i64), &most]).await?;
    let devices: Vec<(String, Seq)> = found.iter().map(device).collect::<Attempt<_>>()?;
    let from = devices.iter().map(|(_, seq)| *seq).min().unwrap_or(delivered);
    let sql = "SELECT seq, turn_id FROM entries
               WHERE session = $1 AND seq > $2 AND tether_no IS NOT NULL
               ORDER BY seq DESC LIMIT $3";
    let most = MOST_MOVED_TURNS as i64;
    let turn = |row: &Row| Ok((rows::number(row, "seq")?, TurnId(column(row, "turn_id")?)));
    let found = db.query(sql, &[&id.0, &(from as i64), &most]).await?;
    let turns = found.iter().rev().map(turn).collect::<Attempt<_>>()?;
    Ok(MovedTether { delivered, turns, devices })
}

async fn confirm(
    tx: &Connection,
    id: ReservationId,
    peer: &GatewayId,
    forward: &Forward,
    at: Timestamp,
) -> Attempt<Result<KeptReservation, Refusal>> {
    let Some(own) = locked(tx, id).await? else { return Ok(Err(Refusal::Unknown)) };
    let export = exports::locked(tx, own.export).await?;
    let facts = Facts {
        own: Some(&own.reservation),
        other: None,
        session: session_facts(tx, own.session).await?,
        token_used: export.is_none_or(|export| export.imported.is_some()),
    };
    match reservation::decide(Ask::Confirm, peer, facts, at) {
        Verdict::Confirm => {}
        Verdict::EndAndRefuse(why) => {
            end(tx, &own).await?;
            return Ok(Err(why));
        }
        Verdict::Refuse(why) => return Ok(Err(why)),
        _ => return Ok(Ok(own)),
    }
    tx.execute("UPDATE reservations SET state = 'confirmed' WHERE id = $1", &[&id.0]).await?;
    // That the token was not used yet was decided above; no token leads to the export of the bundle.
    for export in [own.export, own.bundle] {
        let _ = exports::use_up(tx, export, forward.session, at).await?;
    }
    // Whoever owns the session here is fenced at its next commit.
    tx.execute(
        "UPDATE sessions SET handed_to = $2, owner = NULL, fence = fence + 1, version = version + 1,
             status = CASE WHEN status IN ('idle', 'running') THEN 'suspended' ELSE status END,
             updated_at = $3 WHERE id = $1",
        &[&own.session.0, &forward.session.0, &millis(at)],
    )
    .await?;
    tx.execute(
        "INSERT INTO forwards (session_id, peer, url, moved_to, created_at)
         VALUES ($1, $2, $3, $4, $5)",
        &[
            &own.session.0,
            &forward.peer.as_str(),
            &forward.url.as_str(),
            &forward.session.0,
            &millis(at),
        ],
    )
    .await?;
    let kept = find(tx, id).await?;
    Ok(Ok(kept.ok_or_else(|| corrupt("a reservation that was just confirmed"))?))
}

async fn release(
    tx: &Connection,
    id: ReservationId,
    peer: &GatewayId,
    at: Timestamp,
) -> Attempt<Result<(), Refusal>> {
    let own = locked(tx, id).await?;
    let facts = Facts {
        own: own.as_ref().map(|own| &own.reservation),
        other: None,
        session: SessionFacts::Gone,
        token_used: false,
    };
    match (reservation::decide(Ask::Release, peer, facts, at), &own) {
        (Verdict::Refuse(why), _) => return Ok(Err(why)),
        (Verdict::End, Some(own)) => end(tx, own).await?,
        _ => {}
    }
    Ok(Ok(()))
}

/// A reservation as it is once its session is locked.
async fn locked(tx: &Connection, id: ReservationId) -> Attempt<Option<KeptReservation>> {
    let Some(seen) = find(tx, id).await? else { return Ok(None) };
    lock(tx, seen.session).await?;
    select(tx, "WHERE id = $1 FOR UPDATE", &[&id.0]).await
}

async fn session_facts(tx: &Connection, id: SessionId) -> Attempt<SessionFacts> {
    let Some(session) = rows::session(tx, id).await? else { return Ok(SessionFacts::Gone) };
    let turn = tx.query_opt("SELECT 1 FROM turns WHERE session = $1 LIMIT 1", &[&id.0]).await?;
    Ok(match session.handed_to {
        Some(_) => SessionFacts::Gone,
        None if turn.is_some() => SessionFacts::Working,
        None => SessionFacts::Resting(session.last_seq),
    })
}

async fn insert(
    tx: &Connection,
    ask: &AskReservation,
    bundle: &NewExport,
    last_seq: Seq,
    until: Timestamp,
) -> Attempt<()> {
    tx.execute(
        "INSERT INTO reservations (id, peer, session_id, export_id, bundle_id, cid, state,
             expires_at, last_seq, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        &[
            &ask.id.0,
            &ask.peer.as_str(),
            &bundle.session_id.0,
            &ask.export.0,
            &bundle.id.0,
            &bundle.cid.as_slice(),
            &state_text(ReservationState::Reserved),
            &millis(until),
            &(last_seq as i64),
            &millis(ask.at),
        ],
    )
    .await
    .map(|_| ())
}

async fn end(tx: &Connection, kept: &KeptReservation) -> Attempt<()> {
    let sql = "UPDATE reservations SET state = 'ended' WHERE id = $1";
    tx.execute(sql, &[&kept.reservation.id.0]).await?;
    exports::drop_bundle(tx, kept.bundle).await
}

async fn find(db: &Connection, id: ReservationId) -> Attempt<Option<KeptReservation>> {
    select(db, "WHERE id = $1", &[&id.0]).await
}

/// The reservation of a session that has not ended, if it is not that one. A confirmed one first.
async fn other(
    db: &Connection,
    session: SessionId,
    own: ReservationId,
) -> Attempt<Option<KeptReservation>> {
    let rest = "WHERE session_id = $1 AND id <> $2 AND state <> 'ended' ORDER BY state LIMIT 1";
    select(db, rest, &[&session.0, &own.0]).await
}

async fn select(
    db: &Connection,
    rest: &str,
    params: Params<'_>,
) -> Attempt<Option<KeptReservation>> {
    let sql = format!(
        "SELECT id, peer, session_id, export_id, bundle_id, cid, state, expires_at, last_seq,
             created_at
         FROM reservations {rest}"
    );
    let Some(row) = db.query_opt(&sql, params).await? else { return Ok(None) };
    Ok(Some(KeptReservation {
        reservation: Reservation {
            id: ReservationId(column(&row, "id")?),
            peer: rows::parsed(&row, "peer", "a gateway id")?,
            state: state_of(column(&row, "state")?)?,
            made: rows::time(&row, "created_at")?,
            until: rows::time(&row, "expires_at")?,
            last_seq: rows::number(&row, "last_seq")?,
        },
        session: SessionId(column(&row, "session_id")?),
        export: ExportId(column(&row, "export_id")?),
        bundle: ExportId(column(&row, "bundle_id")?),
        cid: Cid::from_bytes(rows::hash(&row, "cid")?),
    }))
}

async fn begin(tx: &Connection, new: &NewMigration) -> Attempt<KeptMigration> {
    let inserted = tx
        .execute(
            "INSERT INTO migrations (id, origin, export_id, user_id, request, stage, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
            &[
                &new.id.0,
                &new.origin.as_str(),
                &new.export.0,
                &new.user.0,
                &new.request,
                &stage_text(Stage::Reserving).0,
                &millis(new.at),
            ],
        )
        .await?;
    let kept = match inserted {
        1 => migration(tx, new.id).await?,
        _ => {
            let rest = "WHERE origin = $1 AND export_id = $2 AND stage <> 'dropped'";
            migrations(tx, rest, &[&new.origin.as_str(), &new.export.0]).await?.pop()
        }
    };
    // None: the other one was dropped between the two statements.
    kept.ok_or(super::error::Fault::Changed)
}

async fn advance(tx: &Connection, id: ReservationId, from: Stage, to: Stage) -> Attempt<bool> {
    let ((from, _), (to, why)) = (stage_text(from), stage_text(to));
    let sql = "UPDATE migrations SET stage = $3, why = $4 WHERE id = $1 AND stage = $2";
    Ok(tx.execute(sql, &[&id.0, &from, &to, &why]).await? == 1)
}

async fn unstage(tx: &Connection, id: ReservationId) -> Attempt<()> {
    tx.execute("DELETE FROM staged WHERE migration = $1", &[&id.0]).await.map(|_| ())
}

async fn stage(db: &Connection, id: ReservationId) -> Attempt<Stage> {
    let kept = migration(db, id).await?;
    Ok(kept.ok_or_else(|| corrupt("a migration without a journal"))?.stage)
}

async fn migration(db: &Connection, id: ReservationId) -> Attempt<Option<KeptMigration>> {
    Ok(migrations(db, "WHERE id = $1", &[&id.0]).await?.pop())
}

async fn migrations(
    db: &Connection,
    rest: &str,
    params: Params<'_>,
) -> Attempt<Vec<KeptMigration>> {
    let sql = format!(
        "SELECT id, origin, export_id, user_id, request, stage, why, session_id, created_at
         FROM migrations {rest}"
    );
    let migration_of = |row: &Row| {
        Ok(KeptMigration {
            id: ReservationId(column(row, "id")?),
            origin: rows::parsed(row, "origin", "a gateway id")?,
            export: ExportId(column(row, "export_id")?),
            user: UserId(column(row, "user_id")?),
            request: column(row, "request")?,
            stage: stage_of(column(row, "stage")?, column(row, "why")?)?,
            session: column::<Option<Uuid>>(row, "session_id")?.map(SessionId),
            at: rows::time(row, "created_at")?,
        })
    };
    db.query(&sql, params).await?.iter().map(migration_of).collect()
}

async fn peers(db: &Connection, rest: &str, params: Params<'_>) -> Attempt<Vec<KeptPeer>> {
    let sql = format!("SELECT gateway_id, url, key, issued_at, shown FROM peers {rest}");
    let key = |bytes: [u8; 32]| GatewayKey::from_bytes(&bytes).map_err(|_| corrupt("a key"));
    let peer_of = |row: &Row| {
        Ok(KeptPeer {
            id: rows::parsed(row, "gateway_id", "a gateway id")?,
            url: rows::parsed(row, "url", "a URL")?,
            pin: Pin { key: key(rows::hash(row, "key")?)?, issued_at: column(row, "issued_at")? },
            shown: rows::some_hash(row, "shown")?.map(key).transpose()?,
        })
    };
    db.query(&sql, params).await?.iter().map(peer_of).collect()
}

/// Runs a statement with a row of `peers`; returns how many rows it wrote.
async fn write_peer(tx: &Connection, sql: &str, peer: &KeptPeer) -> Attempt<u64> {
    let shown = peer.shown.as_ref().map(|key| key.as_bytes().as_slice());
    let KeptPeer { id, url, pin, .. } = peer;
    let key = pin.key.as_bytes().as_slice();
    tx.execute(sql, &[&id.as_str(), &url.as_str(), &key, &pin.issued_at, &shown]).await
}
