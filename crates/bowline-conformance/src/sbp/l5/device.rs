//! A device with tools.

use serde_json::{Value, json};

use crate::came::Came;
use crate::socket::Socket;
use crate::trial::{Session, Trial};
use crate::verdict::{Ended, Stop};

/// An attached device, and which of its tools the server took.
pub(super) struct Device {
    pub(super) socket: Socket,
    pub(super) attached: Came,
}

impl Device {
    /// Attaches with these tools.
    pub(super) async fn attach(t: &Trial, session: &Session, tools: &[&str]) -> Result<Self, Stop> {
        // As objects first: a server that asks a person before it calls a device leaves that to a
        // device which says that it asks itself, and a session's token may not approve.
        let objects: Vec<Value> = tools
            .iter()
            .map(|name| {
                json!({ "name": name, "description": "A tool of the conformance suite.",
                        "input_schema": { "type": "object", "properties": {} }, "asks": true })
            })
            .collect();
        let device = Self::attach_with(t, session, json!(objects)).await?;
        if device.registered()?.len() == tools.len() {
            return Ok(device);
        }
        device.socket.detach().await?;
        let device = Self::attach_with(t, session, json!(tools)).await?;
        let all = device.registered()?.len() == tools.len();
        device.attached.holds(all, &format!("the tools {tools:?} in `mcp_tools_registered`"))?;
        Ok(device)
    }

    async fn attach_with(t: &Trial, session: &Session, tools: Value) -> Result<Self, Stop> {
        let context = json!({
            "device_type": "mobile", "surface_id": "conformance-device", "mcp_tools": tools,
            "ui_capabilities": ["text", "markdown", "tables", "images", "streaming"],
        });
        let (socket, attached) = t.attach(session, context).await?;
        Ok(Self { socket, attached })
    }

    fn registered(&self) -> Result<&Vec<Value>, Stop> {
        self.attached.list(&["/mcp_tools_registered"])
    }

    /// The next call.
    pub(super) async fn called(&mut self) -> Result<Came, Stop> {
        let call = self.socket.until("TOOL_CALL").await?;
        call.text(&["/call_id"])?;
        Ok(call)
    }

    /// Answers a call.
    pub(super) async fn answer(&mut self, call: &Came, result: Value) -> Ended {
        let id = call.text(&["/call_id"])?;
        self.socket.send(json!({ "type": "TOOL_RESULT", "call_id": id, "result": result })).await
    }
}
