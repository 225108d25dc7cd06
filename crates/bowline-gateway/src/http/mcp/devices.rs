//! Tools of attached devices, for MCP hosts (SBP-L5-06).
//!
//! With a session's token they are named `surface_<tool>`, as for the session's model. With access
//! to all sessions they are named `<end of the session's id>_<tool>`, which means the same device's
//! tool whatever other devices attach or detach.

use std::collections::HashSet;
use std::sync::Arc;

use bowline_sbp::access::Action;
use bowline_sbp::id::SessionId;
use bowline_sbp::session::LiveState;
use bowline_sbp::surface::{SurfaceContext, SurfaceTool, description};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ResultType, Tool};
use serde_json::{Value, json};

use super::Reach;
use crate::engine::{Identity, planned_for_host};
use crate::http::App;
use crate::mcp::names;
use crate::session::LiveSessions;

/// How many digits of a session id are used. The last ones, because the first are the time. With
/// the longest tool name this makes 64 characters.
const DIGITS: usize = 7;

/// A tool of an attached device.
pub(super) struct DeviceTool {
    /// The name that hosts use.
    pub(super) name: String,
    tool: SurfaceTool,
    session: SessionId,
    surface: Arc<SurfaceContext>,
}

/// The tools of all sessions that the caller may access.
pub(super) async fn tools(sessions: &LiveSessions, reach: &Reach) -> Vec<DeviceTool> {
    match reach {
        Reach::One(session) => {
            let state = sessions.look(session.id).await;
            state.iter().flat_map(|state| of("surface", session.id, state)).collect()
        }
        // Which agent a live session has is not known here.
        Reach::User(identity)
            if identity.check(Action::CallDevice).is_ok() && !identity.is_limited() =>
        {
            let all = sessions.look_at_user(identity.user()).await;
            let has_tools = |state: &LiveState| state.surfaces.iter().any(|s| !s.tools.is_empty());
            let mut all: Vec<_> = all.into_iter().filter(|(_, state)| has_tools(state)).collect();
            all.sort_by_key(|(session, _)| *session);
            let mut taken = HashSet::new();
            let tools = all.iter().flat_map(|(session, state)| {
                let id = session.0.simple().to_string();
                let short = id[id.len() - DIGITS..].to_owned();
                let prefix = if taken.insert(short.clone()) { short } else { id };
                of(&prefix, *session, state)
            });
            tools.collect()
        }
        Reach::User(_) => Vec::new(),
    }
}

/// The tools of a session's devices, each name once: the device that attached last provides it.
fn of(prefix: &str, session: SessionId, state: &LiveState) -> Vec<DeviceTool> {
    let mut newest: Vec<_> = state.surfaces.iter().collect();
    newest.sort_by_key(|surface| std::cmp::Reverse(surface.epoch));
    let mut tools: Vec<(&SurfaceTool, &Arc<SurfaceContext>)> = Vec::new();
    for surface in newest {
        for tool in surface.tools.iter() {
            if !tools.iter().any(|(known, _)| known.name == tool.name) {
                tools.push((tool, &surface.context));
            }
        }
    }
    let names = names::named(prefix, tools.iter().map(|(tool, _)| tool.name.as_str()));
    let tool = |(name, (tool, surface)): (String, (&SurfaceTool, &Arc<SurfaceContext>))| {
        DeviceTool { name, tool: tool.clone(), session, surface: Arc::clone(surface) }
    };
    std::iter::zip(names, tools).map(tool).collect()
}

impl DeviceTool {
    /// The tool's entry in the list for hosts.
    pub(super) fn listed(&self) -> Tool {
        let surface = &self.surface;
        let device = match &surface.surface_id {
            Some(id) => format!("{} `{id}`", surface.device_type.as_str()),
            None => surface.device_type.as_str().to_owned(),
        };
        let about = self.tool.description.as_deref().unwrap_or("A tool on the user's device.");
        let said = format!("{about} (Runs on: {device}, session {}.)", self.session);
        let schema = self.tool.input_schema.clone().unwrap_or_default();
        let any = || JsonObject::from_iter([("type".to_owned(), json!("object"))]);
        let schema = if schema.is_empty() { any() } else { schema };
        Tool::new(self.name.clone(), description(&said), schema)
    }

    /// Calls the tool on the device, in the same way and with the same limits as for a model.
    pub(super) async fn call(
        self,
        app: &App,
        identity: &Identity,
        arguments: JsonObject,
        gone: impl Future<Output = ()>,
    ) -> Result<CallToolResult, String> {
        let (session, tool) = (self.session, &self.tool.name);
        let who = app.engine.tools_of_session(session).await.map_err(|failure| failure.message)?;
        let call =
            planned_for_host(&app.engine, identity, (session, &who), tool, arguments.into())?;
        let handle = app.sessions.handle(session);
        Ok(shown(handle.call_device(call, gone).await?))
    }
}

/// The device's result as an MCP result. One that is an MCP result already, such as a photo, is
/// passed on unchanged.
fn shown(answer: Value) -> CallToolResult {
    if answer.get("content").is_some_and(Value::is_array)
        && let Ok(mut result) = serde_json::from_value::<CallToolResult>(answer.clone())
    {
        // Newer protocol revisions require this field; for older ones the SDK omits it.
        result.result_type = Some(ResultType::COMPLETE);
        return result;
    }
    match answer {
        Value::String(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        object @ Value::Object(_) => CallToolResult::structured(object),
        other => CallToolResult::success(vec![ContentBlock::text(other.to_string())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_may_answer_with_text_with_data_or_with_a_photo() {
        let text = |result: &CallToolResult| result.content[0].as_text().unwrap().text.clone();
        assert_eq!(text(&shown(json!("a cat"))), "a cat");
        assert_eq!(text(&shown(json!(7))), "7");
        assert_eq!(shown(json!({"lat": 1})).structured_content, Some(json!({"lat": 1})));
        let photo =
            json!({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]});
        assert!(shown(photo).content[0].as_image().is_some());
        let odd = json!({"content": ["not MCP"]});
        assert_eq!(shown(odd.clone()).structured_content, Some(odd));
    }
}
