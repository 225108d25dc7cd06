//! Where a token of another gateway leads: its issuer is looked for, and has signed it (SBP-L6-04).
//!
//! Looked for in the configuration, then at the address in the token, then at trackers and in DNS; each is asked
//! only if nothing before it led there. A candidate counts only if its key has signed the token, so nobody who
//! names an address decides whose session comes here, and no key is pinned for who is not the issuer.

use std::time::Duration;

use bowline_federation::manifests::accepted_keys;
use bowline_federation::{Candidate, FoundBy, Freshness, PeerFault, Target, Wanted};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{ForeignRoamingClaims, Manifest, UnverifiedRoamingToken};
use bowline_sbp::roaming_token::TokenError;
use jiff::Timestamp;

use crate::clock;
use crate::federation::Federation;

/// How long the search may take. The client waits for it.
const PATIENCE: Duration = Duration::from_secs(40);

/// The gateway that issued the token, and what it says in it.
pub(super) async fn find(
    federation: &Federation,
    token: &UnverifiedRoamingToken,
) -> Result<(Target, ForeignRoamingClaims), Failure> {
    let mut tried = Tried::default();
    let searching = async {
        let wanted = Wanted {
            gateway: Some(token.issuer().clone()),
            cid: Some(token.cid()),
            said: Some(token.url().clone()),
        };
        let mut search = federation.discovery.search(wanted);
        while let Some(candidate) = search.next().await {
            match verified(federation, &candidate.target, token).await {
                Ok(claims) => {
                    let Candidate { target, found_by } = candidate;
                    if !matches!(found_by, FoundBy::Configuration | FoundBy::Token) {
                        tracing::info!(origin = %claims.iss, url = %target.url, ?found_by, "a gateway was found");
                    }
                    return Ok((target, claims));
                }
                Err(NotIssuer::Expired) => return Err(TokenError::Expired.into()),
                Err(NotIssuer::Fault(fault)) => tried.add(fault),
            }
        }
        Err(tried.failure(token))
    };
    let late = || {
        let why = format!("the gateway {} was not found in time", token.issuer());
        Failure::new(Code::UpstreamTimeout, why)
    };
    tokio::time::timeout(PATIENCE, searching).await.map_err(|_| late())?
}

/// Why a candidate is not the issuer.
enum NotIssuer {
    /// It is, and the token has expired.
    Expired,
    Fault(PeerFault),
}

async fn verified(
    federation: &Federation,
    candidate: &Target,
    token: &UnverifiedRoamingToken,
) -> Result<ForeignRoamingClaims, NotIssuer> {
    let now = clock::now();
    let has_signed = |manifest: &Manifest| signed(manifest, token, now).is_some();
    // A key that was replaced a moment ago is in the manifest of now.
    let mut manifest = Err(PeerFault::OtherSigner);
    for freshness in [Freshness::Cached, Freshness::Fresh] {
        manifest = federation.peers.introduced(candidate, freshness, has_signed).await;
        if manifest != Err(PeerFault::OtherSigner) {
            break;
        }
    }
    let manifest = manifest.map_err(NotIssuer::Fault)?;
    let claims = signed(&manifest, token, now).ok_or(NotIssuer::Fault(PeerFault::OtherSigner))?;
    if claims.exp <= now.as_second() { Err(NotIssuer::Expired) } else { Ok(claims) }
}

/// The claims, if a key of that manifest has signed them.
fn signed(
    manifest: &Manifest,
    token: &UnverifiedRoamingToken,
    now: Timestamp,
) -> Option<ForeignRoamingClaims> {
    let keys = accepted_keys(manifest, now);
    keys.iter().find_map(|key| token.verify_expired(key).ok())
}

/// What was wrong with the candidates.
#[derive(Default)]
struct Tried {
    first: Option<PeerFault>,
    is_forged: bool,
}

impl Tried {
    fn add(&mut self, fault: PeerFault) {
        self.is_forged |= fault == PeerFault::OtherSigner;
        self.first.get_or_insert(fault);
    }

    fn failure(&mut self, token: &UnverifiedRoamingToken) -> Failure {
        let issuer = token.issuer();
        match self.first.take() {
            // Somebody of that name is there, and did not sign.
            _ if self.is_forged => {
                let why = format!(
                    "the roaming token is not signed by the gateway {issuer} that it names"
                );
                Failure::new(Code::TokenInvalid, why)
            }
            Some(fault) => fault.told(issuer),
            None => {
                let why = format!(
                    "the gateway {issuer} cannot be found; name it in `federation.peers` (--peer ID=URL)"
                );
                Failure::new(Code::Upstream, why)
            }
        }
    }
}
