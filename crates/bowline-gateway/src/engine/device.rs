//! Having an attached device do something (SBP-L5-02 … 04).
//!
//! Apart, because a model's turn is not the only one who asks: whoever may use the session may. All
//! go this way, so that the same bounds hold for all: only a tool that the surface declared and the
//! configuration allows, no longer than it may take, and nothing over a mebibyte (G9).
//!
//! A device that goes away in the middle may be waited for. It gets the call again under the same
//! id, so that it can tell a call that it has heard before; the answer of the attachment that ended
//! counts no more, because nobody listens to it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_sbp::id::{SessionId, TurnId};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::Engine;
use super::approvals::Leave;
use crate::config::Policy;
use crate::hub::{Channel, Errand, Link};

/// The largest answer of a tool, in bytes.
const LARGEST_RESULT: usize = 1 << 20;

/// A call for whatever device is attached.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub channel: &'a Channel,
    pub tool: &'a str,
    pub input: Value,
    /// How long it may take in all.
    pub patience: Duration,
    /// How long a device that is not there may take to come back.
    pub wait: Duration,
}

impl Engine {
    /// A call by someone who takes no turn: an MCP host. A tool that asks first asks for it, too.
    pub(crate) async fn call_device(
        &self,
        session: SessionId,
        tool: &str,
        input: Value,
        gone: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        let mut gone = pin!(gone);
        let channel = self
            .hub
            .existing(session)
            .ok_or_else(|| "the device is not here any more".to_owned())?;
        match self.tools.policy_of_surface(tool) {
            Policy::Allow => {}
            Policy::Deny => return Err("this tool may not be called here".into()),
            Policy::Ask => {
                let call = TurnId(Uuid::now_v7());
                let question = self.question(session, call, (0, 0), tool, input.clone());
                match self.leave(question, &channel, &mut gone).await {
                    Leave::Granted | Leave::MadeBefore => {}
                    Leave::Refused(why) => return Err(why.into()),
                    Leave::Stopping => return Err("the gateway is stopping".into()),
                }
            }
        }
        let (patience, wait) = (self.tools.timeout_of(tool), self.tools.wait_for_surface);
        Call { channel: &channel, tool, input, patience, wait }.make(gone).await
    }
}

impl Call<'_> {
    /// Has the device do it, and waits for it no longer than it may take (SBP-L5-03), nor after
    /// `cancelled`. The error is for whoever asked, in words.
    pub(super) async fn make(self, cancelled: impl Future<Output = ()>) -> Result<Value, String> {
        let begun = Instant::now();
        let outcome = tokio::select! {
            biased;
            // Nothing begins for someone who has already said stop.
            () = pin!(cancelled) => Err("the turn was cancelled".into()),
            outcome = self.until(begun + self.patience) => outcome,
        };
        metrics::histogram!("bowline_tool_seconds").record(begun.elapsed().as_secs_f64());
        let size = match &outcome {
            Ok(result) => result.to_string().len(),
            Err(why) => why.len(),
        };
        match size > LARGEST_RESULT {
            true => Err(format!("the device's answer is over {LARGEST_RESULT} bytes")),
            false => outcome,
        }
    }

    async fn until(&self, deadline: Instant) -> Result<Value, String> {
        let call_id = Uuid::new_v4().to_string();
        let mut last: Option<(u64, Option<String>)> = None;
        loop {
            let Some(link) = self.device_after(last.as_ref(), deadline).await else {
                return Err("the device went away before it answered".into());
            };
            last = Some((link.epoch, link.surface.surface_id.clone()));
            let (answer, answered) = oneshot::channel();
            let errand = Errand {
                call_id: call_id.clone(),
                tool: self.tool.to_owned(),
                input: self.input.clone(),
                deadline,
                answer,
            };
            // A device that is busy beyond measure is as good as away.
            if link.calls.as_ref().is_none_or(|calls| calls.try_send(errand).is_err()) {
                continue;
            }
            drop(link);
            match timeout_at(deadline, answered).await {
                Ok(Ok(answer)) => return answer,
                // Its attachment ended.
                Ok(Err(_)) => {}
                Err(_) => {
                    let seconds = self.patience.as_secs();
                    return Err(format!("the device did not answer within {seconds} s"));
                }
            }
        }
    }

    /// A surface with the tool: the present one, or the same one when it has come back. Another
    /// device must not do again what the first one may have done.
    async fn device_after(
        &self,
        last: Option<&(u64, Option<String>)>,
        deadline: Instant,
    ) -> Option<Arc<Link>> {
        // Listening before looking, so that nobody comes unseen. Only if it is worth waiting.
        let mut pulse = (!self.wait.is_zero()).then(|| self.channel.subscribe());
        let deadline = deadline.min(Instant::now() + self.wait);
        loop {
            let link = self.channel.now().link.filter(|link| {
                last.is_none_or(|(epoch, name)| {
                    link.epoch > *epoch && link.surface.surface_id == *name
                }) && link.tools.iter().any(|tool| tool.name == self.tool)
            });
            if link.is_some() {
                return link;
            }
            timeout_at(deadline, pulse.as_mut()?.changed()).await.ok()?.ok()?;
        }
    }
}
