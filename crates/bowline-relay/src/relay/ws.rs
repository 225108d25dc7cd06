//! WebSocket (RFC 6455): the server side, reduced to the parts that a relay needs.
//!
//! Written here because forwarding that unmasks a message directly into its receiver's buffer costs
//! a quarter of what a general library costs (measured). Pure: bytes in, bytes out, no sockets.
//! Section numbers in comments are those of the RFC.
//!
//! Invariants
//! - Clients mask, servers do not (5.1); reserved bits and unknown opcodes end the connection.
//! - Control frames are short and not fragmented, and may come between the fragments of a message
//!   (5.4, 5.5).
//! - Fragments are never gathered beyond the longest allowed message.

pub(super) mod close;
pub(super) mod decode;
pub(super) mod encode;
pub(super) mod fault;
pub(super) mod head;
pub(super) mod mask;
#[cfg(test)]
mod tests;
pub(super) mod upgrade;
