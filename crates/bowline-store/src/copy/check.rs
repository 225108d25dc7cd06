//! Looks at a database without changing it, also while gateways use it.

use std::collections::HashMap;

use bowline_sbp::bundle::Opened;
use sha2::{Digest as _, Sha256};

use super::tables::{TABLES, by_name};
use super::value::{Value, hex};
use super::{CopyError, Place, Side, TableRows};

/// How many bundles and blobs a sample has.
const SAMPLE: u64 = 100;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    pub database: String,
    pub schema_version: u32,
    /// Gateways whose lease has not expired; none is known of SQLite, where the folder's lock says it.
    pub replicas: Option<u64>,
    /// How many entries the search index does not have yet.
    pub unindexed: u64,
    pub tables: Vec<TableRows>,
    /// How many bundles and blobs had their content id computed.
    pub bundles_read: u64,
    pub blobs_read: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// Counts everything, and compares bundles and blobs with their content ids: a sample, or `all`.
pub async fn check(place: &Place, all: bool) -> Result<CheckReport, CopyError> {
    let side = Side::source(place, true).await?;
    let most = if all { u64::MAX } else { SAMPLE };
    let mut problems = Vec::new();
    if side.is_unfinished().await? {
        problems.push("a copy into this database did not finish; run it again".to_owned());
    }
    let mut tables = Vec::new();
    for table in &TABLES {
        tables.push(TableRows { table: table.name, rows: side.count(table).await? });
    }
    let bundles_read = bundles(&side, most, &mut problems).await?;
    let blobs_read = blobs(&side, most, &mut problems).await?;
    Ok(CheckReport {
        database: side.name().to_owned(),
        schema_version: side.schema_version(),
        replicas: side.replicas().await?,
        unindexed: side.unindexed().await?,
        tables,
        bundles_read,
        blobs_read,
        problems,
    })
}

async fn bundles(side: &Side, most: u64, problems: &mut Vec<String>) -> Result<u64, CopyError> {
    let mut exports = HashMap::new();
    each(side, "exports", u64::MAX, |row| {
        if let [Value::Int(number), Value::Uuid(id), _, Value::Bytes(cid), ..] = row {
            exports.insert(*number, (*id, cid.clone()));
        }
    })
    .await?;
    each(side, "bundles", most, |row| {
        let [Value::Int(export), _, Value::Bytes(bundle)] = row else { return };
        let Some((id, cid)) = exports.get(export) else {
            problems.push(format!("bundle {export} belongs to no export"));
            return;
        };
        let opened = std::str::from_utf8(bundle).ok().and_then(|text| Opened::read(text).ok());
        if opened.is_none_or(|opened| opened.cid.as_bytes()[..] != cid[..]) {
            problems.push(format!("the bundle of export {id} does not have its content id"));
        }
    })
    .await
}

async fn blobs(side: &Side, most: u64, problems: &mut Vec<String>) -> Result<u64, CopyError> {
    each(side, "blobs", most, |row| {
        if let [Value::Bytes(cid), Value::Bytes(bytes)] = row
            && Sha256::digest(bytes)[..] != cid[..]
        {
            problems.push(format!("the bytes of blob {} do not have that hash", hex(cid)));
        }
    })
    .await
}

/// Reads at most so many rows of a table. Returns how many there were.
async fn each(
    side: &Side,
    table: &str,
    most: u64,
    mut look: impl FnMut(&[Value]),
) -> Result<u64, CopyError> {
    let (mut read, mut after) = (0, None);
    while read < most {
        let page = side.page(by_name(table), after.as_ref()).await?;
        if page.rows.is_empty() {
            break;
        }
        page.rows.iter().for_each(|row| look(row));
        read += page.rows.len() as u64;
        after = page.last;
    }
    Ok(read)
}
