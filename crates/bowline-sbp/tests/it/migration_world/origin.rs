//! The gateway where the session is at first: a model of its store, which survives every crash.

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::GatewayId;
use bowline_sbp::federation::reservation::{
    Ask, Facts, Refusal, Reservation, ReservationState, SessionFacts, Verdict, decide,
};
use bowline_sbp::id::Seq;
use jiff::{SignedDuration, Timestamp};

use super::network::{Answer, Packet, Request};
use super::{Planted, World};
use crate::random::Random;

const RESERVED_FOR: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug)]
pub(super) struct Origin {
    pub(super) up: bool,
    pub(super) deleted: bool,
    planted: Option<Planted>,
    /// Whether it takes no turns while the session is reserved. It is safe without.
    freezes: bool,
    last_seq: Seq,
    /// A turn that was accepted and has not ended.
    working: bool,
    pub(super) suspended: bool,
    used: [bool; 2],
    /// With the number of the token.
    reservations: Vec<(usize, Reservation)>,
}

impl Origin {
    pub(super) fn new(random: &mut Random, planted: Option<Planted>) -> Self {
        Self {
            up: true,
            deleted: false,
            planted,
            freezes: random.percent(50),
            last_seq: 1,
            working: false,
            suspended: false,
            used: [false; 2],
            reservations: Vec::new(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        !self.suspended && !self.deleted
    }

    pub(super) fn accepted(&self) -> Seq {
        self.last_seq + u64::from(self.working)
    }

    pub(super) fn token_used(&self, token: usize) -> bool {
        self.used[token]
    }

    /// The running turn ends.
    pub(super) fn rest(&mut self) {
        self.last_seq = self.accepted();
        self.working = false;
    }

    fn is_reserved(&self, now: Timestamp) -> bool {
        let holds =
            |kept: &Reservation| kept.state == ReservationState::Reserved && kept.until > now;
        self.reservations.iter().any(|(_, kept)| holds(kept))
    }

    fn facts(&self, packet: Packet, token: usize) -> Facts<'_> {
        let forgets = self.planted == Some(Planted::ForgetsEnded);
        let named = |kept: &&Reservation| {
            kept.id == packet.reservation && !(forgets && kept.state == ReservationState::Ended)
        };
        let other = |kept: &&Reservation| {
            kept.id != packet.reservation && kept.state != ReservationState::Ended
        };
        let all = || self.reservations.iter().map(|(_, kept)| kept);
        Facts {
            own: all().find(named),
            other: all().find(other),
            session: match () {
                () if !self.is_live() => SessionFacts::Gone,
                () if self.working => SessionFacts::Working,
                () => SessionFacts::Resting(self.last_seq),
            },
            token_used: self.used[token],
        }
    }

    fn end(&mut self, id: bowline_sbp::federation::ReservationId) {
        for (_, kept) in &mut self.reservations {
            if kept.id == id {
                kept.state = ReservationState::Ended;
            }
        }
    }

    /// The bundle of a reservation that has not ended.
    fn bundle(&self, packet: Packet) -> Option<Seq> {
        let mut all = self.reservations.iter().map(|(_, kept)| kept);
        all.find(|kept| kept.id == packet.reservation && kept.state != ReservationState::Ended)
            .map(|kept| kept.last_seq)
    }
}

pub(super) fn cid_of(seq: Seq) -> Cid {
    Cid::of_bytes(&seq.to_be_bytes())
}

impl World {
    pub(super) fn crash_origin(&mut self) {
        if self.origin.up {
            self.tally.add("origin crashed");
            self.say(|| "the origin crashes".into());
        }
        self.origin.up = false;
    }

    /// The origin's user goes on with the session, or does something else with it.
    pub(super) fn origin_lives(&mut self) {
        if !self.origin.up {
            return;
        }
        let reserved = self.origin.is_reserved(self.now);
        match self.random.below(100) {
            0..92 if self.origin.working => self.origin.rest(),
            0..92 if !self.origin.is_live() => {}
            0..92 if reserved && self.origin.freezes => self.tally.add("turns held"),
            // Seldom, or no migration ever succeeds.
            0..92 if self.random.percent(20) => {
                self.origin.working = true;
                self.tally.add("turns");
                self.say(|| "the origin accepts a turn".into());
            }
            // Somebody imports the session with a token at the origin itself: a copy, no move.
            92..95 => {
                let token = self.random.below(2);
                let holds = |(of, kept): &(usize, Reservation)| {
                    *of == token
                        && kept.state == ReservationState::Reserved
                        && kept.until > self.now
                };
                if self.origin.is_live() && !self.origin.reservations.iter().any(holds) {
                    self.origin.used[token] = true;
                    self.tally.add("token used at home");
                }
            }
            95 if self.origin.is_live() && self.random.percent(10) => {
                self.origin.deleted = true;
                self.tally.add("deleted");
                self.say(|| "the session is deleted at the origin".into());
            }
            // What was left here, after the session moved.
            95.. if self.origin.suspended && !self.origin.deleted => {
                self.origin.deleted = true;
                self.tally.add("deleted after it moved");
                self.say(|| "what the session left at the origin is deleted".into());
            }
            _ => {}
        }
    }

