//! Violations of WebSocket by a peer, and messages that a relay does not accept.

use bowline_sbrp::frame::{HEADER_LEN, Violation};

/// Why decoding ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("reserved bits are set")]
    ReservedBits,
    #[error("no frame has this opcode")]
    Opcode,
    #[error("a client's frame is not masked")]
    Unmasked,
    #[error("a control frame is too long")]
    LongControl,
    #[error("a control frame is in parts")]
    PartedControl,
    #[error("a length takes more bytes than it needs")]
    Length,
    #[error("a part continues nothing")]
    Continuation,
    #[error("a message begins within another")]
    Interleaved,
    #[error("a close frame has a code that cannot be sent")]
    CloseCode,
    #[error("a close frame's reason is not UTF-8")]
    CloseReason,
    #[error("a text message, where all are binary")]
    Text,
    /// Longer than any frame of the protocol; its first bytes show which rule of the protocol it
    /// breaks.
    #[error("a message is longer than any may be")]
    TooLong { start: [u8; HEADER_LEN] },
}

impl Fault {
    /// The WebSocket close code for this fault (7.4.1).
    pub(crate) fn close_code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::CloseReason => 1007,
            Self::TooLong { .. } => 1009,
            _ => 1002,
        }
    }

    /// The SBRP violation for this fault: text and malformed WebSocket frames are no SBRP frames.
    pub(crate) fn violation(self) -> Violation {
        match self {
            Self::TooLong { start } => {
                use bowline_sbrp::control::Role;
                use bowline_sbrp::frame::HeaderVerdict;
                // The sender's role does not matter: the length is checked first.
                let longer = bowline_sbrp::frame::MAX_FRAME + 1;
                HeaderVerdict::at(Role::Client, &start, longer)
                    .err()
                    .unwrap_or(Violation::MalformedFrame)
            }
            _ => Violation::MalformedFrame,
        }
    }
}
