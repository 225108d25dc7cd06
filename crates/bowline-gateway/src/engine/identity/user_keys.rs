//! Users' keys: `bk_<id>.<secret>`, and paired devices.
//!
//! A key is looked up by its id and compared by the hash of its secret, in constant time. A device has
//! proved its own key before it comes here, and is looked up by the id of its credential. What was
//! looked up is remembered for a moment: a revocation counts at once in this process, and within
//! [`FRESH`] in others. Attached surfaces there are told by
//! [`Engine::follow_others`](crate::engine::Engine::follow_others).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbp::access::{Credential, CredentialId, CredentialKind, OWNER, Role};
use bowline_sbp::budget::OwnLimits;
use bowline_sbp::id::UserId;
use bowline_store::{Store, User, UserKey};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::auth::{Denied, KEY_PREFIX, hash_token};
use crate::clock;

/// How long a key that was looked up is believed.
const FRESH: Duration = Duration::from_secs(1);
/// The most keys that are remembered.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(crate) struct UserKeys {
    known: Mutex<HashMap<CredentialId, CachedKey>>,
    used: Mutex<HashMap<CredentialId, Timestamp>>,
    /// All users, and since when that is known.
    users: Mutex<Option<(Instant, HashMap<UserId, KnownUser>)>>,
    /// Counts changes of keys and users.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
struct KnownUser {
    role: Role,
    is_disabled: bool,
    limits: Arc<OwnLimits>,
}

#[derive(Debug, Clone)]
struct CachedKey {
    key: Arc<UserKey>,
    user: User,
    since: Instant,
}

/// A key or device that opens something, as what, and the name of its user.
pub(super) struct KnownKey {
    pub(super) credential: Credential,
    pub(super) key: Arc<UserKey>,
    pub(super) name: Arc<str>,
}

/// A key that was just made: the only time its secret is known.
pub(crate) struct NewKey {
    pub(crate) id: CredentialId,
    pub(crate) secret: String,
}

impl NewKey {
    /// `None` if the operating system gives no random bytes.
    pub(crate) fn make() -> Option<Self> {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        getrandom::fill(&mut id).ok()?;
        getrandom::fill(&mut secret).ok()?;
        let id = CredentialId::from_bytes(id);
        Some(Self { id, secret: URL_SAFE_NO_PAD.encode(secret) })
    }

    /// As its user shows it.
    pub(crate) fn text(&self) -> String {
        format!("{KEY_PREFIX}{}.{}", self.id, self.secret)
    }
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKey({})", self.id)
    }
}

/// Whether something has the form of a user's key.
pub(super) fn is_user_key(shown: &str) -> bool {
    shown.starts_with(KEY_PREFIX)
}

/// The two parts of a user's key; `None` if it is something else.
fn parts(shown: &str) -> Option<(CredentialId, &str)> {
    let (id, secret) = shown.strip_prefix(KEY_PREFIX)?.split_once('.')?;
    Some((id.parse().ok()?, secret))
}

impl UserKeys {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            used: Mutex::default(),
            users: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// The credential behind a key that was shown, if it is valid.
    pub(super) async fn check(
        &self,
        store: &dyn Store,
        shown: &str,
    ) -> Result<Option<KnownKey>, Denied> {
        let Some((id, secret)) = parts(shown) else { return Ok(None) };
        let Some(known) = self.look_up(store, &id).await? else { return Ok(None) };
        let is_right: bool = hash_token(secret).0.ct_eq(&known.key.secret.0).into();
        Ok(if is_right { self.used_now(known) } else { None })
    }

    /// The credential of a paired device, if it is valid.
    pub(super) async fn check_device(
        &self,
        store: &dyn Store,
        id: &str,
    ) -> Result<Option<KnownKey>, Denied> {
        let Ok(id) = id.parse() else { return Ok(None) };
        let known = self.look_up(store, &id).await?;
        Ok(known.filter(|known| known.key.device.is_some()).and_then(|known| self.used_now(known)))
    }

    /// What a key that was shown opens now, if anything.
    fn used_now(&self, CachedKey { key, user, .. }: CachedKey) -> Option<KnownKey> {
        let now = clock::now();
        if !key.is_valid(now) || user.disabled_at.is_some() {
            return None;
        }
        locked(&self.used).insert(key.id.clone(), now);
        let scopes = key.scopes.both(user.role.most());
        let kind = CredentialKind::Key(key.id.clone());
        let credential = Credential { kind, user: user.id, scopes };
        Some(KnownKey { credential, key, name: user.name.into() })
    }

