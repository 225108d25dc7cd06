//! The plan of a device for one turn, and the allowed outcomes of each call.

use std::time::Duration;

use serde_json::json;

use crate::garbage::Chance;

/// The timeout of a call that will be answered; nothing here takes that long.
pub(super) const QUICK: Duration = Duration::from_secs(12);
/// The timeout of a call that will not be answered.
pub(super) const HASTY: Duration = Duration::from_millis(30);
/// The largest message of a surface in this test.
pub(super) const LARGEST_MESSAGE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Answer,
    Fail,
    /// Answers after the turn is over.
    Late,
    Never,
    /// Answers twice; the second answer differs.
    Twice,
    /// Sends garbage first, then the answer.
    Garbage,
    /// Answers calls of other devices and unknown calls, then its own.
    Stranger,
    Cancel,
    /// Disconnects; when the call is sent again, it answers.
    Leave(Leave),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    Drop,
    Close,
    Detach,
    TooLarge,
    Broken,
    Replace,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Result,
    Error,
    Timeout,
    Gone,
    Cancelled,
}

impl End {
    pub(super) const ALL: [End; 5] =
        [End::Result, End::Error, End::Timeout, End::Gone, End::Cancelled];

    /// The outcome of a call from its log entry; `None` if the text is unknown.
    fn of(content: &str, turn: usize, call: usize) -> Option<Self> {
        if content == payload(turn, call) {
            return Some(End::Result);
        }
        let error: serde_json::Value = serde_json::from_str(content).ok()?;
        match error["error"].as_str()? {
            "no film" => Some(End::Error),
            "the device did not answer within 0 s" | "the device did not answer within 12 s" => {
                Some(End::Timeout)
            }
            "the device disconnected before it answered" => Some(End::Gone),
            "the turn was cancelled" => Some(End::Cancelled),
            _ => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) deed: Deed,
    hasty: bool,
}

/// One turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) calls: Vec<Call>,
    /// Whether a device that disconnects reconnects before the turn is over.
    pub(super) returns: bool,
    /// Whether the gateway waits for it (`tools.wait_for_surface`).
    waits: bool,
}

/// What a device answers to a call.
pub(super) fn payload(turn: usize, call: usize) -> String {
    format!("done {turn}.{call}")
}

impl Plan {
    /// With at most that many calls.
    pub(super) fn new(chance: &mut Chance, most: usize, waits: bool) -> Self {
        let mut calls: Vec<_> = (0..1 + chance.next(most.min(6))).map(|_| calm(chance)).collect();
        let odd = chance.next(calls.len());
        let returns = chance.next(3) > 0;
        match chance.next(100) {
            0..30 => {
                const WAYS: [Leave; 6] = [
                    Leave::Drop,
                    Leave::Close,
                    Leave::Detach,
                    Leave::TooLarge,
                    Leave::Broken,
                    Leave::Replace,
                ];
                calls[odd].deed = Deed::Leave(WAYS[chance.next(WAYS.len())]);
                // Nobody shall wait for long for one who does not come.
                if waits && !returns {
                    calls.iter_mut().for_each(|call| call.hasty = true);
                }
            }
            // Never in haste: it must come while this turn waits, and not cancel the next.
            30..40 => calls[odd] = Call { deed: Deed::Cancel, hasty: false },
            _ => {}
        }
        Self { calls, returns, waits }
    }

    /// The calls, for the scripted model.
    pub(super) fn script(&self, turn: usize) -> String {
        let calls = self.calls.iter().enumerate().map(|(n, call)| {
            let tool = if call.hasty { "surface_hasty" } else { "surface_quick" };
            (tool, json!({ "turn": turn, "call": n }).to_string())
        });
        json!(calls.collect::<Vec<_>>()).to_string()
    }

    /// The deadline of the whole turn (G9).
    pub(super) fn deadline(&self) -> Duration {
        let longest = if self.calls.iter().all(|call| call.hasty) { HASTY } else { QUICK };
        longest + Duration::from_secs(5)
    }

    /// How a call ended according to the log; an error if the plan does not allow that outcome.
    pub(super) fn end(&self, turn: usize, n: usize, content: &str) -> Result<End, String> {
        let call = &self.calls[n];
        let end = End::of(content, turn, n).filter(|end| self.may_end(call, *end));
        end.ok_or_else(|| format!("call {n} of turn {turn} ended with {content}: {self:?}"))
    }

    fn may_end(&self, call: &Call, end: End) -> bool {
        let leaves = self.calls.iter().any(|call| matches!(call.deed, Deed::Leave(_)));
        let cancels = self.calls.iter().any(|call| call.deed == Deed::Cancel);
        match end {
            End::Result => match call.deed {
                Deed::Answer | Deed::Twice | Deed::Garbage | Deed::Stranger => true,
                // Not only if it is waited for: one that is back already needs no waiting.
                Deed::Leave(_) => self.returns,
                Deed::Fail | Deed::Late | Deed::Never | Deed::Cancel => false,
            },
            End::Error => call.deed == Deed::Fail,
            End::Timeout => call.hasty,
            // One who comes back is waited for, if that is worth it.
            End::Gone => leaves && (!self.waits || call.hasty),
            End::Cancelled => cancels,
        }
    }
}

fn calm(chance: &mut Chance) -> Call {
    let deed = match chance.next(100) {
        0..35 => Deed::Answer,
        35..45 => Deed::Fail,
        45..60 => Deed::Twice,
        60..75 => Deed::Garbage,
        75..88 => Deed::Stranger,
        88..96 => Deed::Late,
        _ => Deed::Never,
    };
    // An answer in haste may come in time or not.
    let hasty = matches!(deed, Deed::Late | Deed::Never) || chance.next(10) == 0;
    Call { deed, hasty }
}
