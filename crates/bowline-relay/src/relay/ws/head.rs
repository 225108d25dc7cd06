//! The head of a WebSocket frame, two to fourteen bytes, as a client sends it (5.2).

use super::fault::Fault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

impl Opcode {
    #[inline]
    fn from_wire(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    #[inline]
    pub(crate) fn is_control(self) -> bool {
        self as u8 >= 0x8
    }
}

/// The head of a client's frame, checked as far as possible without other frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    pub(crate) key: [u8; 4],
    /// Length of the payload, in bytes.
    pub(crate) length: u64,
    /// Length of the head itself, in bytes.
    pub(crate) size: usize,
}

/// The longest possible head, in bytes.
pub(crate) const LONGEST: usize = 14;

impl FrameHead {
    /// Reads a head; `Ok(Err(n))` says that it needs `n` bytes and the input has fewer. A head
    /// whose available bytes are already invalid is refused at once.
    #[inline(always)]
    pub(crate) fn read(input: &[u8]) -> Result<Result<Self, usize>, Fault> {
        let &[first, second, ..] = input else { return Ok(Err(2)) };
        if first & 0x70 != 0 {
            return Err(Fault::ReservedBits);
        }
        let fin = first & 0x80 != 0;
        let opcode = Opcode::from_wire(first & 0x0f).ok_or(Fault::Opcode)?;
        if second & 0x80 == 0 {
            return Err(Fault::Unmasked);
        }
        let short = second & 0x7f;
        if opcode.is_control() {
            if short > 125 {
                return Err(Fault::LongControl);
            }
            if !fin {
                return Err(Fault::PartedControl);
            }
        }
        let (length, at) = match short {
            126 => match input.get(2..4) {
                Some(&[a, b]) => (u64::from(u16::from_be_bytes([a, b])), 4),
                _ => return Ok(Err(8)),
            },
            127 => match input.get(2..10).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()) {
                Some(bytes) => (u64::from_be_bytes(bytes), 10),
                None => return Ok(Err(LONGEST)),
            },
            short => (u64::from(short), 2),
        };
        // Only the shortest encoding of a length is valid, and the highest bit is never set (5.2).
        if (at == 4 && length < 126) || (at == 10 && (length <= 0xffff || length >> 63 == 1)) {
            return Err(Fault::Length);
        }
        let Some(&[k0, k1, k2, k3]) = input.get(at..at + 4) else { return Ok(Err(at + 4)) };
        Ok(Ok(Self { fin, opcode, key: [k0, k1, k2, k3], length, size: at + 4 }))
    }
}
