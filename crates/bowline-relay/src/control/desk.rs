//! Where requests are decided: the registry is asked, and what it allowed is signed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbrp::api::{DaemonStatus, DaemonView, Registered, Registration, SessionOpened};
use bowline_sbrp::id::{DaemonId, SessionId};
use bowline_sbrp::revocation::Document;
use bowline_sbrp::token::{Presence, Session, TokenSigner, jwk};
use serde_json::{Value, json};

use super::api_key::{KeyHash, random};
use super::clerk::Clerk;
use super::clock;
use super::config::{Config, Limits, SESSION_TTL};
use super::gate::Gate;
use super::meters;
use super::refused::Refused;
use super::registry::{self, Daemon, Registry, Renewed, Signing};
use super::serve::StartError;
use super::status::{Neighbour, RelayWindow, Window};

/// How long a token is good for with which only a question is asked.
const QUESTION_TTL: u64 = 30;
/// How long refusals are counted before they are written down: strangers must not be able to make
/// the disk work.
const TALLY_EVERY: Duration = Duration::from_secs(2);
/// How long a revoked daemon is on the list, in seconds: longer than any token lives, and than a
/// relay should be cut off from here.
const REVOKED_FOR: u64 = 7 * 24 * 3600;
/// How many are on it: no more than relays read.
const MOST_REVOKED: u32 = 20_000;

#[derive(Debug)]
pub(super) struct Desk {
    config: Config,
    writer: Clerk,
    /// Apart, so that relays that ask for the key set wait for no commit.
    reader: Clerk,
    gate: Gate,
    relay: Window,
    /// Refusals not yet written down, by code; none while nobody is about to.
    tally: Mutex<Option<BTreeMap<&'static str, u64>>>,
}

/// Who asks: from where, and with which key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub(super) from: IpAddr,
    pub(super) key: KeyHash,
}

impl Desk {
    pub(super) fn open(config: Config, beside: Option<Neighbour>) -> Result<Self, StartError> {
        config.check()?;
        let clerk = || -> Result<Clerk, StartError> {
            let registry = Registry::open(&config.data)?;
            Clerk::start(registry).map_err(|error| StartError::Thread(error.to_string()))
        };
        Ok(Self {
            writer: clerk()?,
            reader: clerk()?,
            gate: Gate::new(&config.limits),
            relay: match beside {
                Some(neighbour) => Window::Beside(neighbour),
                None => Window::Relay(RelayWindow::new(&config)?),
            },
            tally: Mutex::new(None),
            config,
        })
    }

    pub(super) fn limits(&self) -> Limits {
        self.config.limits.clone()
    }

    /// A daemon's id and presence token; whether it is new.
    pub(super) async fn register(
        &self,
        asker: Asker,
        asked: Registration,
    ) -> Result<(bool, Registered), Refused> {
        let (now, until) = self.presence_times();
        let most = self.config.limits.daemons_per_user;
        let made = self
            .issue(asker, move |registry| registry.register(&asker.key, &asked, most, now, until))
            .await?;
        Ok((made.created, self.presence(made, now, until)))
    }

    pub(super) async fn renew(&self, asker: Asker, id: String) -> Result<Registered, Refused> {
        let (now, until) = self.presence_times();
        let made =
            self.issue(asker, move |registry| registry.renew(&asker.key, &id, now, until)).await?;
        Ok(self.presence(made, now, until))
    }

    pub(super) async fn open_session(
        &self,
        asker: Asker,
        id: String,
    ) -> Result<SessionOpened, Refused> {
        let now = clock::now();
        let expires_at = now + SESSION_TTL;
        let daemon = DaemonId::new(id.as_str());
        let (user, signing) = self
            .issue(asker, move |registry| registry.open_session(&asker.key, &id, now, expires_at))
            .await?;
        let session = fresh_session();
        meters::issued("session");
        Ok(SessionOpened {
            relay_url: self.config.relay_url.to_string(),
            token: self.signer(&signing).session(&Session {
                daemon,
                user,
                session,
                region: self.config.region.clone(),
                issued_at: now,
                expires_at,
            }),
            session_id: session.to_string(),
            expires_at,
        })
    }

