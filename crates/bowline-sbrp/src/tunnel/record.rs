//! The messages of a tunnel after the hello: one record each.
//!
//! ```text
//! kind u8 | number u64 | stream u32 | …     numbered, in each direction from 0
//!   10 open     name of the service, UTF-8
//!   11 data     bytes
//!   12 credit   u32: so many bytes more may be sent on this stream
//!   13 end      nothing more follows on this stream in this direction
//!   14 reset    reason u8: both directions are over
//! 20 | received u64 | sent u64               acknowledgement, without a number
//! 21                                         close: the tunnel is needed no more, without a number
//! ```
//!
//! All numbers are big-endian. Each numbered record carries its number, so that a loss shows also
//! between ends whose sealed sessions tolerate gaps.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{LONGEST_SERVICE, TunnelFault};
use crate::sealed::MAX_PLAINTEXT;

/// A stream's number: the client's choice, from 1, each higher than all before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// Why both directions of a stream are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResetReason {
    /// The other end closed the connection.
    #[error("the other end closed the connection")]
    Cancelled,
    /// The daemon does not offer this service.
    #[error("the daemon does not offer this service")]
    NotOffered,
    /// This device may not use this service.
    #[error("this device may not use this service")]
    NotPermitted,
    /// The target cannot be reached from the daemon.
    #[error("the target cannot be reached from the daemon")]
    Unreachable,
    /// There are as many connections as there may be.
    #[error("there are as many connections as there may be")]
    TooMany,
    /// Never sent: the tunnel itself is gone.
    #[error("the connection to the other end was lost for too long")]
    TunnelLost,
}

impl ResetReason {
    fn to_wire(self) -> u8 {
        match self {
            Self::Cancelled | Self::TunnelLost => 0x00,
            Self::NotOffered => 0x01,
            Self::NotPermitted => 0x02,
            Self::Unreachable => 0x03,
            Self::TooMany => 0x04,
        }
    }

    /// A reason of a later version is a plain end.
    fn from_wire(byte: u8) -> Self {
        match byte {
            0x01 => Self::NotOffered,
            0x02 => Self::NotPermitted,
            0x03 => Self::Unreachable,
            0x04 => Self::TooMany,
            _ => Self::Cancelled,
        }
    }
}

/// One record inside a sealed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Opens a stream to a service.
    Open {
        /// The stream, which must be new.
        stream: StreamId,
        /// The name of the service.
        service: String,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        stream: StreamId,
        /// The next bytes.
        bytes: Bytes,
    },
    /// The receiver may be sent more.
    Credit {
        /// The stream.
        stream: StreamId,
        /// How many bytes more.
        bytes: u32,
    },
    /// This direction of a stream is complete.
    End {
        /// The stream.
        stream: StreamId,
    },
    /// Both directions of a stream are over.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        reason: ResetReason,
    },
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Numbered(u64, Record),
    Ack { received: u64, sent: u64 },
    Close,
}

const OPEN: u8 = 0x10;
const DATA: u8 = 0x11;
const CREDIT: u8 = 0x12;
const END: u8 = 0x13;
const RESET: u8 = 0x14;
const ACK: u8 = 0x20;
const CLOSE: u8 = 0x21;
/// Kind, number and stream.
const HEAD: usize = 1 + 8 + 4;
/// The most bytes of one data record.
pub(super) const MOST_DATA: usize = MAX_PLAINTEXT - HEAD;

/// A data record, copied once from where its bytes are.
pub(super) fn data(number: u64, stream: StreamId, bytes: &[u8]) -> Bytes {
    let mut message = head(DATA, number, stream, bytes.len());
    message.put_slice(bytes);
    message.freeze()
}

fn head(kind: u8, number: u64, stream: StreamId, more: usize) -> BytesMut {
    let mut message = BytesMut::with_capacity(HEAD + more);
    message.put_u8(kind);
    message.put_u64(number);
    message.put_u32(stream.0);
    message
}

