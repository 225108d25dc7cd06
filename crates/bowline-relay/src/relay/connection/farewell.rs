//! The last words: what waits, why it ends, a close frame, and a moment for the answer.

use std::future::poll_fn;

use bowline_sbrp::control::ControlCode;
use bowline_sbrp::frame::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Connection, End};
use crate::relay::line::Ending;
use crate::relay::ws::decode::{Decoder, Item, Next};
use crate::relay::ws::encode;

impl Connection {
    /// Says goodbye and waits for it to arrive: closing a socket with unread input would destroy
    /// what is still on its way out. The caller limits how long that may take.
    pub(super) async fn farewell(&mut self, end: End) {
        let code = match end {
            End::Lost => {
                self.shared.meters.closed(1006);
                return;
            }
            End::Closed(code) => code,
            End::Refused { code, session, close } => {
                self.last_word(code, session);
                Some(close)
            }
            End::Slow | End::Ended(Ending::Backpressure) => {
                self.last_word(ControlCode::Backpressure, None);
                Some(close_code(ControlCode::Backpressure))
            }
            End::Panicked => {
                self.last_word(ControlCode::InternalError, None);
                Some(close_code(ControlCode::InternalError))
            }
            End::Ended(Ending::Told(code)) => {
                self.shared.meters.told(code);
                Some(close_code(code))
            }
            // As with surfaces: whoever was replaced must not come back by itself.
            End::Ended(Ending::Replaced) => Some(4009),
            End::Ended(Ending::Restart) => Some(1012),
        };
        self.shared.meters.closed(code.unwrap_or(1005));
        self.mooring.line.lock().append(|out| encode::close(code, out));
        let Self { stream, outbound, mooring, .. } = &mut *self;
        let written = poll_fn(|cx| outbound.poll_rest(stream, &mooring.line, cx)).await;
        if written.is_err() {
            return;
        }
        if !matches!(end, End::Closed(_)) {
            self.await_answer().await;
        }
        let _ = self.stream.shutdown().await;
    }

    fn last_word(&self, code: ControlCode, session: Option<bowline_sbrp::id::SessionId>) {
        self.shared.meters.told(code);
        self.mooring.line.lock().say(&Frame::control(code, session).encode());
    }

    /// Passes over all that comes until the other side's close, or its end.
    async fn await_answer(&mut self) {
        let mut input = std::mem::take(&mut self.input);
        // After a broken frame nothing can be told apart any more: then only the end counts.
        let mut readable = true;
        let mut decoder = Decoder::default();
        let mut buffer = [0; 2048];
        loop {
            while readable {
                let (used, closed) = match decoder.look(&input) {
                    Ok(Next::Needs(_)) => break,
                    Ok(Next::Message { used, .. }) => (used, false),
                    Ok(Next::Other { head, used }) => {
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
