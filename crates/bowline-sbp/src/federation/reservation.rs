//! The origin's half of a migration: who may take a session to another gateway (SBP-L6-05, G7).
//!
//! A peer reserves the session with its roaming token, fetches and stores the bundle, and confirms.
//! The confirmation is the moment at which the session changes its owner. Pure: whoever keeps
//! reservations reads the [`Facts`], asks [`decide`], and writes the verdict in the same
//! transaction.
//!
//! Invariants
//! - At most one reservation of a session is reserved, and at most one was ever confirmed.
//! - A reservation that has ended never comes back, whatever copies of old requests arrive: a peer
//!   that was refused may delete what it has stored.
//! - A confirmation counts only if the peer has all that the session has. So nothing is lost, even
//!   if the session went on meanwhile.
//! - Time decides only when another peer may take a reservation's place.
//! - Nobody keeps others from the session for longer than [`LONGEST_RENEWED`] with one reservation. Its peer loses
//!   nothing by that: a confirmation counts after its time, too.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::gateway_id::GatewayId;
use super::wire::ReservationId;
use crate::id::Seq;

/// How long after it was made a reservation is renewed at most: longer than the largest bundle may take.
pub const LONGEST_RENEWED: SignedDuration = SignedDuration::from_mins(10);

/// A reservation, as the origin keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub id: ReservationId,
    pub peer: GatewayId,
    pub state: ReservationState,
    pub made: Timestamp,
    /// From then on another one may take its place.
    pub until: Timestamp,
    /// The last entry of the session that is in the reserved bundle.
    pub last_seq: Seq,
}

impl Reservation {
    /// Its end when it is renewed until then.
    fn renewed(&self, until: Timestamp) -> Timestamp {
        let latest = self.made.saturating_add(LONGEST_RENEWED).unwrap_or(Timestamp::MAX);
        until.min(latest).max(self.until)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationState {
    Reserved,
    /// The session is the peer's. The origin forwards to it.
    Confirmed,
    /// It was released, refused, or another one took its place.
    Ended,
}

/// What is so when a peer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The reservation with the id that the peer names.
    pub own: Option<&'a Reservation>,
    /// Another one of the same session that has not ended.
    pub other: Option<&'a Reservation>,
    pub session: SessionFacts,
    /// The roaming token was used up here.
    pub token_used: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFacts {
    /// It was deleted or handed over.
    Gone,
    /// It has turns that have not ended.
    Working,
    /// It rests at that entry.
    Resting(Seq),
}

/// What a peer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `until`: the end of a reservation that is made or renewed now.
    Reserve {
        until: Timestamp,
    },
    Confirm,
    Release,
}

/// What is written, and what is answered then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A new reservation. The one that it takes the place of ends.
    Reserve { until: Timestamp, in_place_of: Option<ReservationId> },
    /// The same reservation, with a later end, or with the same one if it was renewed for long enough.
    Renew { until: Timestamp },
    /// In one transaction: the reservation is confirmed, the token is used up, and the session is
    /// suspended with a note of where it went.
    Confirm,
    /// The reservation ends.
    End,
    /// It is so already. Nothing is written.
    Done,
    /// Nothing is written.
    Refuse(Refusal),
    /// The reservation ends, and is refused.
    EndAndRefuse(Refusal),
}

/// Why the origin refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Refusal {
    #[error("another gateway has reserved the session")]
    Reserved,
    #[error("the session has turns that have not ended")]
    Working,
    #[error("the session has moved to another gateway, or its roaming token was used")]
    Used,
    #[error("the session was deleted or handed over")]
    Gone,
    #[error("the reservation has ended")]
    Ended,
    #[error("the session went on after it was reserved")]
    Changed,
    #[error("there is no such reservation")]
    Unknown,
    #[error("the session was confirmed to have moved")]
    Confirmed,
}

impl Refusal {
    /// Whether the same request may succeed later.
    pub fn passes(self) -> bool {
        matches!(self, Refusal::Reserved | Refusal::Working)
    }
}

