//! Who asks this gateway: known by a token that it signed for this one request (SBP-L6-02).
//!
//! Anybody can make a token that names any gateway and any address. So a gateway that is not known is believed for
//! this request alone: its key is remembered ([`Federation::met`]) only once its request turned out to be one that it
//! may make. Otherwise whoever comes first would be somebody else from then on.
//!
//! Invariants
//! - Nobody's key is looked up for a token that is useless anyway, nor more often than [`KeyFetches`] allows.
//! - Nothing is read for a peer before its token was verified and used up.

use bowline_federation::manifests::accepted_keys;
use bowline_federation::{Freshness, PeerFault, Target};
use bowline_net::PeerName;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{
    Asked, BaseUrl, FederationClaims, FederationTokenError, GatewayId, Manifest,
    UnverifiedFederationToken,
};
use bowline_store::Store;
use jiff::Timestamp;

use super::Federation;
use crate::clock;

/// A gateway that asks.
#[derive(Debug)]
pub(crate) struct AskingGateway {
    pub(crate) iss: GatewayId,
    /// Where it says that it is.
    pub(crate) url: BaseUrl,
    /// Its key is not remembered yet: where it was found, and what it said there.
    unmet: Option<Box<(Target, Manifest)>>,
}

impl Federation {
    /// Who asks, by the federation token that it shows: verified, and used up. `from`: the network of the
    /// request; none: this machine.
    pub(crate) async fn authenticate(
        &self,
        store: &dyn Store,
        token: Option<&str>,
        asked: Asked<'_>,
        from: Option<&PeerName>,
    ) -> Result<AskingGateway, Failure> {
        let token = token.ok_or(FederationTokenError::Unreadable)?;
        let token = UnverifiedFederationToken::peek(token)?;
        let unfit = |error: &FederationTokenError| {
            tracing::warn!(peer = %token.issuer(), %error, "a federation token is refused");
        };
        token.check(asked, clock::now()).inspect_err(unfit)?;
        if *token.issuer() == self.me().id {
            let why = "the federation token is of a gateway with the id of this one";
            return Err(Failure::new(Code::Unauthorized, why));
        }
        let (claims, found, is_known) = self.verified(&token, asked, from).await?;
        let until = Timestamp::from_second(claims.exp).map_err(|_| FederationTokenError::Time)?;
        if !store.use_peer_token(claims.iss.clone(), claims.jti, until).await? {
            tracing::warn!(peer = %claims.iss, "a federation token was shown again");
            let why = "the federation token was used before";
            return Err(Failure::new(Code::Unauthorized, why));
        }
        let FederationClaims { iss, url, .. } = claims;
        Ok(AskingGateway { iss, url, unmet: (!is_known).then(|| Box::new(found)) })
    }

    /// Whether a gateway of that id can be told from another one: it is named in the configuration, or its key is
    /// remembered.
    pub(crate) async fn can_tell(
        &self,
        store: &dyn Store,
        gateway: &GatewayId,
    ) -> Result<bool, Failure> {
        Ok(self.is_named(gateway) || store.peer(gateway.clone()).await?.is_some())
    }

    /// Whether that is the gateway which others mean by its id; not one that says so for the first time.
    pub(crate) fn is_sure_of(&self, peer: &AskingGateway) -> bool {
        peer.unmet.is_none() || self.is_named(&peer.iss)
    }

    /// It may ask for that: who it is, is remembered.
    pub(crate) async fn met(&self, peer: &AskingGateway) -> Result<(), Failure> {
        let Some(unmet) = &peer.unmet else { return Ok(()) };
        let (target, manifest) = &**unmet;
        let met = self.peers.met(target, manifest).await;
        met.map_err(|fault| match fault {
            PeerFault::Pins(_) => fault.told(&peer.iss),
            fault => unknown(&peer.iss, &fault),
        })
    }

    fn is_named(&self, gateway: &GatewayId) -> bool {
        self.peers.is_named(gateway)
    }

    async fn verified(
        &self,
        token: &UnverifiedFederationToken,
        asked: Asked<'_>,
        from: Option<&PeerName>,
    ) -> Result<(FederationClaims, (Target, Manifest), bool), Failure> {
        let issuer = token.issuer();
        let target = self.peers.target(issuer, token.url());
        let mut refused = FederationTokenError::Signature;
        // A key that was replaced a moment ago is in the manifest of now.
        for freshness in [Freshness::Cached, Freshness::Fresh] {
            let before = self.peers.claimed_before(&target, freshness);
            let is_new = before.is_none();
            // Known when its key was judged: what is remembered since may be another one's.
            let (manifest, is_known) = match before {
                Some(claimed) => claimed,
                None => self.fetched(issuer, &target, from).await?,
            };
            for key in accepted_keys(&manifest, clock::now()) {
                match token.verify(&key, asked, clock::now()) {
                    Ok(claims) => return Ok((claims, (target, manifest), is_known)),
                    Err(error) => refused = error,
                }
            }
            if is_new {
                break;
            }
        }
        tracing::warn!(peer = %issuer, "a federation token has a wrong signature");
        Err(refused.into())
    }

