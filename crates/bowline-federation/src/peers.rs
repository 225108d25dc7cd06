//! The peers of this gateway, and requests to them in its name.
//!
//! Every request to a peer goes through [`Peers::asked`]: who is to be left alone is not asked, what
//! goes wrong is counted and logged with the peer's name, and nothing else happens. Only what an operator asks
//! ([`Peers::probe`]), and what a peer waits to hear ([`Peers::tell`]), is sent all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_net::trust::NoTlsConfig;
use bowline_sbp::federation::{
    Asked, BaseUrl, FederationAction, FederationClaims, GatewayId, Manifest,
};
use bytes::Bytes;
use hyper::StatusCode;
use jiff::Timestamp;
use uuid::Uuid;

use crate::client::{Answer, PeerClient, PeerRequest};
use crate::fault::{Blame, PeerFault};
use crate::limits::ReadLimits;
use crate::lookup::Lookup;
use crate::manifests::{self, Cache};
use crate::own_keys::OwnKeys;
use crate::penalties::Penalties;
use crate::pins::Pins;
use crate::target::{Reach, StaticPeer, Target};

/// How long a manifest is used before it is fetched again.
const MANIFEST_AGE: Duration = Duration::from_secs(300);
/// The shortest time between two fetches of one manifest, whatever signatures do not fit it.
const FRESH_AGE: Duration = Duration::from_secs(10);

/// In whose name peers are asked.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub id: GatewayId,
    pub url: BaseUrl,
    pub keys: Arc<OwnKeys>,
}

/// A peer that answered an operator's question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    pub manifest: Manifest,
    /// Of the protocol.
    pub version: String,
    /// Connecting included, if there was no connection.
    pub round_trip: Duration,
}

/// How new a manifest has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// A cached one will do.
    Cached,
    /// A signature did not fit the cached one: perhaps its key has changed.
    Fresh,
}

impl Freshness {
    /// The oldest manifest that will do.
    fn age(self) -> Duration {
        match self {
            Self::Cached => MANIFEST_AGE,
            Self::Fresh => FRESH_AGE,
        }
    }
}

/// The peers that are known, and how to ask them.
#[derive(Debug)]
pub struct Peers {
    me: Credentials,
    named: Vec<StaticPeer>,
    trackers: Vec<StaticPeer>,
    client: PeerClient,
    pins: Arc<dyn Pins>,
    cache: Cache,
    penalties: Mutex<Penalties>,
}

