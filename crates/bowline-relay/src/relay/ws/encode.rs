//! Frames as a server sends them: whole and unmasked.

use super::head::Opcode;
use super::mask::Masked;

/// How many bytes the head of a server's frame takes.
#[inline]
pub(crate) fn head_len(length: usize) -> usize {
    match length {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => 10,
    }
}

#[inline]
fn head(opcode: Opcode, length: usize, out: &mut Vec<u8>) {
    let first = 0x80 | opcode as u8;
    match length {
        0..=125 => out.extend_from_slice(&[first, length as u8]),
        126..=0xffff => {
            let [a, b] = (length as u16).to_be_bytes();
            out.extend_from_slice(&[first, 126, a, b]);
        }
        _ => {
            out.extend_from_slice(&[first, 127]);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// A message from one end for the other.
#[inline]
pub(crate) fn forward(message: Masked<'_>, out: &mut Vec<u8>) {
    // A length has one spelling, so the client's head is ours but for the mask.
    if !message.append_frame_to(out) {
        head(Opcode::Binary, message.len(), out);
        message.append_to(out);
    }
}

/// A message of the relay's own.
pub(crate) fn binary(message: &[u8], out: &mut Vec<u8>) {
    head(Opcode::Binary, message.len(), out);
    out.extend_from_slice(message);
}

/// An empty ping: nobody looks at what its pong carries.
pub(crate) fn ping(out: &mut Vec<u8>) {
    head(Opcode::Ping, 0, out);
}

/// The answer to a ping.
pub(crate) fn pong(payload: Masked<'_>, out: &mut Vec<u8>) {
    head(Opcode::Pong, payload.len(), out);
    payload.append_to(out);
}

/// A close frame. Without text: there is nothing to say that the code does not.
pub(crate) fn close(code: Option<u16>, out: &mut Vec<u8>) {
    match code {
        None => head(Opcode::Close, 0, out),
        Some(code) => {
            head(Opcode::Close, 2, out);
            out.extend_from_slice(&code.to_be_bytes());
        }
    }
}

/// A message as a client sends it, masked with nothing: how one that came in parts goes on.
pub(crate) fn as_from_client(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + super::head::LONGEST);
    head(Opcode::Binary, message.len(), &mut out);
    out[1] |= 0x80;
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(message);
    out
}
