//! What the destination of a migration asks of the origin, and what it makes of the answers.
//!
//! Invariant: only an answer that the origin makes for this reservation is one. Whoever is in between, a proxy with a page
//! of its own for instance, may answer anything with any status; to take that for a confirmation would make a second
//! owner, and for a refusal would drop the only one.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use bowline_federation::{Blame, BundleRequest, PeerFault, PeerRequest, ReadLimits};
use bowline_sbp::api::ErrorBody;
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::migration::Event;
use bowline_sbp::federation::reservation::Refusal;
use bowline_sbp::federation::wire::{
    Confirmation, Confirmed, MOST_MOVED_DEVICES, MOST_MOVED_TURNS, MovedTether, RESERVATIONS_PATH,
    RefusedBody, Reserved,
};
use bowline_sbp::federation::{FederationAction, ReservationRequest};
use bowline_sbp::surface::SurfaceContext;
use jiff::Timestamp;
use serde::Serialize;

use super::super::super::internal;
use super::Arrival;
use crate::clock;

/// How often a reservation is renewed while its bundle comes; more often if it lasts for less than four times that.
const RENEW_EVERY: Duration = Duration::from_secs(30);
const RENEW_AT_MOST_EVERY: Duration = Duration::from_millis(250);
/// The largest answer of an origin that is no bundle.
const LARGEST_ANSWER: usize = 64 << 10;
/// The largest confirmation: it says what the surfaces have not got yet.
const LARGEST_CONFIRMATION: usize = 4 << 20;

impl Arrival {
    pub(super) async fn reserve(&mut self) -> Event {
        let Some(token) = self.roaming_token.clone() else { return Event::Unreachable };
        match self.ask_to_reserve(token).await {
            Heard::Done(text) => match serde_json::from_slice::<Reserved>(&text) {
                Ok(reserved) if reserved.reservation_id == self.kept.id => {
                    self.reserved_until = reserved.expires_at;
                    Event::Reserved { cid: reserved.cid }
                }
                _ => self.unreadable(),
            },
            Heard::Refused(why) => Event::Refused(why),
            Heard::Failed(failure) => {
                self.why = Some(failure);
                // The token is no good there, or this gateway may not have it.
                Event::Refused(Refusal::Gone)
            }
            Heard::Later(failure, wait) => {
                self.why = Some(failure);
                later(wait)
            }
            Heard::Nothing(failure) => {
                self.why = Some(failure);
                Event::Unreachable
            }
        }
    }

    async fn ask_to_reserve(&self, roaming_token: String) -> Heard {
        let body = ReservationRequest { reservation_id: self.kept.id, roaming_token };
        self.ask(FederationAction::Reserve, RESERVATIONS_PATH.to_owned(), &body).await
    }

    /// Renews the reservation as long as it is asked to: a large bundle takes longer than one lasts.
    async fn renew(&self) -> Infallible {
        let lasts = self.reserved_until.duration_since(clock::now());
        let every = match Duration::try_from(lasts / 4) {
            Ok(every) if !every.is_zero() => every.clamp(RENEW_AT_MOST_EVERY, RENEW_EVERY),
            // It has ended, or the origin's clock is behind.
            _ => RENEW_EVERY,
        };
        loop {
            tokio::time::sleep(every).await;
            let Some(token) = self.roaming_token.clone() else { continue };
            // Whatever is answered: if another gateway was faster, the confirmation is refused.
            if !matches!(self.ask_to_reserve(token).await, Heard::Done(_)) {
                tracing::warn!(origin = %self.kept.origin, "a reservation was not renewed");
            }
        }
    }

