//! WebSocket, the server's side and no more of it than a relay needs (RFC 6455).
//!
//! Own code, because a forwarder that unmasks a message straight into its receiver's buffer costs
//! a quarter of a general library (measured). Pure: bytes in, bytes out; sockets are elsewhere.
//!
//! Invariants
//! - Clients mask, servers do not (5.1); reserved bits and unknown opcodes end the connection.
//! - Control frames are short, whole, and may come between the parts of a message (5.4, 5.5).
//! - Nothing is gathered beyond the longest message there is.

pub(super) mod close;
pub(super) mod decode;
pub(super) mod encode;
pub(super) mod fault;
pub(super) mod head;
pub(super) mod mask;
#[cfg(test)]
mod tests;
pub(super) mod upgrade;
