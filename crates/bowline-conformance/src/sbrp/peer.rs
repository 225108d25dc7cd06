//! A daemon or a client: one WebSocket at the relay, as a check uses it.
//!
//! Pings of the relay are answered, and `rate_limited` is passed over, wherever a check waits for something
//! else: neither means that anything is wrong (SBRP-RELAY-07, SBRP-RELAY-14).

use std::time::Duration;

use bowline_net::dial::DialedStream;
use bowline_sbrp::control::ControlCode;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::frame::{CONTROL, Frame, PING, PONG, coded, shown};
use crate::verdict::{Ended, Stop};
use crate::wire::Wire;

/// An open connection to the relay.
#[derive(Debug)]
pub(super) struct Peer {
    stream: WebSocketStream<DialedStream>,
    wire: Wire,
    /// How a report names it.
    name: &'static str,
    /// The session of its token; 0 for a daemon.
    pub(super) session: u64,
    /// What was sent last, for findings.
    sent: String,
    /// The texts of the control frames that came.
    pub(super) texts: Vec<Vec<u8>>,
    /// How often `rate_limited` came.
    pub(super) limited: usize,
}

/// A frame, or the end with its close code.
pub(super) type FrameOrEnd = Result<Frame, Option<u16>>;

/// What came on a connection.
#[derive(Debug)]
pub(super) enum Event {
    Frame(Frame),
    /// A Ping of WebSocket itself.
    Ping,
    /// The end, with its code if it came with a close frame.
    Closed(Option<u16>),
    /// A message that is not one frame.
    Broken(String),
}

impl Peer {
    pub(super) fn new(
        stream: WebSocketStream<DialedStream>,
        wire: Wire,
        name: &'static str,
        session: u64,
        sent: String,
    ) -> Self {
        Self { stream, wire, name, session, sent, texts: Vec::new(), limited: 0 }
    }

    pub(super) async fn send(&mut self, frame: &Frame) -> Ended {
        self.send_bytes(frame.encode()).await
    }

    /// Sends any bytes as one message.
    pub(super) async fn send_bytes(&mut self, message: Vec<u8>) -> Ended {
        self.send_message(Message::Binary(message.into())).await
    }

