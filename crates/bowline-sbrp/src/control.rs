//! Control codes: those a relay sends to an endpoint, and those an endpoint reports to its own
//! user.
//!
//! One table gives for each code its number, its name, whether the relay closes after it and
//! whether it refers to the connection or to one session (SBRP-RELAY-16). The codes that are never
//! sent have a separate type, so that writing one into a frame does not compile.

/// A code that a relay sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlCode {
    /// The token is not valid.
    Unauthorized,
    /// The token is valid and does not permit this.
    Forbidden,
    /// There is no such daemon.
    DaemonNotFound,
    /// The daemon is not connected.
    DaemonOffline,
    /// There is no such session.
    SessionNotFound,
    /// The session is over.
    SessionExpired,
    /// A message is not one frame.
    MalformedFrame,
    /// A payload is longer than it may be.
    PayloadTooLarge,
    /// A frame has an unknown type.
    InvalidFrameType,
    /// A frame has a session id where it may not, or none where it must.
    InvalidSessionId,
    /// A frame of a type that its sender may not send.
    DisallowedSender,
    /// The relay failed.
    InternalError,
    /// Too many messages or connections: they are delayed.
    RateLimited,
    /// The receiver does not read fast enough.
    Backpressure,
    /// To a client: its daemon is disconnected.
    SessionPaused,
    /// To a client: its daemon goes on with the session.
    SessionResumed,
    /// To a daemon: its client is gone.
    SessionEnded,
    /// To a client: its daemon is back and has not said yet whether it resumes the session.
    SessionPending,
}

/// What a code refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The connection: session id 0 in the header.
    Connection,
    /// One session: its id in the header.
    Session,
}

/// The role of the endpoint of a relay's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One session with one daemon.
    Client,
    /// Many sessions.
    Daemon,
}

struct Row(u16, &'static str, After, Scope);

/// What the relay does with the connection after the code.
enum After {
    Close,
    Stay,
}

impl ControlCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [ControlCode; 18] = {
        use ControlCode::*;
        [
            Unauthorized,
            Forbidden,
            DaemonNotFound,
            DaemonOffline,
            SessionNotFound,
            SessionExpired,
            MalformedFrame,
            PayloadTooLarge,
            InvalidFrameType,
            InvalidSessionId,
            DisallowedSender,
            InternalError,
            RateLimited,
            Backpressure,
            SessionPaused,
            SessionResumed,
            SessionEnded,
            SessionPending,
        ]
    };

    const fn row(self) -> Row {
        use After::*;
        use Scope::*;
        match self {
            Self::Unauthorized => Row(0x0101, "unauthorized", Close, Connection),
            Self::Forbidden => Row(0x0102, "forbidden", Close, Connection),
            Self::DaemonNotFound => Row(0x0201, "daemon_not_found", Close, Session),
            Self::DaemonOffline => Row(0x0202, "daemon_offline", Close, Session),
            Self::SessionNotFound => Row(0x0301, "session_not_found", Close, Session),
            Self::SessionExpired => Row(0x0302, "session_expired", Close, Session),
            Self::MalformedFrame => Row(0x0401, "malformed_frame", Close, Connection),
            Self::PayloadTooLarge => Row(0x0402, "payload_too_large", Close, Connection),
            Self::InvalidFrameType => Row(0x0403, "invalid_frame_type", Close, Connection),
            Self::InvalidSessionId => Row(0x0404, "invalid_session_id", Close, Connection),
            Self::DisallowedSender => Row(0x0405, "disallowed_sender", Close, Session),
            Self::InternalError => Row(0x0601, "internal_error", Close, Connection),
            Self::RateLimited => Row(0x0901, "rate_limited", Stay, Connection),
            Self::Backpressure => Row(0x0902, "backpressure", Close, Connection),
            Self::SessionPaused => Row(0x1001, "session_paused", Stay, Session),
            Self::SessionResumed => Row(0x1002, "session_resumed", Stay, Session),
            Self::SessionEnded => Row(0x1003, "session_ended", Stay, Session),
            Self::SessionPending => Row(0x1004, "session_pending", Stay, Session),
        }
    }

    /// The number on the wire.
    pub const fn to_wire(self) -> u16 {
        self.row().0
    }

    /// The protocol's name.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether the relay closes the connection after this code, according to the table.
    pub const fn is_terminal(self) -> bool {
        matches!(self.row().2, After::Close)
    }

    /// What it refers to.
    pub const fn scope(self) -> Scope {
        self.row().3
    }

    /// Whether the relay closes a connection of this role after this code. A daemon's connection
    /// carries many sessions: the end of one must not close the others.
    pub const fn closes(self, to: Role) -> bool {
        match (to, self) {
            (Role::Daemon, Self::SessionNotFound | Self::SessionExpired) => false,
            _ => self.is_terminal(),
        }
    }
}

