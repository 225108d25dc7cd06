//! What a gateway says to trackers, and asks them (SBP-L6-03).
//!
//! A tracker is a peer like any other: it is in the configuration or it is a stranger, its key is
//! pinned, and it is left alone when it lies. It can hide a bundle; it cannot forge one.

use bowline_sbp::cid::Cid;
use bowline_sbp::federation::registry::{LARGEST_ANSWER, MOST_CIDS};
use bowline_sbp::federation::{
    Announced, Announcement, Manifest, RegistryAnswer, RegistryError, Role,
};
use jiff::Timestamp;

use crate::client::PeerRequest;
use crate::fault::PeerFault;
use crate::limits::ReadLimits;
use crate::peers::{Credentials, Freshness, Peers};
use crate::target::Target;

/// Where a tracker's registry is; for a look-up followed by `/` and the content id.
pub const REGISTRY_PATH: &str = "/v1/sbp/registry";

impl Peers {
    /// Tells a tracker which bundles this gateway has, and which it gives no more. Bundles that it
    /// still has are announced again before they expire there.
    pub async fn announce(
        &self,
        tracker: &Target,
        cids: &[Announced],
        withdraw: &[Cid],
    ) -> Result<(), PeerFault> {
        self.tracker(tracker, Freshness::Cached).await?;
        for announcement in self.announcements(cids, withdraw) {
            let body = announcement.sign(&self.me().keys.identity());
            let (request, limits) =
                (PeerRequest::post(REGISTRY_PATH, body), ReadLimits::small(LARGEST_ANSWER));
            self.asked(tracker, async {
                let answer = self.send_openly(tracker, request, limits).await?.ok()?;
                answer.body.read().await
            })
            .await?;
        }
        Ok(())
    }

    /// Which gateways have that bundle, as the tracker says.
    pub async fn look_up(&self, tracker: &Target, cid: Cid) -> Result<RegistryAnswer, PeerFault> {
        let manifest = self.tracker(tracker, Freshness::Cached).await?;
        let request = PeerRequest::get(format!("{REGISTRY_PATH}/{cid}"));
        let limits = ReadLimits::small(LARGEST_ANSWER);
        self.asked(tracker, async {
            let answer = self.send_openly(tracker, request, limits).await?.ok()?;
            let text = answer.body.read().await?;
            let read = |manifest: &Manifest| {
                let (id, now) = (&manifest.gateway_id, Timestamp::now());
                RegistryAnswer::read(&text, id, &manifest.key, cid, now)
            };
            match read(&manifest) {
                // Perhaps the tracker has a new key.
                Err(RegistryError::Signature) => {
                    Ok(read(&self.tracker(tracker, Freshness::Fresh).await?)?)
                }
                answer => Ok(answer?),
            }
        })
        .await
    }

    async fn tracker(&self, target: &Target, how: Freshness) -> Result<Manifest, PeerFault> {
        let manifest = self.manifest(target, how).await?;
        match manifest.role {
            Role::Tracker | Role::Both => Ok(manifest),
            Role::Gateway => Err(PeerFault::NoTracker),
        }
    }

    /// In announcements of no more than the most content ids.
    fn announcements(&self, cids: &[Announced], withdraw: &[Cid]) -> Vec<Announcement> {
        let Credentials { id, url, .. } = self.me();
        let announcement = |cids: &[Announced], withdraw: &[Cid]| Announcement {
            gateway_id: id.clone(),
            url: url.clone(),
            cids: cids.to_vec(),
            withdraw: withdraw.to_vec(),
            issued_at: Timestamp::now().as_second(),
        };
        let announced = cids.chunks(MOST_CIDS).map(|cids| announcement(cids, &[]));
        let withdrawn = withdraw.chunks(MOST_CIDS).map(|cids| announcement(&[], cids));
        announced.chain(withdrawn).collect()
    }
}
