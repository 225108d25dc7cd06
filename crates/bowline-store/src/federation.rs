//! Sessions that move to other gateways and come from there, and what is known of these gateways.
//!
//! What may happen is decided in [`bowline_sbp::federation`]; a backend reads the facts and writes the verdict in
//! one transaction.

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::migration::{Dropped, Stage};
use bowline_sbp::federation::reservation::{Refusal, Reservation, ReservationState};
use bowline_sbp::federation::{BaseUrl, GatewayId, Pin, ReservationId};
use bowline_sbp::gateway_key::GatewayKey;
use bowline_sbp::id::{ExportId, SessionId, TurnId, UserId};
use jiff::Timestamp;

use crate::{Error, Result};

/// What a peer asks for when it reserves a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskReservation {
    pub id: ReservationId,
    pub peer: GatewayId,
    /// That of the roaming token.
    pub export: ExportId,
    /// When the reservation ends, unless it is confirmed.
    pub until: Timestamp,
    pub at: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserving {
    Reserved(KeptReservation),
    Refused(Refusal),
    /// The bundle of this session is needed. Nothing was written.
    NeedsBundle(SessionId),
}

/// A stored reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReservation {
    pub reservation: Reservation,
    pub session: SessionId,
    /// That of the roaming token.
    pub export: ExportId,
    /// The one with the reserved bundle.
    pub bundle: ExportId,
    pub cid: Cid,
}

/// Where a session went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub peer: GatewayId,
    pub url: BaseUrl,
    /// Its id there.
    pub session: SessionId,
}

/// What a surface of a session that moved is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub forward: Forward,
    /// The one by which it moved.
    pub reservation: ReservationId,
    /// Messages of surfaces that became turns here, by their idempotency keys: the newest first.
    pub accepted: Vec<(String, TurnId)>,
}

/// A session that is to come from another gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMigration {
    pub id: ReservationId,
    pub origin: GatewayId,
    /// That of the roaming token, at the origin.
    pub export: ExportId,
    pub user: UserId,
    /// What was asked for: a JSON object.
    pub request: String,
    pub at: Timestamp,
}

/// The journal of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptMigration {
    pub id: ReservationId,
    pub origin: GatewayId,
    pub export: ExportId,
    pub user: UserId,
    pub request: String,
    pub stage: Stage,
    /// The session that it made.
    pub session: Option<SessionId>,
    pub at: Timestamp,
}

/// What is remembered of another gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPeer {
    pub id: GatewayId,
    pub url: BaseUrl,
    pub pin: Pin,
    /// Another key that was shown, and waits for a person.
    pub shown: Option<GatewayKey>,
}

/// An export of which trackers are told, and that has not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnnouncedExport {
    pub cid: Cid,
    pub expires_at: Timestamp,
    /// It can still be used: its token is unused, its bundle is there, and its session is still here.
    pub is_open: bool,
}

/// How a state is stored.
pub(crate) fn state_text(state: ReservationState) -> &'static str {
    match state {
        ReservationState::Reserved => "reserved",
        ReservationState::Confirmed => "confirmed",
        ReservationState::Ended => "ended",
    }
}

pub(crate) fn state_of(text: &str) -> Result<ReservationState> {
    [ReservationState::Reserved, ReservationState::Confirmed, ReservationState::Ended]
        .into_iter()
        .find(|state| state_text(*state) == text)
        .ok_or_else(|| Error::Corrupt("the state of a reservation".into()))
}

/// How stages are stored: the stage, and why it was dropped.
const STAGES: [(Stage, &str, Option<&str>); 13] = [
    (Stage::Reserving, "reserving", None),
    (Stage::Staged, "staged", None),
    (Stage::Active, "active", None),
    (Stage::Dropped(Dropped::Unfit), DROPPED, Some("unfit")),
    (Stage::Dropped(Dropped::GaveUp), DROPPED, Some("gave-up")),
    (Stage::Dropped(Dropped::Refused(Refusal::Reserved)), DROPPED, Some("reserved")),
    (Stage::Dropped(Dropped::Refused(Refusal::Working)), DROPPED, Some("working")),
    (Stage::Dropped(Dropped::Refused(Refusal::Used)), DROPPED, Some("used")),
    (Stage::Dropped(Dropped::Refused(Refusal::Gone)), DROPPED, Some("gone")),
    (Stage::Dropped(Dropped::Refused(Refusal::Ended)), DROPPED, Some("ended")),
    (Stage::Dropped(Dropped::Refused(Refusal::Changed)), DROPPED, Some("changed")),
    (Stage::Dropped(Dropped::Refused(Refusal::Unknown)), DROPPED, Some("unknown")),
    (Stage::Dropped(Dropped::Refused(Refusal::Confirmed)), DROPPED, Some("confirmed")),
];
const DROPPED: &str = "dropped";

pub(crate) fn stage_text(stage: Stage) -> (&'static str, Option<&'static str>) {
    let row = STAGES.iter().find(|(known, ..)| *known == stage);
    let (_, stage, why) = row.expect("the table has all stages");
    (stage, *why)
}

pub(crate) fn stage_of(stage: &str, why: Option<&str>) -> Result<Stage> {
    let row = STAGES.iter().find(|(_, text, reason)| *text == stage && *reason == why);
    let unknown = || Error::Corrupt("the stage of a migration".into());
    row.map(|(stage, ..)| *stage).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_and_state_is_read_as_it_is_stored() {
        for (stage, text, why) in STAGES {
            assert_eq!(stage_text(stage), (text, why));
            assert_eq!(stage_of(text, why), Ok(stage));
        }
        assert!(stage_of("dropped", None).is_err());
        for state in
            [ReservationState::Reserved, ReservationState::Confirmed, ReservationState::Ended]
        {
            assert_eq!(state_of(state_text(state)), Ok(state));
        }
    }
}
