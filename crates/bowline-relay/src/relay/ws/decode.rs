//! Decodes a client's bytes: messages, whole or fragmented, and control frames between them.
//!
//! A message in one frame is returned as a masked slice of the input and changes no state: a caller
//! that cannot process it yet passes the same bytes again later. Fragments are gathered, and
//! returned as one message.

use bowline_sbrp::frame::{HEADER_LEN, MAX_FRAME};

use super::close;
use super::fault::Fault;
use super::head::{FrameHead, Opcode};
use super::mask::Masked;

/// What is at the start of the input.
#[derive(Debug)]
pub(crate) enum Decoded<'a> {
    /// An incomplete frame: nothing can be decoded before the input has this many bytes.
    Needs(usize),
    /// A message in one frame.
    Message { message: Masked<'a>, used: usize },
    /// Any other frame, to be processed by [`Decoder::take`].
    Other { head: FrameHead, used: usize },
}

/// A frame other than a message in one frame.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A fragment of a message that is not complete yet.
    Part,
    /// A reassembled message, unmasked.
    Gathered(Vec<u8>),
    Ping(Masked<'a>),
    Pong,
    /// A close frame, and its code.
    Close(Option<u16>),
}

/// The state between frames: the fragments gathered so far.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    parts: Option<Vec<u8>>,
}

impl Decoder {
    /// Decodes the frame at the start of the input without consuming it. Always inlined, like
    /// everything that runs for every message: returning the result through memory costs more than
    /// computing it.
    #[inline(always)]
    pub(crate) fn look<'a>(&self, input: &'a [u8]) -> Result<Decoded<'a>, Fault> {
        let head = match FrameHead::read(input)? {
            Ok(head) => head,
            Err(needs) => return Ok(Decoded::Needs(needs)),
        };
        self.check(&head)?;
        let gathered = self.parts.as_ref().map_or(0, Vec::len);
        if !head.opcode.is_control() && head.length > (MAX_FRAME - gathered) as u64 {
            return self.too_long(head, input);
        }
        // No overflow: the lengths of control frames and messages were checked.
        let used = head.size + head.length as usize;
        let Some(frame) = input.get(..used) else { return Ok(Decoded::Needs(used)) };
        if head.opcode == Opcode::Binary && head.fin {
            let message = Masked::framed(frame, head.size, head.key);
            return Ok(Decoded::Message { message, used });
        }
        Ok(Decoded::Other { head, used })
    }

    /// Consumes a frame that [`look`](Self::look) returned as `Other`.
    pub(crate) fn take<'a>(&mut self, head: FrameHead, input: &'a [u8]) -> Result<Item<'a>, Fault> {
        let used = head.size + head.length as usize;
        let payload = input.get(head.size..used).unwrap_or_default();
        let payload = Masked::new(payload, head.key);
        match head.opcode {
            Opcode::Ping => Ok(Item::Ping(payload)),
            Opcode::Pong => Ok(Item::Pong),
            Opcode::Close => {
                let mut said = Vec::with_capacity(payload.len());
                payload.append_to(&mut said);
                close::read(&said).map(Item::Close)
            }
            Opcode::Text => Err(Fault::Text),
            Opcode::Continuation | Opcode::Binary => {
                let mut parts = self.parts.take().unwrap_or_default();
                payload.append_to(&mut parts);
                if head.fin {
                    return Ok(Item::Gathered(parts));
                }
                self.parts = Some(parts);
                Ok(Item::Part)
            }
        }
    }

    #[inline]
    fn check(&self, head: &FrameHead) -> Result<(), Fault> {
        match (head.opcode, &self.parts) {
            (Opcode::Text, _) => Err(Fault::Text),
            (Opcode::Continuation, None) => Err(Fault::Continuation),
            (Opcode::Binary, Some(_)) => Err(Fault::Interleaved),
            _ => Ok(()),
        }
    }

    /// Refuses a message that is too long. Its first bytes are needed to name the violated rule.
    #[cold]
    fn too_long<'a>(&self, head: FrameHead, input: &'a [u8]) -> Result<Decoded<'a>, Fault> {
        let mut known = self.parts.clone().unwrap_or_default();
        known.truncate(HEADER_LEN);
        let missing = HEADER_LEN - known.len();
        let Some(more) = input.get(head.size..head.size + missing) else {
            return Ok(Decoded::Needs(head.size + missing));
        };
        Masked::new(more, head.key).append_to(&mut known);
        let mut start = [0; HEADER_LEN];
        start.copy_from_slice(&known);
        Err(Fault::TooLong { start })
    }
}
