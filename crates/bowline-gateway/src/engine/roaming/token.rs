//! Roaming tokens as they are issued and read here (SBP-L3-02).
//!
//! With federation they are signed with the gateway's own key, so that any gateway can verify them; without it, with
//! a secret of this gateway. Both kinds stay valid at home, whatever is configured meanwhile.

use bowline_sbp::cid::Cid;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::federation::{ForeignRoamingClaims, UnverifiedRoamingToken};
use bowline_sbp::roaming_token::{RoamingClaims, TokenError};
use bowline_store::Export;
use jiff::Timestamp;

use super::super::{Engine, internal};

/// Whose a roaming token is.
#[derive(Debug)]
pub(crate) enum RoamingToken {
    /// Of this gateway: verified, but for its expiry.
    Home(RoamingClaims),
    /// It says that it is another gateway's.
    Foreign(UnverifiedRoamingToken),
}

impl Engine {
    /// The token of an export.
    pub(super) fn roaming_token(&self, export: &Export) -> Result<String, Failure> {
        let (iat, exp) = (export.created_at.as_second(), export.expires_at.as_second());
        let (sub, sid) = (export.id, export.session_id);
        match &self.federation {
            None => self.keys.sign(&RoamingClaims { sub, sid, iat, exp }).ok_or_else(internal),
            Some(federation) => {
                let me = federation.me();
                let (iss, url) = (me.id.clone(), me.url.clone());
                let cid = Cid::from_bytes(export.cid);
                let claims = ForeignRoamingClaims { sub, sid, iat, exp, iss, cid, url };
                Ok(claims.sign(&self.signer.identity()))
            }
        }
    }

    /// Reads a token; its expiry is not checked.
    pub(super) async fn read_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<RoamingToken, Failure> {
        let Ok(unverified) = ForeignRoamingClaims::peek(token) else {
            let claims = self.keys.read_expired(&*self.store, token).await?;
            return Ok(RoamingToken::Home(claims));
        };
        if let Some(claims) = self.signed_here(&unverified, now) {
            return Ok(RoamingToken::Home(claims));
        }
        match &self.federation {
            // It says that it is ours.
            Some(federation) if federation.me().id == *unverified.issuer() => {
                self.read_signer_again().await?;
                let claims = self.signed_here(&unverified, now).ok_or(TokenError::Invalid)?;
                Ok(RoamingToken::Home(claims))
            }
            _ => Ok(RoamingToken::Foreign(unverified)),
        }
    }

    fn signed_here(
        &self,
        unverified: &UnverifiedRoamingToken,
        now: Timestamp,
    ) -> Option<RoamingClaims> {
        self.signer.accepted(now).into_iter().find_map(|key| {
            let ForeignRoamingClaims { sub, sid, iat, exp, .. } =
                unverified.verify_expired(&key).ok()?;
            Some(RoamingClaims { sub, sid, iat, exp })
        })
    }

    /// The claims of a token of this gateway; its expiry is not checked.
    pub(super) async fn own_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<RoamingClaims, Failure> {
        match self.read_token(token, now).await? {
            RoamingToken::Home(claims) => Ok(claims),
            RoamingToken::Foreign(token) => {
                let why = format!(
                    "the roaming token was issued by the gateway {}, not by this one",
                    token.issuer()
                );
                Err(Failure::new(Code::TokenInvalid, why))
            }
        }
    }

    /// The same of one that has not expired.
    pub(super) async fn valid_token(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<RoamingClaims, Failure> {
        let claims = self.own_token(token, now).await?;
        if claims.exp <= now.as_second() { Err(TokenError::Expired.into()) } else { Ok(claims) }
    }
}
