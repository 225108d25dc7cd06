//! Sessions that move between gateways, and what is remembered of these.
//!
//! Each operation looks before it writes: what is refused by [`reservation`] is an answer, no error.

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
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::rows::{self, corrupt, millis, timestamp};
use super::{Sqlite, exports, roaming};
use crate::federation::{stage_of, stage_text, state_of, state_text};
use crate::{
    AnnouncedExport, AskReservation, Error, Export, Federation, Forward, KeptMigration, KeptPeer,
    KeptReservation, Moved, NewExport, NewImport, NewMigration, Reserving, Result,
};

/// The most rows deleted in one transaction.
const FORGOTTEN_AT_ONCE: u64 = 1000;

#[async_trait::async_trait]
impl Federation for Sqlite {
    async fn use_peer_token(&self, issuer: GatewayId, jti: Uuid, until: Timestamp) -> Result<bool> {
        self.writer
            .run(move |conn| {
                let sql = "INSERT INTO peer_tokens (issuer, jti, expires_at) VALUES (?1, ?2, ?3)
                           ON CONFLICT DO NOTHING";
                let added = conn.prepare_cached(sql)?.execute(params![
                    issuer.as_str(),
                    jti.as_bytes(),
                    millis(until)
                ])?;
                Ok(added == 1)
            })
            .await
    }

