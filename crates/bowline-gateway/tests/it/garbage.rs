//! Garbage on a surface's socket is answered or ignored within limits, and affects no other client.

use bowline_sbp::frame::ClientFrame;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::bench::Bench;

/// A small deterministic random number generator (xorshift), so that failures are reproducible.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next(if depth > 3 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.next(2) == 0),
            2 => json!(self.next(1 << 30)),
            3 => json!(-1.5e300),
            4 => json!("é\u{0}\u{1F600}".repeat(self.next(20))),
            5 => json!(""),
            6 => (0..self.next(4)).map(|_| self.value(depth + 1)).collect(),
            _ => json!({ "x": self.value(depth + 1), "type": self.value(depth + 1) }),
        }
    }

    /// A frame that no surface should send: wrong types, fields and values.
    pub(crate) fn packet(&mut self) -> Packet {
        // Neither DETACH nor well-formed input: those have effects of their own.
        const TYPES: [&str; 6] =
            ["ATTACH_SESSION", "TETHER_ACK", "TOOL_RESULT", "USER_MESSAGE", "PONG", "NONSENSE"];
        match self.next(5) {
            0 => Packet::binary((0..self.next(300)).map(|n| n as u8).collect::<Vec<_>>()),
            1 => Packet::text("{\"type\":".repeat(self.next(200))),
            2 => Packet::text(self.value(0).to_string()),
            _ => {
                let mut frame = json!({ "type": TYPES[self.next(TYPES.len())] });
                for field in ["session_id", "seq", "content", "client_turn_id", "call_id", "error"]
                {
                    // Numbers and lists only: a USER_MESSAGE of these can never be whole.
                    frame[field] = json!([self.value(2)]);
                }
                if self.next(8) == 0 {
                    frame["type"] = self.value(0);
                }
                Packet::text(frame.to_string())
            }
        }
    }
}

#[tokio::test]
async fn g11_ten_thousand_random_frames_harm_nobody() {
    let bench = Bench::start().await;
    let (session, neighbour) = (bench.session().await, bench.session().await);
    let (phone, _) = bench.attach(&session).await;
    let (mut other, _) = bench.attach(&neighbour).await;
    let mut chance = Chance(0x5eed_cafe_f00d);
    let (mut sink, mut stream) = phone.socket.split();
    let reader = tokio::spawn(async move {
        let mut errors = 0;
        while let Some(Ok(packet)) = stream.next().await {
            let Packet::Text(text) = packet else { continue };
            let frame: Value = serde_json::from_str(&text).unwrap();
            match frame["type"].as_str().unwrap() {
                "PROTOCOL_ERROR" => errors += 1,
                "PONG" => break,
                other => panic!("{other} in answer to nonsense"),
            }
        }
        errors
    });
    let mut refused = 0;
    for n in 0..10_000 {
        let packet = chance.packet();
        refused += match &packet {
            Packet::Text(text) => usize::from(ClientFrame::read(text).is_err()),
            _ => 1,
        };
        sink.send(packet).await.unwrap();
        if n % 2_000 == 0 {
            let said = bench.say(&neighbour, "echo undisturbed").await;
            assert_eq!(said.content(), "undisturbed");
        }
    }
    sink.send(Packet::text(r#"{"type":"PING"}"#)).await.unwrap();
    let errors = tokio::time::timeout(crate::bench::DEADLINE, reader).await.unwrap().unwrap();
    assert_eq!(errors, refused, "each unusable frame is answered once, the others are ignored");
    assert!(refused > 1_000 && refused < 10_000, "both kinds were among them: {refused}");
    assert_eq!(bench.show(&session).await["step_count"], 0);
    assert_eq!(other.until("TURN_COMPLETE").await.last().unwrap()["status"], "complete");
}
