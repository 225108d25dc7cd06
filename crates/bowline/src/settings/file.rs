//! The configuration file, value by value with its lines.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::key::{joined, leaves};

/// One value of the file.
#[derive(Debug)]
pub(super) struct FileValue {
    pub(super) key: String,
    pub(super) value: Value,
    /// Counts from 1.
    pub(super) line: usize,
}

/// Where the file is not TOML.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) why: String,
    /// The key of that line, if one can be made out.
    pub(super) key: Option<String>,
}

/// Reads the text of a file. Only the error's own words are used, never the text around it, which
/// may hold a secret.
pub(super) fn read(text: &str) -> Result<Vec<FileValue>, SyntaxError> {
    let syntax = |error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line = line_of(text, at);
        SyntaxError { line, why: error.message().trim().to_owned(), key: key_at(text, line) }
    };
    let spanned = DeTable::parse(text).map_err(syntax)?;
    let table: Table = text.parse().map_err(syntax)?;
    let mut lines = BTreeMap::new();
    collect(spanned.get_ref(), "", text, &mut lines);
    let line = |key: &str| lines.get(key).copied().unwrap_or(1);
    let values = leaves(&table).into_iter();
    Ok(values.map(|(key, value)| FileValue { line: line(&key), key, value }).collect())
}

fn collect(table: &DeTable<'_>, prefix: &str, text: &str, into: &mut BTreeMap<String, usize>) {
    for (name, value) in table {
        let key = joined(prefix, name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &key, text, into),
            _ => {
                into.insert(key, line_of(text, name.span().start));
            }
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The dotted key before the `=` of a line, by the table header above it.
fn key_at(text: &str, line: usize) -> Option<String> {
    let (name, _) = text.lines().nth(line.checked_sub(1)?)?.split_once('=')?;
    let header = text.lines().take(line).filter_map(|line| {
        let header = line.trim().strip_prefix('[')?;
        header.split(']').next()
    });
    let name = name.trim().trim_matches('"');
    Some(header.last().map_or(name.to_owned(), |header| format!("{header}.{name}")))
}

/// Whether the default file may be absent: nobody named it.
pub(super) fn is_missing(error: &std::io::Error, named: Option<&Path>) -> bool {
    error.kind() == std::io::ErrorKind::NotFound && named.is_none()
}
