//! Fields under the names that clients of wire version 0.9 read.
//!
//! The public reference documents `delta` and `step_count`; the public clients read other names: the
//! TypeScript client `chunk`, `step`, `model` and `cost_usd`, the example in Python `content`. So a
//! surface that says version 0.9, or none, gets both. A surface that says 1.2 does not: the text
//! would be sent three times.

use serde::{Deserialize, Serialize};

use super::Attach;
use crate::SBP_VERSION_0_9;

impl Attach {
    /// Whether the surface may look for the names of version 0.9.
    pub fn reads_0_9(&self) -> bool {
        self.sbp_version.as_deref().is_none_or(|version| version == SBP_VERSION_0_9)
    }
}

/// More fields of `TURN_CHUNK`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkV0_9 {
    /// The same text as `delta`.
    pub chunk: String,
    /// The same text once more.
    pub content: String,
    /// The step that the turn is, or will be if it completes.
    pub step: u64,
    /// The model that was asked; in `TURN_COMPLETE`, the one that answered.
    pub model: Option<String>,
}

/// More fields of `TURN_COMPLETE`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompleteV0_9 {
    /// The same number as `step_count`.
    pub step: u64,
    /// What the model's last answer cost, in US dollars.
    pub cost_usd: f64,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{ClientFrame, ServerFrame, TurnComplete, TurnStatus};
    use super::*;

    const ID: &str = "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f";

    fn reads_0_9(version: Value) -> bool {
        let frame = json!({ "type": "ATTACH_SESSION", "session_id": "s", "sbp_version": version });
        match ClientFrame::read(&frame.to_string()) {
            Ok(ClientFrame::Attach(attach)) => attach.reads_0_9(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_surface_without_a_version_counts_as_0_9() {
        assert!(reads_0_9(Value::Null) && reads_0_9(json!("0.9")));
        assert!(!reads_0_9(json!("1.2")) && !reads_0_9(json!("2.0")));
    }

    fn written(frame: &ServerFrame) -> Value {
        let text = frame.to_json();
        assert_eq!(serde_json::from_str::<ServerFrame>(&text).unwrap(), *frame, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn sbp_l2_07_a_chunk_has_the_names_of_0_9_beside_its_own() {
        let chunk = |v0_9| ServerFrame::TurnChunk {
            chunk_id: ID.parse().unwrap(),
            delta: "a\"b".into(),
            session_id: ID.parse().unwrap(),
            seq: 2,
            offset: 0,
            v0_9,
        };
        let mut expected = json!({
            "type": "TURN_CHUNK", "chunk_id": ID, "delta": "a\"b", "session_id": ID, "seq": 2,
            "offset": 0,
        });
        assert_eq!(written(&chunk(None)), expected);
        for (name, value) in
            [("chunk", json!("a\"b")), ("content", json!("a\"b")), ("step", json!(1))]
        {
            expected[name] = value;
        }
        expected["model"] = json!("m");
        let (text, model) = ("a\"b".to_owned(), Some("m".to_owned()));
        let v0_9 = ChunkV0_9 { chunk: text.clone(), content: text, step: 1, model };
        assert_eq!(written(&chunk(Some(v0_9))), expected);
    }

    #[test]
    fn sbp_l2_07_the_end_of_a_turn_has_the_names_of_0_9_beside_its_own() {
        let complete = |v0_9| {
            ServerFrame::TurnComplete(TurnComplete {
                chunk_id: ID.parse().unwrap(),
                session_id: ID.parse().unwrap(),
                seq: 2,
                turn_id: ID.parse().unwrap(),
                step_count: 1,
                model: Some("m".into()),
                status: TurnStatus::Complete,
                v0_9,
            })
        };
        let mut expected = json!({
            "type": "TURN_COMPLETE", "chunk_id": ID, "session_id": ID, "seq": 2, "turn_id": ID,
            "step_count": 1, "model": "m", "status": "complete",
        });
        assert_eq!(written(&complete(None)), expected);
        expected["step"] = json!(1);
        expected["cost_usd"] = json!(0.25);
        assert_eq!(written(&complete(Some(CompleteV0_9 { step: 1, cost_usd: 0.25 }))), expected);
    }
}
