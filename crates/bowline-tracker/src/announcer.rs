//! Verifies announcements: who signed, and whether that key is at the address that is announced.
//!
//! The key is asked for at the announcer's own address, under the rules for strangers, and remembered
//! for a while. Who owns the address owns the record: an id alone proves nothing, because nobody gives
//! ids out, so nobody can take one away from somebody else here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_federation::lookup::Lookup;
use bowline_federation::{PeerClient, PeerFault, StaticPeer, Target, manifests};
use bowline_net::trust::NoTlsConfig;
use bowline_sbp::federation::{
    Announcement, BaseUrl, GatewayId, RegistryError, UnverifiedAnnouncement,
};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::Semaphore;

use crate::error::RequestError;
use crate::registry::KnownGateway;
use crate::threads::RegistryThreads;
use crate::throttles::Throttles;

/// Keys that are fetched at once.
const FETCHES: usize = 32;

#[derive(Debug)]
pub(crate) struct Announcers {
    peers: BTreeMap<GatewayId, BaseUrl>,
    only_peers: bool,
    key_age: i64,
    client: PeerClient,
    fetches: Semaphore,
}

impl Announcers {
    pub(crate) fn new(
        peers: BTreeMap<GatewayId, BaseUrl>,
        only_peers: bool,
        key_age: Duration,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, NoTlsConfig> {
        let key_age = i64::try_from(key_age.as_secs()).unwrap_or(i64::MAX);
        let (client, fetches) = (PeerClient::new(lookup)?, Semaphore::new(FETCHES));
        Ok(Self { peers, only_peers, key_age, client, fetches })
    }

    /// The announcement, if the gateway that it names has signed it.
    pub(crate) async fn verify(
        &self,
        body: Bytes,
        registry: &RegistryThreads,
        throttles: &Throttles,
    ) -> Result<(Announcement, KnownGateway), RequestError> {
        let now = Timestamp::now();
        // Thousands of ids take milliseconds to read and to verify.
        let peeked = blocking(move || peek(&body, now)).await?;
        let target = self.target(&peeked)?;
        let (id, url) = (peeked.gateway_id().clone(), peeked.url().clone());
        let known = registry.read(move |registry| registry.gateway(&id, &url)).await?;
        let fresh = now.as_second().saturating_sub(self.key_age);
        if let Some(known) = known.filter(|known| known.checked_at > fresh) {
            match verified(peeked.clone(), known, now).await {
                // Perhaps it has a new key.
                Err(RequestError::Announcement(RegistryError::Signature)) => {}
                answer => return answer,
            }
        }
        throttles.may_fetch_key(target.host())?;
        let key = self.fetch_key(&target, &peeked).await?;
        let known = KnownGateway { key, checked_at: now.as_second() };
        verified(peeked, known, now).await
    }

    /// Where the announcer's key is asked for.
    fn target(&self, peeked: &UnverifiedAnnouncement) -> Result<Target, RequestError> {
        let (id, url) = (peeked.gateway_id(), peeked.url());
        let target = match self.peers.get(id) {
            Some(own) => Target::named(&StaticPeer { id: id.clone(), url: own.clone(), key: None }),
            None if self.only_peers => return Err(RequestError::NotAPeer),
            None => Target::stranger(Some(id.clone()), url.clone()),
        };
        target.check().map_err(|error| RequestError::Announcer(error.into()))?;
        Ok(target)
    }

    async fn fetch_key(
        &self,
        target: &Target,
        peeked: &UnverifiedAnnouncement,
    ) -> Result<bowline_sbp::gateway_key::GatewayKey, RequestError> {
        // The semaphore is never closed.
        let _permit = self.fetches.acquire().await;
        let fetched = manifests::fetch(&self.client, target).await;
        let manifest = fetched.map_err(|fault| {
            tracing::info!(announcer = target.name(), %fault, "a key could not be verified");
            match fault {
                PeerFault::Elsewhere => RequestError::Elsewhere,
                fault => RequestError::Announcer(fault),
            }
        })?;
        let is_its_own = manifest.gateway_id == *peeked.gateway_id()
            && (manifest.url == *peeked.url() || target.url == *peeked.url());
        if is_its_own { Ok(manifest.key) } else { Err(RequestError::Elsewhere) }
    }
}

async fn verified(
    peeked: UnverifiedAnnouncement,
    known: KnownGateway,
    now: Timestamp,
) -> Result<(Announcement, KnownGateway), RequestError> {
    let announcement = blocking(move || Ok(peeked.verify(&known.key, now)?)).await?;
    Ok((announcement, known))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| RequestError::Registry(crate::registry::Error::Closed))?
}

/// What came, checked as far as that costs nothing.
fn peek(body: &[u8], now: Timestamp) -> Result<UnverifiedAnnouncement, RequestError> {
    let peeked = Announcement::peek(body)?;
    serde_json::from_slice::<Members>(body).map_err(|_| RequestError::NotAnAnnouncement)?;
    peeked.check(now)?;
    Ok(peeked)
}

/// The members that an announcement may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    #[serde(rename = "gateway_id")]
    _gateway_id: IgnoredAny,
    #[serde(rename = "url")]
    _url: IgnoredAny,
    #[serde(rename = "cids", default)]
    _cids: Vec<CidMembers>,
    #[serde(rename = "withdraw", default)]
    _withdraw: IgnoredAny,
    #[serde(rename = "issued_at")]
    _issued_at: IgnoredAny,
    #[serde(rename = "signature")]
    _signature: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CidMembers {
    #[serde(rename = "cid")]
    _cid: IgnoredAny,
    #[serde(rename = "expires_at")]
    _expires_at: IgnoredAny,
}

#[cfg(test)]
mod tests {
    use bowline_sbp::cid::Cid;
    use bowline_sbp::federation::Announced;
    use bowline_sbp::gateway_key::GatewayIdentity;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn sbp_l6_03_an_announcement_with_anything_else_in_it_is_refused() {
        let now = Timestamp::now();
        let at = now.as_second();
        let announcement = Announcement {
            gateway_id: "a".parse().unwrap(),
            url: "https://a.example".parse().unwrap(),
            cids: vec![Announced { cid: Cid::of_bytes(b"x"), expires_at: at + 60 }],
            withdraw: Vec::new(),
            issued_at: at,
        };
        let text = announcement.sign(&GatewayIdentity::from_seed(&[1; 32]));
        assert!(peek(text.as_bytes(), now).is_ok());
        let with = |change: &dyn Fn(&mut Value)| {
            let mut value: Value = serde_json::from_str(&text).unwrap();
            change(&mut value);
            peek(value.to_string().as_bytes(), now).map(drop)
        };
        let refused = Err(RequestError::NotAnAnnouncement);
        for name in ["bundle", "messages", "content", "label", "metadata", "x"] {
            assert_eq!(with(&|value| value[name] = json!("said")), refused, "{name}");
            assert_eq!(with(&|value| value["cids"][0][name] = json!({})), refused, "{name}");
        }
        let cids = with(&|value| value["cids"] = json!("said"));
        assert_eq!(cids, Err(RegistryError::Unreadable.into()));
        let withdraw = with(&|value| value["withdraw"] = json!(["said"]));
        assert_eq!(withdraw, Err(RegistryError::Unreadable.into()));
        assert!(peek(b"{", now).is_err());
    }
}
