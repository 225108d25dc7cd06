//! What other gateways are given: bundles by their content id, and reservations of sessions (SBP-L6-02, SBP-L6-05).
//!
//! What a peer may have is decided by [`may_fetch`], and what becomes of a reservation by the store's transaction
//! around [`bowline_sbp::federation::reservation`]. A session is reserved as it is then, not as it was when its token
//! was issued: whoever moves goes on with what was said last.
//!
//! Invariants
//! - Memory goes to a gateway only if the export names that gateway, or it may have everything.
//! - That an export names it counts only for a gateway that can be told from others of its id. Whoever says to be
//!   that one for the first time may be anybody.
//! - The key of a gateway is remembered before it is given anything, and not for having asked.

use bowline_sbp::bundle::{OpenError, Opened};
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::reservation::{Refusal, ReservationState};
use bowline_sbp::federation::{
    Allow, ExportFacts, FetchVerdict, ReservationId, ReservationRequest, Reserved, may_fetch,
};
use bowline_sbp::id::{Seq, SessionId};
use bowline_sbp::lifecycle::Change;
use bowline_sbp::roaming_token::LONGEST_TTL;
use bowline_sbp::session::Command;
use bowline_store::{
    AskReservation, Error, Export, Forward, KeptReservation, NewExport, Reserving,
};
use jiff::SignedDuration;

use super::super::{Deed, Engine, internal};
use super::export::too_large;
use crate::clock;
use crate::federation::{AskingGateway, Federation, GivenBundle};
use crate::session::SessionHandle;

/// How long the bundle of a reservation stays: a peer may ask for it again after a crash.
const KEPT: SignedDuration = SignedDuration::from_secs(LONGEST_TTL as i64);

/// Why a reservation is not made, confirmed or released.
#[derive(Debug)]
pub(crate) enum NotReserved {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Failure> for NotReserved {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for NotReserved {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// What a peer shows beside its federation token to have a bundle.
#[derive(Debug, Default)]
pub(crate) struct ShownForBundle {
    pub(crate) roaming_token: Option<String>,
    pub(crate) reservation: Option<ReservationId>,
}

impl Engine {
    /// The bundle with that content id, if the peer may have it.
    pub(crate) async fn give_bundle(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        cid: Cid,
        shown: ShownForBundle,
    ) -> Result<GivenBundle, Failure> {
        let allow = federation.allows(&peer.iss);
        // Before anything is read.
        if may_fetch(&peer.iss, allow, None) == FetchVerdict::Forbidden {
            return Err(given_nothing());
        }
        let now = clock::now();
        let by_token = match &shown.roaming_token {
            None => None,
            Some(token) => self.valid_token(token, now).await.ok().map(|claims| claims.sub),
        };
        let reserved = match shown.reservation {
            None => None,
            Some(id) => self.store.reservation(id).await?,
        };
        let holds = |kept: &KeptReservation| {
            kept.reservation.peer == peer.iss && kept.reservation.state != ReservationState::Ended
        };
        let by_reservation = reserved.filter(holds).map(|kept| kept.bundle);
        let is_sure = federation.is_sure_of(peer);
        let may = |export: &Export| {
            let has_token = by_reservation == Some(export.id)
                || by_token == Some(export.id) && export.imported.is_none();
            let exported_for = export.peer.as_ref().filter(|_| is_sure);
            let facts = ExportFacts { exported_for, has_token };
            let named = exported_for == Some(&peer.iss) || allow == Allow::All;
            may_fetch(&peer.iss, allow, Some(facts)) == FetchVerdict::Allowed
                && (named || !export.with_memory)
        };
        let found = self.store.exports_with_cid(cid, now).await?;
        let export = found.into_iter().find(may).ok_or_else(no_bundle)?;
        let permit = federation.giving.permit(&peer.iss)?;
        let kept = self.store.export(export.id).await?;
        let bundle = kept.and_then(|(_, bundle)| bundle).ok_or_else(no_bundle)?;
        let bundle = checked(bundle, cid).await?;
        federation.met(peer).await?;
        let what = format!("{} {} {}", export.session_id, export.id, peer.iss);
        self.audit.gateway_did(None, Deed::GiveBundle, what);
        Ok(GivenBundle::new(bundle, permit))
    }

