//! Approvals of tool calls, pinned definitions of servers' tools, and notices that are told once.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_sbp::approval::Approval;
use bowline_sbp::id::SessionId;
use jiff::Timestamp;

use super::pool::Connection;
use super::rows::{corrupt, millis, told};
use super::{Postgres, load, revision, text};
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

    async fn pin_new_tools(&self, pins: Vec<ToolPin>, at: Timestamp) -> Result<Vec<ToolPin>> {
        let (tools, definitions): (Vec<_>, Vec<_>) =
            pins.iter().map(|pin| (text::stored(&pin.tool), text::stored(&pin.definition))).unzip();
        let (pins, tools, definitions) = (&pins, &tools, &definitions);
        let pin = move |c: Arc<Connection>| async move {
            c.execute(
                "INSERT INTO tool_pins (tool, definition, created_at)
                 SELECT tool, definition, $3 FROM unnest($1::text[], $2::text[]) AS n (tool, definition)
                 ORDER BY tool ON CONFLICT (tool) DO NOTHING",
                &[tools, definitions, &millis(at)],
            )
            .await?;
            // The next statement sees what another replica committed meanwhile.
            let sql = "SELECT tool, definition FROM tool_pins WHERE tool = ANY ($1)";
            let mut count = HashMap::new();
            for row in c.query(sql, &[tools]).await? {
                count.insert(told(&row, "tool")?, told(&row, "definition")?);
            }
            let counts = |pin: &ToolPin| {
                let definition = count.get(&pin.tool).cloned();
                let definition = definition.ok_or_else(|| corrupt("the definition of a tool"))?;
                Ok(ToolPin { tool: pin.tool.clone(), definition })
            };
            pins.iter().map(counts).collect()
        };
        self.pool.write(pin).await
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
            revision::bump(&c).await
        };
        self.pool.write(pin).await
    }
}

pub(super) async fn take_notice(postgres: &Postgres, name: &str) -> Result<bool> {
    let sql = "DELETE FROM notices WHERE name = $1";
    postgres.pool.write(move |c| async move { Ok(c.execute(sql, &[&name]).await? == 1) }).await
}
