//! Compares a copy with its source, from what is stored on both sides and not from what was sent.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::tables::{TABLES, Table, by_name};
use super::value::{Value, hash};
use super::{CopyError, Progress, Side, Step, TableRows};

/// What a table holds, whatever the order of its rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Contents {
    rows: u64,
    /// The sum of the rows' hashes.
    sum: u128,
}

/// Compares every table by the number and the hashes of its rows, every log as a whole, and every blob
/// with its own hash. Returns how many rows there are, and how many logs.
pub(super) async fn compare(
    source: &Side,
    target: &Side,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Vec<TableRows>, u64), CopyError> {
    let mut all = Vec::new();
    let mut logs = 0;
    for table in &TABLES {
        let (there, logs_there) = contents(source, table, None).await?;
        let seen = |rows| {
            progress(Progress { step: Step::Comparing, table: table.name, rows, of: there.rows });
        };
        let (here, mut logs_here) = contents(target, table, Some(&seen)).await?;
        // By its session first: that says more.
        for (session, log) in &logs_there {
            if logs_here.remove(session).is_none_or(|here| here != *log) {
                return Err(CopyError::LogDiffers(id_of(source, *session).await?));
            }
        }
        if there != here {
            let (source_rows, target_rows) = (there.rows, here.rows);
            return Err(CopyError::Differs { table: table.name, source_rows, target_rows });
        }
        logs += logs_there.len() as u64;
        all.push(TableRows { table: table.name, rows: here.rows });
    }
    Ok((all, logs))
}

/// Reads a whole table. Of entries also a hash of each log, by the session's number.
async fn contents(
    side: &Side,
    table: &Table,
    seen: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<(Contents, HashMap<i64, [u8; 32]>), CopyError> {
    let (is_log, is_blob) = (table.name == "entries", table.name == "blobs");
    let mut contents = Contents::default();
    let mut logs: HashMap<i64, Sha256> = HashMap::new();
    let mut after = None;
    loop {
        let page = side.page(table, after.as_ref()).await?;
        if page.rows.is_empty() {
            let logs = logs.into_iter().map(|(log, hash)| (log, hash.finalize().into()));
            return Ok((contents, logs.collect()));
        }
        for row in &page.rows {
            if let (true, [Value::Bytes(cid), Value::Bytes(bytes)]) = (is_blob, row.as_slice())
                && Sha256::digest(bytes)[..] != cid[..]
            {
                return Err(CopyError::BlobDiffers);
            }
            let hash = hash(row);
            contents.rows += 1;
            let (half, _) = hash.split_at(16);
            let half = half.try_into().expect("a half has 16 bytes");
            contents.sum = contents.sum.wrapping_add(u128::from_le_bytes(half));
            if let (true, Some(Value::Int(log))) = (is_log, row.first()) {
                // Both databases give the entries of a log in order.
                logs.entry(*log).or_default().update(hash);
            }
        }
        after = page.last;
        if let Some(seen) = seen {
            seen(contents.rows);
        }
    }
}

/// The id of the session of that number; its number, if it is deleted.
async fn id_of(side: &Side, number: i64) -> Result<String, CopyError> {
    let before = vec![(number - 1).to_string()];
    let page = side.page(by_name("sessions"), Some(&before)).await?;
    Ok(match page.rows.first().map(Vec::as_slice) {
        Some([Value::Int(found), Value::Uuid(id), ..]) if *found == number => id.to_string(),
        _ => format!("{number} (deleted; a fork shares its log)"),
    })
}
