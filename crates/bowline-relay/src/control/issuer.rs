//! Handles requests: checks them with the registry, and signs the tokens that it allows.

mod devices;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbrp::api::{
    DaemonStatus, DaemonView, Registered, Registration, RenewPresence, SessionOpened,
};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::revocation::RevocationList;
use bowline_sbrp::token::{PresenceGrant, SessionGrant, TokenSigner, jwk};
use serde_json::{Value, json};

use super::api_key::{KeyHash, random};
use super::clock;
use super::config::{ControlConfig, ControlLimits, SESSION_TTL};
use super::meters;
use super::registry::{
    self, AssignedRelay, Configured, DaemonRecord, NewDaemons, PresenceTerms, Registry, Renewed,
    SessionTerms, Signing,
};
use super::registry_thread::RegistryThread;
use super::request_error::RequestError;
use super::serve::ControlStartError;
use super::status::{LocalPresence, StatusQuestion, StatusSource};
use super::throttles::Throttles;
use crate::MetricsAccess;

/// The lifetime of a token for a status request to the relay, in seconds.
const QUESTION_TTL: u64 = 30;
/// How long refusals are counted in memory before they are written to the audit log: callers
/// without a valid key must not be able to cause a disk write per request.
const TALLY_EVERY: Duration = Duration::from_secs(2);
/// How long a revoked daemon is on the revocation list, in seconds: longer than any token lives,
/// and longer than a relay should be unable to fetch the list.
const REVOKED_FOR: u64 = 7 * 24 * 3600;
/// The most daemons on the revocation list: no more than relays read.
const MOST_REVOKED: u32 = 20_000;
/// The most users on it.
const MOST_ENDED: u32 = 10_000;

#[derive(Debug)]
pub(super) struct TokenIssuer {
    config: ControlConfig,
    writer: RegistryThread,
    /// A second thread and connection, so that requests for the key set and wrong API keys do not
    /// wait for a commit.
    reader: RegistryThread,
    throttles: Throttles,
    relay: StatusSource,
    /// Refusals not yet in the audit log, by code; `None` while no task is scheduled to write them.
    tally: Mutex<Option<BTreeMap<&'static str, u64>>>,
}

/// The caller of the API: its network address and its API key, which was valid when it was shown
/// ([`TokenIssuer::authenticate`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct ApiCaller {
    from: IpAddr,
    key: KeyHash,
}

impl TokenIssuer {
    pub(super) fn open(
        config: ControlConfig,
        beside: Option<LocalPresence>,
    ) -> Result<Self, ControlStartError> {
        config.check()?;
        let thread = || -> Result<RegistryThread, ControlStartError> {
            let registry = Registry::open(&config.data)?;
            RegistryThread::start(registry)
                .map_err(|error| ControlStartError::Thread(error.to_string()))
        };
        Ok(Self {
            writer: thread()?,
            reader: thread()?,
            throttles: Throttles::new(&config.limits),
            relay: StatusSource::new(&config, beside)?,
            tally: Mutex::new(None),
            config,
        })
    }

    pub(super) fn limits(&self) -> ControlLimits {
        self.config.limits.clone()
    }

    pub(super) fn metrics(&self) -> &MetricsAccess {
        &self.config.metrics
    }

