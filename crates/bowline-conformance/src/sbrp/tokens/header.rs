//! The form of a token, its header, and its signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;

use crate::check::{Check, must};
use crate::issuer::joined;
use crate::sbrp::relay::{Dialed, Place, Relay, merged, new_daemon};
use crate::sbrp::run_at;
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBRP-TOKEN-01",
        "what is no token is refused with 401, before the upgrade",
        "length <= 4096 and three parts (401, not 500). Before the upgrade: 401/403",
        run_at!(shape),
    ),
    must(
        "SBRP-TOKEN-02",
        "a token of another type is refused",
        "typ \"sbrp-relay+jwt\"",
        run_at!(kind),
    ),
    must(
        "SBRP-TOKEN-04",
        "a signature that is not the named key's is refused",
        "signature by the key that `kid` names",
        run_at!(signature),
    ),
    must("SBRP-TOKEN-04b", "no algorithm counts but EdDSA", "EdDSA only", run_at!(algorithm)),
];

async fn shape(relay: &Relay<'_>) -> Ended {
    let good = relay.issuer.daemon_claims(&new_daemon());
    let long = merged(good.clone(), &json!({ "pad": "x".repeat(4096) }));
    let good = relay.issuer.token(&good);
    let cut = good[..good.len() / 2].to_owned();
    let tokens = [
        (String::new(), "an empty token"),
        ("x".to_owned(), "a token of one part"),
        ("a.b".to_owned(), "a token of two parts"),
        ("a.b.c".to_owned(), "a token of three parts that are nothing"),
        ("..".to_owned(), "a token of three empty parts"),
        (format!("{good}.x"), "a token of four parts"),
        (cut, "half a token"),
        (relay.issuer.token(&long), "a token longer than 4096 bytes"),
    ];
    for (token, what) in tokens {
        let (dialed, sent) = relay.dial(&relay.address(), Place::Query, &token).await?;
        let came = match dialed {
            Dialed::Refused(401) => continue,
            Dialed::Refused(status) => format!("status {status}"),
            Dialed::Open(_) => "101: it was let in".to_owned(),
        };
        return Err(Stop::broken(sent, format!("401 for {what}"), came));
    }
    Ok(())
}

async fn kind(relay: &Relay<'_>) -> Ended {
    let claims = relay.issuer.daemon_claims(&new_daemon());
    let key = relay.issuer.first_key();
    for typ in [json!("JWT"), json!(null), json!("sbrp-relay")] {
        let header = merged(key.header(), &json!({ "typ": typ }));
        relay.refuses(&key.signed(&header, &claims), &format!("`typ` = {typ}")).await?;
    }
    Ok(())
}

async fn signature(relay: &Relay<'_>) -> Ended {
    let claims = relay.issuer.daemon_claims(&new_daemon());
    let keys = relay.issuer.keys();
    let [first, second, ..] = &keys[..] else { return Err(Stop::unable("two keys are needed")) };
    let other = second.signed(&first.header(), &claims);
    relay.refuses(&other, "a signature of another key").await?;
    let token = first.token(&claims);
    let (signed, signature) = token.rsplit_once('.').unwrap_or_default();
    let mut changed = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    changed[7] ^= 1;
    let changed = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(changed));
    relay.refuses(&changed, "a changed signature").await?;
    let (header, _) = signed.split_once('.').unwrap_or_default();
    let other = merged(claims, &json!({ "did": "another" })).to_string();
    let moved = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(other));
    relay.refuses(&moved, "the signature of other claims").await
}

async fn algorithm(relay: &Relay<'_>) -> Ended {
    let claims = relay.issuer.daemon_claims(&new_daemon());
    let key = relay.issuer.first_key();
    for name in ["none", "None"] {
        let header = merged(key.header(), &json!({ "alg": name }));
        let unsigned = joined(&header, &claims, |_| Vec::new());
        relay.refuses(&unsigned, &format!("`alg` = {name:?} without a signature")).await?;
    }
    // The public key as the secret of an HMAC: raw, and as the text that is published.
    let public = key.public();
    let text = URL_SAFE_NO_PAD.encode(public).into_bytes();
    let header = merged(key.header(), &json!({ "alg": "HS256" }));
    for secret in [&public[..], &text] {
        let hashed = joined(&header, &claims, |signed| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length is a key");
            mac.update(signed);
            mac.finalize().into_bytes().to_vec()
        });
        relay.refuses(&hashed, "`alg` = \"HS256\" with the public key as the secret").await?;
    }
    Ok(())
}
