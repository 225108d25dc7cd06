//! The federation token: with it one gateway asks another (SBP-L6-02).
//!
//! An EdDSA JWT that names who asks, who is asked, for what, and once. Whoever is asked finds the
//! key of who asks (a pin, or the manifest at `url`), verifies, and then uses `jti` up.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::claims;
use super::gateway_id::{BaseUrl, GatewayId};
use crate::error::{Code, Failure};
use crate::gateway_key::{GatewayIdentity, GatewayKey};

const TYPE: &str = "sbp-fed+jwt";
/// The longest time from `iat` to `exp`, in seconds.
pub const LONGEST_LIFE: i64 = 300;
/// How far in the future `iat` may be, in seconds: clocks differ.
const LEEWAY: i64 = 30;
/// The longest `ref`, in bytes: a content id or a UUID.
const LONGEST_SUBJECT: usize = 64;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FederationAction {
    Bundle,
    Reserve,
    Confirm,
    Release,
    /// An attach token for a surface of a session that has moved.
    Attach,
    Lineage,
}

/// The claims of a federation token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FederationClaims {
    /// Who asks.
    pub iss: GatewayId,
    /// Where the manifest of who asks is.
    pub url: BaseUrl,
    /// Who is asked.
    pub aud: GatewayId,
    /// Seconds since 1970.
    pub iat: i64,
    pub exp: i64,
    /// Accepted once.
    pub jti: Uuid,
    pub act: FederationAction,
    /// The content id, or the id of the reservation, that is asked for.
    #[serde(rename = "ref")]
    pub subject: String,
}

/// What a request asks for, and of whom: the token must say the same.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The gateway that is asked.
    pub gateway: &'a GatewayId,
    pub action: FederationAction,
    pub subject: &'a str,
}

/// Why a federation token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FederationTokenError {
    #[error("this takes a federation token of the gateway that asks, as Bearer")]
    Unreadable,
    #[error("the federation token is not signed with the key of the gateway that it names")]
    Signature,
    #[error("the federation token is for another gateway")]
    Audience,
    #[error("the federation token is for another request")]
    OtherRequest,
    #[error(
        "the federation token has expired, or lasts longer than five minutes, or is from the future"
    )]
    Time,
}

impl From<FederationTokenError> for Failure {
    fn from(error: FederationTokenError) -> Self {
        let code = match error {
            FederationTokenError::OtherRequest => Code::Forbidden,
            _ => Code::Unauthorized,
        };
        Failure::new(code, error.to_string())
    }
}

impl FederationClaims {
    /// The claims of a token that is valid from now on, for a minute.
    pub fn new(iss: GatewayId, url: BaseUrl, asked: Asked<'_>, jti: Uuid, now: Timestamp) -> Self {
        let iat = now.as_second();
        Self {
            iss,
            url,
            aud: asked.gateway.clone(),
            iat,
            exp: iat + 60,
            jti,
            act: asked.action,
            subject: asked.subject.to_owned(),
        }
    }

    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        claims::sign(self, TYPE, identity)
    }
}

/// A federation token of which nothing was checked. What it says of its issuer is good for one thing:
/// to find the key with which it is verified.
#[derive(Debug, Clone)]
pub struct UnverifiedFederationToken {
    token: String,
    claims: FederationClaims,
}

impl UnverifiedFederationToken {
    pub fn peek(token: &str) -> Result<Self, FederationTokenError> {
        let claims: FederationClaims =
            claims::peek(token, TYPE).ok_or(FederationTokenError::Unreadable)?;
        if claims.subject.len() > LONGEST_SUBJECT {
            return Err(FederationTokenError::Unreadable);
        }
        Ok(Self { token: token.to_owned(), claims })
    }

    /// Whose it says it is.
    pub fn issuer(&self) -> &GatewayId {
        &self.claims.iss
    }

    /// Where it says the issuer's manifest is.
    pub fn url(&self) -> &BaseUrl {
        &self.claims.url
    }

    /// What needs no key, so that nobody is asked for the key of a token that is useless anyway.
    pub fn check(&self, asked: Asked<'_>, now: Timestamp) -> Result<(), FederationTokenError> {
        let FederationClaims { aud, iat, exp, act, subject, .. } = &self.claims;
        let now = now.as_second();
        let in_time = *exp > now && *iat <= now.saturating_add(LEEWAY);
        let short_lived = (0..=LONGEST_LIFE).contains(&exp.saturating_sub(*iat));
        if aud != asked.gateway {
            Err(FederationTokenError::Audience)
        } else if !in_time || !short_lived {
            Err(FederationTokenError::Time)
        } else if *act != asked.action || subject != asked.subject {
            Err(FederationTokenError::OtherRequest)
        } else {
            Ok(())
        }
    }

    /// Verifies it. What remains is to use `jti` up, until `exp`.
    pub fn verify(
        &self,
        key: &GatewayKey,
        asked: Asked<'_>,
        now: Timestamp,
    ) -> Result<FederationClaims, FederationTokenError> {
        let verified: Option<FederationClaims> = claims::verified(&self.token, TYPE, key);
        let verified = verified.filter(|verified| *verified == self.claims);
        let verified = verified.ok_or(FederationTokenError::Signature)?;
        self.check(asked, now)?;
        Ok(verified)
    }
}

#[cfg(test)]
mod tests;