    /// What the origin answers; nothing if it is down, or crashes before it does.
    pub(super) fn origin_hears(&mut self, packet: Packet, request: Request) -> Option<Answer> {
        if !self.origin.up {
            return None;
        }
        if !self.calm && self.random.percent(2) {
            self.crash_origin();
            return None;
        }
        let known = self.origin.reservations.iter();
        let token =
            known.clone().find(|(_, kept)| kept.id == packet.reservation).map(|(of, _)| *of);
        let (ask, token) = match request {
            Request::Reserve(token) => {
                (Ask::Reserve { until: self.now.saturating_add(RESERVED_FOR).unwrap() }, token)
            }
            Request::Confirm => (Ask::Confirm, token.unwrap_or(0)),
            Request::Release => (Ask::Release, token.unwrap_or(0)),
            Request::Fetch => {
                let changed = !self.calm && self.random.percent(5);
                let bundle = self.origin.bundle(packet);
                return Some(match bundle {
                    Some(seq) => Answer::Bundle(seq, changed),
                    None => Answer::Refused(Refusal::Unknown),
                });
            }
        };
        let peer: GatewayId = self.destinations[packet.destination].id.clone();
        let mut facts = self.origin.facts(packet, token);
        let forced;
        match self.planted {
            Some(Planted::ConfirmsEnded) if ask == Ask::Confirm => {
                if let Some(own) = facts.own {
                    let until = own.until;
                    forced =
                        Reservation { state: ReservationState::Reserved, until, ..own.clone() };
                    facts.own = Some(&forced);
                    facts.session = SessionFacts::Resting(own.last_seq);
                    facts.token_used = false;
                }
            }
            Some(Planted::IgnoresChange) if ask == Ask::Confirm && self.origin.is_live() => {
                if let Some(own) = facts.own {
                    facts.session = SessionFacts::Resting(own.last_seq);
                }
            }
            _ => {}
        }
        let late = facts.own.is_some_and(|own| own.until <= self.now);
        let verdict = decide(ask, &peer, facts, self.now);
        self.say(|| format!("{peer} asks {request:?} of {}: {verdict:?}", packet.reservation));
        let is_late_word = self.origin.deleted && ask == Ask::Confirm && verdict == Verdict::Done;
        if is_late_word && self.planted == Some(Planted::ForgetsDeleted) {
            return None;
        }
        if is_late_word {
            self.tally.add("confirmed again after it was deleted");
        }
        let answer = self.carry_out(packet, (request, token), &peer, verdict, late);
        if !self.calm && !matches!(verdict, Verdict::Refuse(_)) && self.random.percent(8) {
            self.tally.add("origin crashed after a write");
            self.crash_origin();
            return None;
        }
        Some(answer)
    }

    /// Writes the verdict, in one step.
    fn carry_out(
        &mut self,
        packet: Packet,
        (request, token): (Request, usize),
        peer: &GatewayId,
        verdict: Verdict,
        late: bool,
    ) -> Answer {
        let id = packet.reservation;
        let origin = &mut self.origin;
        match verdict {
            Verdict::Reserve { until, in_place_of } => {
                if let Some(before) = in_place_of {
                    origin.end(before);
                    self.tally.add("reserved in place of another");
                }
                let (state, last_seq) = (ReservationState::Reserved, origin.last_seq);
                origin.reservations.retain(|(_, kept)| kept.id != id);
                let kept =
                    Reservation { id, peer: peer.clone(), state, made: self.now, until, last_seq };
                origin.reservations.push((token, kept));
                self.tally.add("reserved");
                Answer::Reserved(cid_of(last_seq))
            }
            Verdict::Renew { until } => {
                let all = origin.reservations.iter_mut().map(|(_, kept)| kept);
                let kept = all.into_iter().find(|kept| kept.id == id).unwrap();
                kept.until = until;
                self.tally.add("renewed");
                Answer::Reserved(cid_of(kept.last_seq))
            }
            Verdict::Confirm => {
                for (_, kept) in &mut origin.reservations {
                    if kept.id == id {
                        kept.state = ReservationState::Confirmed;
                    }
                }
                origin.used[token] = true;
                // Two writes: a crash comes between them.
                let crashes = origin.planted == Some(Planted::SuspendsLater)
                    && !self.calm
                    && self.random.percent(30);
                origin.suspended |= !crashes;
                self.tally.add(if late { "confirmed late" } else { "confirmed" });
                Answer::Confirmed
            }
            Verdict::End => {
                origin.end(id);
                self.tally.add("released");
                Answer::Released
            }
            Verdict::Done if matches!(request, Request::Confirm) => {
                self.tally.add("confirmed again");
                Answer::Confirmed
            }
            Verdict::Done if matches!(request, Request::Reserve(_)) => {
                self.tally.add("given again");
                Answer::Reserved(cid_of(origin.last_seq))
            }
            Verdict::Done => Answer::Released,
            Verdict::Refuse(why) | Verdict::EndAndRefuse(why) => {
                if matches!(verdict, Verdict::EndAndRefuse(_)) {
                    origin.end(id);
                }
                self.tally.add(refused(why));
                Answer::Refused(why)
            }
        }
    }
}

fn refused(why: Refusal) -> &'static str {
    match why {
        Refusal::Reserved => "refused: Reserved",
        Refusal::Working => "refused: Working",
        Refusal::Used => "refused: Used",
        Refusal::Gone => "refused: Gone",
        Refusal::Ended => "refused: Ended",
        Refusal::Changed => "refused: Changed",
        Refusal::Unknown => "refused: Unknown",
        Refusal::Confirmed => "refused: Confirmed",
    }
}
