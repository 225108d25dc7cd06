//! Why a connection or a session ended; shared by client and daemon.

use bowline_sbrp::control::{Code, ControlCode, SdkCode};
use bowline_sbrp::frame::Violation;
use bowline_sbrp::tunnel::TunnelFault;

use super::control_plane::ControlError;

/// Why a connection to the relay was lost. Depends on codes, never on a relay's text
/// (SBRP-CLIENT-07).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the relay cannot be reached: {0}")]
    Unreachable(String),
    #[error("the relay refused the connection (HTTP {0})")]
    Refused(u16),
    #[error("the connection to the relay broke off")]
    Broken,
    #[error("the relay was silent for too long")]
    Silent,
    #[error("the relay took nothing for too long")]
    Stuck,
    #[error("the relay closed the connection ({0})")]
    Closed(u16),
    #[error("another process with this daemon's identity has taken its place")]
    Replaced,
    #[error("the relay sent what is no frame: {0}")]
    Garbled(Violation),
    #[error("the relay says: {}", told(*.0))]
    Told(Code),
    #[error("{}", sentence(*.0))]
    Sdk(SdkCode),
    #[error("the relay discarded a message while the daemon was away")]
    Discarded,
    #[error("what came was not read for too long")]
    Unread,
    #[error(transparent)]
    Tunnel(TunnelFault),
    #[error("the session was closed here")]
    Here,
    #[error("the operating system gives no random bytes")]
    NoEntropy,
}

impl LossReason {
    /// The number of the protocol's code, or of the SDK's (0xE001 and up).
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Told(code) => Some(code.to_wire()),
            Self::Sdk(code) => Some(code.number()),
            Self::Discarded => Some(SdkCode::SequenceError.number()),
            _ => None,
        }
    }
}

/// Why a session ended, as its handle reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    #[error("the session was closed here")]
    Here,
    #[error("the other end left")]
    Left,
    #[error(transparent)]
    Lost(#[from] LossReason),
}

pub(super) fn told(code: Code) -> String {
    match code {
        // Also what a relay makes of a daemon's refusal.
        Code::Known(code @ ControlCode::SessionExpired) => format!(
            "{}: the daemon ended the session; it restarted, or has as many sessions as it may have",
            code.name()
        ),
        Code::Known(code) => code.name().to_owned(),
        Code::Unknown(number) => format!("code {number:#06x}"),
    }
}

pub(super) fn sentence(code: SdkCode) -> &'static str {
    match code {
        SdkCode::IdentityKeyChanged => "the daemon shows another identity key than the pinned one",
        SdkCode::HandshakeFailed => "the daemon did not prove its identity",
        SdkCode::HandshakeTimeout => "the daemon did not answer the handshake in time",
        SdkCode::DecryptFailed => "a message was changed on the way",
        SdkCode::SequenceError => "messages were lost or repeated on the way",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_carry_the_protocols_numbers() {
        assert_eq!(LossReason::Told(Code::Known(ControlCode::DaemonOffline)).code(), Some(0x0202));
        assert_eq!(LossReason::Sdk(SdkCode::HandshakeTimeout).code(), Some(0xE003));
        assert_eq!(LossReason::Discarded.code(), Some(0xE005));
        assert_eq!(LossReason::Broken.code(), None);
        let told = LossReason::Told(Code::Known(ControlCode::DaemonOffline)).to_string();
        assert_eq!(told, "the relay says: daemon_offline");
    }
}