    /// Whether a key that was right still opens anything.
    pub(super) async fn is_valid(&self, store: &dyn Store, id: &CredentialId) -> bool {
        match self.look_up(store, id).await {
            Ok(Some(known)) => known.key.is_valid(clock::now()) && known.user.disabled_at.is_none(),
            Ok(None) => false,
            // While the store cannot be read, nobody is cut off.
            Err(_) => true,
        }
    }

    async fn look_up(
        &self,
        store: &dyn Store,
        id: &CredentialId,
    ) -> Result<Option<CachedKey>, Denied> {
        let known = locked(&self.known).get(id).cloned();
        if let Some(known) = known.filter(|known| known.since.elapsed() < FRESH) {
            return Ok(Some(known));
        }
        let (before, since) = (*self.changes.borrow(), Instant::now());
        let Some((key, user)) = store.key(id.clone()).await? else { return Ok(None) };
        let known = CachedKey { key: Arc::new(key), user, since };
        let mut all = locked(&self.known);
        if all.len() >= MOST {
            all.clear();
        }
        // Something may have changed while it was read.
        if before == *self.changes.borrow() {
            all.insert(id.clone(), known.clone());
        }
        Ok(Some(known))
    }

    /// Whether a user is disabled.
    pub(super) async fn is_disabled(
        &self,
        store: &dyn Store,
        user: UserId,
    ) -> Result<bool, Denied> {
        // The owner never is, and most gateways have nobody else.
        if user == OWNER {
            return Ok(false);
        }
        let known = self.known_user(store, user).await?;
        Ok(known.is_some_and(|known| known.is_disabled))
    }

    /// The role and the own limits of a user.
    pub(in crate::engine) async fn user(
        &self,
        store: &dyn Store,
        user: UserId,
    ) -> Result<Option<(Role, Arc<OwnLimits>)>, Denied> {
        let known = self.known_user(store, user).await?;
        Ok(known.map(|known| (known.role, known.limits)))
    }

    /// The own limits of a key.
    pub(in crate::engine) async fn limits_of_key(
        &self,
        store: &dyn Store,
        id: &CredentialId,
    ) -> Result<OwnLimits, Denied> {
        let known = self.look_up(store, id).await?;
        Ok(known.map(|known| known.key.limits.clone()).unwrap_or_default())
    }

    async fn known_user(
        &self,
        store: &dyn Store,
        user: UserId,
    ) -> Result<Option<KnownUser>, Denied> {
        if let Some((since, users)) = &*locked(&self.users)
            && since.elapsed() < FRESH
        {
            return Ok(users.get(&user).cloned());
        }
        let (before, since) = (*self.changes.borrow(), Instant::now());
        let known = |user: User| {
            let is_disabled = user.disabled_at.is_some();
            (user.id, KnownUser { role: user.role, is_disabled, limits: Arc::new(user.limits) })
        };
        let users: HashMap<_, _> = store.users().await?.into_iter().map(known).collect();
        let found = users.get(&user).cloned();
        if before == *self.changes.borrow() {
            *locked(&self.users) = Some((since, users));
        }
        Ok(found)
    }

    /// A key or user was changed.
    pub(crate) fn changed(&self) {
        // What is being read meanwhile is not remembered.
        self.announce();
        locked(&self.known).clear();
        *locked(&self.users) = None;
        // Who looked before they were cleared looks again.
        self.announce();
    }

    /// Tells who watches that something has changed.
    pub(crate) fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Tells of changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// When keys were used since the last call.
    pub(crate) fn take_used(&self) -> Vec<(CredentialId, Timestamp)> {
        std::mem::take(&mut *locked(&self.used)).into_iter().collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_id_and_a_secret() {
        let made = NewKey::make().unwrap();
        let text = made.text();
        assert_eq!(parts(&text), Some((made.id.clone(), made.secret.as_str())));
        assert!(made.secret.len() >= 43, "256 bits");
        assert!(!format!("{made:?}").contains(&made.secret));
        for wrong in
            ["bk_", "bk_x.y", &text[3..], &text.replace('.', "-"), "sbt_0001ab03040506ff.x"]
        {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
