//! Who signed a bundle, in words.

use bowline_gateway::identity_file;
use bowline_sbp::api::{SignatureState, SignatureView};
use bowline_sbp::gateway_key::GatewayKey;
use serde_json::Value;

use crate::cli::GatewayArgs;
use crate::{local, settings};

/// The key of the gateway whose data folder this is; none if there is none, or it cannot be read. One that
/// runs says it itself: it may be that of all replicas.
pub(super) fn own_key(args: &GatewayArgs) -> Option<GatewayKey> {
    let folder = settings::data_folder(args.data.as_deref());
    let told = local::running(&folder).and_then(|running| running.identity);
    if let Some(key) = told.and_then(|key| key.parse().ok()) {
        return Some(key);
    }
    identity_file::load(&folder).ok().flatten().map(|identity| identity.public())
}

/// One line without control characters: it has nothing in it but a checked key's fingerprint.
pub(super) fn words(signature: &SignatureView) -> String {
    let fingerprint = signature.fingerprint.as_deref().unwrap_or_default();
    match signature.state {
        SignatureState::Signed if signature.known => {
            format!("signed by this gateway, {fingerprint}")
        }
        SignatureState::Signed => format!("signed by {fingerprint}"),
        SignatureState::Unsigned => "unsigned".to_owned(),
        SignatureState::Broken => "broken: it was changed after its gateway signed it".to_owned(),
    }
}

/// The same for the answer of a gateway; none from one that does not know of signatures.
pub(super) fn words_of(answer: &Value) -> Option<String> {
    let signature = serde_json::from_value::<SignatureView>(answer["signature"].clone()).ok()?;
    // What a gateway says is not printed unchecked.
    let parsed = signature.fingerprint.as_deref().map(|text| {
        text.parse::<bowline_sbp::gateway_key::KeyFingerprint>().map(|good| good.to_string())
    });
    let fingerprint = parsed.transpose().ok()?;
    Some(words(&SignatureView { fingerprint, ..signature }))
}
