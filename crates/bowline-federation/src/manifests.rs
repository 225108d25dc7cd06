//! The manifests of peers: fetched, judged by their pins, and kept for a while.
//!
//! Invariants
//! - A manifest is returned only if the key of the configuration, the pinned key, or a chain of
//!   signatures from it, says that it is the peer's. The first one of a gateway pins its key.
//! - A stranger's manifest says itself that it is served where it was found. Otherwise anybody could
//!   show a copy of somebody else's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbp::federation::manifest::{CLOCK_DIFFERENCE, LARGEST_MANIFEST};
use bowline_sbp::federation::wire::MANIFEST_PATH;
use bowline_sbp::federation::{GatewayId, Manifest, ManifestError, Pin, Trust};
use bowline_sbp::gateway_key::GatewayKey;
use jiff::Timestamp;

use crate::client::{PeerClient, PeerRequest};
use crate::fault::PeerFault;
use crate::limits::ReadLimits;
use crate::pins::Pins;
use crate::target::{Reach, Target};

/// The most manifests that are kept.
const MOST: usize = 1_000;

/// The manifest that is served there. Its signature is that of the key that it names; whether the key
/// is the peer's is not decided here.
pub async fn fetch(client: &PeerClient, target: &Target) -> Result<Manifest, PeerFault> {
    Ok(fetch_with_version(client, target).await?.0)
}

/// The same, and the version of the protocol that it names.
pub(crate) async fn fetch_with_version(
    client: &PeerClient,
    target: &Target,
) -> Result<(Manifest, String), PeerFault> {
    let limits = ReadLimits::small(LARGEST_MANIFEST);
    let answer = client.ask(target, PeerRequest::get(MANIFEST_PATH), limits).await?.ok()?;
    let (manifest, version) = Manifest::read_with_version(&answer.body.read().await?)?;
    if target.reach == Reach::Public && manifest.url != target.url {
        return Err(PeerFault::Elsewhere);
    }
    Ok((manifest, version))
}

/// Judges a manifest by what is known of the peer, and remembers what is new.
pub async fn judge(
    pins: &dyn Pins,
    target: &Target,
    manifest: &Manifest,
    now: Timestamp,
) -> Result<Trust, PeerFault> {
    let id = &manifest.gateway_id;
    // Twice at most: who stored another pin meanwhile has seen the same gateway.
    for _ in 0..2 {
        let stored = pins.pin(id).await?;
        let pin = pin_of(target.key, stored);
        let trust = match manifest.trust(target.expected.as_ref(), pin.as_ref(), now) {
            Ok(trust) => trust,
            Err(error) => {
                if matches!(error, ManifestError::KeyChanged { .. }) {
                    pins.refused(id, &target.url, &manifest.key).await?;
                }
                return Err(error.into());
            }
        };
        let known = stored.filter(|stored| stored.key == manifest.key);
        let lags = known.map_or(0, |known| known.issued_at.saturating_sub(manifest.issued_at));
        if lags > CLOCK_DIFFERENCE {
            return Err(ManifestError::Older.into());
        }
        // Of one that is as good, and no newer, nothing is remembered.
        let is_known = known.is_some() && lags >= 0;
        if is_known || pins.store(id, &target.url, stored, manifest.pin()).await? {
            if trust != Trust::Pinned {
                let key = manifest.key.fingerprint();
                tracing::info!(gateway = %id, %key, ?trust, "the key of a gateway is pinned");
            }
            return Ok(trust);
        }
    }
    Err(ManifestError::Older.into())
}

/// Judges the manifest of a gateway that says that it asks, and returns whether that gateway is known. Of one that is
/// not, nothing is remembered: anybody may say to be anybody, so it has to be seen first whether it may ask.
pub(crate) async fn judge_claim(
    pins: &dyn Pins,
    target: &Target,
    manifest: &Manifest,
    now: Timestamp,
) -> Result<bool, PeerFault> {
    if pins.pin(&manifest.gateway_id).await?.is_some() {
        judge(pins, target, manifest, now).await?;
        return Ok(true);
    }
    let pin = pin_of(target.key, None);
    manifest.trust(target.expected.as_ref(), pin.as_ref(), now)?;
    Ok(false)
}

/// What a manifest is judged by: a key of the configuration counts before what was seen.
fn pin_of(configured: Option<GatewayKey>, stored: Option<Pin>) -> Option<Pin> {
    match (configured, stored) {
        (Some(key), Some(stored)) if stored.key == key => Some(stored),
        (Some(key), _) => Some(Pin { key, issued_at: 0 }),
        (None, stored) => stored,
    }
}

