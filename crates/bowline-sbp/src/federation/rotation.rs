//! How a gateway's key is replaced by a new one without anybody being asked.
//!
//! The older key signs the newer one, and the manifest shows that statement until a time after
//! which it is not accepted any more. Who pinned the older key walks from it to the present one;
//! a gateway that was away for two rotations walks two steps.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::gateway_id::GatewayId;
use crate::gateway_key::{GatewayIdentity, GatewayKey};

/// Says what is signed.
const PURPOSE: &str = "bowline-rotation-1:";
/// The most statements in a manifest.
pub const MOST_PREVIOUS: usize = 8;

/// An older key of a gateway, and its statement of the key that came after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousKey {
    pub key: GatewayKey,
    /// Seconds since 1970: from then on the statement is not accepted.
    pub until: i64,
    /// The older key's signature of the gateway's id and the key after it.
    pub signature: [u8; 64],
}

impl PreviousKey {
    /// The statement of `old` that `new` is the key of that gateway.
    pub fn sign(old: &GatewayIdentity, id: &GatewayId, new: &GatewayKey, until: Timestamp) -> Self {
        let signature = old.sign(&signed_text(id, new));
        Self { key: old.public(), until: until.as_second(), signature }
    }

    fn leads_to(&self, id: &GatewayId, key: &GatewayKey) -> bool {
        self.key.verifies(&signed_text(id, key), &self.signature)
    }

    pub(super) fn signature_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.signature)
    }

    pub(super) fn signature_of(text: &str) -> Option<[u8; 64]> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
    }
}

/// Whether the statements lead from a pinned key to the present one.
pub(super) fn leads(
    previous: &[PreviousKey],
    id: &GatewayId,
    pinned: &GatewayKey,
    present: &GatewayKey,
    now: Timestamp,
) -> bool {
    let valid: Vec<_> = previous
        .iter()
        .take(MOST_PREVIOUS)
        .filter(|statement| statement.until > now.as_second())
        .collect();
    let mut reached = vec![*pinned];
    let mut at = 0;
    while let Some(key) = reached.get(at).copied() {
        for statement in valid.iter().filter(|statement| statement.key == key) {
            if statement.leads_to(id, present) {
                return true;
            }
            for next in valid.iter().map(|other| other.key) {
                if !reached.contains(&next) && statement.leads_to(id, &next) {
                    reached.push(next);
                }
            }
        }
        at += 1;
    }
    false
}

fn signed_text(id: &GatewayId, new: &GatewayKey) -> Vec<u8> {
    format!("{PURPOSE}{id}:{new}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(n: u8) -> GatewayIdentity {
        GatewayIdentity::from_seed(&[n; 32])
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn statement(old: u8, new: u8, until: i64) -> PreviousKey {
        let id = "gw".parse().unwrap();
        PreviousKey::sign(&identity(old), &id, &identity(new).public(), at(until))
    }

    fn walks(previous: &[PreviousKey], from: u8, to: u8, now: i64) -> bool {
        let id = "gw".parse().unwrap();
        leads(previous, &id, &identity(from).public(), &identity(to).public(), at(now))
    }

    #[test]
    fn sbp_l6_01_an_old_key_leads_to_the_new_one_until_its_time_ends() {
        let one = [statement(1, 2, 100)];
        assert!(walks(&one, 1, 2, 99));
        assert!(!walks(&one, 1, 2, 100), "its time has ended");
        assert!(!walks(&one, 2, 1, 99), "not backwards");
        assert!(!walks(&one, 1, 3, 99), "not to another key");
        assert!(!walks(&one, 3, 2, 99), "not from another key");
        assert!(!walks(&[], 1, 2, 99));
    }

    #[test]
    fn sbp_l6_01_several_rotations_are_walked_in_any_order_and_circles_end() {
        let chain = [statement(2, 3, 100), statement(1, 2, 100), statement(3, 4, 100)];
        assert!(walks(&chain, 1, 4, 99));
        assert!(walks(&chain, 2, 4, 99));
        let broken = [statement(1, 2, 50), statement(2, 3, 100)];
        assert!(!walks(&broken, 1, 3, 99), "the first step has ended");
        let circle = [statement(1, 2, 100), statement(2, 1, 100)];
        assert!(!walks(&circle, 1, 3, 99));
    }

    #[test]
    fn sbp_l6_01_a_statement_is_of_one_gateway() {
        let other: GatewayId = "other".parse().unwrap();
        let (old, new) = (identity(1).public(), identity(2).public());
        assert!(!leads(&[statement(1, 2, 100)], &other, &old, &new, at(1)));
        let mut forged = statement(1, 2, 100);
        forged.signature[0] ^= 1;
        assert!(!walks(&[forged], 1, 2, 1));
    }
}