    async fn forget_peer_tokens(&self, before: Timestamp) -> Result<u64> {
        self.in_steps(FORGOTTEN_AT_ONCE, move |conn| {
            let sql = "DELETE FROM peer_tokens WHERE (issuer, jti) IN (
                           SELECT issuer, jti FROM peer_tokens WHERE expires_at < ?1 LIMIT ?2)";
            let all = params![millis(before), FORGOTTEN_AT_ONCE as i64];
            Ok(conn.prepare_cached(sql)?.execute(all)? as u64)
        })
        .await
    }

    async fn exports_with_cid(&self, cid: Cid, at: Timestamp) -> Result<Vec<Export>> {
        self.readers.ask(move |conn| exports::with_cid(conn, cid.as_bytes(), at)).await
    }

    async fn announced_exports(&self, at: Timestamp, most: u32) -> Result<Vec<AnnouncedExport>> {
        self.readers.ask(move |conn| exports::announced(conn, at, most)).await
    }

    async fn reserve(
        &self,
        ask: AskReservation,
        fresh: Option<(NewExport, Seq)>,
    ) -> Result<Reserving> {
        self.writer.run(move |conn| reserve(conn, &ask, fresh.as_ref())).await
    }

    async fn confirm_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        forward: Forward,
        at: Timestamp,
    ) -> Result<Result<KeptReservation, Refusal>> {
        self.writer.run(move |conn| confirm(conn, id, &peer, &forward, at)).await
    }

    async fn release_reservation(
        &self,
        id: ReservationId,
        peer: GatewayId,
        at: Timestamp,
    ) -> Result<Result<(), Refusal>> {
        self.writer.run(move |conn| release(conn, id, &peer, at)).await
    }

    async fn reservation(&self, id: ReservationId) -> Result<Option<KeptReservation>> {
        self.readers.ask(move |conn| find(conn, id)).await
    }

    async fn forward(&self, session: SessionId) -> Result<Option<Forward>> {
        self.readers
            .ask(move |conn| {
                let sql = "SELECT peer, url, moved_to FROM forwards WHERE session_id = ?1";
                let mut statement = conn.prepare_cached(sql)?;
                let mut rows = statement.query([session.as_bytes()])?;
                let Some(row) = rows.next()? else { return Ok(None) };
                Ok(Some(Forward {
                    peer: parsed(row, 0, "a gateway id")?,
                    url: parsed(row, 1, "a URL")?,
                    session: SessionId::from_bytes(row.get(2)?),
                }))
            })
            .await
    }

    async fn moved(&self, session: SessionId, most: u32) -> Result<Option<Moved>> {
        let Some(forward) = self.forward(session).await? else { return Ok(None) };
        self.readers
            .ask(move |conn| {
                let sql = "SELECT id FROM reservations
                           WHERE session_id = ?1 AND state = 'confirmed'";
                let reservation: Option<[u8; 16]> = conn
                    .prepare_cached(sql)?
                    .query_row([session.as_bytes()], |row| row.get(0))
                    .optional()?;
                let Some(reservation) = reservation else { return Ok(None) };
                let mut statement = conn.prepare_cached(
                    "SELECT k.key, k.turn_id FROM keys k JOIN sessions s ON s.key = k.session
                     WHERE s.id = ?1 AND k.scope = ?2 AND k.turn_id IS NOT NULL
                     ORDER BY k.created_at DESC, k.key DESC LIMIT ?3",
                )?;
                let scope = session.to_string();
                let found = statement
                    .query_map(params![session.as_bytes(), scope, most], |row| {
                        Ok((row.get(0)?, TurnId::from_bytes(row.get(1)?)))
                    })?;
                let accepted = found.collect::<std::result::Result<_, _>>()?;
                let reservation = ReservationId(Uuid::from_bytes(reservation));
                Ok(Some(Moved { forward, reservation, accepted }))
            })
            .await
    }

    async fn moved_tether(&self, session: SessionId) -> Result<MovedTether> {
        self.readers.ask(move |conn| moved_tether(conn, session)).await
    }

    async fn migration_of(
        &self,
        origin: GatewayId,
        export: ExportId,
    ) -> Result<Option<KeptMigration>> {
        self.readers
            .ask(move |conn| {
                let rest = "WHERE origin = ?1 AND export_id = ?2 AND stage <> 'dropped'";
                Ok(migrations(conn, rest, params![origin.as_str(), export.as_bytes()])?.pop())
            })
            .await
    }

    async fn begin_migration(&self, new: NewMigration) -> Result<KeptMigration> {
        self.writer.run(move |conn| begin(conn, &new)).await
    }

    async fn migration(&self, id: ReservationId) -> Result<Option<KeptMigration>> {
        self.readers.ask(move |conn| migration(conn, id)).await
    }

    async fn open_migrations(&self) -> Result<Vec<KeptMigration>> {
        self.readers
            .ask(|conn| {
                migrations(
                    conn,
                    "WHERE stage IN ('reserving', 'staged') ORDER BY created_at, id",
                    [],
                )
            })
            .await
    }

    async fn stage_migration(
        &self,
        id: ReservationId,
        bundle: Vec<u8>,
        import: NewImport,
    ) -> Result<Stage> {
        self.writer
            .run(move |conn| {
                if stage(conn, id)? == Stage::Reserving {
                    roaming::check_import(conn, &import)?;
                    advance(conn, id, Stage::Reserving, Stage::Staged)?;
                    let sql = "INSERT INTO staged (migration, bundle) VALUES (?1, ?2)";
                    conn.prepare_cached(sql)?.execute(params![id.0.as_bytes(), bundle])?;
                }
                stage(conn, id)
            })
            .await
    }

    async fn staged_bundle(&self, id: ReservationId) -> Result<Option<Vec<u8>>> {
        self.readers
            .ask(move |conn| {
                let sql = "SELECT bundle FROM staged WHERE migration = ?1";
                let mut statement = conn.prepare_cached(sql)?;
                Ok(statement.query_row([id.0.as_bytes()], |row| row.get(0)).optional()?)
            })
            .await
    }

    async fn activate_migration(&self, id: ReservationId, import: NewImport) -> Result<Stage> {
        self.writer
            .run(move |conn| {
                let now = stage(conn, id)?;
                if now != Stage::Staged {
                    return Ok(now);
                }
                let made = roaming::import(conn, import)?;
                // Another request made a session under the key: this one is not made by that.
                if made.replayed {
                    return Err(Error::KeyReused);
                }
                let made = made.session.id;
                advance(conn, id, Stage::Staged, Stage::Active)?;
                conn.prepare_cached("UPDATE migrations SET session_id = ?2 WHERE id = ?1")?
                    .execute(params![id.0.as_bytes(), made.as_bytes()])?;
                unstage(conn, id)?;
                stage(conn, id)
            })
            .await
    }

    async fn drop_migration(&self, id: ReservationId, from: Stage, why: Dropped) -> Result<Stage> {
        self.writer
            .erase(move |conn| {
                if advance(conn, id, from, Stage::Dropped(why))? {
                    unstage(conn, id)?;
                }
                stage(conn, id)
            })
            .await
    }

    async fn peer(&self, id: GatewayId) -> Result<Option<KeptPeer>> {
        self.readers
            .ask(move |conn| Ok(peers(conn, "WHERE gateway_id = ?1", [id.as_str()])?.pop()))
            .await
    }

    async fn peers(&self) -> Result<Vec<KeptPeer>> {
        self.readers.ask(|conn| peers(conn, "ORDER BY gateway_id", [])).await
    }

    async fn keep_peer(&self, peer: KeptPeer) -> Result<()> {
        self.writer.run(move |conn| keep_peer(conn, &peer)).await
    }

    async fn pin_peer(&self, peer: KeptPeer, before: Option<Pin>) -> Result<bool> {
        self.writer
            .run(move |conn| {
                let known = peers(conn, "WHERE gateway_id = ?1", [peer.id.as_str()])?.pop();
                let same = known.map(|known| known.pin) == before;
                if same {
                    keep_peer(conn, &peer)?;
                }
                Ok(same)
            })
            .await
    }

    async fn forget_peer(&self, id: GatewayId) -> Result<bool> {
        self.writer
            .run(move |conn| {
                let sql = "DELETE FROM peers WHERE gateway_id = ?1";
                Ok(conn.prepare_cached(sql)?.execute([id.as_str()])? == 1)
            })
            .await
    }
}

