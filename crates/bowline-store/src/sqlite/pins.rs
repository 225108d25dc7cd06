//! Pinned definitions of servers' tools, and notices that are told once.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::revision;
use super::rows::millis;
use crate::{Result, ToolPin};

pub(super) fn all(conn: &Connection) -> Result<Vec<ToolPin>> {
    let mut statement = conn.prepare_cached("SELECT tool, definition FROM tool_pins")?;
    let pins = statement
        .query_map([], |row| Ok(ToolPin { tool: row.get(0)?, definition: row.get(1)? }))?;
    Ok(pins.collect::<Result<_, _>>()?)
}

/// Pins what is not pinned. Returns the definitions that count for these tools.
pub(super) fn pin_new(conn: &Connection, pins: &[ToolPin], at: Timestamp) -> Result<Vec<ToolPin>> {
    let sql = "INSERT INTO tool_pins (tool, definition, created_at) VALUES (?1, ?2, ?3)
               ON CONFLICT (tool) DO UPDATE SET definition = definition RETURNING definition";
    let mut insert = conn.prepare_cached(sql)?;
    let mut count = Vec::with_capacity(pins.len());
    for ToolPin { tool, definition } in pins {
        let definition =
            insert.query_row(params![tool, definition, millis(at)], |row| row.get(0))?;
        count.push(ToolPin { tool: tool.clone(), definition });
    }
    Ok(count)
}

/// Pins in place of what was pinned.
pub(super) fn pin(conn: &Connection, pins: &[ToolPin], at: Timestamp) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO tool_pins (tool, definition, created_at) VALUES (?1, ?2, ?3)";
    let mut insert = conn.prepare_cached(sql)?;
    for ToolPin { tool, definition } in pins {
        insert.execute(params![tool, definition, millis(at)])?;
    }
    revision::bump(conn)
}

pub(super) fn take_notice(conn: &Connection, name: &str) -> Result<bool> {
    Ok(conn.prepare_cached("DELETE FROM notices WHERE name = ?1")?.execute([name])? == 1)
}
