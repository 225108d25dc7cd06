//! Having an attached device do something (SBP-L5-02 … 04).
//!
//! Apart, because a model's turn is not the only one who asks: whoever may use the session may. All
//! go this way, so that the same bounds hold for all: only a tool that the surface declared and the
//! configuration allows, no longer than it may take, and nothing over a mebibyte (G9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::hub::{Errand, Link};

/// The largest answer of a tool, in bytes.
const LARGEST_RESULT: usize = 1 << 20;

/// Has the device do it, and waits for it no longer than it may take (SBP-L5-03), nor after
/// `cancelled`. The error is for whoever asked, in words.
pub(crate) async fn ask(
    link: Arc<Link>,
    tool: &str,
    input: Value,
    patience: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Value, String> {
    if !link.tools.iter().any(|known| known.name == tool) {
        return Err("the device has no such tool".into());
    }
    let (answer, answered) = oneshot::channel();
    let call_id = Uuid::new_v4().to_string();
    let errand = Errand { call_id, tool: tool.to_owned(), input, answer };
    let gone = || "the device went away before it answered".to_owned();
    // A device that is busy beyond measure is as good as away.
    let calls = link.calls.as_ref().ok_or_else(gone)?;
    calls.try_send(errand).map_err(|_| gone())?;
    let begun = Instant::now();
    let outcome = tokio::select! {
        answered = tokio::time::timeout(patience, answered) => match answered {
            Ok(answered) => answered.unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(format!("the device did not answer within {} s", patience.as_secs())),
        },
        () = cancelled => Err("the turn was cancelled".into()),
    };
    metrics::histogram!("bowline_tool_seconds").record(begun.elapsed().as_secs_f64());
    match outcome {
        Ok(result) if result.to_string().len() > LARGEST_RESULT => {
            Err(format!("the device's answer is over {LARGEST_RESULT} bytes"))
        }
        outcome => outcome,
    }
}