/// A code as decoded from a frame. A newer relay may send unknown codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A code of this version.
    Known(ControlCode),
    /// The number of a code that this version does not know.
    Unknown(u16),
}

impl Code {
    /// The code with this number.
    pub fn from_wire(number: u16) -> Self {
        ControlCode::ALL
            .into_iter()
            .find(|code| code.to_wire() == number)
            .map_or(Self::Unknown(number), Self::Known)
    }

    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Known(code) => code.to_wire(),
            Self::Unknown(number) => number,
        }
    }

    /// An unknown code ends the connection: waiting after it could last for ever.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Known(code) => code.is_terminal(),
            Self::Unknown(_) => true,
        }
    }
}

/// A code that an endpoint reports to its own user. Never on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SdkCode {
    /// The daemon shows another identity key than the pinned one. The client stops.
    IdentityKeyChanged,
    /// The handshake is malformed or its signature does not hold. The session is closed.
    HandshakeFailed,
    /// The handshake was not done in time. The session is closed.
    HandshakeTimeout,
    /// A message was not sealed by the peer, or was changed. The session is closed.
    DecryptFailed,
    /// A message was here before, or the numbers are used up. The message is rejected.
    SequenceError,
}

impl SdkCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [SdkCode; 5] = [
        SdkCode::IdentityKeyChanged,
        SdkCode::HandshakeFailed,
        SdkCode::HandshakeTimeout,
        SdkCode::DecryptFailed,
        SdkCode::SequenceError,
    ];

    /// The number that programs are told.
    pub const fn number(self) -> u16 {
        self.row().0
    }

    /// The protocol's name.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Whether the session is over after it. Otherwise one message was rejected, and no more
    /// (SBRP-SDK-01).
    pub const fn ends_session(self) -> bool {
        match self {
            SdkCode::IdentityKeyChanged
            | SdkCode::HandshakeFailed
            | SdkCode::HandshakeTimeout
            | SdkCode::DecryptFailed => true,
            SdkCode::SequenceError => false,
        }
    }

    const fn row(self) -> (u16, &'static str) {
        match self {
            SdkCode::IdentityKeyChanged => (0xE001, "identity_key_changed"),
            SdkCode::HandshakeFailed => (0xE002, "handshake_failed"),
            SdkCode::HandshakeTimeout => (0xE003, "handshake_timeout"),
            SdkCode::DecryptFailed => (0xE004, "decrypt_failed"),
            SdkCode::SequenceError => (0xE005, "sequence_error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors;

    #[test]
    fn sbrp_relay_16_the_table_is_the_vectors_table() {
        let constants = vectors::section("constants");
        let codes = constants["codes"].as_object().unwrap();
        let stays = constants["nonterminal"].as_array().unwrap();
        assert_eq!(codes.len(), ControlCode::ALL.len());
        for code in ControlCode::ALL {
            assert_eq!(codes[code.name()], format!("{:#06x}", code.to_wire()), "{code:?}");
            let stay = stays.iter().any(|name| name == code.name());
            assert_eq!(code.is_terminal(), !stay, "{code:?}");
            assert_eq!(Code::from_wire(code.to_wire()), Code::Known(code));
        }
        for row in vectors::rows("frames", 36).iter().filter(|row| row["kind"] == "control") {
            let code = ControlCode::ALL.into_iter().find(|code| row["name"] == code.name());
            let scope = if row["sid_scope"] == "0" { Scope::Connection } else { Scope::Session };
            assert_eq!(code.unwrap().scope(), scope, "{}", row["name"]);
            assert_eq!(code.unwrap().is_terminal(), row["terminal"] == true, "{}", row["name"]);
        }
    }

    #[test]
    fn sbrp_relay_16_one_sessions_end_does_not_close_its_daemon() {
        for code in [ControlCode::SessionNotFound, ControlCode::SessionExpired] {
            assert!(code.closes(Role::Client) && !code.closes(Role::Daemon));
        }
        for code in ControlCode::ALL {
            assert_eq!(code.closes(Role::Client), code.is_terminal());
        }
        assert!(ControlCode::DisallowedSender.closes(Role::Daemon));
    }

    #[test]
    fn codes_of_the_sdk_mean_nothing_on_the_wire() {
        for code in SdkCode::ALL {
            let read = Code::from_wire(code.number());
            assert_eq!(read, Code::Unknown(code.number()), "{}", code.name());
            assert!(read.is_terminal());
        }
    }
}
