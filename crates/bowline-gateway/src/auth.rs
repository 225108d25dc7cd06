//! What opens: the owner's keys, and tokens of sessions and devices.
//!
//! A session's token opens that session. A paired device is known before its connection comes in; what
//! it may do is in `engine::identity`, too. The keys of the configuration, and the key in the data
//! folder, are the owner's; users' keys are in `engine::identity`. Without keys and users the gateway
//! is open, and serves loopback only. Tokens and keys are compared as hashes, in constant time, and never
//! stored or printed.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::{DeviceEntry, PeerName};
use bowline_sbp::access::{Credential, Scope};
use bowline_sbp::budget::Exceeded;
use bowline_sbp::id::SessionId;
use bowline_store::{Session, TokenHash};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::clock;
use crate::config::{Loopback, TokensConfig};

/// The prefix of session tokens that the gateway makes; a bearer with it names a session.
pub const TOKEN_PREFIX: &str = "sbt_";
/// The prefix of users' keys.
pub(crate) const KEY_PREFIX: &str = "bk_";
/// The prefix of device tokens.
const DEVICE_PREFIX: &str = "sbd_";
/// The shortest token that is long enough not to be guessed.
pub const SHORTEST_TOKEN: usize = 32;
const SHORTEST_KEY: usize = 20;
/// A token made by the gateway: 16 bytes of session id, 32 bytes of MAC or random bytes.
const TOKEN_BYTES: usize = 16 + 32;

/// The API key or token that a request carries.
#[derive(Clone, Default)]
pub struct Credentials {
    pub bearer: Option<String>,
    pub session_token: Option<String>,
    /// The request came from this machine. Only then does the key in the data folder count.
    pub from_loopback: bool,
    /// Where it came from.
    pub from: Option<PeerName>,
    /// The paired device that it came from.
    pub device: Option<DeviceEntry>,
    /// A proxy passed it on: who sent it is not on this machine, whatever the connection says.
    pub is_forwarded: bool,
    /// What is known of the request. Shared by all copies of what it showed.
    pub(crate) note: Arc<RequestNote>,
}

/// What becomes known of a request while it is handled.
#[derive(Debug, Default)]
pub(crate) struct RequestNote {
    /// It was counted for the requests of this minute.
    pub(crate) counted: AtomicBool,
    /// Who sent it.
    pub(crate) credential: OnceLock<Credential>,
}

impl Credentials {
    /// Whether there is no key and no token.
    pub(crate) fn shows_nothing(&self) -> bool {
        self.bearer.is_none() && self.session_token.is_none()
    }

    /// Stands for who asks, where only matters whether it is the same one: the key, or the device that
    /// shows none. Two devices are two, and no key that a header can have is a device.
    pub(crate) fn who(&self) -> Cow<'_, str> {
        match (&self.bearer, &self.device) {
            (Some(bearer), _) => bearer.into(),
            (None, Some(device)) => format!("\ndevice {}", device.id).into(),
            (None, None) => "".into(),
        }
    }

    /// The device token, from the first frame or from the upgrade request.
    pub(crate) fn device_token<'a>(&'a self, said: &'a str) -> Option<&'a str> {
        if !said.is_empty() {
            return Some(said).filter(|said| is_device_token(said));
        }
        let credentials = [&self.bearer, &self.session_token].into_iter().flatten();
        credentials.map(String::as_str).find(|credentials| is_device_token(credentials))
    }
}

