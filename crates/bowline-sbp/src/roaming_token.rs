//! The roaming token: a signed reference to a bundle (SBP-L3-02).
//!
//! A compact JWT, HS256, signed with a secret of the exporting gateway. The key id is in the
//! header, so that keys can be rotated while tokens are valid. Pure: the time is passed in.
//!
//! Invariants
//! - Only HS256, only our `typ`, only known keys: the token's header does not choose the algorithm.
//! - A token with any changed byte is refused as invalid, never as expired.

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Failure};
use crate::id::{ExportId, SessionId};

/// The longest lifetime of a token, in seconds: seven days.
pub const LONGEST_TTL: u32 = 7 * 24 * 3600;
/// Longer tokens are refused before parsing.
const LONGEST_TOKEN: usize = 2048;
const TYPE: &str = "JWT";

/// The claims of a roaming token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoamingClaims {
    pub sub: ExportId,
    pub sid: SessionId,
    /// Seconds since 1970.
    pub iat: i64,
    pub exp: i64,
}

/// A secret that signs tokens.
#[derive(Clone)]
pub struct SigningKey {
    /// The `kid` in the token header.
    pub id: String,
    pub secret: [u8; 32],
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the roaming token was not issued by this gateway, or was changed")]
    Invalid,
    #[error("the roaming token has expired")]
    Expired,
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let code = match error {
            TokenError::Invalid => Code::TokenInvalid,
            TokenError::Expired => Code::TokenExpired,
        };
        Failure::new(code, error.to_string())
    }
}

impl RoamingClaims {
    /// The token's text.
    pub fn sign(&self, key: &SigningKey) -> String {
        let header = Header {
            typ: Some(TYPE.into()),
            kid: Some(key.id.clone()),
            ..Header::new(Algorithm::HS256)
        };
        let secret = EncodingKey::from_secret(&key.secret);
        jsonwebtoken::encode(&header, self, &secret).expect("plain claims are always signed")
    }

    /// Verifies a token that one of `keys` signed and that has not expired.
    pub fn read(token: &str, keys: &[SigningKey], now: Timestamp) -> Result<Self, TokenError> {
        let claims = Self::read_expired(token, keys)?;
        if claims.exp <= now.as_second() { Err(TokenError::Expired) } else { Ok(claims) }
    }

    /// The same, without checking the expiry.
    pub fn read_expired(token: &str, keys: &[SigningKey]) -> Result<Self, TokenError> {
        if token.len() > LONGEST_TOKEN {
            return Err(TokenError::Invalid);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Invalid)?;
        let ours = header.alg == Algorithm::HS256 && header.typ.as_deref() == Some(TYPE);
        let key = keys.iter().find(|key| ours && header.kid.as_ref() == Some(&key.id));
        let key = DecodingKey::from_secret(&key.ok_or(TokenError::Invalid)?.secret);
        let mut validation = Validation::new(Algorithm::HS256);
        // The caller checks the expiry against `now`: the library would read the system clock.
        validation.validate_exp = false;
        validation.set_required_spec_claims(&["exp", "sub"]);
        let read = jsonwebtoken::decode::<Self>(token, &key, &validation);
        let claims = read.map_err(|_| TokenError::Invalid)?.claims;
        let lasts = claims.exp.saturating_sub(claims.iat);
        if (0..=i64::from(LONGEST_TTL)).contains(&lasts) {
            Ok(claims)
        } else {
            Err(TokenError::Invalid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use uuid::Uuid;

    fn key(n: u8) -> SigningKey {
        SigningKey { id: n.to_string(), secret: [n; 32] }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_000).unwrap()
    }

    fn claims() -> RoamingClaims {
        let uuid = Uuid::from_u128(7);
        RoamingClaims { sub: ExportId(uuid), sid: SessionId(uuid), iat: 1_000, exp: 1_060 }
    }

    fn read(token: &str) -> Result<RoamingClaims, TokenError> {
        RoamingClaims::read(token, &[key(1), key(2)], now())
    }

    #[test]
    fn sbp_l3_02_a_token_is_a_compact_hs256_jwt_of_four_claims() {
        let token = claims().sign(&key(1));
        let parts: Vec<_> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        let text = |part: &str| String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(text(parts[0]), r#"{"typ":"JWT","alg":"HS256","kid":"1"}"#);
        let uuid = Uuid::from_u128(7);
        assert_eq!(
            text(parts[1]),
            format!(r#"{{"sub":"{uuid}","sid":"{uuid}","iat":1000,"exp":1060}}"#)
        );
        assert_eq!(read(&token), Ok(claims()));
    }

    #[test]
    fn sbp_l3_06_every_changed_byte_of_a_token_is_found() {
        let token = claims().sign(&key(1));
        for at in 0..token.len() {
            for bit in 0..7 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(read(&changed), Err(TokenError::Invalid), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn sbp_l3_06_a_token_expires_and_old_keys_stay_good_until_then() {
        let token = claims().sign(&key(2));
        assert_eq!(read(&token), Ok(claims()));
        let later = Timestamp::from_second(1_060).unwrap();
        assert_eq!(RoamingClaims::read(&token, &[key(2)], later), Err(TokenError::Expired));
        assert_eq!(RoamingClaims::read(&token, &[key(1)], now()), Err(TokenError::Invalid));
    }

    #[test]
    fn sbp_l3_06_what_a_token_says_of_itself_decides_nothing() {
        let sign = |header: Header, claims: &serde_json::Value| {
            let secret = EncodingKey::from_secret(&key(1).secret);
            jsonwebtoken::encode(&header, claims, &secret).unwrap()
        };
        let good = Header { kid: Some("1".into()), ..Header::new(Algorithm::HS256) };
        let body = serde_json::to_value(claims()).unwrap();
        assert!(read(&sign(good.clone(), &body)).is_ok());
        let with = |name: &str, value: serde_json::Value| {
            let mut body = body.clone();
            body[name] = value;
            body
        };
        for (header, body) in [
            (Header { typ: Some("at+jwt".into()), ..good.clone() }, body.clone()),
            (Header { typ: None, ..good.clone() }, body.clone()),
            (Header { kid: None, ..good.clone() }, body.clone()),
            (Header { kid: Some("9".into()), ..good.clone() }, body.clone()),
            (Header { alg: Algorithm::HS512, ..good.clone() }, body.clone()),
            (good.clone(), with("exp", serde_json::json!("1060"))),
            (good.clone(), with("exp", serde_json::Value::Null)),
            (good.clone(), with("exp", serde_json::json!(1_000 + 604_801))),
            (good.clone(), with("iat", serde_json::json!(2_000))),
            (good.clone(), with("sub", serde_json::json!("x"))),
            (good.clone(), with("pad", serde_json::json!("x".repeat(2048)))),
        ] {
            assert_eq!(read(&sign(header, &body)), Err(TokenError::Invalid));
        }
        // Unsigned, as `alg: none` would have it.
        let head = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"none","kid":"1"}"#);
        let body = URL_SAFE_NO_PAD.encode(body.to_string());
        for token in
            [format!("{head}.{body}."), format!("{head}.{body}"), String::new(), "..".into()]
        {
            assert_eq!(read(&token), Err(TokenError::Invalid));
        }
    }
}