    /// The caller's daemons, and what the relay says of each.
    pub(super) async fn daemons(&self, asker: Asker) -> Result<Vec<DaemonView>, Refused> {
        let now = clock::now();
        let expires_at = now + QUESTION_TTL;
        let listed =
            self.issue(asker, move |registry| registry.daemons_of(&asker.key, expires_at)).await?;
        let signer = self.signer(&listed.signing);
        let question = |daemon: &DaemonId| {
            signer.session(&Session {
                daemon: daemon.clone(),
                user: listed.user.clone(),
                session: fresh_session(),
                region: self.config.region.clone(),
                issued_at: now,
                expires_at,
            })
        };
        let ids: Vec<_> = listed.daemons.iter().map(|d| DaemonId::new(d.id.as_str())).collect();
        let answers = self.relay.ask(&ids, question).await;
        Ok(listed.daemons.into_iter().zip(answers).map(|(d, status)| view(d, status)).collect())
    }

    pub(super) async fn revoke(&self, asker: Asker, id: String) -> Result<(), Refused> {
        let now = clock::now();
        self.gate.may_try(asker.from, &asker.key)?;
        self.settle(asker, move |registry| registry.revoke_own_daemon(&asker.key, &id, now)).await
    }

    /// The published keys, as relays read them.
    pub(super) async fn jwks(&self) -> Result<Value, Refused> {
        let keys = self.reader.ask(|registry| registry.published(clock::now())).await?;
        let keys: Vec<_> = keys.iter().map(|(kid, public)| jwk(kid, public)).collect();
        Ok(json!({ "keys": keys }))
    }

    /// The daemons whom relays have to send away.
    pub(super) async fn revoked(&self) -> Result<Document, Refused> {
        let since = clock::now().saturating_sub(REVOKED_FOR);
        let ids = self.reader.ask(move |r| r.revoked_since(since, MOST_REVOKED)).await?;
        Ok(Document::of(&ids))
    }

    pub(super) async fn check(&self) -> Result<(), registry::Error> {
        self.writer.ask(Registry::check).await
    }

    /// Counts a refusal; what is counted is soon written down.
    pub(super) fn count_refusal(self: &Arc<Self>, code: &'static str) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if tally.is_none() {
            let desk = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(TALLY_EVERY).await;
                desk.note_refusals().await;
            });
        }
        *tally.get_or_insert_default().entry(code).or_default() += 1;
    }

    /// Writes down what was only counted.
    pub(super) async fn note_refusals(&self) {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tally) = tally else { return };
        let tally: Vec<_> = tally.into_iter().collect();
        let noted = self.writer.ask(move |r| r.note_refusals(&tally, clock::now())).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "refused requests are missing in the audit log");
        }
    }

    /// Has something done that ends in a token, within the limits for those.
    async fn issue<T: Send + 'static>(
        &self,
        asker: Asker,
        errand: impl FnOnce(&mut Registry) -> Result<T, registry::Error> + Send + 'static,
    ) -> Result<T, Refused> {
        self.gate.may_try(asker.from, &asker.key)?;
        self.gate.may_issue(asker.from, asker.key)?;
        self.settle(asker, errand).await
    }

    /// Has something done, and remembers those whose key is none.
    async fn settle<T: Send + 'static>(
        &self,
        asker: Asker,
        errand: impl FnOnce(&mut Registry) -> Result<T, registry::Error> + Send + 'static,
    ) -> Result<T, Refused> {
        let done = self.writer.ask(errand).await;
        if done.as_ref().err() == Some(&registry::Error::UnknownKey) {
            self.gate.failed(asker.from, asker.key);
        }
        Ok(done?)
    }

    fn presence_times(&self) -> (u64, u64) {
        let now = clock::now();
        (now, now + self.config.presence_ttl.as_secs())
    }

    fn presence(&self, made: Renewed, issued_at: u64, expires_at: u64) -> Registered {
        meters::issued("presence");
        Registered {
            presence_token: self.signer(&made.signing).presence(&Presence {
                daemon: DaemonId::new(made.daemon.as_str()),
                resumable: made.resumable,
                region: self.config.region.clone(),
                concurrent_sessions: None,
                issued_at,
                expires_at,
            }),
            daemon_id: made.daemon,
            relay_url: self.config.relay_url.to_string(),
            issued_at,
            expires_at,
        }
    }

    /// Made anew each time: it costs microseconds beside a commit, and cannot be out of date.
    fn signer(&self, signing: &Signing) -> TokenSigner {
        TokenSigner::from_seed(&self.config.issuer, &signing.kid, &signing.seed)
    }
}

fn view(daemon: Daemon, status: DaemonStatus) -> DaemonView {
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
