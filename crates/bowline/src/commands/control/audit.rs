//! `bowline control audit`: the audit log, newest first.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::{registry, undone, when};
use crate::failure::Failure;
use crate::terminal::{note, say, show, table};

pub(super) fn run(data: &Path, limit: u32, json: bool) -> Result<ExitCode, Failure> {
    let records = registry(data)?.audit(limit).map_err(|error| undone(error, data))?;
    if json {
        let records = records.iter().map(|record| {
            json!({ "at": record.at, "actor": record.actor, "event": record.event,
                    "subject": record.subject, "count": record.count, "last_at": record.last_at })
        });
        say!("{}", Value::Array(records.collect()));
        return Ok(ExitCode::SUCCESS);
    }
    if records.is_empty() {
        note!("the audit log is empty");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = records
        .into_iter()
        .map(|record| {
            let times = match record.count {
                1 => String::new(),
                count => format!("{count} times until {}", when(record.last_at)),
            };
            [when(record.at), record.actor, record.event, record.subject, times]
        })
        .collect();
    show!("{}", table(["AT", "WHO", "WHAT", "TO", ""], &rows));
    Ok(ExitCode::SUCCESS)
}