    /// Checks the API key that a request shows, before anything else of it is read. Wrong ones are
    /// counted against their address; valid ones are let in whatever the address did before.
    pub(super) async fn authenticate(
        &self,
        from: IpAddr,
        shown: &str,
    ) -> Result<ApiCaller, RequestError> {
        let key = KeyHash::of(shown);
        self.throttles.may_look_up(&key)?;
        match self.reader.ask(move |registry| registry.check_key(&key)).await {
            Ok(()) => Ok(ApiCaller { from, key }),
            Err(registry::Error::UnknownKey) => {
                self.throttles.failed(from, key)?;
                Err(RequestError::WrongKey)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Registers a daemon; returns its id and presence token, and whether it is new.
    pub(super) async fn register(
        &self,
        caller: ApiCaller,
        asked: Registration,
    ) -> Result<(bool, Registered), RequestError> {
        let terms = self.presence_terms();
        let (now, until) = (terms.now, terms.until);
        let job = move |registry: &mut Registry| registry.register(&caller.key, &asked, &terms);
        let made = self.issue(caller, job).await?;
        Ok((made.created, self.presence(made, now, until)))
    }

    pub(super) async fn renew(
        &self,
        caller: ApiCaller,
        id: String,
        asked: RenewPresence,
    ) -> Result<Registered, RequestError> {
        let terms = self.presence_terms();
        let (now, until) = (terms.now, terms.until);
        let job = move |registry: &mut Registry| registry.renew(&caller.key, &id, &asked, &terms);
        let made = self.issue(caller, job).await?;
        Ok(self.presence(made, now, until))
    }

    pub(super) async fn open_session(
        &self,
        caller: ApiCaller,
        id: String,
    ) -> Result<SessionOpened, RequestError> {
        let now = clock::now();
        let until = now + SESSION_TTL;
        let daemon = DaemonId::new(id.as_str());
        let terms = self
            .issue(caller, move |registry| registry.open_session(&caller.key, &id, now, until))
            .await?;
        Ok(self.session(daemon, terms, now))
    }

    /// The caller's daemons, with the status that the relay reports for each.
    pub(super) async fn daemons(&self, caller: ApiCaller) -> Result<Vec<DaemonView>, RequestError> {
        let now = clock::now();
        let expires_at = now + QUESTION_TTL;
        let listed = self
            .issue(caller, move |registry| registry.daemons_of(&caller.key, expires_at))
            .await?;
        let signer = self.signer(&listed.signing);
        let question = |daemon: &DaemonRecord| {
            let (relay, region) = self.relay_of(daemon.relay.as_ref());
            let id = DaemonId::new(daemon.id.as_str());
            let grant = SessionGrant {
                daemon: id.clone(),
                user: listed.user.clone(),
                session: fresh_session(),
                epoch: 0,
                region,
                issued_at: now,
                expires_at,
            };
            StatusQuestion { daemon: id, relay, token: signer.session(&grant) }
        };
        let questions = listed.daemons.iter().map(question).collect();
        let answers = self.relay.ask(questions).await;
        Ok(listed.daemons.into_iter().zip(answers).map(|(d, status)| view(d, status)).collect())
    }

    pub(super) async fn rename(
        &self,
        caller: ApiCaller,
        id: String,
        name: String,
    ) -> Result<(), RequestError> {
        let now = clock::now();
        let job =
            move |registry: &mut Registry| registry.rename_own_daemon(&caller.key, &id, &name, now);
        Ok(self.writer.ask(job).await?)
    }

    pub(super) async fn revoke(&self, caller: ApiCaller, id: String) -> Result<(), RequestError> {
        let now = clock::now();
        let job = move |registry: &mut Registry| registry.revoke_own_daemon(&caller.key, &id, now);
        Ok(self.writer.ask(job).await?)
    }

    /// The published keys as a key set (JWKS).
    pub(super) async fn jwks(&self) -> Result<Value, RequestError> {
        let keys = self.reader.ask(|registry| registry.published(clock::now())).await?;
        let keys: Vec<_> = keys.iter().map(|(kid, public)| jwk(kid, public)).collect();
        Ok(json!({ "keys": keys }))
    }

    /// What relays have to end: connections of revoked daemons, those let in on tokens of users that
    /// are no longer good, and those of daemons that a drained relay hands over.
    pub(super) async fn revoked(&self) -> Result<RevocationList, RequestError> {
        let since = clock::now().saturating_sub(REVOKED_FOR);
        let job = move |registry: &mut Registry| {
            let daemons = registry.revoked_since(since, MOST_REVOKED)?;
            let users = registry.ended_since(since, MOST_ENDED)?;
            Ok((daemons, users, registry.draining(clock::now())?))
        };
        let (daemons, users, draining) = self.reader.ask(job).await?;
        let users = users.iter().map(|(id, until)| (id.as_str(), *until));
        let draining = draining.iter().map(String::as_str);
        Ok(RevocationList::of(&daemons).with_users(users).with_draining(draining))
    }

    pub(super) async fn check(&self) -> Result<(), registry::Error> {
        self.writer.ask(Registry::check).await
    }

    /// Counts a refusal, to be written to the audit log within `TALLY_EVERY`.
    pub(super) fn count_refusal(self: &Arc<Self>, code: &'static str) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if tally.is_none() {
            let issuer = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(TALLY_EVERY).await;
                issuer.note_refusals().await;
            });
        }
        *tally.get_or_insert_default().entry(code).or_default() += 1;
    }