/// Whether a peer holds the token of that export at that time.
pub(super) fn is_reserved(conn: &Connection, export: ExportId, at: Timestamp) -> Result<bool> {
    let sql = "SELECT 1 FROM reservations
               WHERE export_id = ?1 AND state = 'reserved' AND expires_at > ?2";
    Ok(conn.prepare_cached(sql)?.exists(params![export.as_bytes(), millis(at)])?)
}

/// A column that may name a gateway.
pub(super) fn gateway_of(text: Option<String>) -> Result<Option<GatewayId>> {
    text.map(|text| text.parse().map_err(|_| corrupt("a gateway id"))).transpose()
}

/// The reservation that has not ended at that time, for the owner of the session.
pub(super) fn held(conn: &Connection, session: SessionId) -> Result<Option<(Uuid, Timestamp)>> {
    let rest = "WHERE session_id = ?1 AND state = 'reserved' ORDER BY expires_at DESC LIMIT 1";
    let kept = select(conn, rest, params![session.as_bytes()])?;
    Ok(kept.map(|kept| (kept.reservation.id.0, kept.reservation.until)))
}

fn moved_tether(conn: &Connection, id: SessionId) -> Result<MovedTether> {
    let (key, session) = rows::existing(conn, id)?;
    let delivered = session.delivered_seq;
    let mut devices = Vec::new();
    let mut statement = conn.prepare_cached(
        "SELECT surface_id, delivered_seq FROM surfaces
         WHERE session = ?1 AND delivered_seq < ?2 ORDER BY last_seen DESC, surface_id LIMIT ?3",
    )?;
    let mut found = statement.query(params![key, delivered as i64, MOST_MOVED_DEVICES as i64])?;
    while let Some(row) = found.next()? {
        devices.push((row.get(0)?, row.get::<_, i64>(1)? as Seq));
    }
    let from = devices.iter().map(|(_, seq)| *seq).min().unwrap_or(delivered);
    let mut statement = conn.prepare_cached(
        "SELECT place, turn_id FROM entries
         WHERE place > ?1 AND place < ?2 AND tether_no IS NOT NULL ORDER BY place DESC LIMIT ?3",
    )?;
    let (from, to) = (rows::place(key, from), rows::place(key + 1, 0));
    let mut found = statement.query(params![from, to, MOST_MOVED_TURNS as i64])?;
    let mut turns = Vec::new();
    while let Some(row) = found.next()? {
        turns.push((rows::seq_of(row.get(0)?), TurnId::from_bytes(row.get(1)?)));
    }
    turns.reverse();
    Ok(MovedTether { delivered, turns, devices })
}