/// The keys whose signatures count for a gateway: its present one, and older ones until their time
/// ends. So what was signed before a rotation is good for a while after it.
pub fn accepted_keys(manifest: &Manifest, now: Timestamp) -> Vec<GatewayKey> {
    let previous = manifest.previous.iter().filter(|previous| previous.until > now.as_second());
    std::iter::once(manifest.key).chain(previous.map(|previous| previous.key)).collect()
}

/// Manifests that were judged, by who was expected where.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<HashMap<CacheKey, Cached>>);

type CacheKey = (Option<GatewayId>, Reach, String);

#[derive(Debug, Clone)]
struct Cached {
    manifest: Manifest,
    since: Instant,
    /// Its key is remembered.
    is_pinned: bool,
}

impl Cache {
    /// The manifest, if it is not older than that, and its key is remembered.
    pub(crate) fn get(&self, target: &Target, age: Duration, now: Instant) -> Option<Manifest> {
        self.cached(target, age, now).filter(|cached| cached.is_pinned).map(|one| one.manifest)
    }

    /// The same, whether its key is remembered or not; and which of the two.
    pub(crate) fn get_claimed(
        &self,
        target: &Target,
        age: Duration,
        now: Instant,
    ) -> Option<(Manifest, bool)> {
        self.cached(target, age, now).map(|cached| (cached.manifest, cached.is_pinned))
    }

    fn cached(&self, target: &Target, age: Duration, now: Instant) -> Option<Cached> {
        let cached = self.lock().get(&key(target))?.clone();
        (now.saturating_duration_since(cached.since) <= age).then_some(cached)
    }

    pub(crate) fn put(&self, target: &Target, manifest: Manifest, now: Instant) {
        self.insert(target, Cached { manifest, since: now, is_pinned: true });
    }

    /// Keeps a manifest whose key is not remembered.
    pub(crate) fn put_claimed(&self, target: &Target, manifest: Manifest, now: Instant) {
        self.insert(target, Cached { manifest, since: now, is_pinned: false });
    }

