//! Calls that one attached surface is working on (SBP-L5-02 … 04).
//!
//! Apart, because what a device answers cannot be trusted: it may answer twice, late, with a
//! stranger's id, or never. Only a call that was sent on this attachment and is still waited for can
//! be answered, and only once (G9). When the surface goes, so do its calls, and whoever waits for
//! them is told by that.

use std::collections::HashMap;

use bowline_sbp::frame::ServerFrame;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::hub::Errand;

/// The most calls in flight on one surface (G9).
pub(crate) const MOST: usize = 64;

/// What the device was asked and has not answered.
#[derive(Debug)]
pub(crate) struct Errands {
    /// None for a surface without tools.
    coming: Option<mpsc::Receiver<Errand>>,
    sent: HashMap<String, oneshot::Sender<Result<Value, String>>>,
}

impl Errands {
    pub(crate) fn new(coming: Option<mpsc::Receiver<Errand>>) -> Self {
        Self { coming, sent: HashMap::new() }
    }

    /// The next call for the device; none when nobody can call any more. Safe to give up on.
    pub(crate) async fn next(&mut self) -> Option<ServerFrame> {
        loop {
            let Errand { call_id, tool, input, deadline, answer } =
                self.coming.as_mut()?.recv().await?;
            // It may have waited here for too long: what nobody waits for must not happen.
            if answer.is_closed() {
                continue;
            }
            // Those that nobody waits for any more hold no place.
            self.sent.retain(|_, answer| !answer.is_closed());
            if self.sent.len() >= MOST {
                let _ = answer.send(Err(format!("the device has {MOST} calls in hand already")));
                continue;
            }
            self.sent.insert(call_id.clone(), answer);
            let left = deadline.saturating_duration_since(Instant::now());
            return Some(ServerFrame::ToolCall {
                call_id,
                tool_name: tool,
                tool_input: input,
                timeout_ms: u64::try_from(left.as_millis()).ok(),
            });
        }
    }

    /// The device has answered. An id that is unknown, or was answered before, is passed over.
    pub(crate) fn done(&mut self, call_id: &str, result: Result<Value, String>) {
        if let Some(answer) = self.sent.remove(call_id) {
            let _ = answer.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Answer = oneshot::Receiver<Result<Value, String>>;

    async fn asked(calls: &mpsc::Sender<Errand>, id: &str) -> Answer {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now();
        let errand =
            Errand { call_id: id.into(), tool: "t".into(), input: json!({}), deadline, answer };
        calls.send(errand).await.unwrap();
        answered
    }

    #[tokio::test]
    async fn sbp_l5_04_only_a_call_that_is_waited_for_is_answered_and_once() {
        let (calls, coming) = mpsc::channel(MOST);
        let mut errands = Errands::new(Some(coming));
        let answered = asked(&calls, "a").await;
        errands.done("a", Ok(json!("before it was sent")));
        assert!(matches!(errands.next().await, Some(ServerFrame::ToolCall { .. })));
        errands.done("b", Ok(json!("a stranger's")));
        errands.done("a", Ok(json!(1)));
        errands.done("a", Ok(json!(2)));
        assert_eq!(answered.await.unwrap(), Ok(json!(1)));
    }

    #[tokio::test]
    async fn g9_calls_that_were_given_up_hold_no_place_and_more_than_fit_are_refused() {
        let (calls, coming) = mpsc::channel(MOST + 1);
        let mut errands = Errands::new(Some(coming));
        let mut waiting = Vec::new();
        for n in 0..MOST {
            waiting.push(asked(&calls, &n.to_string()).await);
            errands.next().await.unwrap();
        }
        let refused = asked(&calls, "one too many").await;
        drop(calls.clone());
        tokio::select! {
            biased;
            frame = errands.next() => panic!("{frame:?}"),
            answer = refused => assert!(answer.unwrap().unwrap_err().contains("64")),
        }
        waiting.pop();
        let _fits = asked(&calls, "fits").await;
        assert!(errands.next().await.is_some());
    }

    #[tokio::test]
    async fn g9_a_call_that_was_given_up_before_it_was_sent_is_not_sent() {
        let (calls, coming) = mpsc::channel(MOST);
        let mut errands = Errands::new(Some(coming));
        drop(asked(&calls, "given up").await);
        let _waited_for = asked(&calls, "waited for").await;
        let sent = errands.next().await.unwrap();
        assert!(matches!(sent, ServerFrame::ToolCall { call_id, .. } if call_id == "waited for"));
    }

    #[tokio::test]
    async fn sbp_l5_03_calls_end_with_their_surface() {
        let (calls, coming) = mpsc::channel(MOST);
        let mut errands = Errands::new(Some(coming));
        let answered = asked(&calls, "a").await;
        errands.next().await.unwrap();
        drop(errands);
        assert!(answered.await.is_err());
    }
}