fn reserve(
    conn: &Connection,
    ask: &AskReservation,
    fresh: Option<&(NewExport, Seq)>,
) -> Result<Reserving> {
    let Some((_, export)) = exports::find(conn, ask.export)? else {
        return Ok(Reserving::Refused(Refusal::Gone));
    };
    let own = find(conn, ask.id)?;
    if own.as_ref().is_some_and(|own| own.export != ask.export) {
        return Ok(Reserving::Refused(Refusal::Unknown));
    }
    let other = other(conn, export.session_id, ask.id)?;
    let session = session_facts(conn, export.session_id)?;
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
                end(conn, other)?;
            }
            if let Some((new, seq)) = fresh {
                exports::insert(conn, new)?;
                insert(conn, ask, new, *seq, until)?;
            }
        }
        Verdict::Renew { until } => {
            let sql = "UPDATE reservations SET expires_at = ?2 WHERE id = ?1";
            conn.prepare_cached(sql)?.execute(params![ask.id.0.as_bytes(), millis(until)])?;
        }
        Verdict::Refuse(why) | Verdict::EndAndRefuse(why) => return Ok(Reserving::Refused(why)),
        Verdict::Done | Verdict::Confirm | Verdict::End => {}
    }
    let kept = find(conn, ask.id)?;
    Ok(Reserving::Reserved(kept.ok_or_else(|| corrupt("a reservation that was just made"))?))
}

fn confirm(
    conn: &Connection,
    id: ReservationId,
    peer: &GatewayId,
    forward: &Forward,
    at: Timestamp,
) -> Result<Result<KeptReservation, Refusal>> {
    let Some(own) = find(conn, id)? else { return Ok(Err(Refusal::Unknown)) };
    let used = match exports::find(conn, own.export)? {
        Some((_, export)) => export.imported.is_some(),
        None => true,
    };
    let facts = Facts {
        own: Some(&own.reservation),
        other: None,
        session: session_facts(conn, own.session)?,
        token_used: used,
    };
    match reservation::decide(Ask::Confirm, peer, facts, at) {
        Verdict::Confirm => {}
        Verdict::EndAndRefuse(why) => {
            end(conn, &own)?;
            return Ok(Err(why));
        }
        Verdict::Refuse(why) => return Ok(Err(why)),
        _ => return Ok(Ok(own)),
    }
    let sql = "UPDATE reservations SET state = 'confirmed' WHERE id = ?1";
    conn.prepare_cached(sql)?.execute([id.0.as_bytes()])?;
    for export in [own.export, own.bundle] {
        // That the token was not used yet was decided above; no token leads to the export of the bundle.
        let _ = exports::use_up(conn, export, forward.session, at)?;
    }
    // Whoever owns the session here is fenced at its next commit.
    conn.prepare_cached(
        "UPDATE sessions SET handed_to = ?2, owner = NULL, fence = fence + 1, version = version + 1,
             status = CASE WHEN status IN ('idle', 'running') THEN 'suspended' ELSE status END,
             updated_at = ?3 WHERE id = ?1",
    )?
    .execute(params![own.session.as_bytes(), forward.session.as_bytes(), millis(at)])?;
    conn.prepare_cached(
        "INSERT OR REPLACE INTO forwards (session_id, peer, url, moved_to, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        own.session.as_bytes(),
        forward.peer.as_str(),
        forward.url.as_str(),
        forward.session.as_bytes(),
        millis(at)
    ])?;
    let kept = find(conn, id)?;
    Ok(Ok(kept.ok_or_else(|| corrupt("a reservation that was just confirmed"))?))
}