    /// Writes the counted refusals to the audit log.
    pub(super) async fn note_refusals(&self) {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tally) = tally else { return };
        let tally: Vec<_> = tally.into_iter().collect();
        let noted = self.writer.ask(move |r| r.note_refusals(&tally, clock::now())).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "refused requests are missing in the audit log");
        }
    }

    /// Runs a registry job that ends in a token, within the rate limits for tokens.
    async fn issue<T: Send + 'static>(
        &self,
        caller: ApiCaller,
        job: impl FnOnce(&mut Registry) -> Result<T, registry::Error> + Send + 'static,
    ) -> Result<T, RequestError> {
        self.throttles.may_issue(caller.from, caller.key)?;
        Ok(self.writer.ask(job).await?)
    }

    fn presence_terms(&self) -> PresenceTerms {
        let now = clock::now();
        PresenceTerms {
            limits: NewDaemons {
                most: self.config.limits.daemons_per_user,
                per_day: self.config.limits.new_daemons_per_day,
            },
            configured: Configured {
                url: self.config.relay_url.to_string(),
                region: self.config.region.clone(),
            },
            now,
            until: now + self.config.presence_ttl.as_secs(),
        }
    }

    /// Address and region of a daemon's relay.
    fn relay_of(&self, assigned: Option<&AssignedRelay>) -> (String, Option<String>) {
        match assigned {
            Some(relay) => (relay.url.clone(), relay.region.clone()),
            None => (self.config.relay_url.to_string(), self.config.region.clone()),
        }
    }

    fn presence(&self, made: Renewed, issued_at: u64, expires_at: u64) -> Registered {
        meters::issued("presence");
        let (relay_url, region) = self.relay_of(made.relay.as_ref());
        Registered {
            presence_token: self.signer(&made.signing).presence(&PresenceGrant {
                daemon: DaemonId::new(made.daemon.as_str()),
                owner: Some(made.owner),
                epoch: made.epoch,
                resumable: made.resumable,
                region,
                concurrent_sessions: None,
                issued_at,
                expires_at,
            }),
            daemon_id: made.daemon,
            relay_url,
            issued_at,
            expires_at,
            epoch: made.epoch,
        }
    }

    fn session(
        &self,
        daemon: DaemonId,
        SessionTerms { user, relay, epoch, signing }: SessionTerms,
        issued_at: u64,
    ) -> SessionOpened {
        meters::issued("session");
        let (relay_url, region) = self.relay_of(relay.as_ref());
        let (session, expires_at) = (fresh_session(), issued_at + SESSION_TTL);
        SessionOpened {
            relay_url,
            token: self.signer(&signing).session(&SessionGrant {
                daemon,
                user,
                session,
                epoch,
                region,
                issued_at,
                expires_at,
            }),
            session_id: session.to_string(),
            expires_at,
        }
    }

    /// Created for each token: this takes microseconds, a commit much longer, and the key is never
    /// out of date.
    fn signer(&self, signing: &Signing) -> TokenSigner {
        TokenSigner::from_seed(&self.config.issuer, &signing.kid, &signing.seed)
    }
}

fn view(daemon: DaemonRecord, status: DaemonStatus) -> DaemonView {
    DaemonView {
        id: daemon.id,
        identity_public_key: URL_SAFE_NO_PAD.encode(daemon.identity.as_bytes()),
        status,
        name: daemon.name,
    }
}

fn fresh_session() -> SessionId {
    loop {
        if let Some(session) = SessionId::from_wire(u64::from_be_bytes(random())) {
            return session;
        }
    }
}
