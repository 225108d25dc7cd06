//! Fetches a bundle from a peer and verifies it (SBP-L6-02, the asking side).
//!
//! The content id is that of the canonical form, whose members are sorted: it is known only when all of
//! the text is there. Until then the text is counted and spooled, and nobody sees it.
//!
//! Invariant: a [`FetchedBundle`] has the content id that was asked for, and a good signature of the
//! gateway that was asked.

use std::path::Path;

use bowline_sbp::bundle::{BundleSignature, OpenError, Opened};
use bowline_sbp::cid::Cid;
use bowline_sbp::federation::FederationAction;
use bowline_sbp::federation::wire::{
    BUNDLES_PATH, RESERVATION_HEADER, ROAMING_TOKEN_HEADER, ReservationId,
};
use bowline_sbp::gateway_key::GatewayKey;
use hyper::header::HeaderName;
use jiff::Timestamp;

use crate::client::PeerRequest;
use crate::fault::PeerFault;
use crate::limits::ReadLimits;
use crate::manifests::accepted_keys;
use crate::peers::{Freshness, Peers};
use crate::spool::Spool;
use crate::target::Target;

/// Which bundle, and why it may be had.
#[derive(Debug, Clone, Copy)]
pub struct BundleRequest<'a> {
    pub cid: Cid,
    /// Its roaming token, if there is one.
    pub roaming_token: Option<&'a str>,
    /// The reservation that is held on it.
    pub reservation: Option<ReservationId>,
    /// Sizes and times; see [`ReadLimits::bundle`].
    pub limits: ReadLimits,
    /// The folder for what does not fit into memory.
    pub spool: &'a Path,
}

/// A bundle that was verified.
#[derive(Debug)]
pub struct FetchedBundle {
    /// As it came.
    pub text: String,
    pub opened: Opened,
    /// The key of the peer that signed it.
    pub signer: GatewayKey,
}

impl Peers {
    /// The bundle, verified.
    pub async fn bundle(
        &self,
        target: &Target,
        asked: BundleRequest<'_>,
    ) -> Result<FetchedBundle, PeerFault> {
        let mut request = PeerRequest::get(format!("{BUNDLES_PATH}/{}", asked.cid));
        if let Some(token) = asked.roaming_token {
            request = request.secret(HeaderName::from_static(ROAMING_TOKEN_HEADER), token);
        }
        if let Some(reservation) = asked.reservation {
            let name = HeaderName::from_static(RESERVATION_HEADER);
            request = request.secret(name, &reservation.to_string());
        }
        let (action, subject) = (FederationAction::Bundle, asked.cid.to_string());
        self.asked(target, async {
            let answer = self.send(target, action, &subject, request, asked.limits).await?;
            let mut body = answer.ok()?.body;
            let mut spool = Spool::new(asked.spool.to_owned());
            let unkept = |error: std::io::Error| PeerFault::Spool(error.to_string());
            while let Some(piece) = body.next().await? {
                spool.write(&piece).await.map_err(unkept)?;
            }
            let text = spool.whole().await.map_err(unkept)?;
            let cid = asked.cid;
            let opening = tokio::task::spawn_blocking(move || open(text, cid)).await;
            let (text, opened, signer) = opening.map_err(|_| PeerFault::Unreadable)??;
            if !self.is_key_of(target, signer).await? {
                return Err(PeerFault::Bundle(OpenError::OtherSigner(signer.fingerprint())));
            }
            Ok(FetchedBundle { text, opened, signer })
        })
        .await
    }

    /// Whether that key is, or lately was, the peer's.
    async fn is_key_of(&self, target: &Target, key: GatewayKey) -> Result<bool, PeerFault> {
        for freshness in [Freshness::Cached, Freshness::Fresh] {
            let manifest = self.manifest(target, freshness).await?;
            if accepted_keys(&manifest, Timestamp::now()).contains(&key) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn open(text: Vec<u8>, cid: Cid) -> Result<(String, Opened, GatewayKey), PeerFault> {
    let text = String::from_utf8(text).map_err(|_| PeerFault::OtherBundle)?;
    let opened = Opened::read(&text).map_err(PeerFault::Bundle)?;
    if opened.cid != cid {
        return Err(PeerFault::OtherBundle);
    }
    match opened.signature {
        BundleSignature::Signed(key) => Ok((text, opened, key)),
        BundleSignature::Unsigned => Err(PeerFault::Bundle(OpenError::Unsigned)),
        BundleSignature::Broken => Err(PeerFault::Bundle(OpenError::BrokenSignature)),
    }
}
