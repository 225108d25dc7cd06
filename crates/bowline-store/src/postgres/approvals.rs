//! Approvals of tool calls, pinned definitions of servers' tools, and notices that are told once.

use std::sync::Arc;

use bowline_sbp::approval::Approval;
use bowline_sbp::id::SessionId;
use jiff::Timestamp;

use super::pool::Connection;
use super::rows::{millis, told};
use super::{Postgres, load, text};
use crate::{Approvals, Result, ToolPin};

#[async_trait::async_trait]
impl Approvals for Postgres {
    async fn approvals(&self, id: SessionId) -> Result<Vec<Approval>> {
        self.pool.read(move |c| async move { load::approvals(&c, id).await }).await
    }

    async fn tool_pins(&self) -> Result<Vec<ToolPin>> {
        let read = move |c: Arc<Connection>| async move {
            let found =
                c.query("SELECT tool, definition FROM tool_pins ORDER BY tool", &[]).await?;
            let pin = |row: &tokio_postgres::Row| {
                Ok(ToolPin { tool: told(row, "tool")?, definition: told(row, "definition")? })
            };
            found.iter().map(pin).collect()
        };
        self.pool.read(read).await
    }

    async fn pin_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<()> {
        let sql = "INSERT INTO tool_pins (tool, definition, created_at) VALUES ($1, $2, $3)
                   ON CONFLICT (tool) DO UPDATE
                   SET definition = excluded.definition, created_at = excluded.created_at";
        let pins = &pins;
        let pin = move |c: Arc<Connection>| async move {
            for ToolPin { tool, definition } in pins {
                let (tool, definition) = (text::stored(tool), text::stored(definition));
                c.execute(sql, &[&tool, &definition, &millis(at)]).await?;
            }
            Ok(())
        };
        self.pool.write(pin).await
    }
}

pub(super) async fn take_notice(postgres: &Postgres, name: &str) -> Result<bool> {
    let sql = "DELETE FROM notices WHERE name = $1";
    postgres.pool.write(move |c| async move { Ok(c.execute(sql, &[&name]).await? == 1) }).await
}
