//! A device with random faults: it answers late, twice, with garbage or for another device's call,
//! or disconnects during a call and sometimes reconnects.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message as Packet;
use tokio_util::sync::CancellationToken;

use super::plan::{Deed, LARGEST_MESSAGE, Leave, Plan, payload};
use crate::bench::{Bench, Phone, Session};
use crate::garbage::Chance;

/// Recent calls of all devices with their sessions, so that other devices can answer them.
pub(super) type Heard = Mutex<VecDeque<(String, String)>>;

pub(super) struct Device {
    bench: Arc<Bench>,
    session: Session,
    heard: Arc<Heard>,
    chance: Chance,
    phone: Option<Phone>,
    /// The plan of the current turn.
    plan: Plan,
    turn: usize,
    /// Calls that are answered only after they have timed out.
    owed: Vec<String>,
    /// Calls on which it disconnected.
    left: HashSet<String>,
    /// Calls that were sent again after it had disconnected on them.
    pub(super) again: usize,
}

impl Device {
    pub(super) fn new(
        bench: Arc<Bench>,
        session: Session,
        heard: Arc<Heard>,
        chance: Chance,
    ) -> Self {
        let (plan, owed, left) = (Plan::default(), Vec::new(), HashSet::new());
        Self { bench, session, heard, chance, phone: None, plan, turn: 0, owed, left, again: 0 }
    }

    /// Runs for one turn, and sends the late answers of earlier turns.
    pub(super) async fn prepare(&mut self, turn: usize, plan: Plan) {
        (self.turn, self.plan) = (turn, plan);
        if self.phone.is_none() {
            self.attach().await;
        }
        for id in std::mem::take(&mut self.owed) {
            self.say(&json!({ "type": "TOOL_RESULT", "call_id": id, "result": "too late" })).await;
        }
    }

    /// Follows the plan until the turn is over. An attach in progress is always completed: an
    /// abandoned one might replace the next attachment.
    pub(super) async fn serve(&mut self, over: &CancellationToken) {
        while !over.is_cancelled() {
            let Some(phone) = &mut self.phone else {
                match self.plan.returns {
                    true => self.attach().await,
                    false => over.cancelled().await,
                }
                continue;
            };
            let packet = tokio::select! {
                packet = phone.socket.next() => packet,
                () = over.cancelled() => return,
            };
            match packet {
                Some(Ok(Packet::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if frame["type"] == "TOOL_CALL" {
                        self.called(&frame).await;
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.phone = None,
            }
        }
    }

    async fn attach(&mut self) {
        let surface = json!({ "mcp_tools": ["quick", "hasty"] });
        self.phone = Some(self.bench.attach_as(&self.session, surface).await.0);
    }

    async fn called(&mut self, call: &Value) {
        let id = call["call_id"].as_str().unwrap().to_owned();
        let number = |name: &str| call["tool_input"][name].as_u64().unwrap() as usize;
        let (turn, n) = (number("turn"), number("call"));
        // It took its time to read; the call is long over.
        if turn != self.turn {
            return self.owed.push(id);
        }
        let others = self.listen(&id);
        let result = json!({ "type": "TOOL_RESULT", "call_id": id, "result": payload(turn, n) });
        match self.plan.calls[n].deed {
            Deed::Answer => {}
            Deed::Fail => {
                let error = json!({ "type": "TOOL_RESULT", "call_id": id, "error": "no film" });
                return self.say(&error).await;
            }
            Deed::Late => return self.owed.push(id),
            Deed::Never => return,
            Deed::Twice => {
                self.say(&result).await;
                let other = json!({ "type": "TOOL_RESULT", "call_id": id, "result": "once more" });
                return self.say(&other).await;
            }
            Deed::Garbage => {
                let half = result.to_string();
                self.pack(Packet::text(&half[..half.len() / 2])).await;
                self.say(&json!({ "type": "TOOL_RESULT", "call_id": [id], "result": 1 })).await;
                for _ in 0..self.chance.next(8) {
                    let packet = self.chance.packet();
                    self.pack(packet).await;
                }
            }
            Deed::Stranger => {
                for id in others.into_iter().chain([uuid::Uuid::new_v4().to_string()]) {
                    let stolen =
                        json!({ "type": "TOOL_RESULT", "call_id": id, "result": "stolen" });
                    self.say(&stolen).await;
                }
            }
            Deed::Cancel => return self.say(&json!({ "type": "CANCEL_TURN" })).await,
            Deed::Leave(how) => {
                if self.left.insert(id) {
                    return self.leave(how).await;
                }
                self.again += 1;
            }
        }
        self.say(&result).await;
    }

    /// Publishes the call for other devices; returns some of theirs.
    fn listen(&self, id: &str) -> Vec<String> {
        let mut heard = self.heard.lock().unwrap();
        if heard.len() > 64 {
            heard.pop_front();
        }
        heard.push_back((self.session.id.clone(), id.to_owned()));
        let others = heard.iter().rev().filter(|(session, _)| *session != self.session.id);
        others.take(3).map(|(_, id)| id.clone()).collect()
    }

    async fn leave(&mut self, how: Leave) {
        match how {
            Leave::Drop => {}
            Leave::Close => {
                if let Some(phone) = &mut self.phone {
                    let _ = phone.socket.close(None).await;
                }
            }
            Leave::Detach => self.say(&json!({ "type": "DETACH" })).await,
            Leave::TooLarge => self.pack(Packet::text("x".repeat(LARGEST_MESSAGE + 1))).await,
            Leave::Broken => {
                if let Some(phone) = &mut self.phone {
                    let _ = phone.socket.get_mut().write_all(&[0xff; 16]).await;
                }
            }
            // The new one takes the session while the old one still holds it.
            Leave::Replace if self.plan.returns => return self.attach().await,
            Leave::Replace => {}
        }
        self.phone = None;
    }

    async fn say(&mut self, frame: &Value) {
        self.pack(Packet::text(frame.to_string())).await;
    }

    /// A closed socket counts as a disconnect.
    async fn pack(&mut self, packet: Packet) {
        let Some(phone) = &mut self.phone else { return };
        if phone.socket.send(packet).await.is_err() {
            self.phone = None;
        }
    }
}
