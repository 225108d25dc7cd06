//! Which tokens the small relay lets in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::Value;
use tokio::time::Instant;

use super::{Fault, Keys, State};

/// A token that is good.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    pub(super) daemon: String,
    /// `None`: a daemon.
    pub(super) session: Option<u64>,
    pub(super) resumable: bool,
    pub(super) limit: Option<u64>,
    /// Seconds since 1970.
    pub(super) expires: u64,
}

/// How long an unknown key does not make this relay fetch again.
const REFETCH: Duration = Duration::from_secs(5);

/// The status of the refusal.
type Refused = u16;

pub(super) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl State {
    pub(super) async fn admit(&self, token: &str) -> Result<Pass, Refused> {
        let malformed = if self.has(Fault::NoTokenIs500) { 500 } else { 401 };
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else { return Err(malformed) };
        if token.len() > 4096 {
            return Err(malformed);
        }
        let json = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let (header, body) = (json(header).ok_or(malformed)?, json(claims).ok_or(malformed)?);
        let is = |holds: bool, fault: Fault| -> Result<(), Refused> {
            if holds || self.has(fault) { Ok(()) } else { Err(401) }
        };
        is(header["typ"] == "sbrp-relay+jwt", Fault::AnyType)?;
        let kid = header["kid"].as_str().unwrap_or_default();
        let key = self.key(kid).await.ok_or(401u16)?;
        if header["alg"] == "EdDSA" {
            let signed = token.rsplit_once('.').unwrap().0;
            let fits = URL_SAFE_NO_PAD
                .decode(signature)
                .ok()
                .and_then(|bytes| Signature::from_slice(&bytes).ok())
                .is_some_and(|given| key.verify_strict(signed.as_bytes(), &given).is_ok());
            is(fits, Fault::AnySignature)?;
        } else {
            is(false, Fault::AnyAlgorithm)?;
        }
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let audience = match &body["aud"] {
            Value::Array(all) => all.iter().any(|one| one == "sideband-relay"),
            one => one == "sideband-relay",
        };
        is(audience, Fault::AnyAudience)?;
        is(text("iss") == self.issuer, Fault::AnyIssuer)?;
        let times = (body["iat"].as_u64(), body["exp"].as_u64());
        is(times.0.is_some() && times.1.is_some(), Fault::NoTimes)?;
        let (issued, expires) = (times.0.unwrap_or_default(), times.1.unwrap_or(u64::MAX));
        is(wall() < expires, Fault::Expired)?;
        is(body.get("ver").is_none_or(|version| *version == 1), Fault::AnyVersion)?;
        let role = text("role");
        is(["daemon", "client"].contains(&&*role), Fault::AnyRole)?;
        is(!text("did").is_empty(), Fault::NoDaemonId)?;
        let session = match role == "client" {
            false => None,
            true => {
                let sid = URL_SAFE_NO_PAD.decode(text("sid")).unwrap_or_default();
                let sid = sid.try_into().map_or(0, u64::from_be_bytes);
                is(sid != 0 && !text("sub").is_empty(), Fault::AnySid)?;
                let too_long = expires.saturating_sub(issued) > 300;
                is(!too_long, Fault::LongClients)?;
                Some(sid)
            }
        };
        is(body.get("region").is_none(), Fault::AnyRegion)?;
        let scopes = body["scp"].as_array();
        let good = scopes.is_some_and(|all| all.iter().all(Value::is_string));
        is(good, Fault::AnyScopes)?;
        let limit = body["lim"].get("concurrent_sessions");
        let good = limit.is_none_or(|limit| limit.as_u64().is_some_and(|limit| limit > 0));
        is(good, Fault::AnyLimit)?;
        let resumable = scopes.is_some_and(|all| all.iter().any(|one| one == "session:resume"));
        let limit = limit.and_then(Value::as_u64);
        Ok(Pass { daemon: text("did"), session, resumable, limit, expires })
    }

    /// The key of this id; asked for if it is not known, but not all the time.
    async fn key(&self, kid: &str) -> Option<VerifyingKey> {
        let mut keys = self.keys.lock().await;
        if let Some(key) = known(&keys, kid) {
            return Some(key);
        }
        let may = match keys.fetched {
            None => true,
            Some(_) if self.has(Fault::NeverRefetches) => false,
            Some(at) => self.has(Fault::AlwaysRefetches) || at.elapsed() > REFETCH,
        };
        if may {
            keys.fetched = Some(Instant::now());
            let url = format!("{}/.well-known/jwks.json", self.issuer);
            let answer = self.http.get(url).send().await.ok()?.json::<Value>().await.ok()?;
            keys.known.clear();
            for jwk in answer["keys"].as_array()? {
                let bytes = URL_SAFE_NO_PAD.decode(jwk["x"].as_str()?).ok()?;
                let key = VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()?;
                keys.known.push((jwk["kid"].as_str()?.to_owned(), key));
            }
        }
        let first = || {
            let (_, first) =
                keys.known.first().filter(|_| self.has(Fault::UnknownKeyIsTheFirst))?;
            Some(*first)
        };
        known(&keys, kid).or_else(first)
    }
}

fn known(keys: &Keys, kid: &str) -> Option<VerifyingKey> {
    keys.known.iter().find(|(id, _)| id == kid).map(|(_, key)| *key)
}