impl Credentials {
    /// The paired device whose local port this came from, if what it shows is no token of this gateway.
    pub(crate) fn at_a_local_port(&self) -> Option<&DeviceEntry> {
        let ours = |shown: &String| {
            [TOKEN_PREFIX, DEVICE_PREFIX].iter().any(|prefix| shown.starts_with(prefix))
        };
        self.device
            .as_ref()
            .filter(|device| device.programs && !self.bearer.as_ref().is_some_and(ours))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// It has no credentials.
    Missing,
    /// Its credentials are wrong.
    Wrong,
    /// It has none, and came through a proxy: that the gateway is open was not meant for it.
    Forwarded,
    /// The device that it came from is not paired any more.
    Unpaired,
    /// Its key lacks this scope.
    Scope(Scope),
    /// Its key is not for this agent or model.
    NotFor(&'static str),
    /// There is no such session, or not for this user.
    NoSession,
    /// The requests of this minute are used up.
    Exceeded(Box<Exceeded>),
    /// The store failed before it was known.
    Store(bowline_store::Error),
}

impl From<bowline_store::Error> for Denied {
    fn from(error: bowline_store::Error) -> Self {
        Denied::Store(error)
    }
}

/// The gateway's keys, as hashes, and the secret behind its session tokens.
pub struct Access {
    /// Whoever shows nothing may use what is the owner's.
    open: AtomicBool,
    loopback: Loopback,
    /// Nobody wrote down that it is open to others.
    only_here: bool,
    keys: Vec<[u8; 32]>,
    /// The key of the machine's owner, from a file in the data folder.
    local: Option<[u8; 32]>,
    token_secret: [u8; 32],
    /// How long a session's token is valid; none: always.
    session_ttl: Option<Duration>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// An API key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("API key number {0} is shorter than {SHORTEST_KEY} characters")]
    Short(usize),
    #[error("API key number {0} is not 64 hexadecimal digits after `sha256:`")]
    Hash(usize),
}

impl Access {
    pub fn new(
        keys: &[String],
        local: Option<&str>,
        token_secret: [u8; 32],
    ) -> Result<Self, BadKey> {
        let keys = keys
            .iter()
            .enumerate()
            .map(|(n, key)| key_hash(n + 1, key))
            .collect::<Result<Vec<_>, _>>()?;
        let open = AtomicBool::new(keys.is_empty());
        let loopback = Loopback::Auto;
        let local = local.map(sha256);
        Ok(Self { open, loopback, only_here: true, keys, local, token_secret, session_ttl: None })
    }

    /// The same, if the configuration says whether loopback is open. `insecure`: all addresses are.
    #[must_use]
    pub fn with_loopback(self, loopback: Loopback, insecure: bool) -> Self {
        let open = match loopback {
            Loopback::Auto => self.is_open(),
            Loopback::Open => true,
            Loopback::Closed => false,
        };
        let only_here = loopback != Loopback::Open && !insecure;
        Self { open: AtomicBool::new(open), loopback, only_here, ..self }
    }

    /// The same with another lifetime of tokens.
    #[must_use]
    pub fn with_ttl(self, tokens: &TokensConfig) -> Self {
        Self { session_ttl: Some(tokens.session_ttl).filter(|ttl| !ttl.is_zero()), ..self }
    }

    /// Whether no key is needed.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether whoever came so may see how the gateway does: on this machine, unless that is closed.
    /// Who shows a key means to be somebody, and is asked for the scope.
    pub(crate) fn shows_metrics_to(&self, shown: &Credentials) -> bool {
        shown.from_loopback && shown.shows_nothing() && self.loopback != Loopback::Closed
    }

    /// Whether the gateway is open to who came so. To devices it never is: they are not this machine.
    pub(crate) fn is_open_to(&self, shown: &Credentials) -> Result<bool, Denied> {
        match self.is_open() && shown.device.is_none() {
            true if self.only_here && shown.is_forwarded => Err(Denied::Forwarded),
            is_open => Ok(is_open),
        }
    }

    /// From now on a key or token is needed, unless the configuration says otherwise.
    pub(crate) fn close(&self) {
        self.open.store(self.loopback == Loopback::Open, Ordering::Release);
    }

    /// The credential behind one of the owner's keys; `None` if it is none. `here`: it was shown from
    /// this machine.
    pub(crate) fn owners_key(&self, shown: &str, here: bool) -> Option<Credential> {
        let shown = sha256(shown);
        // No early exit: the time must not reveal which key matched.
        let mut configured = 0;
        for key in &self.keys {
            configured |= key.ct_eq(&shown).unwrap_u8();
        }
        let local = self.local.map_or(0, |key| key.ct_eq(&shown).unwrap_u8());
        match (configured, local) {
            (1, _) => Some(Credential::configured()),
            (_, 1) if here => Some(Credential::local()),
            _ => None,
        }
    }

    /// Whether this is a key and not a token, right or wrong: one of the owner's, or in the form of a
    /// user's.
    pub(crate) fn is_key(&self, shown: &str) -> bool {
        shown.starts_with(KEY_PREFIX) || self.owners_key(shown, true).is_some()
    }

    /// The first token that the gateway makes for a session.
    pub fn token_for(&self, id: SessionId) -> String {
        self.token_number(id, 0)
    }

    /// The token that the gateway makes for a session when it has been replaced that often: the
    /// session's id and a MAC. Derived, so that a repeated request gets the same token although only
    /// its hash is stored; with the id in it, so that it can be looked up without an index.
    pub(crate) fn token_number(&self, id: SessionId, number: u64) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.token_secret)
            .expect("HMAC takes keys of any length");
        mac.update(b"session-token");
        mac.update(id.as_bytes());
        if number > 0 {
            mac.update(&number.to_be_bytes());
        }
        let mut token = [0; TOKEN_BYTES];
        token[..16].copy_from_slice(id.as_bytes());
        token[16..].copy_from_slice(&mac.finalize().into_bytes());
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(token))
    }

    /// The code behind an offer to pair a device. Every replica derives the same one.
    pub(crate) fn pairing_code(&self, offer: Uuid) -> [u8; 16] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.token_secret)
            .expect("HMAC takes keys of any length");
        mac.update(b"pairing-code");
        mac.update(offer.as_bytes());
        let mut code = [0; 16];
        code.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        code
    }

    /// The session's token, if it is one the gateway made, and valid.
    pub fn known_token(&self, session: &Session) -> Option<String> {
        let token = self.token_number(session.id, session.token_number);
        Some(token).filter(|token| self.opens(token, session))
    }

    /// Whether that is the session's token, and valid.
    pub(crate) fn opens(&self, token: &str, session: &Session) -> bool {
        let is_right: bool = hash_token(token).0.ct_eq(&session.token_hash.0).into();
        is_right
            && self.token_expires_at(session).is_none_or(|expires_at| clock::now() < expires_at)
    }

    /// Until when the session's token is valid; none: always.
    pub(crate) fn token_expires_at(&self, session: &Session) -> Option<Timestamp> {
        self.session_ttl.map(|ttl| session.token_at + ttl)
    }
}