/// What becomes of a request of `peer`.
pub fn decide(ask: Ask, peer: &GatewayId, facts: Facts<'_>, now: Timestamp) -> Verdict {
    use ReservationState::{Confirmed, Ended, Reserved};
    let Facts { own, other, session, token_used } = facts;
    let own = match own {
        // Whose it is, is told to nobody else.
        Some(own) if own.peer != *peer => return Verdict::Refuse(Refusal::Unknown),
        own => own,
    };
    match (ask, own.map(|own| own.state)) {
        (Ask::Reserve { until }, Some(Reserved)) => {
            Verdict::Renew { until: own.map_or(until, |own| own.renewed(until)) }
        }
        // The peer has lost what it stored, and gets it again.
        (Ask::Reserve { .. } | Ask::Confirm, Some(Confirmed)) => Verdict::Done,
        (Ask::Reserve { .. } | Ask::Confirm, Some(Ended)) => Verdict::Refuse(Refusal::Ended),
        (Ask::Reserve { until }, None) => match (other, session) {
            _ if token_used => Verdict::Refuse(Refusal::Used),
            (Some(other), _) if other.state == Confirmed => Verdict::Refuse(Refusal::Used),
            (_, SessionFacts::Gone) => Verdict::Refuse(Refusal::Gone),
            (Some(other), _) if other.until > now => Verdict::Refuse(Refusal::Reserved),
            (_, SessionFacts::Working) => Verdict::Refuse(Refusal::Working),
            (other, SessionFacts::Resting(_)) => {
                Verdict::Reserve { until, in_place_of: other.map(|other| other.id) }
            }
        },
        // Even after its time: nobody took its place, or it would have ended.
        (Ask::Confirm, Some(Reserved)) => match session {
            _ if token_used => Verdict::EndAndRefuse(Refusal::Used),
            SessionFacts::Gone => Verdict::EndAndRefuse(Refusal::Gone),
            SessionFacts::Resting(seq) if own.is_some_and(|own| own.last_seq == seq) => {
                Verdict::Confirm
            }
            SessionFacts::Working | SessionFacts::Resting(_) => {
                Verdict::EndAndRefuse(Refusal::Changed)
            }
        },
        (Ask::Confirm, None) => Verdict::Refuse(Refusal::Unknown),
        (Ask::Release, Some(Reserved)) => Verdict::End,
        (Ask::Release, Some(Confirmed)) => Verdict::Refuse(Refusal::Confirmed),
        (Ask::Release, Some(Ended) | None) => Verdict::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const UNTIL: i64 = 100;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn reservation(id: u128, peer: &str, state: ReservationState) -> Reservation {
        let (id, peer) = (ReservationId(Uuid::from_u128(id)), peer.parse().unwrap());
        Reservation { id, peer, state, made: at(0), until: at(UNTIL), last_seq: 7 }
    }

    const FREE: Facts<'_> =
        Facts { own: None, other: None, session: SessionFacts::Resting(7), token_used: false };

    fn asked(ask: Ask, facts: Facts<'_>, now: i64) -> Verdict {
        decide(ask, &"me".parse().unwrap(), facts, at(now))
    }

    const RESERVE: Ask = Ask::Reserve { until: Timestamp::MAX };

    #[test]
    fn sbp_l6_05_a_free_session_is_reserved_for_one_peer_at_a_time() {
        let until = Timestamp::MAX;
        let taken = Verdict::Reserve { until, in_place_of: None };
        assert_eq!(asked(RESERVE, FREE, 0), taken);
        let other = reservation(2, "other", ReservationState::Reserved);
        let facts = Facts { other: Some(&other), ..FREE };
        assert_eq!(asked(RESERVE, facts, UNTIL - 1), Verdict::Refuse(Refusal::Reserved));
        let in_place_of = Some(other.id);
        assert_eq!(asked(RESERVE, facts, UNTIL), Verdict::Reserve { until, in_place_of });
        let confirmed = reservation(2, "other", ReservationState::Confirmed);
        let facts = Facts { other: Some(&confirmed), ..FREE };
        assert_eq!(asked(RESERVE, facts, UNTIL), Verdict::Refuse(Refusal::Used));
    }

    #[test]
    fn sbp_l6_05_what_cannot_move_is_not_reserved() {
        for (facts, why) in [
            (Facts { token_used: true, ..FREE }, Refusal::Used),
            (Facts { session: SessionFacts::Gone, ..FREE }, Refusal::Gone),
            (Facts { session: SessionFacts::Working, ..FREE }, Refusal::Working),
        ] {
            assert_eq!(asked(RESERVE, facts, 0), Verdict::Refuse(why));
        }
    }

    #[test]
    fn g7_a_reservation_is_confirmed_once_also_after_its_time_and_if_the_session_rests() {
        use ReservationState::{Confirmed, Ended, Reserved};
        let mine = |state| reservation(1, "me", state);
        let reserved = mine(Reserved);
        let facts = Facts { own: Some(&reserved), ..FREE };
        for now in [0, UNTIL, UNTIL + 1_000_000] {
            assert_eq!(asked(Ask::Confirm, facts, now), Verdict::Confirm);
        }
        for (session, token_used, why) in [
            (SessionFacts::Resting(8), false, Refusal::Changed),
            (SessionFacts::Working, false, Refusal::Changed),
            (SessionFacts::Gone, false, Refusal::Gone),
            (SessionFacts::Resting(7), true, Refusal::Used),
        ] {
            let facts = Facts { session, token_used, ..facts };
            assert_eq!(asked(Ask::Confirm, facts, 0), Verdict::EndAndRefuse(why));
        }
        let confirmed = mine(Confirmed);
        let facts = Facts { own: Some(&confirmed), token_used: true, ..FREE };
        assert_eq!(asked(Ask::Confirm, facts, 0), Verdict::Done);
        let ended = mine(Ended);
        let facts = Facts { own: Some(&ended), ..FREE };
        assert_eq!(asked(Ask::Confirm, facts, 0), Verdict::Refuse(Refusal::Ended));
        assert_eq!(asked(Ask::Confirm, FREE, 0), Verdict::Refuse(Refusal::Unknown));
    }

    #[test]
    fn g7_a_repeated_or_late_request_changes_nothing() {
        use ReservationState::{Confirmed, Ended, Reserved};
        let until = at(0).saturating_add(LONGEST_RENEWED).unwrap();
        for (state, reserve, release) in [
            (Reserved, Verdict::Renew { until }, Verdict::End),
            (Confirmed, Verdict::Done, Verdict::Refuse(Refusal::Confirmed)),
            (Ended, Verdict::Refuse(Refusal::Ended), Verdict::Done),
        ] {
            let mine = reservation(1, "me", state);
            let facts = Facts { own: Some(&mine), ..FREE };
            assert_eq!(asked(RESERVE, facts, 0), reserve);
            assert_eq!(asked(Ask::Release, facts, 0), release);
        }
        assert_eq!(asked(Ask::Release, FREE, 0), Verdict::Done);
    }

    #[test]
    fn g11_a_reservation_is_renewed_for_ten_minutes_at_most() {
        let mine = reservation(1, "me", ReservationState::Reserved);
        let renewed = |mine: &Reservation, until| {
            let facts = Facts { own: Some(mine), ..FREE };
            asked(Ask::Reserve { until: at(until) }, facts, 0)
        };
        for (until, end) in [(UNTIL - 1, UNTIL), (300, 300), (600, 600), (601, 600), (9999, 600)] {
            assert_eq!(renewed(&mine, until), Verdict::Renew { until: at(end) });
        }
        // One that was made for longer lasts as long as it was made for.
        let long = Reservation { until: at(3600), ..mine };
        assert_eq!(renewed(&long, 7200), Verdict::Renew { until: at(3600) });
        let facts = Facts { own: Some(&long), ..FREE };
        assert_eq!(asked(Ask::Confirm, facts, 9999), Verdict::Confirm, "it still counts");
    }

    #[test]
    fn g20_a_reservation_of_another_peer_is_unknown() {
        for state in
            [ReservationState::Reserved, ReservationState::Confirmed, ReservationState::Ended]
        {
            let other = reservation(1, "other", state);
            let facts = Facts { own: Some(&other), ..FREE };
            for ask in [RESERVE, Ask::Confirm, Ask::Release] {
                assert_eq!(asked(ask, facts, UNTIL), Verdict::Refuse(Refusal::Unknown));
            }
        }
    }
}
