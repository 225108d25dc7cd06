//! One tool call at an MCP server: its deadline, its progress and its end.
//!
//! Invariants
//! - A call ends by the server's result, by its deadline, or when its turn is cancelled; the server
//!   is told of a call that was abandoned (`notifications/cancelled`).
//! - Every progress notification starts the timeout anew, up to the longest time of a call.

use std::time::{Duration, Instant};

use bowline_sbp::surface;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientRequest, ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};

use super::answer;
use super::catalogue::{Tool, ToolAction};
use super::needs::Need;
use super::server::{Live, McpServer};

impl McpServer {
    /// Calls a tool. The error is a text for the model.
    pub(super) async fn call(
        &self,
        tool: &Tool,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Value, String> {
        let begun = Instant::now();
        let outcome = self.called(tool, arguments, cancelled, begun).await;
        metrics::histogram!("bowline_tool_seconds").record(begun.elapsed().as_secs_f64());
        outcome
    }

    async fn called(
        &self,
        tool: &Tool,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
        begun: Instant,
    ) -> Result<Value, String> {
        tokio::pin!(cancelled);
        let patience = self.settings.timeout;
        let place = tokio::select! {
            place = tokio::time::timeout(patience, self.calls.acquire()) => place,
            () = &mut cancelled => return Err(CANCELLED.into()),
        };
        let Ok(Ok(_place)) = place else { return Err(late(patience)) };
        let live = self.live()?;
        match tool.work {
            ToolAction::Call => self.ask(&live, &tool.tool, arguments, cancelled, begun).await,
            ToolAction::ListResources | ToolAction::ReadResource => {
                let asked = self.resource_tool(&live, tool.work, &arguments);
                tokio::select! {
                    answered = tokio::time::timeout(patience, asked) => {
                        answered.unwrap_or_else(|_| Err(late(patience)))
                    }
                    () = &mut cancelled => Err(CANCELLED.into()),
                }
            }
        }
    }

    async fn ask(
        &self,
        live: &Live,
        tool: &str,
        arguments: Map<String, Value>,
        cancelled: impl Future<Output = ()>,
        begun: Instant,
    ) -> Result<Value, String> {
        let in_flight = live.needs.begin();
        let (patience, longest) = (self.settings.timeout, self.settings.longest_call());
        let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let options = PeerRequestOptions::with_timeout(patience)
            .reset_timeout_on_progress()
            .with_max_total_timeout(longest.saturating_sub(begun.elapsed()));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
        let sent = live.peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(|_| self.gone(live))?;
        let id = handle.id.clone();
        let answered = tokio::select! {
            answered = handle.await_response() => answered,
            () = cancelled => {
                let told = CancelledNotificationParam::new(Some(id), Some(CANCELLED.into()));
                let _ = live.peer.notify_cancelled(told).await;
                return Err(CANCELLED.into());
            }
        };
        let need = match &answered {
            Ok(ServerResult::CreateTaskResult(_)) => Some(Need::Tasks),
            Ok(ServerResult::InputRequiredResult(asked)) => Some(Need::of_input(asked)),
            Ok(ServerResult::CallToolResult(result)) if !has_failed(result) => None,
            Ok(_) => in_flight.asked(),
            Err(ServiceError::McpError(error)) => {
                let info = live.peer.peer_info();
                let version = info.as_ref().map(|info| &info.protocol_version);
                in_flight.asked().or_else(|| Need::of_error(error, version))
            }
            Err(_) => None,
        };
        if let Some(need) = need {
            live.needs.found(tool, need);
            live.look.notify_one();
            // It may have failed for another reason.
            let said = match answered {
                Ok(ServerResult::CallToolResult(result)) => answer::read(result).err(),
                Err(ServiceError::McpError(error)) => Some(surface::description(&error.message)),
                _ => None,
            };
            let said = said.map_or_else(String::new, |said| format!(" (it said: {said})"));
            return Err(format!("the tool cannot be used here: {need}{said}"));
        }
        match answered {
            Ok(ServerResult::CallToolResult(result)) => answer::read(result),
            Ok(_) => Err("the server's answer is not the result of a tool".into()),
            Err(ServiceError::McpError(error)) => Err(surface::description(&error.message)),
            Err(ServiceError::Timeout { .. }) if begun.elapsed() >= longest => Err(format!(
                "the tool did not answer within {} s, the longest that a call may take",
                longest.as_secs()
            )),
            Err(ServiceError::Timeout { .. }) => Err(late(patience)),
            Err(_) => Err(self.gone(live)),
        }
    }

    /// The connection is broken: the server's task finds out.
    pub(super) fn gone(&self, live: &Live) -> String {
        live.look.notify_one();
        format!("the MCP server `{}` disconnected before it answered", self.name)
    }
}

const CANCELLED: &str = "the turn was cancelled";

fn late(patience: Duration) -> String {
    format!("the tool did not answer within {} s", patience.as_secs())
}

fn has_failed(result: &CallToolResult) -> bool {
    result.is_error == Some(true)
}
