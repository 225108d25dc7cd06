//! A WebSocket client that writes exact bytes, valid or not.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bench::{Bench, DEADLINE, Session, hello};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;
/// The mask. No byte of it is 0, so that a byte that was not unmasked is noticed.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// One frame of a client.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    head: u8,
    payload: Vec<u8>,
    is_masked: bool,
}

impl Frame {
    /// A whole, masked frame.
    pub(crate) fn new(opcode: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self { head: FINAL | opcode, payload: payload.into(), is_masked: true }
    }

    pub(crate) fn text(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(TEXT, payload)
    }

    pub(crate) fn binary(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(BINARY, payload)
    }

    /// A continuation frame.
    pub(crate) fn next(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(0, payload)
    }

    pub(crate) fn ping(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(PING, payload)
    }

    pub(crate) fn pong(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(PONG, payload)
    }

    pub(crate) fn close(code: u16, reason: impl AsRef<[u8]>) -> Self {
        Self::raw_close([&code.to_be_bytes(), reason.as_ref()].concat())
    }

    pub(crate) fn raw_close(payload: impl Into<Vec<u8>>) -> Self {
        Self::new(CLOSE, payload)
    }

    /// Without FIN: more fragments follow.
    pub(crate) fn unfinished(mut self) -> Self {
        self.head &= !FINAL;
        self
    }

    /// With these reserved bits set.
    pub(crate) fn reserved(mut self, bits: u8) -> Self {
        self.head |= bits << 4;
        self
    }

    pub(crate) fn unmasked(mut self) -> Self {
        self.is_masked = false;
        self
    }

    /// One message in fragments of that size.
    pub(crate) fn pieces(self, size: usize) -> Vec<Self> {
        let opcode = self.head & 0x0f;
        let mut pieces: Vec<_> = self.payload.chunks(size).map(Self::next).collect();
        let count = pieces.len();
        for piece in &mut pieces[..count - 1] {
            piece.head &= !FINAL;
        }
        pieces[0].head |= opcode;
        pieces
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header(self.payload.len() as u64);
        if !self.is_masked {
            bytes.extend(&self.payload);
            return bytes;
        }
        let masked = self.payload.iter().zip(MASK.iter().cycle());
        bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// The header of a frame with a payload of that length, whether or not the payload follows.
    pub(crate) fn header(&self, length: u64) -> Vec<u8> {
        let flag = if self.is_masked { 0x80 } else { 0 };
        let mut bytes = vec![self.head];
        match length {
            0..=125 => bytes.push(flag | length as u8),
            126..=0xffff => {
                bytes.push(flag | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(flag | 127);
                bytes.extend(length.to_be_bytes());
            }
        }
        if self.is_masked {
            bytes.extend(MASK);
        }
        bytes
    }
}

/// How the bytes are split into writes. A receiver must not depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Nowhere,
    BetweenFrames,
    Every(usize),
}

/// What the gateway sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Frame(Value),
    Pong(Vec<u8>),
    /// A close frame, with its code if it has one.
    Close(Option<u16>),
    /// The connection has ended.
    End,
}

pub(crate) struct RawSocket {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl RawSocket {
    /// Upgrades with these headers besides the required ones; also returns the gateway's response.
    pub(crate) async fn open(bench: &Bench, session: &Session, headers: &str) -> (Self, String) {
        let request = format!(
            "GET /v1/sbp/ws/{} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            session.id
        );
        let stream = bench.raw(&request).await;
        stream.set_nodelay(true).unwrap();
        let mut socket = Self { stream, unread: Vec::new() };
        let end = loop {
            let mut windows = socket.unread.windows(4);
            if let Some(end) = windows.position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(socket.more().await, "the upgrade was cut off");
        };
        let answer = socket.unread.drain(..end).collect();
        (socket, String::from_utf8(answer).unwrap())
    }

    /// An attached surface that gets whole turns.
    pub(crate) async fn attach(bench: &Bench, session: &Session) -> Self {
        let (mut socket, _) = Self::open(bench, session, "").await;
        socket.greet(session).await;
        socket
    }

    pub(crate) async fn greet(&mut self, session: &Session) {
        let hello = hello(session, json!({ "ui_capabilities": ["markdown"] }));
        self.write(&[Frame::text(hello.to_string())], Cut::Nowhere).await;
        match self.next().await {
            Heard::Frame(frame) => assert_eq!(frame["type"], "SESSION_ATTACHED", "{frame}"),
            other => panic!("{other:?} instead of a welcome"),
        }
    }

    /// Writes frames. A write error is ignored: the gateway may have closed after an earlier frame,
    /// which the reads show.
    pub(crate) async fn write(&mut self, frames: &[Frame], cut: Cut) {
        let frames = frames.iter().map(Frame::bytes);
        match cut {
            Cut::BetweenFrames => {
                for bytes in frames {
                    self.write_bytes(&bytes).await;
                }
            }
            Cut::Nowhere => self.write_bytes(&frames.collect::<Vec<_>>().concat()).await,
            Cut::Every(size) => {
                for piece in frames.collect::<Vec<_>>().concat().chunks(size) {
                    self.write_bytes(piece).await;
                }
            }
        }
    }

    pub(crate) async fn write_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next frame of the gateway; pings are skipped.
    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let Some((head, payload)) = self.frame().await else { return Heard::End };
            assert_eq!(head & !0x0f, FINAL, "whole frames without reserved bits");
            match head & 0x0f {
                TEXT => return Heard::Frame(serde_json::from_slice(&payload).unwrap()),
                PING => {}
                PONG => return Heard::Pong(payload),
                CLOSE => {
                    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    return Heard::Close(code);
                }
                other => panic!("a frame of kind {other} from the gateway"),
            }
        }
    }

    /// The text of the next whole turn.
    pub(crate) async fn turn(&mut self) -> String {
        loop {
            match self.next().await {
                Heard::Frame(frame) if frame["type"] == "TETHER_TURN" => {
                    return frame["content"].as_str().unwrap().to_owned();
                }
                Heard::Frame(frame) => assert_eq!(frame["type"], "TURN_ACCEPTED", "{frame}"),
                other => panic!("{other:?} instead of a turn"),
            }
        }
    }

    async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let head = self.take(2).await?;
        assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
        let length = match head[1] {
            126 => u16::from_be_bytes(self.take(2).await?.try_into().unwrap()).into(),
            127 => u64::from_be_bytes(self.take(8).await?.try_into().unwrap()),
            short => short.into(),
        };
        Some((head[0], self.take(length as usize).await?))
    }

    async fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            if !self.more().await {
                assert_eq!(self.unread, b"", "the end came in the middle of a frame");
                return None;
            }
        }
        Some(self.unread.drain(..count).collect())
    }

    /// Reads more bytes; false at the end, however it ends.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.unread);
        let read = tokio::time::timeout(DEADLINE, read).await.expect("nothing came in time");
        read.is_ok_and(|count| count > 0)
    }
}