    pub(super) async fn fetch(&mut self, cid: Cid) -> Event {
        let asked = BundleRequest {
            cid,
            roaming_token: None,
            reservation: Some(self.kept.id),
            limits: ReadLimits::bundle(self.engine.limits.import_body),
            spool: &spool(),
        };
        let fetched = tokio::select! {
            fetched = self.federation.peers.bundle(&self.origin, asked) => fetched,
            never = self.renew() => match never {},
        };
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(fault) => {
                self.why = Some(fault.told(&self.kept.origin));
                return match fault {
                    PeerFault::Limited { wait } => later(wait),
                    PeerFault::TooLarge { .. } => Event::Unfit,
                    fault if fault.blame() == Blame::Lie => Event::Unfit,
                    _ => Event::Unreachable,
                };
            }
        };
        if let Err(error) = fetched.opened.signature.check(self.signature) {
            self.why = Some(error.into());
            return Event::Unfit;
        }
        // What may be refused is refused now.
        if let Some(identity) = &self.identity
            && let Err(failure) =
                self.engine.agent_for(identity, self.asked.agent.clone(), &fetched.opened)
        {
            self.why = Some(failure);
            return Event::Unfit;
        }
        self.text = Some(fetched.text);
        Event::Fetched
    }

    pub(super) async fn confirm(&mut self) -> Event {
        let path = format!("{RESERVATIONS_PATH}/{}/confirm", self.kept.id);
        let body = Confirmation { session_id: self.asked.session };
        match self.ask(FederationAction::Confirm, path, &body).await {
            Heard::Done(text) => match serde_json::from_slice::<Confirmed>(&text) {
                Ok(confirmed)
                    if confirmed.reservation_id == self.kept.id
                        && confirmed.session_id == self.asked.session =>
                {
                    self.tether = confirmed.tether.map(plausible);
                    Event::Confirmed
                }
                _ => self.unreadable(),
            },
            Heard::Refused(why) => Event::Refused(why),
            Heard::Later(failure, wait) => {
                self.why = Some(failure);
                later(wait)
            }
            // Only a refusal is one: everything else may be another's failure.
            Heard::Failed(failure) | Heard::Nothing(failure) => {
                self.why = Some(failure);
                Event::Unreachable
            }
        }
    }

    /// Something answered that is not the origin, or is not well.
    fn unreadable(&mut self) -> Event {
        let origin = &self.kept.origin;
        tracing::warn!(%origin, "the answer to a reservation or confirmation is none");
        let why = format!("the gateway {origin} sent an answer that cannot be read");
        self.why = Some(Failure::new(Code::Upstream, why));
        Event::Unreachable
    }

    pub(super) async fn release(&self) {
        let path = format!("{RESERVATIONS_PATH}/{}", self.kept.id);
        let request = PeerRequest { method: reqwest::Method::DELETE, ..PeerRequest::get(path) };
        let (id, limits) = (self.kept.id.to_string(), ReadLimits::small(LARGEST_ANSWER));
        let (peers, origin) = (&self.federation.peers, &self.kept.origin);
        // Also an origin that is backed off: what it is blamed for is why there is a reservation to be released.
        let what = (FederationAction::Release, id.as_str());
        let _ = peers.tell(&self.origin, origin, what, request, limits).await;
    }

    async fn ask(&self, action: FederationAction, path: String, body: &impl Serialize) -> Heard {
        let Ok(body) = serde_json::to_vec(body) else { return Heard::Nothing(internal()) };
        let request = PeerRequest::post(path, body);
        let largest = match action {
            FederationAction::Confirm => LARGEST_CONFIRMATION,
            _ => LARGEST_ANSWER,
        };
        let (id, limits) = (self.kept.id.to_string(), ReadLimits::small(largest));
        let peers = &self.federation.peers;
        match peers.ask(&self.origin, action, &id, request, limits).await {
            Err(fault) => {
                let failure = fault.told(&self.kept.origin);
                match fault {
                    PeerFault::Limited { wait } => Heard::Later(failure, wait),
                    _ => Heard::Nothing(failure),
                }
            }
            Ok((status, text)) if status.is_success() => Heard::Done(text.to_vec()),
            Ok((status, text)) => {
                if let Ok(refused) = serde_json::from_slice::<RefusedBody>(&text) {
                    return Heard::Refused(refused.refused);
                }
                let said = serde_json::from_slice::<ErrorBody>(&text);
                let said = said.map(|body| body.error.message).unwrap_or_default();
                let why = format!("the gateway {} refuses ({status}): {said}", self.kept.origin);
                let code = match status.as_u16() {
                    410 => Code::TokenExpired,
                    422 => Code::TokenInvalid,
                    _ => Code::Upstream,
                };
                let failure = Failure::new(code, why);
                match status.as_u16() {
                    408 => Heard::Nothing(failure),
                    _ => Heard::Failed(failure),
                }
            }
        }
    }
}

/// What came of a question.
enum Heard {
    Done(Vec<u8>),
    Refused(Refusal),
    /// The origin answered with another error.
    Failed(Failure),
    /// The origin has too much to do, and wants to be asked again after that time.
    Later(Failure, Duration),
    /// There was no answer, or none that says anything.
    Nothing(Failure),
}

/// As much of it as this gateway would have said itself.
fn plausible(mut tether: MovedTether) -> MovedTether {
    tether.devices.retain(|(name, _)| SurfaceContext::is_name(name));
    tether.devices.sort();
    tether.devices.dedup_by(|a, b| a.0 == b.0);
    tether.devices.truncate(MOST_MOVED_DEVICES);
    let excess = tether.turns.len().saturating_sub(MOST_MOVED_TURNS);
    tether.turns.drain(..excess);
    tether
}

fn spool() -> PathBuf {
    std::env::temp_dir()
}

fn later(wait: Duration) -> Event {
    Event::Limited { until: clock::now().saturating_add(wait).unwrap_or(Timestamp::MAX) }
}
