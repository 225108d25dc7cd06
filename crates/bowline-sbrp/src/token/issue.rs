//! The tokens that the control plane signs: presence tokens for daemons, session tokens for
//! clients.

use std::fmt;
use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{AUDIENCE, CREATE, RESUME, TYPE};
use crate::id::{DaemonId, SessionId};
use crate::identity::{IdentityKey, IdentitySecret};

/// The content of a presence token, with which a daemon connects to a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceGrant {
    /// The daemon.
    pub daemon: DaemonId,
    /// The user who owns the daemon: what a relay needs to know to end the user's presences.
    pub owner: Option<String>,
    /// Which presence of the daemon this is: greater for each process and each relay. 0: none.
    pub epoch: u64,
    /// Whether sessions can be resumed after the daemon's connection is lost.
    pub resumable: bool,
    /// The region of relays that it is for; `None`: those without one.
    pub region: Option<String>,
    /// The most sessions at once; `None`: the relay decides.
    pub concurrent_sessions: Option<NonZeroU64>,
    /// Seconds since 1970.
    pub issued_at: u64,
    /// When it expires.
    pub expires_at: u64,
}

/// The content of a session token, with which a client opens one session with one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionGrant {
    /// The daemon to reach.
    pub daemon: DaemonId,
    /// Who it is issued to.
    pub user: String,
    /// The session.
    pub session: SessionId,
    /// The epoch of the presence that the client is to be paired with, or a later one. 0: any.
    pub epoch: u64,
    /// The region of relays that it is for; `None`: those without one.
    pub region: Option<String>,
    /// Seconds since 1970.
    pub issued_at: u64,
    /// When it expires.
    pub expires_at: u64,
}

impl PresenceGrant {
    /// For a daemon that may resume its sessions, at any relay without a region. The times are in
    /// seconds since 1970.
    pub fn new(daemon: DaemonId, issued_at: u64, expires_at: u64) -> Self {
        Self {
            daemon,
            owner: None,
            epoch: 0,
            resumable: true,
            region: None,
            concurrent_sessions: None,
            issued_at,
            expires_at,
        }
    }
}

impl SessionGrant {
    /// For one session of this user. At most 300 s long; the times are in seconds since 1970.
    pub fn new(
        daemon: DaemonId,
        user: impl Into<String>,
        session: SessionId,
        issued_at: u64,
        expires_at: u64,
    ) -> Self {
        let (user, epoch, region) = (user.into(), 0, None);
        Self { daemon, user, session, epoch, region, issued_at, expires_at }
    }
}

/// One of the control plane's signing keys.
pub struct TokenSigner {
    issuer: String,
    kid: String,
    public: IdentityKey,
    key: EncodingKey,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    role: &'a str,
    did: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    iat: u64,
    exp: u64,
    ver: u8,
    scp: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lim: Option<LimitClaims>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<NonZeroU64>,
}

#[derive(Serialize)]
struct LimitClaims {
    concurrent_sessions: NonZeroU64,
}

impl TokenSigner {
    /// Derives the key from 32 random bytes, which the caller stores and wipes.
    pub fn from_seed(issuer: &str, kid: &str, seed: &[u8; 32]) -> Self {
        // The PKCS #8 encoding of an Ed25519 seed is these sixteen bytes, followed by the seed.
        const PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        let der = Zeroizing::new([PKCS8, seed].concat());
        Self {
            issuer: issuer.to_owned(),
            kid: kid.to_owned(),
            public: IdentitySecret::from_seed(seed).public(),
            key: EncodingKey::from_ed_der(&der),
        }
    }

    /// A daemon's token.
    pub fn presence(&self, presence: &PresenceGrant) -> String {
        let daemon = presence.daemon.as_str();
        self.sign(&Claims {
            iss: &self.issuer,
            aud: AUDIENCE,
            sub: daemon,
            role: "daemon",
            did: daemon,
            sid: None,
            iat: presence.issued_at,
            exp: presence.expires_at,
            ver: 1,
            scp: if presence.resumable { &[RESUME] } else { &[] },
            region: presence.region.as_deref(),
            lim: presence
                .concurrent_sessions
                .map(|concurrent_sessions| LimitClaims { concurrent_sessions }),
            own: presence.owner.as_deref(),
            epoch: NonZeroU64::new(presence.epoch),
        })
    }

    /// A client's token.
    pub fn session(&self, session: &SessionGrant) -> String {
        self.sign(&Claims {
            iss: &self.issuer,
            aud: AUDIENCE,
            sub: &session.user,
            role: "client",
            did: session.daemon.as_str(),
            sid: Some(session.session.to_string()),
            iat: session.issued_at,
            exp: session.expires_at,
            ver: 1,
            scp: &[CREATE],
            region: session.region.as_deref(),
            lim: None,
            own: None,
            epoch: NonZeroU64::new(session.epoch),
        })
    }

    /// The public half, as an entry of `/.well-known/jwks.json`.
    pub fn jwk(&self) -> Value {
        jwk(&self.kid, &self.public)
    }

    fn sign(&self, claims: &impl Serialize) -> String {
        let header = Header {
            typ: Some(TYPE.to_owned()),
            kid: Some(self.kid.clone()),
            ..Header::new(Algorithm::EdDSA)
        };
        jsonwebtoken::encode(&header, claims, &self.key).expect("plain claims are always signed")
    }
}

/// A JWKS entry for a key whose secret was deleted: it signs no more, but its tokens may still be
/// valid.
pub fn jwk(kid: &str, public: &IdentityKey) -> Value {
    let x = URL_SAFE_NO_PAD.encode(public.as_bytes());
    json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": kid, "x": x})
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").field("kid", &self.kid).finish_non_exhaustive()
    }
}
