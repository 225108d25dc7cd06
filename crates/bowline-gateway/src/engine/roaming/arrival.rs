//! A session that comes from another gateway (SBP-L6-05): the driver of one migration at its destination.
//!
//! What is done next is decided by [`Migration`]; here it is done: asked of the origin, fetched, and written to the
//! journal. The client's request waits for it, but does not carry it: a client that disconnects changes nothing, and
//! after a crash [`Engine::resume_migrations`] goes on where the journal says.
//!
//! Invariants
//! - The roaming token is stored nowhere: what is not staged goes on when somebody shows the token again.
//! - Everything that may be refused here (the agent, the bundle, its memory, the key) is refused before the origin is
//!   asked to confirm.

mod journal;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use bowline_federation::Target;
use bowline_sbp::api::Imported;
use bowline_sbp::bundle::RequiredSignature;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::migration::{Action, Dropped, Event, Migration, Stage};
use bowline_sbp::federation::reservation::Refusal;
use bowline_sbp::federation::wire::MovedTether;
use bowline_sbp::federation::{BaseUrl, ReservationId, UnverifiedRoamingToken};
use bowline_sbp::id::{AgentId, SessionId};
use bowline_store::{Derived, Edge, Error, IdempotencyKey, KeptMigration, NewImport, NewMigration};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{Engine, Identity, internal};
use super::import::Import;
use super::origin;
use super::token::RoamingToken;
use crate::clock;
use crate::federation::Federation;

/// How long a migration tries, as long as nothing is staged.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// After this no client waits any more for a migration: whoever takes it up takes no answer away.
pub(crate) const ABANDONED: SignedDuration = SignedDuration::from_secs(120);
/// The longest that a migration lasts until it is staged: the last try begins after [`PATIENCE`], and a bundle takes ten
/// minutes at most.
const LONGEST_RESERVING: SignedDuration = SignedDuration::from_mins(12);
/// How long the client's request waits.
const CLIENT_WAITS: Duration = Duration::from_secs(90);
/// How often it begins anew if the session went on at the origin meanwhile.
const ATTEMPTS: u32 = 3;

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
    /// A surface brought it that showed nothing but the roaming token.
    #[serde(default)]
    by_token_alone: bool,
}

/// Whether the session of that journal was brought by its roaming token alone. A later version's journal: not.
pub(super) fn came_by_token_alone(kept: &KeptMigration) -> bool {
    serde_json::from_str::<Asked>(&kept.request).is_ok_and(|asked| asked.by_token_alone)
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
    /// When the reservation ends, unless it is renewed.
    reserved_until: Timestamp,
    /// What its surfaces have not got yet, once the origin has confirmed.
    tether: Option<MovedTether>,
    /// The session that was made here, and its edge.
    made: Option<(NewImport, Edge)>,
    /// How often in a row the store failed.
    store_failures: u32,
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
        let Import { agent, with_memory, signature, by_token_alone, .. } = asked;
        let federation = Arc::clone(self.federation.as_ref().ok_or_else(internal)?);
        let (origin, claims) = origin::find(&federation, &foreign).await?;
        for attempt in 1.. {
            let request = Asked {
                session: SessionId(Uuid::now_v7()),
                agent: agent.clone(),
                with_memory,
                url: origin.url.clone(),
                key: key.clone(),
                by_token_alone,
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
            let is_others =
                kept.user != identity.user() || by_token_alone && !came_by_token_alone(&kept);
            if kept.stage == Stage::Active || is_others {
                return self.came_already(identity, key).await;
            }
            let asked = serde_json::from_str(&kept.request).map_err(|_| internal())?;
            let arrival = Arrival {
                roaming_token: Some(token.clone()),
                identity: Some(identity.clone()),
                signature,
                ..Arrival::of(self, &federation, kept, asked, origin.clone())
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
                return ended.answer(identity, key).await;
            }
        }
        Err(internal())
    }

    /// The session came before this request had a part in it. The same request may have brought it: then it is answered
    /// as that one was (G3).
    async fn came_already(
        &self,
        identity: &Identity,
        key: Option<IdempotencyKey>,
    ) -> Result<Imported, Failure> {
        let made = match key {
            Some(key) => self.store.made_under(key).await?,
            None => None,
        };
        let (made, edge) = made.ok_or(Error::Consumed)?;
        self.imported(made, &edge, identity)
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
            // Before its age is looked at: a large bundle may take minutes.
            if federation.moving.carries(id) {
                continue;
            }
            let stage = kept.stage;
            let asked = serde_json::from_str::<Asked>(&kept.request).ok();
            let arrival = asked.map(|asked| {
                let origin = federation.peers.target(&kept.origin, &asked.url);
                Arrival::of(self, federation, kept, asked, origin)
            });
            match (stage, arrival) {
                (Stage::Reserving, arrival) if age > self.reserving_lasts() => {
                    // Its process has ended; another replica's would have given up.
                    let gave_up = Dropped::GaveUp;
                    let stage = self.store.drop_migration(id, Stage::Reserving, gave_up).await?;
                    // At the origin it holds the session. One that another replica has staged meanwhile goes on.
                    if let (Stage::Dropped(_), Some(arrival)) = (stage, arrival) {
                        tokio::spawn(async move { arrival.release().await });
                    }
                }
                (Stage::Staged, Some(arrival)) if age >= since => {
                    let origin = &arrival.kept.origin;
                    tracing::info!(%origin, "a session that came from another gateway is taken up again");
                    tokio::spawn(arrival.run());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How long nothing of a migration may be staged. Whether another replica carries it out, is not known here.
    fn reserving_lasts(&self) -> SignedDuration {
        if self.store.is_shared() { LONGEST_RESERVING } else { PATIENCE + PATIENCE }
    }
}

impl Arrival {
    /// One that is staged, as a process takes it up that has nothing but the journal.
    fn of(
        engine: &Arc<Engine>,
        federation: &Arc<Federation>,
        kept: KeptMigration,
        asked: Asked,
        origin: Target,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            federation: Arc::clone(federation),
            kept,
            asked,
            origin,
            roaming_token: None,
            identity: None,
            // What is staged was checked.
            signature: RequiredSignature::default(),
            text: None,
            why: None,
            reserved_until: Timestamp::UNIX_EPOCH,
            tether: None,
            made: None,
            store_failures: 0,
        }
    }

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
                Action::Record(from, to) => match self.record(from, to).await {
                    Some(event) => event,
                    // The next process goes on.
                    None => break,
                },
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

    /// What the client is told.
    async fn answer(
        self,
        identity: &Identity,
        key: Option<IdempotencyKey>,
    ) -> Result<Imported, Failure> {
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
            (Stage::Active, None) => engine.came_already(identity, key).await,
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

fn unconfirmed() -> Failure {
    let why = "the other gateway has not confirmed yet; the session appears here when it does";
    Failure { retry_after: Some(10), ..Failure::new(Code::UpstreamTimeout, why) }
}
