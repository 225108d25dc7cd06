//! What a client's bytes are: messages, whole or in parts, and control frames between them.
//!
//! A message in one frame is handed out where it lies, masked, and changes nothing: whoever cannot
//! take it yet comes again with the same bytes. Parts are gathered, and then given away.

use bowline_sbrp::frame::{HEADER_LEN, MAX_FRAME};

use super::close;
use super::fault::Fault;
use super::head::{FrameHead, Opcode};
use super::mask::Masked;

/// What stands at the beginning of the input.
#[derive(Debug)]
pub(crate) enum Decoded<'a> {
    /// A part of something: nothing can be said before the input has this many bytes.
    Needs(usize),
    /// A message in one frame.
    Message { message: Masked<'a>, used: usize },
    /// Something else, taken in by [`Decoder::take`].
    Other { head: FrameHead, used: usize },
}

/// Something other than a message in one frame.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// Of a message that is not whole yet.
    Part,
    /// A message that came in parts, unmasked.
    Gathered(Vec<u8>),
    Ping(Masked<'a>),
    Pong,
    /// The other side says goodbye.
    Close(Option<u16>),
}

/// The one thing a connection remembers between frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    parts: Option<Vec<u8>>,
}

impl Decoder {
    /// Looks at the input without taking anything. Always inlined, like all that is done for every
    /// message: handing its result over in memory costs more than finding it.
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
        // Fits: control frames and messages are short.
        let used = head.size + head.length as usize;
        let Some(frame) = input.get(..used) else { return Ok(Decoded::Needs(used)) };
        if head.opcode == Opcode::Binary && head.fin {
            let message = Masked::framed(frame, head.size, head.key);
            return Ok(Decoded::Message { message, used });
        }
        Ok(Decoded::Other { head, used })
    }

    /// Takes in what [`look`](Self::look) called other.
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

    /// Which rule a message breaks that is too long stands in its first bytes.
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
