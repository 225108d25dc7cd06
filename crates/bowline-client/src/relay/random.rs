//! Random keys and back-off jitter.

use bowline_sbrp::handshake::Ephemeral;
use zeroize::Zeroizing;

use super::reasons::LossReason;

/// An ephemeral key pair for one handshake.
pub(super) fn ephemeral() -> Result<Ephemeral, LossReason> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut()).map_err(|_| LossReason::NoEntropy)?;
    Ok(Ephemeral::from_random(bytes))
}

/// Without entropy the delay is the middle of its range: a fixed delay is better than none.
pub(super) fn dice() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

/// Random bytes.
pub(super) fn bytes<const N: usize>() -> Result<[u8; N], LossReason> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| LossReason::NoEntropy)?;
    Ok(bytes)
}
