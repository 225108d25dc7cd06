//! The suite's gateway: it has bundles for the server under test, asks for some, and takes announcements.
//!
//! It stands for several gateways, each at a path of its own: one that is honest, and one for each lie,
//! because a server may leave a gateway alone that lied once.
//!
//! Its key is known to everyone, so that a server which remembers it knows it the next time: nothing
//! but a server under test may have it among its peers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::keys::{self, Identity};
use super::offer::Offer;
use super::serve;

/// Which gateway the peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persona {
    Honest,
    /// Gives other bytes than the content id says.
    OtherBytes,
    /// Gives a bundle that never ends.
    Endless,
    /// Sends to another address for a bundle.
    Redirects,
}

impl Persona {
    pub(crate) const ALL: [Persona; 4] =
        [Persona::Honest, Persona::OtherBytes, Persona::Endless, Persona::Redirects];

    /// Its gateway id; also its path, but for the honest one.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Persona::Honest => "suite",
            Persona::OtherBytes => "suite-bytes",
            Persona::Endless => "suite-endless",
            Persona::Redirects => "suite-redirects",
        }
    }

    /// Whom a path is for, and the rest of it.
    pub(super) fn at(path: &str) -> (Self, &str) {
        for persona in &Self::ALL[1..] {
            let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(persona.id()));
            if let Some(rest) = rest.filter(|rest| rest.starts_with('/')) {
                return (*persona, rest);
            }
        }
        (Persona::Honest, path)
    }
}

/// A request that the server under test made.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) persona: Persona,
    pub(crate) path: String,
    /// Its federation token, if it showed one.
    pub(crate) token: Option<String>,
    /// When it came, in seconds since 1970.
    pub(crate) at: u64,
}

/// What the peer keeps.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) offers: Vec<Offer>,
    /// The exports that are reserved, by the reservations' ids.
    pub(super) reservations: HashMap<String, String>,
    pub(super) requests: Vec<Request>,
    pub(super) announcements: Vec<String>,
    /// How many bytes of endless bundles were read.
    pub(super) endless: usize,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) identity: Identity,
    pub(super) base: String,
    kept: Mutex<Kept>,
}

impl Shared {
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn url(&self, persona: Persona) -> String {
        match persona {
            Persona::Honest => self.base.clone(),
            other => format!("{}/{}", self.base, other.id()),
        }
    }
}

