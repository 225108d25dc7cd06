//! A surface, frame by frame.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::client::Session;
use crate::process::DEADLINE;

pub(crate) struct Phone {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Phone {
    /// Connects at `HOST:PORT`, and joins.
    pub(crate) async fn attach(address: &str, session: &Session, surface: Value) -> Self {
        let url = format!("ws://{address}/v1/sbp/ws/{}", session.id);
        let connected = tokio::time::timeout(DEADLINE, tokio_tungstenite::connect_async(url)).await;
        let (socket, _) = connected.expect("no connection in time").unwrap();
        let mut phone = Self { socket };
        phone
            .send(json!({
                "type": "ATTACH_SESSION", "session_id": session.id, "join": true,
                "session_token": session.token, "sbp_version": "1.2", "surface_context": surface,
            }))
            .await;
        let hello = phone.next().await.expect("it is open");
        assert_eq!(hello["type"], "SESSION_ATTACHED", "{hello}");
        phone
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        let sent = self.socket.send(Packet::text(frame.to_string()));
        tokio::time::timeout(DEADLINE, sent).await.expect("nothing is read in time").unwrap();
    }

    /// The next frame that is no ping; at the end of the socket its close code, 1006 if it broke.
    pub(crate) async fn next(&mut self) -> Result<Value, u16> {
        let next = tokio::time::timeout(DEADLINE, async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Packet::Text(text))) => {
                        let frame: Value = serde_json::from_str(&text).unwrap();
                        if frame["type"] != "PING" {
                            return Ok(frame);
                        }
                    }
                    Some(Ok(Packet::Close(frame))) => {
                        // Sends our goodbye, which the gateway waits for.
                        let _ = self.socket.flush().await;
                        return Err(frame.map_or(1005, |frame| frame.code.into()));
                    }
                    // Sends the pong.
                    Some(Ok(_)) => drop(self.socket.flush().await),
                    Some(Err(_)) | None => return Err(1006),
                }
            }
        });
        next.await.expect("nothing came in time")
    }

    /// The first frame of that type; others before it are passed over.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|code| panic!("closed with {code} before {kind}"));
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The close code; frames before it are passed over.
    pub(crate) async fn closed(mut self) -> u16 {
        loop {
            if let Err(code) = self.next().await {
                return code;
            }
        }
    }

    /// Answers the call of a tool.
    pub(crate) async fn answer(&mut self, call: &Value, result: &str) {
        let id = &call["call_id"];
        self.send(json!({ "type": "TOOL_RESULT", "call_id": id, "result": result })).await;
    }
}

/// The text of a live turn, put together from its chunks, over any number of attachments.
#[derive(Debug, Default)]
pub(crate) struct LiveText {
    pub(crate) bytes: Vec<u8>,
}

impl LiveText {
    /// Takes a frame as docs/frames.md says. What comes again has to be what came before.
    pub(crate) fn take(&mut self, frame: &Value) {
        if frame["type"] == "TURN_CHUNK" {
            let offset = frame["offset"].as_u64().unwrap() as usize;
            assert!(offset <= self.bytes.len(), "text is missing before {frame}");
            let delta = frame["delta"].as_str().unwrap().as_bytes();
            let before = self.bytes.split_off(offset);
            let again = before.len().min(delta.len());
            assert_eq!(before[..again], delta[..again], "other text than before");
            self.bytes.extend(delta);
        }
        assert_ne!(frame["type"], "TURN_RESTARTED", "the answer was begun anew");
    }

    /// Reads until it has that many bytes more.
    pub(crate) async fn read_on(&mut self, phone: &mut Phone, more: usize) {
        let goal = self.bytes.len() + more;
        while self.bytes.len() < goal {
            let frame = phone.next().await.unwrap_or_else(|code| panic!("closed with {code}"));
            assert_ne!(frame["type"], "TURN_COMPLETE", "over before the scene was");
            self.take(&frame);
        }
    }

    /// Reads to the end of the turn.
    pub(crate) async fn read_to_end(&mut self, phone: &mut Phone) {
        loop {
            let frame = phone.next().await.unwrap_or_else(|code| panic!("closed with {code}"));
            self.take(&frame);
            if frame["type"] == "TURN_COMPLETE" {
                assert_eq!(frame["status"], "complete", "{frame}");
                return;
            }
        }
    }
}
