//! Tool calls to this device: the program gets each once, however often the gateway sends it.
//!
//! A gateway may resend a call, under the same id, to a surface that was disconnected during it.
//! The device must not take a second photo for that: a call in progress is ignored, one that has a
//! result is answered from memory.

use std::collections::VecDeque;

use bowline_sbp::frame::ClientFrame;
use serde_json::Value;

/// The tool's result, or an error text.
pub type ToolOutcome = Result<Value, String>;

/// The most calls kept in memory: as many as may be in flight.
const MOST: usize = 64;

/// The largest frame that a gateway accepts, in bytes (G11).
const LARGEST: usize = 1 << 20;

/// Recent calls, oldest first.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<(String, Option<ToolOutcome>)>);

/// What to do with a received call.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// Pass it to the program.
    New,
    /// The program is working on it.
    Known,
    /// It has a result: send this again.
    Done(Box<ClientFrame>),
}

impl Calls {
    pub(super) fn hear(&mut self, call_id: &str) -> Heard {
        let known = self.0.iter().find(|(id, _)| id == call_id);
        match known {
            Some((_, Some(outcome))) => Heard::Done(Box::new(frame(call_id, outcome.clone()))),
            Some((_, None)) => Heard::Known,
            None => {
                if self.0.len() == MOST {
                    self.0.pop_front();
                }
                self.0.push_back((call_id.to_owned(), None));
                Heard::New
            }
        }
    }

    /// Records a result. One that is too large becomes an error: the gateway would close the
    /// connection.
    pub(super) fn done(&mut self, call_id: &str, outcome: ToolOutcome) -> ClientFrame {
        let fits = frame(call_id, outcome.clone()).to_json().len() <= LARGEST;
        let outcome = match fits {
            true => outcome,
            false => Err("the tool's answer is larger than a gateway accepts".to_owned()),
        };
        if let Some((_, known)) = self.0.iter_mut().find(|(id, _)| id == call_id) {
            *known = Some(outcome.clone());
        }
        frame(call_id, outcome)
    }
}

fn frame(call_id: &str, outcome: ToolOutcome) -> ClientFrame {
    let (result, error) = match outcome {
        Ok(result) => (result, None),
        Err(error) => (Value::Null, Some(error)),
    };
    ClientFrame::ToolResult { call_id: call_id.to_owned(), result, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sbp_l5_02_a_call_that_comes_again_is_not_done_again() {
        let mut calls = Calls::default();
        assert_eq!(calls.hear("a"), Heard::New);
        assert_eq!(calls.hear("a"), Heard::Known);
        let answer = calls.done("a", Ok(json!(1)));
        assert_eq!(calls.hear("a"), Heard::Done(Box::new(answer)));
        calls.hear("b");
        let no = calls.done("b", Err("no camera".into()));
        assert!(matches!(no, ClientFrame::ToolResult { error: Some(_), .. }));
    }

    #[test]
    fn g11_an_answer_that_is_too_large_becomes_an_error() {
        let mut calls = Calls::default();
        calls.hear("a");
        let answer = calls.done("a", Ok(json!("\0".repeat(200_000))));
        assert!(matches!(answer, ClientFrame::ToolResult { error: Some(_), .. }));
        assert!(answer.to_json().len() < 1000);
    }

    #[test]
    fn the_oldest_calls_are_forgotten() {
        let mut calls = Calls::default();
        for n in 0..=MOST {
            calls.hear(&n.to_string());
        }
        assert_eq!(calls.0.len(), MOST);
        assert_eq!(calls.hear("0"), Heard::New);
    }
}
