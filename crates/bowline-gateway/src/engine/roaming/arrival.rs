//! A session that comes from another gateway (SBP-L6-05): the driver of one migration at its destination.
//!
//! What is done next is decided by [`Migration`]; here it is done: asked of the origin, fetched, and written to the
//! journal. The client's request waits for it, but does not carry it: a client that disconnects changes nothing, and
//! after a crash [`Engine::resume_migrations`] goes on where the journal says.
//!
//! Invariants
//! - The roaming token is stored nowhere: what is not staged goes on when somebody shows the token again.
//! - Everything that may be refused here (the agent, the bundle) is refused before the origin is asked to confirm.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline_federation::{Blame, BundleRequest, PeerFault, PeerRequest, ReadLimits, Target};
use bowline_sbp::api::{ErrorBody, Imported};
use bowline_sbp::bundle::{OpenError, Opened, RequiredSignature};
use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::migration::{Action, Dropped, Event, Migration, Stage};
use bowline_sbp::federation::reservation::Refusal;
use bowline_sbp::federation::wire::{
    Confirmation, Confirmed, MOST_MOVED_DEVICES, MOST_MOVED_TURNS, MovedTether, RESERVATIONS_PATH,
    RefusedBody, Reserved,
};
use bowline_sbp::federation::{
    BaseUrl, FederationAction, ReservationId, ReservationRequest, UnverifiedRoamingToken,
};
use bowline_sbp::id::{AgentId, SessionId};
use bowline_sbp::surface::SurfaceContext;
use bowline_store::{
    Derived, Edge, EdgeKind, Error, IdempotencyKey, KeptMigration, NewImport, NewMigration,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{Engine, Identity, internal};
use super::ancestry::CameFromGateway;
use super::import::{Import, ImportPlan};
use super::origin;
use super::token::RoamingToken;
use crate::clock;
use crate::federation::Federation;

/// How long a migration tries, as long as nothing is staged.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// After this no client waits any more for a migration: whoever takes it up takes no answer away.
pub(crate) const ABANDONED: SignedDuration = SignedDuration::from_secs(120);
/// How long the client's request waits.
const CLIENT_WAITS: Duration = Duration::from_secs(90);
/// The pause after the store failed.
const STORE_PAUSE: Duration = Duration::from_millis(500);
/// How often it begins anew if the session went on at the origin meanwhile.
const ATTEMPTS: u32 = 3;
/// The largest answer of an origin that is no bundle.
const LARGEST_ANSWER: usize = 64 << 10;
/// The largest confirmation: it says what the surfaces have not got yet.
const LARGEST_CONFIRMATION: usize = 4 << 20;

/// What was asked for, as the journal keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    /// The session's id here.
    session: SessionId,
    agent: Option<AgentId>,
    with_memory: bool,
    /// Where the origin serves.
    url: BaseUrl,
    key: Option<IdempotencyKey>,
}

/// One migration, and what this process has of it.
struct Arrival {
    engine: Arc<Engine>,
    federation: Arc<Federation>,
    kept: KeptMigration,
    asked: Asked,
    origin: Target,
    /// Only while a client is there that has shown it.
    roaming_token: Option<String>,
    /// Who asks; not after a restart.
    identity: Option<Identity>,
    signature: RequiredSignature,
    text: Option<String>,
    /// What the client is told, if this process knows better than the journal.
    why: Option<Failure>,
    /// What its surfaces have not got yet, once the origin has confirmed.
    tether: Option<MovedTether>,
    /// The session that was made here, and its edge.
    made: Option<(NewImport, Edge)>,
}

impl Engine {
    /// The token, if it is another gateway's.
    pub(crate) async fn foreign_token(
        &self,
        token: &str,
    ) -> Result<Option<UnverifiedRoamingToken>, Failure> {
        match self.read_token(token, clock::now()).await? {
            RoamingToken::Foreign(foreign) if self.federation.is_some() => Ok(Some(foreign)),
            _ => Ok(None),
        }
    }

