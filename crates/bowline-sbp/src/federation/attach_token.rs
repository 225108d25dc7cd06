//! The attach token: with it a surface of a session that has moved attaches at the gateway where it goes on
//! (SBP-L6-05).
//!
//! The gateway that has the session signs it for itself, when the one that had it before asks for it. So the
//! session's own token never travels between gateways, and what travels is worth nothing after its first use.
//! That it is used once is the store's business: `jti` is used up like that of a federation token.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::claims;
use crate::gateway_key::{GatewayIdentity, GatewayKey};
use crate::id::SessionId;

const TYPE: &str = "sbp-attach+jwt";
/// How long it is valid, in seconds: a surface that is sent on comes at once.
pub const LIFE: i64 = 60;

/// The claims of an attach token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachClaims {
    /// The session that it opens.
    pub sid: SessionId,
    /// Accepted once.
    pub jti: Uuid,
    /// Seconds since 1970.
    pub exp: i64,
}

impl AttachClaims {
    pub fn new(sid: SessionId, jti: Uuid, now: Timestamp) -> Self {
        Self { sid, jti, exp: now.as_second() + LIFE }
    }

    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        claims::sign(self, TYPE, identity)
    }
}

/// An attach token of which nothing was checked.
#[derive(Debug, Clone)]
pub struct UnverifiedAttachToken(String);

impl UnverifiedAttachToken {
    /// None if the text is something else.
    pub fn peek(token: &str) -> Option<Self> {
        claims::peek::<AttachClaims>(token, TYPE).map(|_| Self(token.to_owned()))
    }

    /// The claims, if that key signed them and they are valid for that session now.
    pub fn verify(
        &self,
        key: &GatewayKey,
        session: SessionId,
        now: Timestamp,
    ) -> Option<AttachClaims> {
        let claims: AttachClaims = claims::verified(&self.0, TYPE, key)?;
        let left = claims.exp.saturating_sub(now.as_second());
        (claims.sid == session && (1..=LIFE).contains(&left)).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u8) -> GatewayIdentity {
        GatewayIdentity::from_seed(&[seed; 32])
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn sbp_l6_05_an_attach_token_opens_its_session_for_a_minute() {
        let (sid, other) = (SessionId(Uuid::from_u128(1)), SessionId(Uuid::from_u128(2)));
        let claims = AttachClaims::new(sid, Uuid::from_u128(3), at(1_000));
        let token = UnverifiedAttachToken::peek(&claims.sign(&identity(1))).unwrap();
        let key = identity(1).public();
        for (now, opens) in [(1_000, true), (1_059, true), (1_060, false), (900, false)] {
            assert_eq!(token.verify(&key, sid, at(now)).is_some(), opens, "{now}");
        }
        assert_eq!(token.verify(&key, other, at(1_000)), None);
        assert_eq!(token.verify(&identity(2).public(), sid, at(1_000)), None);
    }

    #[test]
    fn sbp_l6_05_another_token_is_no_attach_token() {
        let claims = AttachClaims::new(SessionId(Uuid::nil()), Uuid::nil(), at(1_000));
        let fed = claims::sign(&claims, "sbp-fed+jwt", &identity(1));
        assert!(UnverifiedAttachToken::peek(&fed).is_none());
        assert!(UnverifiedAttachToken::peek("sbt_something").is_none());
    }
}
