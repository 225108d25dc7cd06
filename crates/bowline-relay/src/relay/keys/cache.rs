//! Which of the control plane's keys are valid, and when to fetch them again (G15).
//!
//! Pure: the clock is passed in, and the caller fetches. Time is monotonic, so setting the system
//! clock back does not make old keys valid again.
//!
//! Invariants
//! - Keys are valid for `max_age` after they were fetched; beyond that only while fetching fails,
//!   and then for `stale_for` at most.
//! - Two fetches are at least `retry_every` apart, even if tokens name unknown keys. Until the first
//!   keys are there it is [`FIRST_RETRY`]: a relay that starts before its control plane is ready within
//!   a second of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_sbrp::token::KeySet;

use crate::relay::config::KeyConfig;

/// The upper limit of `max_age`, even if the settings have a longer one.
const LONGEST: Duration = Duration::from_secs(300);

/// The time between two fetches while there have never been keys.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Cache {
    max_age: Duration,
    stale_for: Duration,
    retry_every: Duration,
    keys: Option<(Arc<KeySet>, Instant)>,
    tried: Option<Instant>,
    /// The last finished fetch failed.
    failing: bool,
}

/// The keys that can be used for verification now.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// Valid keys: young enough, or still within `stale_for` while fetching fails.
    Good(Arc<KeySet>),
    /// Keys past `max_age`, valid only if the next fetch fails.
    Doubtful(Arc<KeySet>),
    /// No keys, or keys that are too old.
    Nothing,
}

impl Cache {
    pub(crate) fn new(rules: &KeyConfig) -> Self {
        Self {
            max_age: rules.max_age.min(LONGEST),
            stale_for: rules.stale_for,
            retry_every: rules.retry_every,
            keys: None,
            tried: None,
            failing: false,
        }
    }

    pub(crate) fn standing(&self, now: Instant) -> Standing {
        let Some((keys, at)) = &self.keys else { return Standing::Nothing };
        let keys = Arc::clone(keys);
        if now < *at + self.max_age {
            Standing::Good(keys)
        } else if now >= *at + self.max_age + self.stale_for {
            Standing::Nothing
        } else if self.failing {
            Standing::Good(keys)
        } else {
            Standing::Doubtful(keys)
        }
    }

    /// Whether a fetch is allowed now.
    pub(crate) fn may_fetch(&self, now: Instant) -> bool {
        self.tried.is_none_or(|tried| now >= tried + self.pause())
    }

    /// A fetch begins.
    pub(crate) fn trying(&mut self, now: Instant) {
        self.tried = Some(now);
    }

    /// A fetch succeeded. The old keys are dropped, so a withdrawn key is no longer accepted.
    pub(crate) fn fetched(&mut self, keys: KeySet, now: Instant) {
        self.keys = Some((Arc::new(keys), now));
        self.failing = false;
    }

    /// A fetch failed, or its result could not be used.
    pub(crate) fn failed(&mut self) {
        self.failing = true;
    }

    /// When to fetch in the background: before `max_age`, so that no connection waits for it.
    pub(crate) fn refresh_at(&self, now: Instant) -> Instant {
        let due = match &self.keys {
            Some((_, at)) => *at + self.max_age / 5 * 4,
            None => now,
        };
        due.max(self.tried.map_or(now, |tried| tried + self.pause()))
    }

    /// The shortest time between two fetches.
    fn pause(&self) -> Duration {
        match self.is_ready() {
            true => self.retry_every,
            false => self.retry_every.min(FIRST_RETRY),
        }
    }

    /// Whether keys have ever been fetched.
    pub(crate) fn is_ready(&self) -> bool {
        self.keys.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(kid: &str) -> KeySet {
        // The y coordinate of the base point: a valid public key without a known secret.
        let jwks = format!(
            r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"{kid}",
                "x":"WGZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmY"}}]}}"#
        );
        KeySet::from_jwks(jwks.as_bytes()).unwrap()
    }

    fn name(standing: Standing) -> &'static str {
        match standing {
            Standing::Good(_) => "good",
            Standing::Doubtful(_) => "doubtful",
            Standing::Nothing => "nothing",
        }
    }

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn keys_age_from_good_to_doubtful_to_nothing() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig::default());
        assert_eq!(name(cache.standing(start)), "nothing");
        cache.fetched(keys("a"), start);
        for (age, expected, while_failing) in [
            (0, "good", "good"),
            (299, "good", "good"),
            (300, "doubtful", "good"),
            (300 + 3599, "doubtful", "good"),
            (300 + 3600, "nothing", "nothing"),
        ] {
            assert_eq!(name(cache.standing(start + S * age)), expected, "after {age} s");
            cache.failed();
            assert_eq!(name(cache.standing(start + S * age)), while_failing, "after {age} s");
            cache.fetched(keys("a"), start);
        }
    }

    #[test]
    fn no_setting_makes_keys_count_longer_than_five_minutes() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig { max_age: S * 86_400, ..KeyConfig::default() });
        cache.fetched(keys("a"), start);
        assert_eq!(name(cache.standing(start + S * 300)), "doubtful");
    }

    #[test]
    fn fetches_are_ten_seconds_apart_whether_they_work_or_not() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig::default());
        cache.fetched(keys("a"), start);
        assert!(cache.may_fetch(start));
        cache.trying(start);
        for (after, allowed) in [(0, false), (9, false), (10, true), (3600, true)] {
            assert_eq!(cache.may_fetch(start + S * after), allowed, "after {after} s");
        }
        cache.fetched(keys("a"), start + S);
        assert!(!cache.may_fetch(start + S * 9), "success is no reason to ask more often");
    }

    #[test]
    fn g15_the_first_keys_are_asked_for_twice_a_second() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig::default());
        for attempt in 0..100 {
            let at = start + FIRST_RETRY * attempt;
            assert!(cache.may_fetch(at));
            cache.trying(at);
            cache.failed();
            assert!(!cache.may_fetch(at + FIRST_RETRY / 2), "it is not asked without a pause");
            assert_eq!(cache.refresh_at(at), at + FIRST_RETRY);
        }
        let eager = Cache::new(&KeyConfig { retry_every: S / 100, ..KeyConfig::default() });
        assert_eq!(eager.pause(), S / 100);
    }

    #[test]
    fn a_withdrawn_key_ends_with_the_next_fetch() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig::default());
        cache.fetched(keys("old"), start);
        cache.fetched(keys("new"), start + S);
        let Standing::Good(keys) = cache.standing(start + S) else { panic!() };
        assert!(keys.contains("new") && !keys.contains("old"));
    }

    #[test]
    fn refreshing_comes_before_anyone_would_have_to_wait() {
        let start = Instant::now();
        let mut cache = Cache::new(&KeyConfig::default());
        assert_eq!(cache.refresh_at(start), start);
        cache.trying(start);
        assert_eq!(cache.refresh_at(start), start + FIRST_RETRY, "it failed: not before");
        cache.fetched(keys("a"), start);
        assert_eq!(cache.refresh_at(start + S), start + S * 240);
        cache.trying(start + S * 240);
        assert_eq!(cache.refresh_at(start + S * 241), start + S * 250);
    }
}
