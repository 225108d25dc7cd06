//! The client proves who it is, inside the sealed channel (SBRP-PEER-01).
//!
//! The handshake authenticates only the daemon: whoever has a relay, or a control plane that signs
//! tokens, can complete one with it. So the first message of a session carries a proof: a signature
//! by a device key that the daemon has paired, or, the first time, a device key with a pairing code.
//! Both are bound to the channel's transcript, so that a proof from one channel says nothing in
//! another, and the signature covers the whole message.
//!
//! Invariants
//! - A [`ProvenDevice`] is made only by a signature that verified for this channel.
//! - A pairing code is never sent; only a MAC made with it.
//! - Codes are compared in constant time.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::handshake::ChannelBinding;
use crate::identity::{IdentityKey, IdentitySecret};
use crate::pairing::{CODE_LEN, PairingCode};

const SIGNED: &[u8] = b"sbrp-peer-v1";
const CODE: &[u8] = b"sbrp-pair-v1";

pub(crate) const SIGNATURE_LEN: usize = 64;
pub(crate) const MAC_LEN: usize = 32;

/// The longest name of a device, in bytes.
pub const LONGEST_NAME: usize = 64;

/// Who a client says it is, with what it proves it by.
#[derive(Debug, Clone, Copy)]
pub enum Identification<'a> {
    /// No proof. A daemon accepts it only if it was configured so.
    Plain,
    /// A device that is paired.
    Device(&'a IdentitySecret),
    /// A device that is not paired yet, and what its owner calls it.
    Pairing {
        /// The device's key.
        device: &'a IdentitySecret,
        /// The code that the daemon showed.
        code: &'a PairingCode,
        /// What its owner calls the device.
        name: &'a str,
    },
}

/// What a client has proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: a client without a proof.
    Plain,
    /// A device key. Whether it is paired, the daemon knows.
    Device(ProvenDevice),
    /// A device that wants to be paired.
    Pairing(PairingClaim),
}

/// The key of a device that signed this channel's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvenDevice(IdentityKey);

impl ProvenDevice {
    /// The key.
    pub fn key(&self) -> &IdentityKey {
        &self.0
    }
}

/// A device that wants to be paired. Whether it knows a code is asked with [`PairingClaim::knows`].
#[derive(Clone, PartialEq, Eq)]
pub struct PairingClaim {
    /// Its key.
    pub device: ProvenDevice,
    /// What its owner calls it.
    pub name: String,
    binding: ChannelBinding,
    mac: [u8; MAC_LEN],
}

impl PairingClaim {
    /// Whether the device has this code.
    pub fn knows(&self, code: &[u8; CODE_LEN]) -> bool {
        code_mac(code, &self.binding, self.device.key()).verify_slice(&self.mac).is_ok()
    }
}

impl fmt::Debug for PairingClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairingClaim").field("device", &self.device).finish_non_exhaustive()
    }
}

const PLAIN: u8 = 0x00;
const DEVICE: u8 = 0x01;
const PAIRING: u8 = 0x02;

/// Appends the proof to a message, which it covers.
pub(crate) fn append(message: &mut Vec<u8>, who: &Identification<'_>, binding: &ChannelBinding) {
    let device = match who {
        Identification::Plain => return message.push(PLAIN),
        Identification::Device(device) => {
            message.push(DEVICE);
            message.extend_from_slice(device.public().as_bytes());
            device
        }
        Identification::Pairing { device, code, name } => {
            let key = device.public();
            message.push(PAIRING);
            message.extend_from_slice(key.as_bytes());
            let mac = code_mac(code.as_bytes(), binding, &key).finalize().into_bytes();
            message.extend_from_slice(&mac);
            message.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            message.extend_from_slice(name.as_bytes());
            device
        }
    };
    let signature = device.sign(&signed(binding, message));
    message.extend_from_slice(&signature);
}

/// Reads and verifies the proof that begins at `at` and ends the message.
pub(crate) fn read(message: &[u8], at: usize, binding: &ChannelBinding) -> Option<Claim> {
    let (kind, proof) = message.get(at..)?.split_first()?;
    if *kind == PLAIN {
        return proof.is_empty().then_some(Claim::Plain);
    }
    let covered = message.len().checked_sub(SIGNATURE_LEN).filter(|end| *end > at)?;
    let (key, rest) = message.get(at + 1..covered)?.split_first_chunk()?;
    let key = IdentityKey::from_bytes(key).ok()?;
    let signature = message.get(covered..)?.first_chunk()?;
    if !key.verifies(&signed(binding, &message[..covered]), signature) {
        return None;
    }
    let device = ProvenDevice(key);
    match *kind {
        DEVICE => rest.is_empty().then_some(Claim::Device(device)),
        PAIRING => {
            let (mac, rest) = rest.split_first_chunk()?;
            let (length, name) = rest.split_first()?;
            let name = std::str::from_utf8(name).ok()?.to_owned();
            let fits = name.len() == usize::from(*length) && is_name(&name);
            let claim = PairingClaim { device, name, binding: *binding, mac: *mac };
            fits.then_some(Claim::Pairing(claim))
        }
        _ => None,
    }
}

/// Whether a device may be called so: something that can be seen, and that changes no text beside it.
pub fn is_name(name: &str) -> bool {
    let is_bad = |c: char| c.is_control() || is_invisible(c);
    (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(is_bad) && !name.trim().is_empty()
}

/// Characters that show nothing or turn the direction of the text: one name could pass for another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn signed(binding: &ChannelBinding, message: &[u8]) -> [u8; 32] {
    let hash = Sha256::new().chain_update(SIGNED).chain_update(binding.0).chain_update(message);
    hash.finalize().into()
}

fn code_mac(code: &[u8; CODE_LEN], binding: &ChannelBinding, key: &IdentityKey) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(code).expect("HMAC takes a key of any length");
    mac.chain_update(CODE).chain_update(binding.0).chain_update(key.as_bytes())
}

#[cfg(test)]
mod tests;
