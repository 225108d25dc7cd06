//! The signature of a bundle: which gateway exported it (SBP-L3-16; an extension of Bowline).
//!
//! It is in `metadata.bowline.signature`, and signs the content id of the bundle **without** it.
//! `bundle_cid` is the content id of the bundle **with** it, as SBP-L3-04 says, so a server that knows
//! nothing of signatures checks the file as any other. Who edits the file and seals it again has to
//! remove the signature, or it does not fit any more.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_pyjson::{Object, Value};

use super::{OURS, OpenError};
use crate::cid::Cid;
use crate::gateway_key::{GatewayIdentity, GatewayKey, KeyFingerprint};

/// The member of `metadata.bowline`.
const SIGNATURE: &str = "signature";
/// The only algorithm.
const ED25519: &str = "ed25519";
/// Says what is signed: the same key may sign other things.
const PURPOSE: &str = "bowline-bundle-1:";

/// Who signed a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleSignature {
    Unsigned,
    Signed(GatewayKey),
    /// There is one, and it does not fit: the bundle was changed after it was signed.
    Broken,
}

/// Which bundles an import accepts. One with a broken signature is never accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequiredSignature {
    #[default]
    None,
    OfAnyone,
    Of(KeyFingerprint),
}

impl BundleSignature {
    pub fn check(self, required: RequiredSignature) -> Result<(), OpenError> {
        match (self, required) {
            (Self::Broken, _) => Err(OpenError::BrokenSignature),
            (_, RequiredSignature::None) => Ok(()),
            (Self::Unsigned, _) => Err(OpenError::Unsigned),
            (Self::Signed(_), RequiredSignature::OfAnyone) => Ok(()),
            (Self::Signed(key), RequiredSignature::Of(fingerprint)) => {
                match key.fingerprint() == fingerprint {
                    true => Ok(()),
                    false => Err(OpenError::OtherSigner(key.fingerprint())),
                }
            }
        }
    }

    /// The key, if the signature is good.
    pub fn key(self) -> Option<GatewayKey> {
        match self {
            Self::Signed(key) => Some(key),
            Self::Unsigned | Self::Broken => None,
        }
    }
}

/// Signs a bundle that has no content id yet.
pub(super) fn sign(bundle: &mut Value<'_>, identity: &GatewayIdentity) {
    let Some(metadata) = bundle.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if metadata.get(OURS).and_then(Value::as_object).is_none() {
        metadata.insert(OURS, Object::new());
    }
    let value = identity.sign(&signed_text(&Cid::of(bundle)));
    let signature = Object::from_iter([
        ("alg", Value::from(ED25519)),
        ("key", Value::from(identity.public().to_string())),
        ("value", Value::from(URL_SAFE_NO_PAD.encode(value))),
    ]);
    if let Some(ours) = ours_of(bundle) {
        ours.insert(SIGNATURE, signature);
    }
}

/// Takes the signature out of a bundle and checks it.
pub(super) fn take(bundle: &mut Value<'_>) -> BundleSignature {
    let Some(signature) = ours_of(bundle).and_then(|ours| ours.remove(SIGNATURE)) else {
        return BundleSignature::Unsigned;
    };
    let signer = signer_of(&signature, &signed_text(&Cid::of_bundle(bundle)));
    // What `sign` put there goes with it.
    if ours_of(bundle).is_some_and(|ours| ours.is_empty())
        && let Some(metadata) = bundle.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove(OURS);
    }
    signer.map_or(BundleSignature::Broken, BundleSignature::Signed)
}

fn signer_of(signature: &Value<'_>, text: &[u8]) -> Option<GatewayKey> {
    let field = |name: &str| signature.get(name).and_then(Value::as_str);
    field("alg").filter(|alg| *alg == ED25519)?;
    let key: GatewayKey = field("key")?.parse().ok()?;
    let value = URL_SAFE_NO_PAD.decode(field("value")?).ok()?;
    key.verifies(text, &value.try_into().ok()?).then_some(key)
}

fn signed_text(cid: &Cid) -> Vec<u8> {
    format!("{PURPOSE}{cid}").into_bytes()
}

fn ours_of<'b, 't>(bundle: &'b mut Value<'t>) -> Option<&'b mut Object<'t>> {
    bundle.get_mut("metadata")?.get_mut(OURS)?.as_object_mut()
}
