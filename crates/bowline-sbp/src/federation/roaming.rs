//! Roaming tokens that other gateways can verify (SBP-L3-02): EdDSA, with the issuer, where it
//! serves, and the content id of the bundle.
//!
//! A gateway without federation signs with HS256 (`roaming_token`), which says nothing to others.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::claims;
use super::gateway_id::{BaseUrl, GatewayId};
use crate::cid::Cid;
use crate::gateway_key::{GatewayIdentity, GatewayKey};
use crate::id::{ExportId, SessionId};
use crate::roaming_token::{LONGEST_TTL, TokenError};

const TYPE: &str = "JWT";

/// The claims of a roaming token of a gateway with federation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignRoamingClaims {
    pub sub: ExportId,
    pub sid: SessionId,
    /// Seconds since 1970.
    pub iat: i64,
    pub exp: i64,
    /// The gateway that has the bundle.
    pub iss: GatewayId,
    pub cid: Cid,
    /// Where that gateway serves.
    pub url: BaseUrl,
}

impl ForeignRoamingClaims {
    pub fn sign(&self, identity: &GatewayIdentity) -> String {
        claims::sign(self, TYPE, identity)
    }

    /// The claims as the token says them, without any check: to find the issuer, whose key verifies.
    pub fn peek(token: &str) -> Result<UnverifiedRoamingToken, TokenError> {
        let claims = claims::peek(token, TYPE).ok_or(TokenError::Invalid)?;
        Ok(UnverifiedRoamingToken { token: token.to_owned(), claims })
    }
}

/// A roaming token of which nothing was checked.
#[derive(Debug, Clone)]
pub struct UnverifiedRoamingToken {
    token: String,
    claims: ForeignRoamingClaims,
}

impl UnverifiedRoamingToken {
    /// Whose it says it is.
    pub fn issuer(&self) -> &GatewayId {
        &self.claims.iss
    }

    /// Where it says the issuer serves.
    pub fn url(&self) -> &BaseUrl {
        &self.claims.url
    }

    /// The session that it says it is of.
    pub fn session(&self) -> SessionId {
        self.claims.sid
    }

    /// The bundle that it says it opens. Whoever shows a token may learn where its bundle is.
    pub fn cid(&self) -> Cid {
        self.claims.cid
    }

    pub fn verify(
        &self,
        key: &GatewayKey,
        now: Timestamp,
    ) -> Result<ForeignRoamingClaims, TokenError> {
        let claims = self.verify_expired(key)?;
        if claims.exp <= now.as_second() { Err(TokenError::Expired) } else { Ok(claims) }
    }

    /// The same, without checking the expiry.
    pub fn verify_expired(&self, key: &GatewayKey) -> Result<ForeignRoamingClaims, TokenError> {
        let claims: Option<ForeignRoamingClaims> = claims::verified(&self.token, TYPE, key);
        let claims = claims.filter(|claims| *claims == self.claims).ok_or(TokenError::Invalid)?;
        let lasts = claims.exp.saturating_sub(claims.iat);
        match (0..=i64::from(LONGEST_TTL)).contains(&lasts) {
            true => Ok(claims),
            false => Err(TokenError::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roaming_token::{RoamingClaims, SigningKey};
    use uuid::Uuid;

    fn identity(n: u8) -> GatewayIdentity {
        GatewayIdentity::from_seed(&[n; 32])
    }

    fn roaming() -> ForeignRoamingClaims {
        let uuid = Uuid::from_u128(7);
        ForeignRoamingClaims {
            sub: ExportId(uuid),
            sid: SessionId(uuid),
            iat: 1_000,
            exp: 1_060,
            iss: "a".parse().unwrap(),
            cid: Cid::of_bytes(b"bundle"),
            url: "https://a.example".parse().unwrap(),
        }
    }

    fn read(token: &str, now: i64) -> Result<ForeignRoamingClaims, TokenError> {
        let now = Timestamp::from_second(now).unwrap();
        ForeignRoamingClaims::peek(token)?.verify(&identity(1).public(), now)
    }

    #[test]
    fn sbp_l3_02_with_federation_a_token_has_iss_and_cid_and_is_signed_with_eddsa() {
        let token = roaming().sign(&identity(1));
        let header = jsonwebtoken::decode_header(&token).unwrap();
        assert_eq!(header.alg, jsonwebtoken::Algorithm::EdDSA);
        let peeked = ForeignRoamingClaims::peek(&token).unwrap();
        assert_eq!((peeked.issuer().as_str(), peeked.cid()), ("a", roaming().cid));
        assert_eq!(read(&token, 1_059), Ok(roaming()));
        assert_eq!(read(&token, 1_060), Err(TokenError::Expired));
        assert_eq!(peeked.verify_expired(&identity(1).public()), Ok(roaming()));
    }

    #[test]
    fn sbp_l3_06_a_token_of_another_key_kind_or_lifetime_is_refused() {
        let forged = roaming().sign(&identity(2));
        assert_eq!(read(&forged, 1_000), Err(TokenError::Invalid));
        for exp in [999, 1_000 + 604_801, i64::MAX] {
            let token = ForeignRoamingClaims { exp, ..roaming() }.sign(&identity(1));
            assert_eq!(read(&token, 900), Err(TokenError::Invalid), "{exp}");
        }
        let ForeignRoamingClaims { sub, sid, iat, exp, .. } = roaming();
        let home = SigningKey { id: "1".into(), secret: [1; 32] };
        let home = RoamingClaims { sub, sid, iat, exp }.sign(&home);
        assert_eq!(read(&home, 1_000), Err(TokenError::Invalid));
        assert_eq!(
            read(&claims::sign(&roaming(), "sbp-fed+jwt", &identity(1)), 1_000),
            Err(TokenError::Invalid)
        );
    }

    #[test]
    fn sbp_l3_06_every_changed_byte_of_a_federated_token_is_found() {
        let token = roaming().sign(&identity(1));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(read(&changed, 1_000), Err(TokenError::Invalid), "byte {at}");
        }
    }
}
