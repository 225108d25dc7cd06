//! Authentication and authorisation.
//!
//! A session's token opens that session, an API key opens everything. Without keys the gateway is
//! open, and serves loopback only. Tokens and keys are compared as hashes, in constant time, and
//! never stored or printed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_sbp::id::SessionId;
use bowline_store::{Session, TokenHash};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The prefix of session tokens that the gateway makes; a bearer with it names a session.
pub const TOKEN_PREFIX: &str = "sbt_";
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
}

impl Credentials {
    /// The device token, from the first frame or from the upgrade request.
    pub(crate) fn device_token<'a>(&'a self, said: &'a str) -> Option<&'a str> {
        if !said.is_empty() {
            return Some(said).filter(|said| is_device_token(said));
        }
        let credentials = [&self.bearer, &self.session_token].into_iter().flatten();
        credentials.map(String::as_str).find(|credentials| is_device_token(credentials))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// Why a request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It has no credentials.
    Missing,
    /// Its credentials are wrong.
    Wrong,
}

/// The gateway's keys, as hashes, and the secret behind its session tokens.
#[derive(Clone)]
pub struct Access {
    keys: Vec<[u8; 32]>,
    /// The key of the machine's owner, from a file in the data folder.
    local: Option<[u8; 32]>,
    token_secret: [u8; 32],
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
            .collect::<Result<_, _>>()?;
        Ok(Self { keys, local: local.map(sha256), token_secret })
    }

    /// Whether no key is needed.
    pub fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// May the caller create and list sessions, and use pass-through?
    pub fn may_use(&self, credentials: &Credentials) -> Result<(), Denied> {
        match &credentials.bearer {
            _ if self.is_open() => Ok(()),
            None => Err(Denied::Missing),
            Some(bearer) if self.is_key(bearer) => Ok(()),
            Some(_) => Err(Denied::Wrong),
        }
    }

    /// May the caller read and change this session?
    pub fn may_use_session(
        &self,
        credentials: &Credentials,
        session: &Session,
    ) -> Result<(), Denied> {
        // A session token must be right even where none is needed: a wrong one was meant for
        // another session.
        if let Some(token) = &credentials.session_token {
            return if opens(token, session) { Ok(()) } else { Err(Denied::Wrong) };
        }
        match &credentials.bearer {
            Some(bearer) if self.is_key(bearer) || opens(bearer, session) => Ok(()),
            _ if self.is_open() => Ok(()),
            None => Err(Denied::Missing),
            Some(_) => Err(Denied::Wrong),
        }
    }

    /// May a surface attach? With the session's token in its first frame, or with a key or token on
    /// the upgrade request. Credentials are required even if the gateway is open.
    pub fn may_attach(&self, token: &str, credentials: &Credentials, session: &Session) -> bool {
        if !token.is_empty() {
            return opens(token, session) || self.is_key(token);
        }
        [&credentials.bearer, &credentials.session_token]
            .into_iter()
            .flatten()
            .any(|credentials| opens(credentials, session) || self.is_key(credentials))
    }

    /// The token that the gateway makes for a session: the session's id and a MAC of it. Derived,
    /// so that a repeated request gets the same token although only its hash is stored; with the id
    /// in it, so that it can be looked up without an index.
    pub fn token_for(&self, id: SessionId) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.token_secret)
            .expect("HMAC takes keys of any length");
        mac.update(b"session-token");
        mac.update(id.as_bytes());
        let mut token = [0; TOKEN_BYTES];
        token[..16].copy_from_slice(id.as_bytes());
        token[16..].copy_from_slice(&mac.finalize().into_bytes());
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(token))
    }

    /// The session's token, if it is one the gateway made.
    pub fn known_token(&self, session: &Session) -> Option<String> {
        Some(self.token_for(session.id)).filter(|token| opens(token, session))
    }

    /// Whether this is one of the gateway's keys.
    pub(crate) fn is_key(&self, credentials: &str) -> bool {
        let credentials = sha256(credentials);
        // No early exit: the time must not reveal which key matched.
        let mut found = 0;
        for key in self.keys.iter().chain(&self.local) {
            found |= key.ct_eq(&credentials).unwrap_u8();
        }
        found == 1
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
fn is_device_token(credentials: &str) -> bool {
    credentials.starts_with(DEVICE_PREFIX)
}

/// The session that a token names. This does not check the token.
pub(crate) fn named_by(token: &str) -> Option<SessionId> {
    let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix(TOKEN_PREFIX)?).ok()?;
    let bytes: [u8; TOKEN_BYTES] = bytes.try_into().ok()?;
    Some(SessionId::from_bytes(*bytes.first_chunk()?))
}