    /// Reserves the session of a roaming token for a peer.
    pub(crate) async fn reserve(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        asked: ReservationRequest,
    ) -> Result<Reserved, NotReserved> {
        if !federation.may_reserve(&peer.iss) {
            return Err(given_nothing().into());
        }
        let now = clock::now();
        let claims = match self.reservation_of(peer, asked.reservation_id).await? {
            // The token was valid when it was reserved.
            Some(_) => self.own_token(&asked.roaming_token, now).await?,
            None => self.valid_token(&asked.roaming_token, now).await?,
        };
        let until = now.checked_add(federation.reservation).map_err(|_| internal())?;
        let ask = AskReservation {
            id: asked.reservation_id,
            peer: peer.iss.clone(),
            export: claims.sub,
            until,
            at: now,
        };
        let mut reserving = self.store.reserve(ask.clone(), None).await?;
        if let Reserving::NeedsBundle(session) = reserving {
            let _permit = federation.giving.permit(&peer.iss)?;
            let fresh = self.pack_for(federation, peer, &ask, session).await?;
            reserving = self.store.reserve(ask, Some(fresh)).await?;
        }
        match reserving {
            Reserving::Reserved(kept) => {
                self.met_by_reserving(federation, peer, &kept).await?;
                Ok(Reserved {
                    reservation_id: kept.reservation.id,
                    cid: kept.cid,
                    expires_at: kept.reservation.until,
                })
            }
            Reserving::Refused(why) => Err(NotReserved::Refused(why)),
            // It was there, and is not any more.
            Reserving::NeedsBundle(_) => Err(NotReserved::Refused(Refusal::Working)),
        }
    }

    /// Only whoever has reserved is remembered: a token may be shown under any number of names. One that is not
    /// remembered holds nothing.
    async fn met_by_reserving(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        kept: &KeptReservation,
    ) -> Result<(), NotReserved> {
        let Err(failure) = federation.met(peer).await else { return Ok(()) };
        let id = kept.reservation.id;
        let _ = self.store.release_reservation(id, peer.iss.clone(), clock::now()).await?;
        Err(failure.into())
    }

    /// The session that takes no new turns while that peer reserves it: not one whose token opens nothing any more.
    /// Also returns whether the reservation is a new one: the session is held for another one already, for as long as
    /// that lasts.
    pub(crate) async fn session_to_hold(
        &self,
        peer: &AskingGateway,
        asked: &ReservationRequest,
    ) -> Result<(SessionId, bool), NotReserved> {
        let now = clock::now();
        let known = self.reservation_of(peer, asked.reservation_id).await?;
        match known.map(|known| known.reservation.state) {
            Some(ReservationState::Ended) => Err(NotReserved::Refused(Refusal::Ended)),
            Some(ReservationState::Reserved | ReservationState::Confirmed) => {
                Ok((self.own_token(&asked.roaming_token, now).await?.sid, false))
            }
            None => {
                let claims = self.valid_token(&asked.roaming_token, now).await?;
                let giving = self.federation.as_ref().map(|federation| &federation.giving);
                let _permit = giving.map(|giving| giving.permit(&peer.iss)).transpose()?;
                match self.store.export(claims.sub).await? {
                    Some((export, _)) if export.imported.is_none() => Ok((claims.sid, true)),
                    Some(_) => Err(NotReserved::Refused(Refusal::Used)),
                    None => Err(NotReserved::Refused(Refusal::Gone)),
                }
            }
        }
    }

    /// The reservation with that id, if it is the peer's.
    async fn reservation_of(
        &self,
        peer: &AskingGateway,
        id: ReservationId,
    ) -> Result<Option<KeptReservation>, Error> {
        let kept = self.store.reservation(id).await?;
        Ok(kept.filter(|kept| kept.reservation.peer == peer.iss))
    }

