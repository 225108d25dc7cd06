//! Closing a connection: write the queued messages, the control message with the reason and a close
//! frame, then wait briefly for the peer's close frame.

use std::future::poll_fn;

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Connection, ConnectionEnd};
use crate::relay::outbound_queue::CloseCause;
use crate::relay::ws::decode::{Decoded, Decoder, Item};
use crate::relay::ws::encode;

impl Connection {
    /// Writes everything and waits for the peer's close frame: closing a socket with unread input
    /// would discard data that is still being sent. The caller limits how long this may take.
    pub(super) async fn close(&mut self, end: ConnectionEnd) {
        let code = match end {
            ConnectionEnd::Lost => {
                self.shared.meters.closed(1006);
                return;
            }
            ConnectionEnd::Closed(code) => code,
            ConnectionEnd::Refused { code, session, close } => {
                self.last_message(code, session);
                Some(close)
            }
            ConnectionEnd::Slow | ConnectionEnd::Ended(CloseCause::Backpressure) => {
                self.last_message(ControlCode::Backpressure, None);
                Some(close_code(ControlCode::Backpressure))
            }
            ConnectionEnd::Panicked => {
                self.last_message(ControlCode::InternalError, None);
                Some(close_code(ControlCode::InternalError))
            }
            ConnectionEnd::Ended(CloseCause::Told(code)) => {
                self.shared.meters.told(code);
                Some(close_code(code))
            }
            // As with surfaces: a daemon that was replaced must not reconnect by itself.
            ConnectionEnd::Ended(CloseCause::Replaced) => Some(4009),
            ConnectionEnd::Ended(CloseCause::Restart) => Some(1012),
        };
        self.shared.meters.closed(code.unwrap_or(1005));
        self.membership.queue.lock().append(|out| encode::close(code, out));
        let Self { stream, writer, membership, .. } = &mut *self;
        let written = poll_fn(|cx| writer.poll_rest(stream, &membership.queue, cx)).await;
        if written.is_err() {
            return;
        }
        if matches!(end, ConnectionEnd::Refused { .. }) {
            // What a peer says after it broke a rule is not looked at (7.1.7), and it may have said
            // its close already, in the frame that broke the rule: the server closes first (7.1.1).
            let _ = self.stream.shutdown().await;
        }
        if !matches!(end, ConnectionEnd::Closed(_)) {
            self.await_answer().await;
        }
        let _ = self.stream.shutdown().await;
    }

    fn last_message(&self, code: ControlCode, session: Option<bowline_sbrp::id::SessionId>) {
        self.shared.meters.told(code);
        self.membership.queue.lock().push_own(&Frame::control(code, session).encode());
    }

    /// Discards all input up to the peer's close frame, or the end of the stream.
    async fn await_answer(&mut self) {
        let mut input = std::mem::take(&mut self.input);
        // After a malformed frame no further frame can be decoded: wait for the end of the stream.
        let mut readable = true;
        let mut decoder = Decoder::default();
        let mut buffer = [0; 2048];
        loop {
            while readable {
                let (used, closed) = match decoder.look(&input) {
                    Ok(Decoded::Needs(_)) => break,
                    Ok(Decoded::Message { used, .. }) => (used, false),
                    Ok(Decoded::Other { head, used }) => {
                        let item = decoder.take(head, &input);
                        (used, matches!(item, Ok(Item::Close(_)) | Err(_)))
                    }
                    Err(_) => {
                        readable = false;
                        break;
                    }
                };
                if closed {
                    return;
                }
                input.drain(..used);
            }
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) if readable => input.extend_from_slice(&buffer[..read]),
                Ok(_) => input.clear(),
            }
        }
    }
}

/// The WebSocket close code that goes with a control code.
pub(super) fn close_code(code: ControlCode) -> u16 {
    match code {
        ControlCode::SessionExpired => 1000,
        ControlCode::PayloadTooLarge => 1009,
        ControlCode::InternalError => 1011,
        ControlCode::DaemonOffline | ControlCode::Backpressure => 1013,
        _ => 1008,
    }
}