fn release(
    conn: &Connection,
    id: ReservationId,
    peer: &GatewayId,
    at: Timestamp,
) -> Result<Result<(), Refusal>> {
    let own = find(conn, id)?;
    let facts = Facts {
        own: own.as_ref().map(|own| &own.reservation),
        other: None,
        session: SessionFacts::Gone,
        token_used: false,
    };
    match (reservation::decide(Ask::Release, peer, facts, at), &own) {
        (Verdict::Refuse(why), _) => return Ok(Err(why)),
        (Verdict::End, Some(own)) => end(conn, own)?,
        _ => {}
    }
    Ok(Ok(()))
}

fn session_facts(conn: &Connection, id: SessionId) -> Result<SessionFacts> {
    let Some((key, session)) = rows::session(conn, id)? else { return Ok(SessionFacts::Gone) };
    let working = conn.prepare_cached("SELECT 1 FROM turns WHERE session = ?1")?.exists([key])?;
    Ok(match session.handed_to {
        Some(_) => SessionFacts::Gone,
        None if working => SessionFacts::Working,
        None => SessionFacts::Resting(session.last_seq),
    })
}

fn insert(
    conn: &Connection,
    ask: &AskReservation,
    bundle: &NewExport,
    last_seq: Seq,
    until: Timestamp,
) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO reservations (id, peer, session_id, export_id, bundle_id, cid, state,
             expires_at, last_seq, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        ask.id.0.as_bytes(),
        ask.peer.as_str(),
        bundle.session_id.as_bytes(),
        ask.export.as_bytes(),
        bundle.id.as_bytes(),
        bundle.cid,
        state_text(ReservationState::Reserved),
        millis(until),
        last_seq as i64,
        millis(ask.at),
    ])?;
    Ok(())
}

fn end(conn: &Connection, kept: &KeptReservation) -> Result<()> {
    let sql = "UPDATE reservations SET state = 'ended' WHERE id = ?1";
    conn.prepare_cached(sql)?.execute([kept.reservation.id.0.as_bytes()])?;
    exports::drop_bundle(conn, kept.bundle)
}

fn find(conn: &Connection, id: ReservationId) -> Result<Option<KeptReservation>> {
    select(conn, "WHERE id = ?1", params![id.0.as_bytes()])
}

/// The reservation of a session that has not ended, if it is not that one. A confirmed one first.
fn other(
    conn: &Connection,
    session: SessionId,
    own: ReservationId,
) -> Result<Option<KeptReservation>> {
    let rest = "WHERE session_id = ?1 AND id <> ?2 AND state <> 'ended' ORDER BY state LIMIT 1";
    select(conn, rest, params![session.as_bytes(), own.0.as_bytes()])
}

fn select(
    conn: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
) -> Result<Option<KeptReservation>> {
    let sql = format!(
        "SELECT id, peer, session_id, export_id, bundle_id, cid, state, expires_at, last_seq,
             created_at
         FROM reservations {rest}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(KeptReservation {
        reservation: Reservation {
            id: ReservationId(Uuid::from_bytes(row.get(0)?)),
            peer: parsed(row, 1, "a gateway id")?,
            state: state_of(&row.get::<_, String>(6)?)?,
            made: timestamp(row.get(9)?)?,
            until: timestamp(row.get(7)?)?,
            last_seq: row.get::<_, i64>(8)? as Seq,
        },
        session: SessionId::from_bytes(row.get(2)?),
        export: ExportId::from_bytes(row.get(3)?),
        bundle: ExportId::from_bytes(row.get(4)?),
        cid: Cid::from_bytes(row.get(5)?),
    }))
}

