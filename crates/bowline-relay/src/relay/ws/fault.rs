//! What a peer did that is no WebSocket traffic, or none that a relay takes.

use bowline_sbrp::frame::{HEADER_LEN, Violation};

/// Why the reading ends.
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
    /// Longer than any frame of the protocol; its first bytes say which rule of the protocol it
    /// breaks.
    #[error("a message is longer than any may be")]
    TooLong { start: [u8; HEADER_LEN] },
}

impl Fault {
    /// The close code that goes with it (7.4.1).
    pub(crate) fn close_code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::CloseReason => 1007,
            Self::TooLong { .. } => 1009,
            _ => 1002,
        }
    }

    /// What it is to the protocol above: text and broken WebSocket frames are no SBRP frames.
    pub(crate) fn violation(self) -> Violation {
        match self {
            Self::TooLong { start } => {
                use bowline_sbrp::control::Role;
                use bowline_sbrp::frame::HeaderVerdict;
                // Who sent it does not matter: such a message fails by its length first.
                let longer = bowline_sbrp::frame::MAX_FRAME + 1;
                HeaderVerdict::at(Role::Client, &start, longer)
                    .err()
                    .unwrap_or(Violation::MalformedFrame)
            }
            _ => Violation::MalformedFrame,
        }
    }
}