/// A running peer.
#[derive(Debug)]
pub struct Peer {
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Peer {
    /// Starts at this address. `url` is how the server under test reaches it, if that is another address.
    pub async fn start(listen: SocketAddr, url: Option<&str>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let base = url.map_or(own, |url| url.trim_end_matches('/').to_owned());
        let kept = Kept {
            offers: Vec::new(),
            reservations: HashMap::new(),
            requests: Vec::new(),
            announcements: Vec::new(),
            endless: 0,
        };
        let identity = Identity::from_seed(SEED);
        let shared = Arc::new(Shared { identity, base, kept: Mutex::new(kept) });
        let server = tokio::spawn(serve::serve(listener, Arc::clone(&shared)));
        Ok(Self { shared, server })
    }

    /// What the server under test has to know: gateway ids and addresses.
    pub fn peers(&self) -> Vec<(&'static str, String)> {
        Persona::ALL.into_iter().map(|persona| (persona.id(), self.url(persona))).collect()
    }

    /// The tracker that it has to know: its id and address.
    pub fn tracker(&self) -> (&'static str, String) {
        (Persona::Honest.id(), self.url(Persona::Honest))
    }

    pub(crate) fn url(&self, persona: Persona) -> String {
        self.shared.url(persona)
    }

    /// A new session that the server under test may take.
    pub(crate) fn offer(&self, persona: Persona) -> Offer {
        let offer = Offer::new(&self.shared.identity, persona, &self.url(persona));
        self.shared.kept().offers.push(offer.clone());
        offer
    }

    /// A federation token of the honest gateway's: for `audience`, to get that bundle, changed as said.
    pub(crate) fn token(
        &self,
        audience: &str,
        cid: &str,
        change: impl FnOnce(&mut Value),
    ) -> String {
        self.token_for("bundle", audience, cid, change)
    }

    /// The same, for any action.
    pub(crate) fn token_for(
        &self,
        action: &str,
        audience: &str,
        subject: &str,
        change: impl FnOnce(&mut Value),
    ) -> String {
        let mut claims = self.claims(audience);
        claims["act"] = json!(action);
        claims["ref"] = json!(subject);
        change(&mut claims);
        self.shared.identity.token(FEDERATION_TOKEN, &claims)
    }

    /// The same, signed by somebody else.
    pub(crate) fn forged(&self, audience: &str, cid: &str) -> String {
        let mut claims = self.claims(audience);
        claims["act"] = json!("bundle");
        claims["ref"] = json!(cid);
        stranger().token(FEDERATION_TOKEN, &claims)
    }

    fn claims(&self, audience: &str) -> Value {
        let iat = now();
        json!({
            "iss": Persona::Honest.id(), "url": self.shared.base, "aud": audience, "iat": iat,
            "exp": iat + 60, "jti": Uuid::new_v4().to_string(),
        })
    }

    /// What that gateway was asked so far.
    pub(crate) fn requests(&self, persona: Persona) -> Vec<Request> {
        let kept = self.shared.kept();
        kept.requests.iter().filter(|request| request.persona == persona).cloned().collect()
    }

    /// All requests.
    pub(crate) fn all_requests(&self) -> Vec<Request> {
        self.shared.kept().requests.clone()
    }

    /// Whether the server under test has ever asked who the suite's gateway is.
    pub(crate) fn is_known(&self) -> bool {
        self.shared.kept().requests.iter().any(|request| request.persona == Persona::Honest)
    }

    /// The announcement of a bundle, if the server under test has sent one to the suite's tracker.
    pub(crate) fn announcement_of(&self, cid: &str) -> Option<String> {
        self.shared.kept().announcements.iter().find(|text| text.contains(cid)).cloned()
    }

    /// An announcement of the honest gateway's, that it has a bundle.
    pub(crate) fn announces(&self, cid: &str) -> Value {
        let issued_at = now();
        self.shared.identity.signed(
            keys::ANNOUNCEMENT,
            json!({
                "gateway_id": Persona::Honest.id(), "url": self.shared.base, "withdraw": [],
                "cids": [{ "cid": cid, "expires_at": issued_at + 600 }], "issued_at": issued_at,
            }),
        )
    }

    /// How many bytes of endless bundles were read.
    pub(crate) fn endless_bytes(&self) -> usize {
        self.shared.kept().endless
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A key that no manifest names.
pub(crate) fn stranger() -> Identity {
    Identity::from_seed(b"a key that no manifest ever has.")
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const SEED: &[u8; 32] = b"the conformance suite's open key";
const FEDERATION_TOKEN: &str = "sbp-fed+jwt";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_servers_way_to_the_suite_may_be_another_address() {
        let listen = || "127.0.0.1:0".parse().unwrap();
        let peer = Peer::start(listen(), Some("http://suite:8098/")).await.unwrap();
        assert_eq!(peer.tracker().1, "http://suite:8098");
        assert_eq!(peer.url(Persona::Endless), "http://suite:8098/suite-endless");
        for url in ["http://suite:8099", "http://suite:8099/v1/"] {
            let model = crate::model::Model::start(listen(), Some(url)).await.unwrap();
            assert_eq!(model.url(), "http://suite:8099/v1");
        }
    }

    #[test]
    fn each_gateway_has_a_path_of_its_own() {
        assert_eq!(Persona::at("/v1/sbp/bundles/x"), (Persona::Honest, "/v1/sbp/bundles/x"));
        assert_eq!(Persona::at("/suite-bytes/v1/x"), (Persona::OtherBytes, "/v1/x"));
        assert_eq!(Persona::at("/suite-bytesy/v1/x"), (Persona::Honest, "/suite-bytesy/v1/x"));
    }
}
