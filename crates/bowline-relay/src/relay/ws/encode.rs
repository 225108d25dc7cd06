//! Frames as a server sends them: unfragmented and unmasked.

use super::head::Opcode;
use super::mask::Masked;

/// The length of a server frame's head, in bytes.
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

/// A message forwarded from one peer to the other.
#[inline]
pub(crate) fn forward(message: Masked<'_>, out: &mut Vec<u8>) {
    // Each length has only one encoding, so the client's head can be reused without its mask.
    if !message.append_frame_to(out) {
        head(Opcode::Binary, message.len(), out);
        message.append_to(out);
    }
}

/// A message of the relay itself.
pub(crate) fn binary(message: &[u8], out: &mut Vec<u8>) {
    head(Opcode::Binary, message.len(), out);
    out.extend_from_slice(message);
}

/// A ping with an empty payload: the payload of its pong is not checked.
pub(crate) fn ping(out: &mut Vec<u8>) {
    head(Opcode::Ping, 0, out);
}

/// The pong that answers a ping.
pub(crate) fn pong(payload: Masked<'_>, out: &mut Vec<u8>) {
    head(Opcode::Pong, payload.len(), out);
    payload.append_to(out);
}

/// A close frame without a reason text: the code is enough.
pub(crate) fn close(code: Option<u16>, out: &mut Vec<u8>) {
    match code {
        None => head(Opcode::Close, 0, out),
        Some(code) => {
            head(Opcode::Close, 2, out);
            out.extend_from_slice(&code.to_be_bytes());
        }
    }
}

/// A message as a client's frame with a zero mask; used to forward a reassembled message.
pub(crate) fn as_from_client(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + super::head::LONGEST);
    head(Opcode::Binary, message.len(), &mut out);
    out[1] |= 0x80;
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(message);
    out
}