/// A token for one device of a session. Random, unlike a session's token: it is returned once, and
/// can be replaced.
pub(crate) fn new_device_token(id: SessionId) -> Option<String> {
    let mut token = [0; TOKEN_BYTES];
    token[..16].copy_from_slice(id.as_bytes());
    getrandom::fill(&mut token[16..]).ok()?;
    Some(format!("{DEVICE_PREFIX}{}", URL_SAFE_NO_PAD.encode(token)))
}

/// Whether this looks like a device's own token.
pub(crate) fn is_device_token(credentials: &str) -> bool {
    credentials.starts_with(DEVICE_PREFIX)
}

/// The session that a device's token names. This does not check the token.
pub(crate) fn named_by_device(token: &str) -> Option<SessionId> {
    named_in(token.strip_prefix(DEVICE_PREFIX)?)
}

/// The session that a token names. This does not check the token.
pub(crate) fn named_by(token: &str) -> Option<SessionId> {
    named_in(token.strip_prefix(TOKEN_PREFIX)?)
}

fn named_in(token: &str) -> Option<SessionId> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let bytes: [u8; TOKEN_BYTES] = bytes.try_into().ok()?;
    Some(SessionId::from_bytes(*bytes.first_chunk()?))
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

pub fn hash_token(token: &str) -> TokenHash {
    TokenHash(sha256(token))
}

