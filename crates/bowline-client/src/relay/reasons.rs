//! Why a connection or a session ended; shared by client and daemon.

use bowline_sbrp::control::{Code, ControlCode, SdkCode};
use bowline_sbrp::frame::Violation;
use bowline_sbrp::tunnel::TunnelFault;

use super::control_plane::ControlError;

/// Why a connection to the relay was lost. Depends on codes, never on a relay's text
/// (SBRP-CLIENT-07).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// No token could be had.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The relay cannot be reached.
    #[error("the relay cannot be reached: {0}")]
    Unreachable(String),
    /// The relay refused the connection, with this HTTP status.
    #[error("the relay refused the connection (HTTP {0})")]
    Refused(u16),
    /// The connection to the relay broke off.
    #[error("the connection to the relay broke off")]
    Broken,
    /// The relay was silent for too long.
    #[error("the relay was silent for too long")]
    Silent,
    /// The relay took nothing for too long.
    #[error("the relay took nothing for too long")]
    Stuck,
    /// The relay closed the connection, with this WebSocket code.
    #[error("the relay closed the connection ({0})")]
    Closed(u16),
    /// Another process with this daemon's identity has taken its place.
    #[error("another process with this daemon's identity has taken its place")]
    Replaced,
    /// The control plane assigned the daemon to another relay.
    #[error("the control plane assigned the daemon to another relay")]
    Moved,
    /// The relay sent what is no frame.
    #[error("the relay sent what is no frame: {0}")]
    Garbled(Violation),
    /// The relay sent this code.
    #[error("the relay says: {}", told(*.0))]
    Told(Code),
    /// A handshake or a message failed.
    #[error("{}", sentence(*.0))]
    Sdk(SdkCode),
    /// The relay discarded a message while the daemon was away.
    #[error("the relay discarded a message while the daemon was away")]
    Discarded,
    /// What came was not read for too long.
    #[error("what came was not read for too long")]
    Unread,
    /// The other end broke the rules of a tunnel.
    #[error(transparent)]
    Tunnel(TunnelFault),
    /// The session was closed here.
    #[error("the session was closed here")]
    Here,
    /// The operating system gives no random bytes.
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
#[non_exhaustive]
pub enum SessionEnd {
    /// The session was closed here.
    #[error("the session was closed here")]
    Here,
    /// The other end left.
    #[error("the other end left")]
    Left,
    /// The connection is lost, or something failed.
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
        other => other.name(),
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