    /// Imports the session of another gateway's token.
    pub(crate) async fn import_from_peer(
        self: &Arc<Self>,
        identity: &Identity,
        token: String,
        foreign: UnverifiedRoamingToken,
        asked: Import,
        key: Option<IdempotencyKey>,
    ) -> Result<Imported, Failure> {
        if let Some(key) = &key
            && let Some((made, edge)) = self.store.made_under(key.clone()).await?
        {
            return self.imported(made, &edge, identity);
        }
        let Import { agent, with_memory, signature, .. } = asked;
        let federation = Arc::clone(self.federation.as_ref().ok_or_else(internal)?);
        let (origin, claims) = origin::find(&federation, &foreign).await?;
        for attempt in 1.. {
            let request = Asked {
                session: SessionId(Uuid::now_v7()),
                agent: agent.clone(),
                with_memory,
                url: origin.url.clone(),
                key: key.clone(),
            };
            let new = NewMigration {
                id: ReservationId(Uuid::now_v7()),
                origin: claims.iss.clone(),
                export: claims.sub,
                user: identity.user(),
                request: serde_json::to_string(&request).map_err(|_| internal())?,
                at: clock::now(),
            };
            let kept = self.store.begin_migration(new).await?;
            if kept.stage == Stage::Active || kept.user != identity.user() {
                return Err(Error::Consumed.into());
            }
            let asked = serde_json::from_str(&kept.request).map_err(|_| internal())?;
            let arrival = Arrival {
                engine: Arc::clone(self),
                federation: Arc::clone(&federation),
                kept,
                asked,
                origin: origin.clone(),
                roaming_token: Some(token.clone()),
                identity: Some(identity.clone()),
                signature,
                text: None,
                why: None,
                tether: None,
                made: None,
            };
            // The client may go away: what was begun is brought to its end.
            let running = tokio::spawn(arrival.run());
            let ended = tokio::time::timeout(CLIENT_WAITS, running).await;
            let ended = ended.map_err(|_| unconfirmed())?.map_err(|_| internal())?;
            let went_on = matches!(
                ended.kept.stage,
                Stage::Dropped(Dropped::Refused(Refusal::Changed | Refusal::Ended))
            );
            if !went_on || attempt >= ATTEMPTS {
                return ended.answer(identity).await;
            }
        }
        Err(internal())
    }

    /// Goes on with what a process has staged that has ended. What is not staged waits for its client. `since`: how
    /// long ago it was begun at least; what is younger may be carried out by another replica.
    pub(crate) async fn resume_migrations(
        self: &Arc<Self>,
        since: SignedDuration,
    ) -> bowline_store::Result<()> {
        let Some(federation) = &self.federation else { return Ok(()) };
        for kept in self.store.open_migrations().await? {
            let (id, age) = (kept.id, clock::now().duration_since(kept.at));
            if kept.stage == Stage::Reserving {
                if age > PATIENCE + PATIENCE {
                    // Its process has ended; another replica's would have given up.
                    self.store.drop_migration(id, Stage::Reserving, Dropped::GaveUp).await?;
                }
                continue;
            }
            if age < since || federation.moving.carries(id) {
                continue;
            }
            let Ok(asked) = serde_json::from_str::<Asked>(&kept.request) else { continue };
            tracing::info!(origin = %kept.origin, "a session that came from another gateway is taken up again");
            let arrival = Arrival {
                origin: federation.peers.target(&kept.origin, &asked.url),
                engine: Arc::clone(self),
                federation: Arc::clone(federation),
                kept,
                asked,
                roaming_token: None,
                identity: None,
                // What is staged was checked.
                signature: RequiredSignature::default(),
                text: None,
                why: None,
                tether: None,
                made: None,
            };
            tokio::spawn(arrival.run());
        }
        Ok(())
    }
}