    async fn fetched(
        &self,
        issuer: &GatewayId,
        target: &Target,
        from: Option<&PeerName>,
    ) -> Result<(Manifest, bool), Failure> {
        // What is not asked anyway takes no permit.
        target.check().map_err(|bad| unknown(issuer, &bad.into()))?;
        let _permit = self.key_fetches.permit(from, target).await?;
        self.peers.claimed(target).await.map_err(|fault| match fault {
            PeerFault::Pins(_) => fault.told(issuer),
            fault => unknown(issuer, &fault),
        })
    }
}

/// The peer's key is not known: that it is who it says cannot be verified. If its key only cannot be fetched now, the
/// same request may succeed later, and is not refused for good.
fn unknown(peer: &GatewayId, fault: &PeerFault) -> Failure {
    tracing::warn!(%peer, %fault, "a federation token cannot be verified");
    let why = format!("the key of the gateway {peer} is not known here: {fault}");
    let code = match fault {
        PeerFault::BackedOff { .. } | PeerFault::Limited { .. } => Code::Unavailable,
        PeerFault::Late(_) => Code::UpstreamTimeout,
        PeerFault::Unreachable(_) | PeerFault::BrokenOff | PeerFault::Status(500..) => {
            Code::Upstream
        }
        _ => Code::Unauthorized,
    };
    let retry_after = match fault {
        PeerFault::BackedOff { wait } | PeerFault::Limited { wait } => Some(wait.as_secs() + 1),
        _ => None,
    };
    Failure { retry_after, ..Failure::new(code, why) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bowline_sbp::federation::{Endpoints, Role};
    use bowline_sbp::gateway_key::GatewayIdentity;
    use bowline_store::sqlite::Sqlite;

    use super::*;
    use crate::config::{FederationConfig, PeerConfig};

    /// A gateway that knows `work`, and remembers nobody yet.
    fn federation(store: &Arc<dyn Store>) -> Federation {
        let work = PeerConfig {
            url: Some("https://work.example".parse().unwrap()),
            ..PeerConfig::default()
        };
        let config = FederationConfig {
            enabled: true,
            gateway_id: Some("home".parse().unwrap()),
            peers: [("work".to_owned(), work)].into(),
            ..FederationConfig::default()
        };
        let own = Arc::new(GatewayIdentity::from_seed(&[1; 32]).into());
        let federation = Federation::new(&config, "https://home.example", own, Arc::clone(store));
        federation.unwrap().unwrap()
    }

    /// One of that id and with the key of that number, which asks for the first time.
    fn unmet(id: &str, n: u8) -> AskingGateway {
        let iss: GatewayId = id.parse().unwrap();
        let url: BaseUrl = format!("https://{id}-{n}.example").parse().unwrap();
        let manifest = Manifest {
            gateway_id: iss.clone(),
            gateway_name: String::new(),
            role: Role::Gateway,
            key: GatewayIdentity::from_seed(&[n; 32]).public(),
            url: url.clone(),
            endpoints: Endpoints::default(),
            issued_at: clock::now().as_second(),
            previous: Vec::new(),
        };
        let target = Target::stranger(Some(iss.clone()), url.clone());
        AskingGateway { iss, url, unmet: Some(Box::new((target, manifest))) }
    }

    #[test]
    fn sbp_l6_02_a_key_that_cannot_be_fetched_now_is_no_wrong_key() {
        let wait = Duration::from_secs(3);
        for (fault, code, retry_after) in [
            (PeerFault::Unreachable("refused".into()), Code::Upstream, None),
            (PeerFault::Status(503), Code::Upstream, None),
            (PeerFault::BackedOff { wait }, Code::Unavailable, Some(4)),
            (PeerFault::Limited { wait }, Code::Unavailable, Some(4)),
            (PeerFault::NotFound, Code::Unauthorized, None),
            (PeerFault::Elsewhere, Code::Unauthorized, None),
            (PeerFault::OtherSigner, Code::Unauthorized, None),
        ] {
            let failure = unknown(&"work".parse().unwrap(), &fault);
            assert_eq!((failure.code, failure.retry_after), (code, retry_after), "{fault}");
        }
    }

    #[tokio::test]
    async fn g20_whoever_says_to_be_a_gateway_for_the_first_time_may_be_anybody() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(folder.path()).unwrap());
        let federation = federation(&store);
        assert!(federation.is_sure_of(&unmet("work", 2)), "the configuration says where it is");
        let (honest, other) = (unmet("other", 2), unmet("other", 3));
        assert!(!federation.is_sure_of(&honest));
        let known = AskingGateway { unmet: None, ..unmet("other", 2) };
        assert!(federation.is_sure_of(&known));
        let id = honest.iss.clone();
        assert!(!federation.can_tell(&*store, &id).await.unwrap());
        assert!(federation.can_tell(&*store, &"work".parse().unwrap()).await.unwrap());
        // Of two that ask at once, the first one that may is the one.
        federation.met(&honest).await.unwrap();
        assert!(federation.can_tell(&*store, &id).await.unwrap());
        let refused = federation.met(&other).await.unwrap_err();
        assert_eq!(refused.code, Code::Unauthorized, "{}", refused.message);
        let pinned = store.peer(id).await.unwrap().unwrap().pin;
        assert_eq!(pinned.key, GatewayIdentity::from_seed(&[2; 32]).public());
        federation.met(&known).await.unwrap();
    }
}