pub(crate) fn opens(token: &str, session: &Session) -> bool {
    hash_token(token).0.ct_eq(&session.token_hash.0).into()
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
    use jiff::Timestamp;

    const KEY: &str = "a-key-of-twenty-chars";

    fn session(token: &str) -> Session {
        let new = NewSession {
            id: SessionId(uuid::Uuid::nil()),
            token_hash: hash_token(token),
            listed: false,
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

    fn bearer(text: &str) -> Credentials {
        Credentials { bearer: Some(text.into()), session_token: None }
    }

    fn token(text: &str) -> Credentials {
        Credentials { bearer: None, session_token: Some(text.into()) }
    }

    #[test]
    fn without_keys_everything_is_open_but_a_wrong_token_is_wrong() {
        let open = access(&[]);
        assert_eq!(open.may_use(&Credentials::default()), Ok(()));
        assert_eq!(open.may_use_session(&bearer("sk-anything"), &session("t")), Ok(()));
        assert_eq!(open.may_use_session(&token("t"), &session("t")), Ok(()));
        assert_eq!(open.may_use_session(&token("x"), &session("t")), Err(Denied::Wrong));
    }

    #[test]
    fn with_keys_a_key_opens_all_and_a_token_its_session() {
        let closed = access(&[KEY]);
        assert_eq!(closed.may_use(&Credentials::default()), Err(Denied::Missing));
        assert_eq!(closed.may_use(&bearer("wrong")), Err(Denied::Wrong));
        assert_eq!(closed.may_use(&bearer(KEY)), Ok(()));
        assert_eq!(closed.may_use(&bearer("the-local-key-of-this-machine")), Ok(()));
        for right in [bearer(KEY), bearer("t"), token("t")] {
            assert_eq!(closed.may_use_session(&right, &session("t")), Ok(()));
        }
        let nothing = Credentials::default();
        assert_eq!(closed.may_use_session(&nothing, &session("t")), Err(Denied::Missing));
        assert_eq!(closed.may_use_session(&bearer("x"), &session("t")), Err(Denied::Wrong));
    }

    #[test]
    fn sbp_l2_03_a_surface_always_shows_something() {
        for access in [access(&[]), access(&[KEY])] {
            let nothing = Credentials::default();
            assert!(access.may_attach("t", &nothing, &session("t")));
            assert!(!access.may_attach("x", &nothing, &session("t")));
            assert!(!access.may_attach("", &nothing, &session("t")));
            assert!(access.may_attach("", &bearer("the-local-key-of-this-machine"), &session("t")));
            assert!(!access.may_attach(
                "x",
                &bearer("the-local-key-of-this-machine"),
                &session("t")
            ));
        }
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
        assert_eq!(access(&[&format!("sha256:{hex}")]).may_use(&bearer(KEY)), Ok(()));
        let refused = |key: &str| Access::new(&[key.to_owned()], None, [0; 32]).unwrap_err();
        assert_eq!(refused("short"), BadKey::Short(1));
        assert_eq!(refused("sha256:zz"), BadKey::Hash(1));
        assert_eq!(refused(&format!("sha256:{}", "é".repeat(32))), BadKey::Hash(1));
    }

    #[test]
    fn nothing_secret_is_in_debug_output() {
        let credentials = format!("{:?} {:?}", access(&[KEY]), bearer(KEY));
        assert!(!credentials.contains(KEY) && !credentials.contains("local-key"), "{credentials}");
    }
}