    pub(super) async fn send_message(&mut self, message: Message) -> Ended {
        let what = match &message {
            Message::Binary(bytes) => shown(bytes),
            other => format!("{other:?}"),
        };
        self.sent = self.wire.sent(&format!("{}: {what}", self.name), None);
        match timeout(PATIENCE, self.stream.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.wrong("an open connection", error.to_string())),
            Err(_) => Err(self.wrong("a relay that reads", "it reads nothing")),
        }
    }

    /// Sends without a line in the transcript, for floods. `false`: the relay did not take it in that time,
    /// or is gone.
    pub(super) async fn pour(&mut self, message: Bytes, patience: Duration) -> bool {
        matches!(timeout(patience, self.stream.send(Message::Binary(message))).await, Ok(Ok(())))
    }

    /// What comes next; nothing, if nothing comes until the deadline. Nothing is answered.
    pub(super) async fn event(&mut self, deadline: Instant) -> Option<Event> {
        loop {
            let message = timeout_at(deadline, self.stream.next()).await.ok()?;
            return Some(match message {
                Some(Ok(Message::Binary(bytes))) => {
                    self.came(&shown(&bytes));
                    match Frame::decode(&bytes) {
                        Some(frame) => {
                            if frame.kind == CONTROL {
                                self.texts.push(frame.text().to_vec());
                            }
                            Event::Frame(frame)
                        }
                        None => Event::Broken(shown(&bytes)),
                    }
                }
                Some(Ok(Message::Ping(_))) => Event::Ping,
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map(|frame| u16::from(frame.code));
                    self.came(&closed(code));
                    Event::Closed(code)
                }
                Some(Ok(Message::Text(text))) => Event::Broken(format!("text {text:?}")),
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => {
                    self.came(&closed(None));
                    Event::Closed(None)
                }
            });
        }
    }

    fn came(&self, what: &str) {
        self.wire.came(&format!("{}: {what}", self.name), "");
    }

    /// The next frame that means something, or the end; nothing, if neither comes in that time.
    pub(super) async fn next_within(
        &mut self,
        patience: Duration,
    ) -> Result<Option<FrameOrEnd>, Stop> {
        let deadline = Instant::now() + patience;
        loop {
            match self.event(deadline).await {
                None => return Ok(None),
                Some(Event::Ping) => {}
                Some(Event::Frame(frame)) if frame.kind == PING => {
                    let pong = Frame::new(PONG, 0, frame.payload).encode();
                    let _ = self.pour(pong.into(), PATIENCE).await;
                }
                Some(Event::Frame(frame)) if frame.is(ControlCode::RateLimited, 0) => {
                    self.limited += 1;
                }
                Some(Event::Frame(frame)) => return Ok(Some(Ok(frame))),
                Some(Event::Closed(code)) => return Ok(Some(Err(code))),
                Some(Event::Broken(what)) => return Err(self.wrong("one whole frame", what)),
            }
        }
    }

    /// The same, but not that sessions have ended.
    pub(super) async fn after_endings(
        &mut self,
        patience: Duration,
    ) -> Result<Option<FrameOrEnd>, Stop> {
        loop {
            match self.next_within(patience).await? {
                Some(Ok(frame)) if frame.is_ending() => {}
                other => return Ok(other),
            }
        }
    }

    /// The next frame, which has to come while the connection is open.
    async fn next(&mut self, expected: &str, patience: Duration) -> Result<Frame, Stop> {
        match self.next_within(patience).await? {
            Some(Ok(frame)) => Ok(frame),
            Some(Err(code)) => Err(self.wrong(expected, closed(code))),
            None => Err(self.wrong(expected, nothing(patience))),
        }
    }

    /// Expects this frame next. A daemon may hear before it that other sessions have ended.
    pub(super) async fn gets(&mut self, expected: &Frame) -> Ended {
        let what = format!("at the {}: {}", self.name, shown(&expected.encode()));
        loop {
            match self.next(&what, PATIENCE).await? {
                frame if frame == *expected => return Ok(()),
                frame if frame.is_ending() => {}
                other => return Err(self.wrong(what, shown(&other.encode()))),
            }
        }
    }

    /// Expects this code next. A daemon may hear before it that other sessions have ended.
    pub(super) async fn is_told(&mut self, code: ControlCode, session: u64) -> Ended {
        self.is_told_within(code, session, PATIENCE).await
    }

    pub(super) async fn is_told_within(
        &mut self,
        code: ControlCode,
        session: u64,
        patience: Duration,
    ) -> Ended {
        let expected = format!("at the {}: {}", self.name, coded(code, session));
        loop {
            match self.next(&expected, patience).await? {
                frame if frame.is(code, session) => return Ok(()),
                frame if frame.is_ending() && code != ControlCode::SessionEnded => {}
                other => return Err(self.wrong(expected, shown(&other.encode()))),
            }
        }
    }

    /// Expects this code next, and then the end of the connection.
    pub(super) async fn is_refused(&mut self, code: ControlCode, session: u64) -> Ended {
        self.is_refused_within(code, session, PATIENCE).await
    }

    pub(super) async fn is_refused_within(
        &mut self,
        code: ControlCode,
        session: u64,
        patience: Duration,
    ) -> Ended {
        self.is_told_within(code, session, patience).await?;
        self.is_closed(&format!("after {}", code.name())).await
    }

    /// Expects the end of the connection, and no frame before it.
    pub(super) async fn is_closed(&mut self, why: &str) -> Ended {
        let expected = format!("at the {}: the end of the connection {why}", self.name);
        match self.next_within(PATIENCE).await? {
            Some(Err(_)) => Ok(()),
            Some(Ok(frame)) => Err(self.wrong(expected, shown(&frame.encode()))),
            None => Err(self.wrong(expected, nothing(PATIENCE))),
        }
    }

    /// Expects that the connection stays open and nothing comes: for a moment, nor before the answer to a
    /// Ping after that, so that what a slow relay has to say is seen, too.
    pub(super) async fn is_left_alone(&mut self, expected: &str) -> Ended {
        let mut came = self.next_within(MOMENT).await?;
        if came.is_none() {
            self.send(&Frame::new(PING, 0, &b"quiet?"[..])).await?;
            came = self.next_within(PATIENCE).await?;
        }
        match came {
            // Whether Pings are answered at all, another check looks at.
            None => Ok(()),
            Some(Ok(frame)) if frame.kind == PONG => Ok(()),
            other => Err(self.wrong(expected, instead(other))),
        }
    }

    /// Reads whatever comes before the answer to a Ping. It has to stay connected.
    pub(super) async fn read_to_pong(&mut self) -> Ended {
        self.send(&Frame::new(PING, 0, &b"done?"[..])).await?;
        loop {
            match self.next_within(PATIENCE).await? {
                // Whether Pings are answered at all, another check looks at.
                None => return Ok(()),
                Some(Ok(frame)) if frame.kind == PONG => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(code)) => {
                    let expected = format!("an open connection to the {}", self.name);
                    return Err(self.wrong(expected, closed(code)));
                }
            }
        }
    }

    /// Reads and answers Pings while something else goes on: a peer that reads nothing for long counts as dead.
    /// It has to stay connected.
    pub(super) async fn beside(&mut self, other: impl Future<Output = Ended>) -> Ended {
        tokio::pin!(other);
        loop {
            tokio::select! {
                ended = &mut other => return ended,
                came = self.next_within(PATIENCE) => {
                    if let Some(Err(code)) = came? {
                        let expected = format!("an open connection to the {}", self.name);
                        return Err(self.wrong(expected, closed(code)));
                    }
                }
            }
        }
    }

    /// Says goodbye, and waits until the relay has.
    pub(super) async fn leave(mut self) {
        self.wire.sent(&format!("{}: closes its connection", self.name), None);
        let leaving = async {
            let _ = self.stream.close(None).await;
            while let Some(Ok(_)) = self.stream.next().await {}
        };
        // A relay that does not answer has been told all the same.
        let _ = timeout(PATIENCE, leaving).await;
    }

    /// Ends the connection without a word.
    pub(super) fn die(self) {
        self.wire.sent(&format!("{}: ends its connection without a word", self.name), None);
    }

    pub(super) fn wrong(&self, expected: impl Into<String>, came: impl Into<String>) -> Stop {
        Stop::broken(&self.sent, expected, came)
    }
}

/// How a report says that a connection ended.
pub(super) fn closed(code: Option<u16>) -> String {
    match code {
        Some(code) => format!("the end of the connection, close {code}"),
        None => "the end of the connection without a close code".to_owned(),
    }
}

/// What came in place of something else.
pub(super) fn instead(came: Option<FrameOrEnd>) -> String {
    match came {
        None => "nothing more".to_owned(),
        Some(Ok(frame)) => frame.to_string(),
        Some(Err(code)) => closed(code),
    }
}

fn nothing(patience: Duration) -> String {
    format!("nothing in {} s", patience.as_secs())
}

/// How long anything may take that is not waited for by the protocol's own timers.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How long nothing has to come where nothing may.
const MOMENT: Duration = Duration::from_millis(500);
