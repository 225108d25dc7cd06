//! Where randomness comes from.

use bowline_sbrp::handshake::Ephemeral;
use zeroize::Zeroizing;

use super::reasons::LossReason;

/// A key pair for one handshake.
pub(super) fn ephemeral() -> Result<Ephemeral, LossReason> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut()).map_err(|_| LossReason::NoEntropy)?;
    Ok(Ephemeral::from_random(bytes))
}

/// Without entropy the wait is the middle of its range: late is better than not at all.
pub(super) fn dice() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