impl Peers {
    pub fn new(
        me: Credentials,
        named: Vec<StaticPeer>,
        pins: Arc<dyn Pins>,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, NoTlsConfig> {
        Ok(Self {
            me,
            named,
            trackers: Vec::new(),
            client: PeerClient::new(lookup)?,
            pins,
            cache: Cache::default(),
            penalties: Mutex::default(),
        })
    }

    /// The trackers of the configuration. A tracker may be a gateway, too, and is asked nowhere else then: its id is
    /// as little anybody's as that of a named peer.
    #[must_use]
    pub fn with_trackers(self, trackers: Vec<StaticPeer>) -> Self {
        Self { trackers, ..self }
    }

    pub fn me(&self) -> &Credentials {
        &self.me
    }

    /// The peers of the configuration.
    pub fn named(&self) -> &[StaticPeer] {
        &self.named
    }

    /// Whether the configuration says where the gateway of that id is.
    pub fn is_named(&self, id: &GatewayId) -> bool {
        self.configured(id).is_some()
    }

    fn configured(&self, id: &GatewayId) -> Option<&StaticPeer> {
        self.named.iter().chain(&self.trackers).find(|peer| peer.id == *id)
    }

    /// How a gateway is asked: at the address of the configuration if it is in there, else at `url`.
    pub fn target(&self, id: &GatewayId, url: &BaseUrl) -> Target {
        match self.configured(id) {
            Some(peer) => Target::named(peer),
            None => Target::stranger(Some(id.clone()), url.clone()),
        }
    }

    /// The peer's manifest, as far as its key is known to be the peer's.
    pub async fn manifest(
        &self,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Manifest, PeerFault> {
        self.introduced(target, freshness, |_| true).await
    }

    /// The same, if the manifest's keys fit something that the peer has signed. Nothing is remembered of
    /// another one: whoever names an address must not choose whose key is pinned.
    pub async fn introduced(
        &self,
        target: &Target,
        freshness: Freshness,
        fits: impl Fn(&Manifest) -> bool,
    ) -> Result<Manifest, PeerFault> {
        let age = freshness.age();
        if let Some(manifest) = self.cache.get(target, age, Instant::now()) {
            return if fits(&manifest) { Ok(manifest) } else { Err(PeerFault::OtherSigner) };
        }
        self.asked(target, async {
            let manifest = manifests::fetch(&self.client, target).await?;
            if !fits(&manifest) {
                return Err(PeerFault::OtherSigner);
            }
            manifests::judge(&*self.pins, target, &manifest, Timestamp::now()).await?;
            self.cache.put(target, manifest.clone(), Instant::now());
            Ok(manifest)
        })
        .await
    }

    /// The manifest of a gateway that says that it asks, if there is one that is new enough; and whether its key is
    /// remembered.
    pub fn claimed_before(
        &self,
        target: &Target,
        freshness: Freshness,
    ) -> Option<(Manifest, bool)> {
        self.cache.get_claimed(target, freshness.age(), Instant::now())
    }

    /// Fetches the manifest of a gateway that says that it asks. A known one is judged by its key; of another one
    /// nothing is remembered until [`Peers::met`]. Also returns whether it is known, as it was judged.
    pub async fn claimed(&self, target: &Target) -> Result<(Manifest, bool), PeerFault> {
        self.asked(target, async {
            let manifest = manifests::fetch(&self.client, target).await?;
            let now = Timestamp::now();
            let is_known = manifests::judge_claim(&*self.pins, target, &manifest, now).await?;
            match target.reach {
                _ if is_known => self.cache.put(target, manifest.clone(), Instant::now()),
                Reach::Static => self.cache.put_claimed(target, manifest.clone(), Instant::now()),
                // Whose address it is, is said by nobody but itself.
                Reach::Public => {}
            }
            Ok((manifest, is_known))
        })
        .await
    }

    /// A gateway may ask for what it asked for: its key is remembered. An error: it is another gateway's by now.
    pub async fn met(&self, target: &Target, manifest: &Manifest) -> Result<(), PeerFault> {
        manifests::judge(&*self.pins, target, manifest, Timestamp::now()).await?;
        self.cache.put(target, manifest.clone(), Instant::now());
        Ok(())
    }

    /// Asks a peer for its manifest now, also one that is to be left alone: an operator wants to know. What
    /// it answers counts as always.
    pub async fn probe(&self, target: &Target) -> Result<Probed, PeerFault> {
        let begun = Instant::now();
        let probing = async {
            let (manifest, version) = manifests::fetch_with_version(&self.client, target).await?;
            let round_trip = begun.elapsed();
            manifests::judge(&*self.pins, target, &manifest, Timestamp::now()).await?;
            self.cache.put(target, manifest.clone(), Instant::now());
            Ok(Probed { manifest, version, round_trip })
        };
        let probed = probing.await;
        match &probed {
            Ok(_) => self.penalties().answered(&target.name()),
            Err(fault) => self.blame(target, fault),
        }
        probed
    }

    /// Asks with a federation token for this action on `subject`. The whole answer is read, and its
    /// status is the caller's to judge, unless it says that the peer failed, or is to be asked later.
    pub async fn ask(
        &self,
        target: &Target,
        action: FederationAction,
        subject: &str,
        request: PeerRequest,
        limits: ReadLimits,
    ) -> Result<(StatusCode, Bytes), PeerFault> {
        self.asked(target, async {
            whole(self.send(target, action, subject, request, limits).await?).await
        })
        .await
    }

    /// Tells a gateway something once, also one that is to be left alone: what it did is no reason to leave it
    /// waiting for us. What it answers counts as always.
    pub async fn tell(
        &self,
        target: &Target,
        gateway: &GatewayId,
        (action, subject): (FederationAction, &str),
        request: PeerRequest,
        limits: ReadLimits,
    ) -> Result<(StatusCode, Bytes), PeerFault> {
        let token = self.token(gateway, action, subject);
        self.counted(target, async {
            whole(self.client.ask(target, request.bearer(&token), limits).await?).await
        })
        .await
    }

    /// Sends a request with a federation token. What comes of it is counted by [`Peers::asked`].
    pub(crate) async fn send(
        &self,
        target: &Target,
        action: FederationAction,
        subject: &str,
        request: PeerRequest,
        limits: ReadLimits,
    ) -> Result<Answer, PeerFault> {
        let manifest = self.manifest(target, Freshness::Cached).await?;
        let token = self.token(&manifest.gateway_id, action, subject);
        self.client.ask(target, request.bearer(&token), limits).await
    }

    /// Sends a request without a token.
    pub(crate) async fn send_openly(
        &self,
        target: &Target,
        request: PeerRequest,
        limits: ReadLimits,
    ) -> Result<Answer, PeerFault> {
        self.client.ask(target, request, limits).await
    }

    /// A token with which this gateway asks that one, once and soon.
    pub fn token(&self, gateway: &GatewayId, action: FederationAction, subject: &str) -> String {
        let Credentials { id, url, keys } = &self.me;
        let asked = Asked { gateway, action, subject };
        let (jti, now) = (Uuid::new_v4(), Timestamp::now());
        FederationClaims::new(id.clone(), url.clone(), asked, jti, now).sign(&keys.identity())
    }

    /// Asks a peer, unless it is to be left alone, and counts what comes of it. For everything that is
    /// done with a peer's answer and may show that it lied.
    pub async fn asked<T>(
        &self,
        target: &Target,
        asking: impl Future<Output = Result<T, PeerFault>>,
    ) -> Result<T, PeerFault> {
        if let Some(wait) = self.waits(target) {
            return Err(PeerFault::BackedOff { wait });
        }
        self.counted(target, asking).await
    }

    async fn counted<T>(
        &self,
        target: &Target,
        asking: impl Future<Output = Result<T, PeerFault>>,
    ) -> Result<T, PeerFault> {
        let peer = target.name();
        let answer = asking.await;
        match &answer {
            Ok(_) => self.penalties().answered(&peer),
            Err(fault) => self.blame(target, fault),
        }
        answer
    }

    /// How much longer a peer is left alone.
    pub fn waits(&self, target: &Target) -> Option<Duration> {
        self.penalties().wait(&target.name(), Instant::now())
    }

    /// The operator approved a peer's key, or says that it is well again.
    pub fn forgive(&self, target: &Target) {
        self.penalties().forgive(&target.name());
        target.expected.iter().for_each(|id| self.cache.forget(id));
    }

    fn blame(&self, target: &Target, fault: &PeerFault) {
        let (peer, blame) = (target.name(), fault.blame());
        let random = getrandom::u32().unwrap_or(u32::MAX / 2);
        self.penalties().blame(&peer, blame, Instant::now(), random);
        // A stranger goes by its host: the id is the one that was expected there.
        let gateway = target.expected.as_ref().map(tracing::field::display);
        match blame {
            Blame::None => tracing::debug!(peer, gateway, %fault, "a peer's answer is not taken"),
            Blame::Failure => {
                tracing::warn!(peer, gateway, %fault, "a peer failed and is backed off");
            }
            Blame::Lie => tracing::warn!(peer, gateway, %fault, "a peer lied and is backed off"),
        }
    }

    fn penalties(&self) -> MutexGuard<'_, Penalties> {
        self.penalties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole answer, unless it says that the peer failed, or is to be asked later.
async fn whole(answer: Answer) -> Result<(StatusCode, Bytes), PeerFault> {
    if answer.status == StatusCode::TOO_MANY_REQUESTS {
        return Err(answer.limited());
    }
    if answer.status.is_server_error() {
        return Err(PeerFault::Status(answer.status.as_u16()));
    }
    Ok((answer.status, answer.body.read().await?))
}