    fn insert(&self, target: &Target, cached: Cached) {
        let mut all = self.lock();
        if all.len() >= MOST && !all.contains_key(&key(target)) {
            let oldest = all.iter().min_by_key(|(_, cached)| cached.since);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|key| all.remove(&key));
        }
        all.insert(key(target), cached);
    }

    pub(crate) fn forget(&self, gateway: &GatewayId) {
        self.lock().retain(|_, cached| cached.manifest.gateway_id != *gateway);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CacheKey, Cached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(target: &Target) -> CacheKey {
    (target.expected.clone(), target.reach, target.url.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use bowline_sbp::federation::{Endpoints, PreviousKey, Role};
    use bowline_sbp::gateway_key::GatewayIdentity;

    use super::*;
    use crate::pins::MemoryPins;

    fn identity(n: u8) -> GatewayIdentity {
        GatewayIdentity::from_seed(&[n; 32])
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn id() -> GatewayId {
        "a".parse().unwrap()
    }

    fn manifest(n: u8, issued_at: i64) -> Manifest {
        Manifest {
            gateway_id: id(),
            gateway_name: String::new(),
            role: Role::Gateway,
            key: identity(n).public(),
            url: "https://a.example".parse().unwrap(),
            endpoints: Endpoints::default(),
            issued_at,
            previous: Vec::new(),
        }
    }

    fn target(key: Option<u8>) -> Target {
        let url = "https://a.example".parse().unwrap();
        let key = key.map(|n| identity(n).public());
        Target { key, ..Target::stranger(Some(id()), url) }
    }

    fn rotated(n: u8, from: u8, issued_at: i64, until: i64) -> Manifest {
        let new = identity(n).public();
        let previous = vec![PreviousKey::sign(&identity(from), &id(), &new, at(until))];
        Manifest { previous, ..manifest(n, issued_at) }
    }

    fn is_changed(judged: Result<Trust, PeerFault>) -> bool {
        matches!(judged, Err(PeerFault::Manifest(ManifestError::KeyChanged { .. })))
    }

    #[tokio::test]
    async fn sbp_l6_06_a_changed_key_is_refused_until_a_person_approves_it() {
        let (pins, target) = (MemoryPins::default(), target(None));
        let judge = async |manifest: &Manifest| judge(&pins, &target, manifest, at(1_000)).await;
        assert_eq!(judge(&manifest(1, 900)).await, Ok(Trust::FirstUse));
        assert_eq!(judge(&manifest(1, 1_300)).await, Ok(Trust::Pinned));
        let older = judge(&manifest(1, 999)).await;
        assert_eq!(older, Err(ManifestError::Older.into()), "an older one does not come back");
        assert!(is_changed(judge(&manifest(2, 950)).await));
        assert_eq!(pins.waiting(&id()), Some(identity(2).public()));
        assert_eq!(judge(&manifest(1, 1_300)).await, Ok(Trust::Pinned), "the old one still counts");
        pins.approve(&id(), identity(2).public());
        assert_eq!(judge(&manifest(2, 950)).await, Ok(Trust::Pinned));
        assert!(is_changed(judge(&manifest(1, 999)).await));
    }

    #[tokio::test]
    async fn sbp_l6_01_replicas_whose_clocks_differ_are_one_gateway() {
        let (pins, target) = (MemoryPins::default(), target(None));
        let judge = async |manifest: &Manifest| judge(&pins, &target, manifest, at(1_000)).await;
        judge(&manifest(1, 1_300)).await.unwrap();
        for issued_at in [1_000, 1_299, 1_001] {
            assert_eq!(judge(&manifest(1, issued_at)).await, Ok(Trust::Pinned), "{issued_at}");
        }
        let newest = pins.pin(&id()).await.unwrap().unwrap();
        assert_eq!(newest.issued_at, 1_300, "step by step nothing gets older");
        assert_eq!(judge(&manifest(1, 999)).await, Err(ManifestError::Older.into()));
    }

    #[tokio::test]
    async fn g20_who_says_to_be_somebody_is_not_remembered_for_it() {
        let (pins, target) = (MemoryPins::default(), target(None));
        let claim =
            async |manifest: &Manifest| judge_claim(&pins, &target, manifest, at(1_000)).await;
        assert_eq!(claim(&manifest(1, 900)).await, Ok(false));
        assert_eq!(claim(&manifest(2, 900)).await, Ok(false), "so anybody may come second");
        assert_eq!(pins.pin(&id()).await, Ok(None));
        judge(&pins, &target, &manifest(2, 900), at(1_000)).await.unwrap();
        assert_eq!(claim(&manifest(2, 901)).await, Ok(true));
        let changed = claim(&manifest(1, 902)).await.unwrap_err();
        assert!(matches!(changed, PeerFault::Manifest(ManifestError::KeyChanged { .. })));
        assert_eq!(pins.waiting(&id()), Some(identity(1).public()));
    }

    #[tokio::test]
    async fn sbp_l6_01_a_rotation_that_the_old_key_signed_is_taken_and_remembered() {
        let (pins, target) = (MemoryPins::default(), target(None));
        let judge = async |manifest: &Manifest, now| judge(&pins, &target, manifest, at(now)).await;
        judge(&manifest(1, 900), 1_000).await.unwrap();
        let new = rotated(2, 1, 1_000, 2_000);
        assert_eq!(judge(&new, 1_000).await, Ok(Trust::Rotated));
        assert_eq!(judge(&new, 3_000).await, Ok(Trust::Pinned), "after the overlap, too");
        assert!(is_changed(judge(&manifest(1, 1_100), 1_100).await), "there is no way back");
        assert_eq!(accepted_keys(&new, at(1_999)), [identity(2).public(), identity(1).public()]);
        assert_eq!(accepted_keys(&new, at(2_000)), [identity(2).public()]);
    }

    #[tokio::test]
    async fn sbp_l6_01_the_key_of_the_configuration_counts_before_what_was_seen() {
        let pins = MemoryPins::default();
        judge(&pins, &target(None), &manifest(1, 900), at(1_000)).await.unwrap();
        let two = target(Some(2));
        assert!(is_changed(judge(&pins, &two, &manifest(1, 901), at(1_000)).await));
        assert_eq!(judge(&pins, &two, &manifest(2, 800), at(1_000)).await, Ok(Trust::Pinned));
        let new = rotated(3, 2, 1_000, 2_000);
        assert_eq!(judge(&pins, &two, &new, at(1_000)).await, Ok(Trust::Rotated));
        let late = judge(&pins, &two, &new, at(2_000)).await;
        assert!(is_changed(late), "the configuration has to follow within the overlap");
    }

    #[test]
    fn g11_the_cache_is_bounded_and_forgets_the_oldest() {
        let (cache, now) = (Cache::default(), Instant::now());
        let of = |n: usize| {
            let url = format!("https://g{n}.example").parse().unwrap();
            Target::stranger(None, url)
        };
        for n in 0..MOST + 10 {
            cache.put(&of(n), manifest(1, 1), now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_secs(60);
        assert_eq!(cache.lock().len(), MOST);
        assert!(cache.get(&of(9), Duration::MAX, later).is_none());
        assert!(cache.get(&of(10), Duration::MAX, later).is_some());
        assert!(cache.get(&of(10), Duration::from_secs(50), later).is_none());
        cache.forget(&id());
        assert_eq!(cache.lock().len(), 0);
        cache.put_claimed(&of(1), manifest(1, 1), later);
        assert!(cache.get(&of(1), Duration::MAX, later).is_none(), "its key is not remembered");
        assert!(cache.get_claimed(&of(1), Duration::MAX, later).is_some());
    }
}
