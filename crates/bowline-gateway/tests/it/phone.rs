//! A surface for tests: the client side of the WebSocket, frame by frame.

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::bench::{Bench, DEADLINE, Session};

/// The client side of a surface's WebSocket.
pub(crate) struct Phone {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Phone {
    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Packet::text(frame.to_string())).await.unwrap();
    }

    /// The next JSON frame. The library answers pings meanwhile.
    pub(crate) async fn next(&mut self) -> Value {
        match self.packet().await {
            Packet::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("expected a frame, got {other:?}"),
        }
    }

    /// The next packet that is not a ping or pong.
    pub(crate) async fn packet(&mut self) -> Packet {
        loop {
            let next = tokio::time::timeout(DEADLINE, self.socket.next()).await;
            match next.expect("nothing came in time").expect("the socket ended").unwrap() {
                Packet::Ping(_) => self.socket.flush().await.unwrap(),
                Packet::Pong(_) => {}
                other => return other,
            }
        }
    }

    /// Reads frames up to and including the first of that type.
    pub(crate) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let frame = self.next().await;
            let found = frame["type"] == kind;
            seen.push(frame);
            if found {
                return seen;
            }
        }
    }

    /// The close code; frames before it are skipped.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match self.packet().await {
                Packet::Close(frame) => return frame.map_or(1005, |frame| frame.code.into()),
                _ => continue,
            }
        }
    }

    /// The frames until the end, and the close code.
    pub(crate) async fn ended(&mut self) -> (Vec<Value>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.packet().await {
                Packet::Text(text) => frames.push(serde_json::from_str(&text).unwrap()),
                Packet::Close(frame) => {
                    return (frames, frame.map_or(1005, |frame| frame.code.into()));
                }
                _ => {}
            }
        }
    }

    /// Answers pings, which confirms what was delivered, until nothing is pending.
    pub(crate) async fn confirm(&mut self, bench: &Bench, session: &Session) {
        let read = async {
            loop {
                if let Some(Ok(Packet::Ping(_))) = self.socket.next().await {
                    self.socket.flush().await.unwrap();
                }
            }
        };
        tokio::select! {
            () = bench.until_pending(session, 0) => {}
            () = read => {}
        }
    }
}

/// The text of a live turn, assembled from its chunks.
pub(crate) fn joined(frames: &[Value]) -> String {
    let mut text = String::new();
    for chunk in frames.iter().filter(|frame| frame["type"] == "TURN_CHUNK") {
        let offset = chunk["offset"].as_u64().unwrap() as usize;
        assert!(offset <= text.len(), "a gap in the stream: {chunk}");
        text.truncate(offset);
        text.push_str(chunk["delta"].as_str().unwrap());
    }
    text
}
