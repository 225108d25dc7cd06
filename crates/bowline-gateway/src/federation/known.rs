//! Other gateways and trackers as an operator sees them: what is known, whether they answer, and whose changed key
//! is accepted.
//!
//! Who is named is said by the configuration alone: named peers may have private addresses and get what their policy
//! says, so nobody with a stolen key of this gateway can name one.

use std::collections::BTreeMap;

use bowline_federation::{PeerFault, StaticPeer, Target};
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{GatewayId, Pin};
use bowline_sbp::federation::{PeerChecked, PeerList, PeerNamed, PeerView, PinState};
use bowline_sbp::gateway_key::{GatewayKey, KeyFingerprint};
use bowline_store::{KeptPeer, Store};

use super::Federation;

impl Federation {
    /// All that are named, and all whose key is remembered.
    pub(crate) async fn known_peers(&self, store: &dyn Store) -> Result<PeerList, Failure> {
        let kept = store.peers().await?.into_iter().map(|kept| (kept.id.clone(), kept));
        let mut kept: BTreeMap<_, _> = kept.collect();
        let peers = self.peers.named().iter().map(|peer| (PeerNamed::Peer, peer));
        let trackers = self.discovery.trackers.iter().map(|peer| (PeerNamed::Tracker, peer));
        let mut views = Vec::new();
        for (named, peer) in peers.chain(trackers) {
            views.push(self.view(&Target::named(peer), &peer.id, named, kept.get(&peer.id)));
        }
        let is_named = |id: &GatewayId| views.iter().any(|view| view.id == id.as_str());
        kept.retain(|id, _| !is_named(id));
        for (id, kept) in &kept {
            let target = Target::stranger(Some(id.clone()), kept.url.clone());
            views.push(self.view(&target, id, PeerNamed::No, Some(kept)));
        }
        let me = self.me();
        Ok(PeerList {
            gateway_id: me.id.to_string(),
            url: me.url.to_string(),
            fingerprint: me.keys.public().fingerprint().to_string(),
            peers: views,
        })
    }

    /// Asks a peer now.
    pub(crate) async fn check_peer(
        &self,
        store: &dyn Store,
        id: &GatewayId,
    ) -> Result<PeerChecked, Failure> {
        let (target, named) = self.target_of(store, id).await?;
        let probed = self.peers.probe(&target).await;
        let kept = store.peer(id.clone()).await?;
        let peer = self.view(&target, id, named, kept.as_ref());
        let mut checked = PeerChecked {
            peer,
            ok: probed.is_ok(),
            problem: None,
            name: None,
            role: None,
            sbp_version: None,
            round_trip_ms: None,
        };
        match probed {
            Ok(probed) => {
                checked.name = Some(probed.manifest.gateway_name);
                checked.role = Some(probed.manifest.role);
                checked.sbp_version = Some(probed.version);
                let microseconds = probed.round_trip.as_micros() as f64;
                checked.round_trip_ms = Some((microseconds / 10.0).round() / 100.0);
            }
            Err(fault @ PeerFault::Pins(_)) => return Err(fault.told(id)),
            Err(fault) => checked.problem = Some(fault.to_string()),
        }
        Ok(checked)
    }

    /// A person says that the key with that fingerprint, which the peer shows, is the peer's.
    pub(crate) async fn approve_peer(
        &self,
        store: &dyn Store,
        id: &GatewayId,
        fingerprint: KeyFingerprint,
    ) -> Result<PeerView, Failure> {
        let (target, named) = self.target_of(store, id).await?;
        if target.key.is_some() {
            let why = format!("the configuration says which key {id} has: change it there");
            return Err(Failure::new(Code::SessionConflict, why));
        }
        let kept = store.peer(id.clone()).await?.ok_or_else(|| unknown(id))?;
        let Some(shown) = kept.shown.filter(|shown| shown.fingerprint() == fingerprint) else {
            let why = match kept.shown {
                Some(shown) => format!("{id} shows another key: {}", shown.fingerprint()),
                None => format!("{id} has shown no other key than the one that is remembered"),
            };
            return Err(Failure::new(Code::SessionConflict, why));
        };
        let before = Some(kept.pin);
        let approved = KeptPeer { pin: Pin { key: shown, issued_at: 0 }, shown: None, ..kept };
        if !store.pin_peer(approved.clone(), before).await? {
            let why = format!("the key of {id} was changed meanwhile; look again");
            return Err(Failure::new(Code::SessionConflict, why));
        }
        self.peers.forgive(&target);
        tracing::info!(peer = %id, key = %fingerprint, "a changed key was approved");
        Ok(self.view(&target, id, named, Some(&approved)))
    }

    /// Forgets the key of a peer: the next one that it shows is remembered.
    pub(crate) async fn forget_peer(
        &self,
        store: &dyn Store,
        id: &GatewayId,
    ) -> Result<PeerNamed, Failure> {
        let (target, named) = self.target_of(store, id).await?;
        let was_known = store.forget_peer(id.clone()).await?;
        if !was_known && named == PeerNamed::No {
            return Err(unknown(id));
        }
        self.peers.forgive(&target);
        Ok(named)
    }

    /// Where a peer is asked, and what the configuration names it.
    async fn target_of(
        &self,
        store: &dyn Store,
        id: &GatewayId,
    ) -> Result<(Target, PeerNamed), Failure> {
        let of = |all: &[StaticPeer]| all.iter().find(|peer| peer.id == *id).map(Target::named);
        if let Some(target) = of(self.peers.named()) {
            return Ok((target, PeerNamed::Peer));
        }
        if let Some(target) = of(&self.discovery.trackers) {
            return Ok((target, PeerNamed::Tracker));
        }
        let kept = store.peer(id.clone()).await?.ok_or_else(|| unknown(id))?;
        Ok((Target::stranger(Some(id.clone()), kept.url), PeerNamed::No))
    }

    fn view(
        &self,
        target: &Target,
        id: &GatewayId,
        named: PeerNamed,
        kept: Option<&KeptPeer>,
    ) -> PeerView {
        let shown = kept.and_then(|kept| kept.shown);
        // A key of the configuration may have led to a newer one, which is remembered.
        let remembered = kept.map(|kept| kept.pin.key);
        let pin = match (target.key, remembered) {
            _ if shown.is_some() => PinState::Changed,
            (Some(_), _) => PinState::Configured,
            (None, Some(_)) => PinState::Remembered,
            (None, None) => PinState::Unknown,
        };
        let fingerprint = |key: GatewayKey| key.fingerprint().to_string();
        PeerView {
            id: id.to_string(),
            url: target.url.to_string(),
            named,
            allow: (named != PeerNamed::Tracker).then(|| self.allows(id)),
            pin,
            fingerprint: target.key.or(remembered).map(fingerprint),
            shown: shown.map(fingerprint),
            backed_off_seconds: self.peers.waits(target).map(|wait| wait.as_secs() + 1),
        }
    }
}

fn unknown(id: &GatewayId) -> Failure {
    Failure::new(Code::NotFound, format!("nothing is known of a gateway {id} here"))
}
