//! The relay's token checks, in the protocol's order.

use std::num::NonZeroU64;

use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use super::keys::KeySet;
use super::{AUDIENCE, EPOCH, OWNER, RESUME, TYPE, TokenError};
use crate::id::{DaemonId, SessionId};

const LONGEST_TOKEN: usize = 4096;
/// The allowed clock skew, in seconds.
const SKEW: f64 = 30.0;
/// The longest allowed lifetime of a client's token, in seconds.
const LONGEST_CLIENT: f64 = 300.0;

/// The relay's own configuration that tokens are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// The issuer whose tokens are accepted.
    pub issuer: String,
    /// The region of the relay; tokens for another region are refused. A relay without a region
    /// accepts only tokens without one.
    pub region: Option<String>,
}

/// The verified identity and role of a connection. Routing depends on this alone (SBRP-RELAY-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// A daemon.
    Daemon(DaemonPass),
    /// A client.
    Client(ClientPass),
}

/// What a daemon's token permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonPass {
    /// The daemon.
    pub daemon: DaemonId,
    /// The user who owns the daemon, from our own claim `own`; control planes of others name none.
    pub owner: Option<String>,
    /// Which presence of the daemon this is, from our own claim `epoch`: a greater one was issued
    /// later, to a newer process or for another relay. 0 if the token has none.
    pub epoch: u64,
    /// When the token was issued and when it expires, in seconds since 1970.
    pub issued_at: u64,
    /// When the token expires, in seconds since 1970.
    pub expires_at: u64,
    /// Whether sessions can be resumed after the daemon's connection is lost.
    pub resumable: bool,
    /// The session limit of the daemon; the relay's own limit if absent.
    pub concurrent_sessions: Option<NonZeroU64>,
}

/// What a client's token permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPass {
    /// The daemon that it may reach.
    pub daemon: DaemonId,
    /// Who it was issued to.
    pub user: String,
    /// The one session that it is for.
    pub session: SessionId,
    /// The least epoch of a presence that the client may be paired with; see [`DaemonPass::epoch`].
    pub epoch: u64,
    /// When the token was issued, in seconds since 1970.
    pub issued_at: u64,
    /// The session limit of the user; the relay's own limit if absent.
    pub concurrent_sessions: Option<NonZeroU64>,
}

impl Relay {
    /// Checks a token; `now` is in seconds since 1970.
    pub fn admit(&self, token: &str, keys: &KeySet, now: u64) -> Result<Admission, TokenError> {
        let claims = verified(token, keys)?;
        check_audience(&claims)?;
        // With or without a slash at its end: people write both, and mean the same issuer.
        if text(&claims, "iss").is_none_or(|issuer| bare(issuer) != bare(&self.issuer)) {
            return Err(TokenError::Issuer);
        }
        let (issued, expires) = times(&claims).ok_or(TokenError::Times)?;
        if now as f64 > expires + SKEW {
            return Err(TokenError::Expired);
        }
        if claims.get("ver").is_some_and(|version| *version != 1) {
            return Err(TokenError::Version);
        }
        let is_client = match text(&claims, "role") {
            Some("client") => true,
            Some("daemon") => false,
            _ => return Err(TokenError::Role),
        };
        let daemon = filled(&claims, "did").map(DaemonId::new).ok_or(TokenError::Daemon)?;
        let client =
            if is_client { Some(client(&claims).ok_or(TokenError::Client)?) } else { None };
        if claims.get("region").is_some_and(|region| !self.is_in(region)) {
            return Err(TokenError::Region);
        }
        if is_client && !(0.0..=LONGEST_CLIENT).contains(&(expires - issued)) {
            return Err(TokenError::Lifetime);
        }
        let scopes = scopes(&claims).ok_or(TokenError::Scopes)?;
        let concurrent_sessions = concurrent_sessions(&claims)?;
        let epoch = claims.get(EPOCH).and_then(Value::as_u64).unwrap_or(0);
        // A cast of a float saturates: what is negative or no number becomes 0.
        let (issued_at, expires_at) = (issued as u64, expires as u64);
        Ok(match client {
            Some((user, session)) => Admission::Client(ClientPass {
                daemon,
                user,
                session,
                epoch,
                issued_at,
                concurrent_sessions,
            }),
            None => Admission::Daemon(DaemonPass {
                daemon,
                owner: filled(&claims, OWNER).map(str::to_owned),
                epoch,
                issued_at,
                expires_at,
                resumable: scopes.contains(&RESUME),
                concurrent_sessions,
            }),
        })
    }

    /// Whether a token's region is that of the relay. What is no text is nobody's.
    fn is_in(&self, region: &Value) -> bool {
        match region {
            Value::Null => self.region.is_none(),
            region => region.as_str().is_some_and(|region| self.region.as_deref() == Some(region)),
        }
    }
}

/// The claims, after the signature was verified.
fn verified(token: &str, keys: &KeySet) -> Result<Map<String, Value>, TokenError> {
    if token.len() > LONGEST_TOKEN || token.split('.').count() != 3 {
        return Err(TokenError::Malformed);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Malformed)?;
    if header.typ.as_deref() != Some(TYPE) {
        return Err(TokenError::Type);
    }
    let key = header.kid.as_deref().and_then(|kid| keys.key(kid)).ok_or(TokenError::UnknownKey)?;
    // A critical extension that is not supported must be refused (RFC 7515).
    if header.crit.is_some() {
        return Err(TokenError::Signature);
    }
    let mut validation = Validation::new(Algorithm::EdDSA);
    // Claims are checked by our own code: the library would read the clock, and report errors in
    // another order.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let read = jsonwebtoken::decode::<Map<String, Value>>(token, key, &validation);
    Ok(read.map_err(|_| TokenError::Signature)?.claims)
}

fn bare(issuer: &str) -> &str {
    issuer.trim_end_matches('/')
}

fn check_audience(claims: &Map<String, Value>) -> Result<(), TokenError> {
    let ours = match claims.get("aud") {
        Some(Value::String(one)) => one == AUDIENCE,
        Some(Value::Array(many)) => many.iter().any(|one| one == AUDIENCE),
        _ => false,
    };
    if ours { Ok(()) } else { Err(TokenError::Audience) }
}

fn times(claims: &Map<String, Value>) -> Option<(f64, f64)> {
    Some((claims.get("iat")?.as_f64()?, claims.get("exp")?.as_f64()?))
}

fn client(claims: &Map<String, Value>) -> Option<(String, SessionId)> {
    Some((filled(claims, "sub")?.to_owned(), text(claims, "sid")?.parse().ok()?))
}

/// Unknown scopes are kept and ignored.
fn scopes(claims: &Map<String, Value>) -> Option<Vec<&str>> {
    match claims.get("scp") {
        None => Some(Vec::new()),
        Some(scopes) => scopes.as_array()?.iter().map(Value::as_str).collect(),
    }
}

fn concurrent_sessions(claims: &Map<String, Value>) -> Result<Option<NonZeroU64>, TokenError> {
    let Some(limits) = claims.get("lim") else { return Ok(None) };
    let Some(limit) = limits.as_object().ok_or(TokenError::Limits)?.get("concurrent_sessions")
    else {
        return Ok(None);
    };
    limit.as_u64().and_then(NonZeroU64::new).map(Some).ok_or(TokenError::Limits)
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

fn filled<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    text(claims, name).filter(|text| !text.is_empty())
}