fn begin(conn: &Connection, new: &NewMigration) -> Result<KeptMigration> {
    let rest = "WHERE origin = ?1 AND export_id = ?2 AND stage <> 'dropped'";
    let known = migrations(conn, rest, params![new.origin.as_str(), new.export.as_bytes()])?;
    if let Some(known) = known.into_iter().next() {
        return Ok(known);
    }
    conn.prepare_cached(
        "INSERT INTO migrations (id, origin, export_id, user, request, stage, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        new.id.0.as_bytes(),
        new.origin.as_str(),
        new.export.as_bytes(),
        new.user.as_bytes(),
        new.request,
        stage_text(Stage::Reserving).0,
        millis(new.at),
    ])?;
    migration(conn, new.id)?.ok_or_else(|| corrupt("a migration that was just begun"))
}

fn advance(conn: &Connection, id: ReservationId, from: Stage, to: Stage) -> Result<bool> {
    let ((from, _), (to, why)) = (stage_text(from), stage_text(to));
    let sql = "UPDATE migrations SET stage = ?3, why = ?4 WHERE id = ?1 AND stage = ?2";
    let moved = conn.prepare_cached(sql)?.execute(params![id.0.as_bytes(), from, to, why])?;
    Ok(moved == 1)
}

fn unstage(conn: &Connection, id: ReservationId) -> Result<()> {
    let sql = "DELETE FROM staged WHERE migration = ?1";
    conn.prepare_cached(sql)?.execute([id.0.as_bytes()])?;
    Ok(())
}

fn stage(conn: &Connection, id: ReservationId) -> Result<Stage> {
    let kept = migration(conn, id)?;
    Ok(kept.ok_or_else(|| corrupt("a migration without a journal"))?.stage)
}

fn migration(conn: &Connection, id: ReservationId) -> Result<Option<KeptMigration>> {
    Ok(migrations(conn, "WHERE id = ?1", [id.0.as_bytes()])?.pop())
}

fn migrations(
    conn: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<KeptMigration>> {
    let sql = format!(
        "SELECT id, origin, export_id, user, request, stage, why, session_id, created_at
         FROM migrations {rest}"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (stage, why): (String, Option<String>) = (row.get(5)?, row.get(6)?);
        found.push(KeptMigration {
            id: ReservationId(Uuid::from_bytes(row.get(0)?)),
            origin: parsed(row, 1, "a gateway id")?,
            export: ExportId::from_bytes(row.get(2)?),
            user: UserId::from_bytes(row.get(3)?),
            request: row.get(4)?,
            stage: stage_of(&stage, why.as_deref())?,
            session: row.get::<_, Option<_>>(7)?.map(SessionId::from_bytes),
            at: timestamp(row.get(8)?)?,
        });
    }
    Ok(found)
}

fn peers(conn: &Connection, rest: &str, params: impl rusqlite::Params) -> Result<Vec<KeptPeer>> {
    let sql = format!("SELECT gateway_id, url, key, issued_at, shown FROM peers {rest}");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params)?;
    let key = |bytes: [u8; 32]| GatewayKey::from_bytes(&bytes).map_err(|_| corrupt("a key"));
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(KeptPeer {
            id: parsed(row, 0, "a gateway id")?,
            url: parsed(row, 1, "a URL")?,
            pin: Pin { key: key(row.get(2)?)?, issued_at: row.get(3)? },
            shown: row.get::<_, Option<_>>(4)?.map(key).transpose()?,
        });
    }
    Ok(found)
}

fn keep_peer(conn: &Connection, peer: &KeptPeer) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO peers (gateway_id, url, key, issued_at, shown)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    conn.prepare_cached(sql)?.execute(params![
        peer.id.as_str(),
        peer.url.as_str(),
        peer.pin.key.as_bytes(),
        peer.pin.issued_at,
        peer.shown.as_ref().map(GatewayKey::as_bytes),
    ])?;
    Ok(())
}

fn parsed<T: std::str::FromStr>(row: &Row<'_>, at: usize, what: &str) -> Result<T> {
    row.get::<_, String>(at)?.parse().map_err(|_| corrupt(what))
}