pub(crate) fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn key_hash(number: usize, key: &str) -> Result<[u8; 32], BadKey> {
    let Some(hex) = key.strip_prefix("sha256:") else {
        if key.chars().count() < SHORTEST_KEY {
            return Err(BadKey::Short(number));
        }
        return Ok(sha256(key));
    };
    let mut hash = [0; 32];
    if hex.len() != 64 || !hex.is_ascii() {
        return Err(BadKey::Hash(number));
    }
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| BadKey::Hash(number))?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::id::AgentId;
    use bowline_sbp::lifecycle::Status;
    use bowline_store::NewSession;

    const KEY: &str = "a-key-of-twenty-chars";

    fn session(token: &str) -> Session {
        let new = NewSession {
            id: SessionId(uuid::Uuid::nil()),
            token_hash: hash_token(token),
            listed: false,
            user: bowline_sbp::access::OWNER,
            agent_id: AgentId::fallback(),
            metadata: "{}".into(),
            at: Timestamp::UNIX_EPOCH,
        };
        Session::made(&new, Status::Idle)
    }

    fn access(keys: &[&str]) -> Access {
        let keys: Vec<_> = keys.iter().map(|key| key.to_string()).collect();
        Access::new(&keys, Some("the-local-key-of-this-machine"), [7; 32]).unwrap()
    }

    #[test]
    fn keys_are_the_owners_and_the_local_one_counts_only_from_here() {
        let closed = access(&[KEY]);
        assert!(!closed.is_open() && access(&[]).is_open());
        assert_eq!(closed.owners_key(KEY, false), Some(Credential::configured()));
        assert_eq!(closed.owners_key("wrong", true), None);
        let local = "the-local-key-of-this-machine";
        assert_eq!(closed.owners_key(local, true), Some(Credential::local()));
        assert_eq!(closed.owners_key(local, false), None);
        let open = access(&[]);
        open.close();
        assert!(!open.is_open());
    }

    #[test]
    fn a_token_opens_its_session() {
        let access = access(&[]);
        assert!(access.opens("t", &session("t")) && !access.opens("x", &session("t")));
    }

    #[test]
    fn a_token_is_valid_for_ever_unless_the_configuration_says_otherwise() {
        let hour = TokensConfig { session_ttl: Duration::from_secs(3600) };
        let (always, hour) = (access(&[]), access(&[]).with_ttl(&hour));
        let made = |ago: u64| {
            let mut session = session("t");
            session.token_at = clock::now() - Duration::from_secs(ago);
            session
        };
        assert!(always.opens("t", &made(1_000_000)));
        assert!(hour.opens("t", &made(3500)) && !hour.opens("t", &made(3700)));
        assert!(hour.token_expires_at(&made(0)).is_some());
    }

    #[test]
    fn a_replaced_token_is_another_one_and_is_known_too() {
        let access = access(&[]);
        let mut session = session("own");
        assert_eq!(access.known_token(&session), None, "the caller chose it");
        session.token_number = 3;
        let token = access.token_number(session.id, 3);
        session.token_hash = hash_token(&token);
        assert_eq!(access.known_token(&session), Some(token.clone()));
        assert_eq!(named_by(&token), Some(session.id));
        assert!(!access.opens(&access.token_for(session.id), &session));
    }

    #[test]
    fn sbp_l1_01_made_tokens_are_long_stable_and_differ() {
        let access = access(&[]);
        let id = |n| SessionId(uuid::Uuid::from_u128(n));
        assert_eq!(access.token_for(id(1)), access.token_for(id(1)));
        assert_ne!(access.token_for(id(1)), access.token_for(id(2)));
        assert!(access.token_for(id(1)).len() >= SHORTEST_TOKEN);
    }

    #[test]
    fn a_made_token_names_its_session_and_nothing_else_names_one() {
        let id = SessionId(uuid::Uuid::from_u128(7));
        let token = access(&[]).token_for(id);
        assert_eq!(named_by(&token), Some(id));
        for other in [&token[4..], &token[..token.len() - 1], "sbt_", "sbt_é", ""] {
            assert_eq!(named_by(other), None);
        }
    }

    #[test]
    fn keys_may_be_given_as_hashes_and_weak_ones_are_refused() {
        let hex: String = sha256(KEY).iter().map(|byte| format!("{byte:02x}")).collect();
        let hashed = access(&[&format!("sha256:{hex}")]);
        assert_eq!(hashed.owners_key(KEY, false), Some(Credential::configured()));
        let refused = |key: &str| Access::new(&[key.to_owned()], None, [0; 32]).unwrap_err();
        assert_eq!(refused("short"), BadKey::Short(1));
        assert_eq!(refused("sha256:zz"), BadKey::Hash(1));
        assert_eq!(refused(&format!("sha256:{}", "é".repeat(32))), BadKey::Hash(1));
    }

    #[test]
    fn nothing_secret_is_in_debug_output() {
        let shown = Credentials { bearer: Some(KEY.into()), ..Credentials::default() };
        let credentials = format!("{:?} {shown:?}", access(&[KEY]));
        assert!(!credentials.contains(KEY) && !credentials.contains("local-key"), "{credentials}");
    }
}