impl Arrival {
    /// Until it has ended. Returns itself, with the stage at the end.
    async fn run(mut self) -> Self {
        let _carrying = self.federation.moving.begin(self.kept.id);
        let gives_up = clock::now().checked_add(PATIENCE).unwrap_or(Timestamp::MAX);
        let mut migration = Migration::new(self.kept.stage, gives_up);
        let mut event = Event::Woken;
        loop {
            let action = migration.handle(event, clock::now());
            tracing::debug!(origin = %self.kept.origin, ?event, ?action, "migration");
            event = match action {
                Action::Reserve => self.reserve().await,
                Action::Fetch(cid) => self.fetch(cid).await,
                Action::Confirm => self.confirm().await,
                Action::Record(from, to) => self.record(from, to).await,
                Action::Wait(then) => {
                    let wait = then.duration_since(clock::now()).unsigned_abs();
                    let stop = &self.engine.stop;
                    if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        // The next process goes on.
                        break;
                    }
                    Event::Woken
                }
                Action::End { release } => {
                    if release {
                        self.release().await;
                    }
                    break;
                }
            };
        }
        self.kept.stage = migration.stage();
        self
    }

    async fn reserve(&mut self) -> Event {
        let Some(token) = self.roaming_token.clone() else { return Event::Unreachable };
        let body = ReservationRequest { reservation_id: self.kept.id, roaming_token: token };
        match self.ask(FederationAction::Reserve, RESERVATIONS_PATH.to_owned(), &body).await {
            Heard::Done(text) => match serde_json::from_slice::<Reserved>(&text) {
                Ok(reserved) => Event::Reserved { cid: reserved.cid },
                Err(_) => Event::Unreachable,
            },
            Heard::Refused(why) => Event::Refused(why),
            Heard::Failed(failure) => {
                self.why = Some(failure);
                // The token is no good there, or this gateway may not have it.
                Event::Refused(Refusal::Gone)
            }
            Heard::Nothing(failure) => {
                self.why = Some(failure);
                Event::Unreachable
            }
        }
    }

    async fn fetch(&mut self, cid: Cid) -> Event {
        let asked = BundleRequest {
            cid,
            roaming_token: None,
            reservation: Some(self.kept.id),
            limits: ReadLimits::bundle(self.engine.limits.import_body),
            spool: &spool(),
        };
        let fetched = match self.federation.peers.bundle(&self.origin, asked).await {
            Ok(fetched) => fetched,
            Err(fault) => {
                self.why = Some(fault.told(&self.kept.origin));
                return match fault {
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

    async fn confirm(&mut self) -> Event {
        let path = format!("{RESERVATIONS_PATH}/{}/confirm", self.kept.id);
        let body = Confirmation { session_id: self.asked.session };
        match self.ask(FederationAction::Confirm, path, &body).await {
            Heard::Done(text) => {
                let confirmed = serde_json::from_slice::<Confirmed>(&text).ok();
                self.tether = confirmed.and_then(|confirmed| confirmed.tether).map(plausible);
                Event::Confirmed
            }
            Heard::Refused(why) => Event::Refused(why),
            // Only a refusal is one: everything else may be another's failure.
            Heard::Failed(failure) | Heard::Nothing(failure) => {
                self.why = Some(failure);
                Event::Unreachable
            }
        }
    }

    async fn release(&self) {
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
            Err(fault) => Heard::Nothing(fault.told(&self.kept.origin)),
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
                    408 | 429 => Heard::Nothing(failure),
                    _ => Heard::Failed(failure),
                }
            }
        }
    }

    /// Changes the journal. If the store fails, its present stage is read until that succeeds.
    async fn record(&mut self, from: Stage, to: Stage) -> Event {
        let mut recorded = self.try_record(from, to).await;
        loop {
            match recorded {
                Ok(stage) => return Event::Recorded(stage),
                Err(Unrecorded::Unfit(failure)) => {
                    self.why = Some(failure);
                    return Event::Unfit;
                }
                Err(Unrecorded::Store(error)) => {
                    tracing::warn!(%error, "the journal of a migration cannot be written");
                    tokio::time::sleep(STORE_PAUSE).await;
                    let kept = self.engine.store.migration(self.kept.id).await;
                    let gone = || Error::Corrupt("a migration without a journal".into());
                    recorded = kept
                        .and_then(|kept| Ok(kept.ok_or_else(gone)?.stage))
                        .map_err(Unrecorded::Store);
                }
            }
        }
    }

    async fn try_record(&mut self, from: Stage, to: Stage) -> Result<Stage, Unrecorded> {
        let (store, id) = (Arc::clone(&self.engine.store), self.kept.id);
        let stage = match to {
            Stage::Staged => {
                // Whether it becomes a session is seen before it is anybody's.
                self.planned().await.map_err(Unrecorded::Unfit)?;
                let text = self.text.clone().unwrap_or_default();
                store.stage_migration(id, text.into_bytes()).await?
            }
            Stage::Active => {
                let (import, edge) = self.planned().await.map_err(|failure| {
                    Unrecorded::Store(Error::Unavailable(failure.to_string()))
                })?;
                let import = NewImport { tether: self.tether.clone(), ..import };
                let stage = store.activate_migration(id, import.clone()).await?;
                if stage == Stage::Active {
                    metrics::counter!("bowline_imports_total").increment(1);
                    self.made = Some((import, edge));
                }
                stage
            }
            Stage::Dropped(why) => store.drop_migration(id, from, why).await?,
            Stage::Reserving => from,
        };
        Ok(stage)
    }

    /// The session that the bundle becomes.
    async fn planned(&mut self) -> Result<(NewImport, Edge), Failure> {
        if self.text.is_none() {
            let staged = self.engine.store.staged_bundle(self.kept.id).await?;
            let staged = staged.and_then(|bytes| String::from_utf8(bytes).ok());
            self.text = Some(staged.ok_or_else(internal)?);
        }
        let text = self.text.clone().unwrap_or_default();
        // Hashing a long history would block the async runtime.
        let opened = tokio::task::spawn_blocking(move || Opened::read(&text)).await;
        let opened: Opened =
            opened.map_err(|_| internal())?.map_err(|error: OpenError| Failure::from(error))?;
        let own = opened.contents.session.agent.parse().ok();
        let own = own.filter(|own| self.engine.knows(own));
        let agent = self.asked.agent.clone().or(own).unwrap_or_else(AgentId::fallback);
        let plan = ImportPlan {
            id: self.asked.session,
            user: self.kept.user,
            agent,
            with_memory: self.asked.with_memory,
            export_id: None,
            consume: false,
            kind: EdgeKind::Import,
            key: self.asked.key.clone(),
            from: Some(CameFromGateway {
                gateway_id: self.kept.origin.clone(),
                url: self.asked.url.clone(),
            }),
        };
        self.engine.planned(opened, plan).await
    }

    /// What the client is told.
    async fn answer(self, identity: &Identity) -> Result<Imported, Failure> {
        let (origin, engine) = (&self.kept.origin, &self.engine);
        match (self.kept.stage, self.made) {
            (Stage::Active, Some((import, edge))) => {
                let session = engine.store.session(import.session.id).await?;
                let session = session.ok_or(Error::NoSession)?;
                let point = (session.last_seq, session.step_count);
                let made = Derived { session, point, export_id: None, replayed: false };
                engine.imported(made, &edge, identity)
            }
            // Another process here made it, for the same user.
            (Stage::Active, None) => Err(Error::Consumed.into()),
            (Stage::Reserving | Stage::Staged, _) => Err(unconfirmed()),
            (Stage::Dropped(why), _) => Err(match (why, self.why) {
                (Dropped::Refused(Refusal::Used), _) => Error::Consumed.into(),
                (Dropped::Refused(Refusal::Gone) | Dropped::GaveUp | Dropped::Unfit, Some(why)) => {
                    why
                }
                (Dropped::Refused(refusal), _) => {
                    let code = match refusal {
                        Refusal::Gone | Refusal::Unknown => Code::TokenInvalid,
                        _ => Code::SessionConflict,
                    };
                    Failure::new(code, format!("the gateway {origin} refuses: {refusal}"))
                }
                (Dropped::GaveUp | Dropped::Unfit, None) => internal(),
            }),
        }
    }
}

/// What came of a question.
enum Heard {
    Done(Vec<u8>),
    Refused(Refusal),
    /// The origin answered with another error.
    Failed(Failure),
    /// There was no answer, or none that says anything.
    Nothing(Failure),
}

/// Why the journal was not changed.
enum Unrecorded {
    /// The bundle cannot become a session here.
    Unfit(Failure),
    Store(Error),
}

impl From<Error> for Unrecorded {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
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

fn unconfirmed() -> Failure {
    let why = "the other gateway has not confirmed yet; the session appears here when it does";
    Failure { retry_after: Some(10), ..Failure::new(Code::UpstreamTimeout, why) }
}

fn spool() -> PathBuf {
    std::env::temp_dir()
}