impl Record {
    pub(super) fn message(&self, number: u64) -> Bytes {
        match self {
            Self::Open { stream, service } => {
                let mut message = head(OPEN, number, *stream, service.len());
                message.put_slice(service.as_bytes());
                message.freeze()
            }
            Self::Data { stream, bytes } => data(number, *stream, bytes),
            Self::Credit { stream, bytes } => {
                let mut message = head(CREDIT, number, *stream, 4);
                message.put_u32(*bytes);
                message.freeze()
            }
            Self::End { stream } => head(END, number, *stream, 0).freeze(),
            Self::Reset { stream, reason } => {
                let mut message = head(RESET, number, *stream, 1);
                message.put_u8(reason.to_wire());
                message.freeze()
            }
        }
    }
}

impl Message {
    pub(super) fn ack(received: u64, sent: u64) -> Bytes {
        let mut message = BytesMut::with_capacity(1 + 8 + 8);
        message.put_u8(ACK);
        message.put_u64(received);
        message.put_u64(sent);
        message.freeze()
    }

    pub(super) fn close() -> Bytes {
        Bytes::from_static(&[CLOSE])
    }

    pub(super) fn read(message: &Bytes) -> Result<Self, TunnelFault> {
        read(message).ok_or(TunnelFault::Malformed)
    }
}

fn read(message: &Bytes) -> Option<Message> {
    let (kind, rest) = message.split_first()?;
    if *kind == CLOSE {
        return rest.is_empty().then_some(Message::Close);
    }
    let (number, rest) = rest.split_first_chunk()?;
    let number = u64::from_be_bytes(*number);
    if *kind == ACK {
        let sent = u64::from_be_bytes(rest.try_into().ok()?);
        return Some(Message::Ack { received: number, sent });
    }
    let (stream, rest) = rest.split_first_chunk()?;
    let stream = StreamId(u32::from_be_bytes(*stream));
    let record = match *kind {
        OPEN => {
            let service = std::str::from_utf8(rest).ok()?;
            let fits = (1..=LONGEST_SERVICE).contains(&service.len());
            Record::Open { stream, service: fits.then(|| service.to_owned())? }
        }
        DATA => Record::Data { stream, bytes: message.slice(HEAD..) },
        CREDIT => Record::Credit { stream, bytes: u32::from_be_bytes(rest.try_into().ok()?) },
        END if rest.is_empty() => Record::End { stream },
        RESET => {
            let [reason] = rest.try_into().ok()?;
            Record::Reset { stream, reason: ResetReason::from_wire(reason) }
        }
        _ => return None,
    };
    Some(Message::Numbered(number, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const S: StreamId = StreamId(1);

    #[test]
    fn records_have_the_documented_bytes_and_are_read_back() {
        let reset = Record::Reset { stream: S, reason: ResetReason::NotPermitted };
        for (record, bytes) in [
            (
                Record::Open { stream: S, service: "http".into() },
                "10000000000000000700000001 68747470",
            ),
            (Record::Data { stream: S, bytes: "hi".into() }, "11000000000000000700000001 6869"),
            (Record::Credit { stream: S, bytes: 65536 }, "12000000000000000700000001 00010000"),
            (Record::End { stream: S }, "13000000000000000700000001"),
            (reset, "14000000000000000700000001 02"),
        ] {
            let message = record.message(7);
            assert_eq!(hex(&message), bytes.replace(' ', ""));
            assert_eq!(Message::read(&message), Ok(Message::Numbered(7, record)));
        }
        let ack = Message::ack(3, 9);
        assert_eq!(hex(&ack), "2000000000000000030000000000000009");
        assert_eq!(Message::read(&ack), Ok(Message::Ack { received: 3, sent: 9 }));
        assert_eq!(
            (hex(&Message::close()), Message::read(&Message::close())),
            ("21".into(), Ok(Message::Close))
        );
    }

    #[test]
    fn what_is_no_record_is_malformed() {
        let service = "s".repeat(LONGEST_SERVICE + 1);
        let open = Record::Open { stream: S, service }.message(0);
        let end = [&Record::End { stream: S }.message(0)[..], &[0]].concat();
        let ack = [&Message::ack(0, 0)[..], &[0]].concat();
        for bad in [&b""[..], &[0x11; 12], &[0x15; 20], &[0x20; 16], &[0x21; 2], &open, &end, &ack]
        {
            let read = Message::read(&Bytes::copy_from_slice(bad));
            assert_eq!(read, Err(TunnelFault::Malformed), "{bad:?}");
        }
    }
}