    /// Whoever has a reservation may ask for what becomes of it.
    async fn met_with_reservation(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        id: ReservationId,
    ) -> Result<(), Failure> {
        match self.reservation_of(peer, id).await? {
            Some(_) => federation.met(peer).await,
            None => Ok(()),
        }
    }

    /// The bundle of a session as it is now, and the last entry in it.
    async fn pack_for(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        ask: &AskReservation,
        session: SessionId,
    ) -> Result<(NewExport, Seq), NotReserved> {
        let exported = self.store.export(ask.export).await?;
        let (exported, _) = exported.ok_or(Error::NoExport)?;
        let is_named = exported.peer.as_ref() == Some(&peer.iss) && federation.is_sure_of(peer);
        let memory = exported.with_memory && is_named;
        let packed = self.store.pack(session).await?.ok_or(Error::NoSession)?;
        let last_seq = packed.session.last_seq;
        let packed = self.with_blobs(packed).await?;
        let signer = Some(self.signer.identity());
        let bundle = self.bundle(packed, KEPT, exported.label, memory, signer).await?;
        if bundle.bundle.len() > self.limits.import_body {
            return Err(too_large(self.limits.import_body).into());
        }
        Ok((NewExport { peer: Some(peer.iss.clone()), ..bundle }, last_seq))
    }

    /// The session is the peer's from now on.
    pub(crate) async fn confirm_reservation(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        id: ReservationId,
        there: SessionId,
    ) -> Result<KeptReservation, NotReserved> {
        self.met_with_reservation(federation, peer, id).await?;
        let url = federation.peers.target(&peer.iss, &peer.url).url;
        let forward = Forward { peer: peer.iss.clone(), url, session: there };
        let now = clock::now();
        let confirmed = self.store.confirm_reservation(id, peer.iss.clone(), forward, now).await?;
        let kept = confirmed.map_err(NotReserved::Refused)?;
        let what = format!("{} {} {there}", kept.session, peer.iss);
        self.audit.gateway_did(None, Deed::MoveSession, what);
        metrics::counter!("bowline_sessions_moved_total").increment(1);
        self.announcements_changed();
        Ok(kept)
    }

    pub(crate) async fn release_reservation(
        &self,
        federation: &Federation,
        peer: &AskingGateway,
        id: ReservationId,
    ) -> Result<(), NotReserved> {
        self.met_with_reservation(federation, peer, id).await?;
        let released = self.store.release_reservation(id, peer.iss.clone(), clock::now()).await?;
        released.map_err(NotReserved::Refused)
    }
}

/// An actor of a session that has moved writes nothing any more, and does not know it until it tries. Of these two
/// changes it writes at least one; the next actor knows, and refuses both.
pub(crate) async fn end_stale_actor(session: SessionHandle) {
    for change in [Change::Resumed, Change::Suspend] {
        let _ = session.call(Command::SetStatus(change)).await;
    }
}

/// The bundle, if it has the content id under which it is stored.
async fn checked(bundle: Vec<u8>, cid: Cid) -> Result<Vec<u8>, Failure> {
    // Hashing a long history would block the async runtime.
    let checking = tokio::task::spawn_blocking(move || {
        let text = String::from_utf8(bundle).map_err(|_| OpenError::WrongCid)?;
        match Opened::read(&text) {
            Ok(opened) if opened.cid == cid => Ok(text.into_bytes()),
            Ok(_) => Err(OpenError::WrongCid),
            Err(error) => Err(error),
        }
    });
    checking.await.map_err(|_| internal())?.map_err(|error| {
        tracing::error!(%cid, %error, "a stored bundle is damaged and is not given away");
        no_bundle()
    })
}

/// A peer that may have nothing.
pub(crate) fn given_nothing() -> Failure {
    Failure::new(Code::Forbidden, "this gateway gives nothing to that one; see `federation.peers`")
}

fn no_bundle() -> Failure {
    Failure::new(Code::NotFound, "there is no such bundle here, or it is not for that gateway")
}
