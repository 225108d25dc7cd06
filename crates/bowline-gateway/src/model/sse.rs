//! Server-Sent Events, as far as model servers use them: `data:` lines between blank lines.
//!
//! Written by hand, because it is short and must bound the memory that an upstream can make us use.

use bytes::{Buf, Bytes, BytesMut};

/// The largest single event.
const LARGEST: usize = 1 << 20;

/// Bytes in, event payloads out.
#[derive(Debug, Default)]
pub(super) struct Events {
    buffer: BytesMut,
    data: Vec<u8>,
}

/// An event is over the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next complete event, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(end);
            self.buffer.advance(1);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Ok(Some(Bytes::from(std::mem::take(&mut self.data))));
                }
                continue;
            }
            // Comments and other fields mean nothing here.
            let Some(value) = line.strip_prefix(b"data:") else { continue };
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            if self.data.len() > LARGEST {
                return Err(TooLong);
            }
        }
        if self.buffer.len() > LARGEST { Err(TooLong) } else { Ok(None) }
    }

    /// The last event, if the server closes without the final blank line.
    pub(super) fn rest(&mut self) -> Result<Option<Bytes>, TooLong> {
        self.feed(b"\n\n");
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(events: &mut Events) -> Vec<Bytes> {
        std::iter::from_fn(|| events.next().unwrap()).collect()
    }

    #[test]
    fn events_are_found_whatever_the_line_ends() {
        let mut events = Events::default();
        events.feed(b": hello\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n");
        assert_eq!(all(&mut events), ["{\"a\":1}", "two\nlines", "[DONE]"]);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        events.feed(&vec![b'x'; LARGEST + 1]);
        assert_eq!(events.next(), Err(TooLong));
    }

    #[test]
    fn the_last_event_may_miss_its_blank_line() {
        let mut events = Events::default();
        events.feed(b"data: last");
        assert_eq!(events.next(), Ok(None));
        assert_eq!(events.rest().unwrap().unwrap(), "last");
    }

    proptest! {
        #[test]
        fn cuts_between_packets_do_not_matter(
            texts in proptest::collection::vec("[a-zé{}\" ]{1,20}", 0..10), cut in 1..9usize,
        ) {
            let stream: String = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
            let mut events = Events::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(cut) {
                events.feed(piece);
                found.extend(all(&mut events));
            }
            prop_assert_eq!(found, texts);
        }
    }
}
