//! A surface by hand that writes down what it gets.

use std::collections::VecDeque;

use bowline_checker::{Attachment, Received, Route};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::process::DEADLINE;
use crate::reach::Session;
use crate::record::Record;

/// How live turns shall come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Taste {
    Chunks,
    Whole,
}

/// The socket ended, with that close code if it said goodbye.
#[derive(Debug, PartialEq)]
pub(crate) struct Broken(pub(crate) Option<u16>);

/// What came.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    /// A whole turn; written down already.
    Turn {
        content: String,
        route: Route,
    },
    /// More text of a turn, which has come to this length.
    Chunk {
        offset: usize,
        length: usize,
    },
    Accepted {
        key: String,
        turn_id: String,
    },
    Failed {
        key: String,
        code: String,
    },
    /// A tool is to be run on this device.
    Call {
        id: String,
        input: String,
    },
    /// The answer to our `PING`: what we sent before has been dealt with.
    Pong,
    Other,
}

pub(crate) struct Surface {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    record: Record,
    pub(crate) attachment: Attachment,
    live: (String, Vec<u8>),
    /// The last position that came.
    pub(crate) last: u64,
    /// How many turns the gateway said would follow.
    pub(crate) queued: u64,
    /// Acknowledged and not yet known to be confirmed.
    acks: VecDeque<u64>,
}

impl Surface {
    /// One attempt to attach, at `ws://address`.
    pub(crate) async fn attach(
        address: &str,
        session: &Session,
        taste: Taste,
        record: &Record,
    ) -> Result<Self, Broken> {
        Self::attach_with(address, session, taste, &json!({}), record).await
    }

    /// The same with more about itself: `surface_id`, `mcp_tools`.
    pub(crate) async fn attach_with(
        address: &str,
        session: &Session,
        taste: Taste,
        context: &Value,
        record: &Record,
    ) -> Result<Self, Broken> {
        Self::attach_as(address, session, taste, (context, false), record).await
    }

    /// Attaches beside the other surfaces.
    pub(crate) async fn join(
        address: &str,
        session: &Session,
        taste: Taste,
        record: &Record,
    ) -> Result<Self, Broken> {
        Self::attach_as(address, session, taste, (&json!({}), true), record).await
    }

    async fn attach_as(
        address: &str,
        session: &Session,
        taste: Taste,
        (context, join): (&Value, bool),
        record: &Record,
    ) -> Result<Self, Broken> {
        let restarts = record.restarts();
        let attachment = record.with(|history| history.attaching(&session.id));
        let url = format!("ws://{address}/v1/sbp/ws/{}", session.id);
        let connected = tokio::time::timeout(DEADLINE, tokio_tungstenite::connect_async(url)).await;
        let (socket, _) = connected.expect("no connection in time").map_err(|_| Broken(None))?;
        // Written down for the process before: it must not take effect at this one.
        if record.restarts() != restarts {
            return Err(Broken(None));
        }
        let mut surface = Self {
            socket,
            record: record.clone(),
            attachment,
            live: Default::default(),
            last: 0,
            queued: 0,
            acks: VecDeque::new(),
        };
        // It shows everything, so that what it gets is what is stored, byte for byte.
        let mut capabilities = json!(["markdown", "tables", "images"]);
        if taste == Taste::Chunks {
            capabilities.as_array_mut().unwrap().push(json!("streaming"));
        }
        let mut context = context.clone();
        context["ui_capabilities"] = capabilities;
        surface
            .send(json!({
                "type": "ATTACH_SESSION", "session_id": session.id, "session_token": session.token,
                "surface_context": context, "join": join,
            }))
            .await?;
        let hello = surface.frame().await?;
        assert_eq!(hello["type"], "SESSION_ATTACHED", "{hello}");
        surface.queued = hello["queued_turns"].as_u64().unwrap();
        record.with(|history| history.attached(attachment));
        Ok(surface)
    }

    /// The next thing that comes. Safe to be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Seen, Broken> {
        let frame = self.frame().await?;
        let text = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        Ok(match frame["type"].as_str().unwrap() {
            "TETHER_TURN" => self.got(&frame, text("content"), Route::Tether),
            "TURN_CHUNK" => self.chunk(&frame),
            "TURN_COMPLETE" => {
                let (id, bytes) = std::mem::take(&mut self.live);
                assert_eq!(frame["chunk_id"], id, "a turn is complete that never began");
                let content = String::from_utf8(bytes).expect("chunks join to text");
                self.got(&frame, content, Route::Live)
            }
            "TURN_ACCEPTED" => {
                Seen::Accepted { key: text("client_turn_id"), turn_id: text("turn_id") }
            }
            "TOOL_CALL" => {
                Seen::Call { id: text("call_id"), input: frame["tool_input"].to_string() }
            }
            "TURN_FAILED" => Seen::Failed { key: text("client_turn_id"), code: text("code") },
            "PONG" => {
                // Frames are dealt with in order: the ack before this ping is on disk.
                if let Some(seq) = self.acks.pop_front() {
                    self.record.with(|history| history.confirmed(self.attachment, seq));
                }
                Seen::Pong
            }
            _ => Seen::Other,
        })
    }

    /// Whole turns only; the rest is passed over.
    pub(crate) async fn turn(&mut self) -> Result<(String, Route), Broken> {
        loop {
            if let Seen::Turn { content, route } = self.next().await? {
                return Ok((content, route));
            }
        }
    }

    /// Confirms what came, and asks to hear when that is done.
    pub(crate) async fn ack(&mut self) -> Result<(), Broken> {
        self.acks.push_back(self.last);
        self.send(json!({ "type": "TETHER_ACK", "seq": self.last })).await?;
        self.send(json!({ "type": "PING" })).await
    }

    /// Confirms without asking: whoever does this has another way to know.
    pub(crate) async fn ack_only(&mut self) -> Result<(), Broken> {
        self.send(json!({ "type": "TETHER_ACK", "seq": self.last })).await
    }

    /// It is known by other means that everything up to the last turn is confirmed.
    pub(crate) fn is_confirmed(&self) {
        self.record.with(|history| history.confirmed(self.attachment, self.last));
    }

    pub(crate) async fn say(&mut self, key: &str, text: &str) -> Result<(), Broken> {
        let frame = json!({ "type": "USER_MESSAGE", "client_turn_id": key, "content": text });
        self.send(frame).await
    }

    pub(crate) async fn cancel(&mut self) -> Result<(), Broken> {
        self.send(json!({ "type": "CANCEL_TURN" })).await
    }

    /// The result of a tool, or why it failed.
    pub(crate) async fn answer_call(
        &mut self,
        id: &str,
        result: Result<&str, &str>,
    ) -> Result<(), Broken> {
        let mut frame = json!({ "type": "TOOL_RESULT", "call_id": id });
        match result {
            Ok(said) => frame["result"] = said.into(),
            Err(why) => frame["error"] = why.into(),
        }
        self.send(frame).await
    }

    pub(crate) async fn detach(mut self) {
        let _ = self.send(json!({ "type": "DETACH" })).await;
    }

    pub(crate) async fn close(mut self) {
        let _ = tokio::time::timeout(DEADLINE, self.socket.close(None)).await;
    }

    /// Reads until the answer to a `PING`: what the gateway sent before has come.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Broken> {
        self.send(json!({ "type": "PING" })).await?;
        while self.next().await? != Seen::Pong {}
        Ok(())
    }

    fn got(&mut self, frame: &Value, content: String, route: Route) -> Seen {
        let seq = frame["seq"].as_u64().unwrap();
        let turn_id = frame["turn_id"].as_str().unwrap().to_owned();
        let turn = Received { seq, turn_id, content: content.clone(), route };
        self.record.with(|history| history.received(self.attachment, turn));
        self.last = seq;
        Seen::Turn { content, route }
    }

    /// As docs/frames.md says.
    fn chunk(&mut self, frame: &Value) -> Seen {
        let id = frame["chunk_id"].as_str().unwrap();
        if self.live.0 != id {
            self.live = (id.to_owned(), Vec::new());
        }
        let offset = frame["offset"].as_u64().unwrap() as usize;
        let text = &mut self.live.1;
        assert!(offset <= text.len(), "text is missing before {frame}");
        text.truncate(offset);
        text.extend(frame["delta"].as_str().unwrap().bytes());
        Seen::Chunk { offset, length: text.len() }
    }

    async fn send(&mut self, frame: Value) -> Result<(), Broken> {
        let sent = self.socket.send(Packet::text(frame.to_string()));
        let sent = tokio::time::timeout(DEADLINE, sent).await.expect("nothing is read in time");
        sent.map_err(|_| Broken(None))
    }

    async fn frame(&mut self) -> Result<Value, Broken> {
        loop {
            let packet = tokio::time::timeout(DEADLINE, self.socket.next()).await;
            match packet.expect("nothing came in time") {
                Some(Ok(Packet::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Packet::Close(frame))) => {
                    // Sends our goodbye, which the gateway waits for.
                    let _ = self.socket.flush().await;
                    return Err(Broken(frame.map(|frame| frame.code.into())));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(Broken(None)),
            }
        }
    }
}
