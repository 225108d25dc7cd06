//! Mistakes in settings: each names the place, the key, and an example of how it is written.
//!
//! Invariant: no text here shows the value of a setting that may be a secret.

use std::path::Path;

use toml::Value;

use super::file::SyntaxError;
use super::key::{split, variable};
use super::known::KnownSettings;
use super::origin::Origin;
use crate::failure::{Failure, FailureKind};

/// A key that no setting has.
pub(super) fn unknown(known: &KnownSettings, key: &str, origin: &Origin) -> Failure {
    let place = origin.place();
    if known.is_table(key) {
        let what = format!("{place}: `{key}` is a table of settings, not a value");
        return failure(
            what,
            format!("write [{key}] on a line of its own, and its settings below"),
        );
    }
    let what = format!("{place}: `{key}` is not a setting");
    match known.nearest(key) {
        Some(near) => {
            let example = example(known, &near, origin);
            failure(what, format!("did you mean `{near}`? {example}"))
        }
        None => failure(what, "`bowline help configuration` lists every setting"),
    }
}

/// A value that the setting cannot have.
pub(super) fn wrong(known: &KnownSettings, key: &str, origin: &Origin, why: &str) -> Failure {
    let what = format!("{}: `{key}` is wrong: {}", origin.place(), why);
    failure(what, example(known, key, origin))
}

/// Why a value has the wrong type; `None` if the type is right.
pub(super) fn wrong_type(value: &Value, example: &Value) -> Option<String> {
    let (is, wanted) = (value.type_str(), example.type_str());
    // A whole number is also a fraction.
    let fits = is == wanted || (is == "integer" && wanted == "float");
    (!fits).then(|| format!("it is {}, and has to be {}", kind_of(value), kind_of(example)))
}

/// The deserialiser's message about a table as a sentence.
pub(super) fn sentence(table: &str, message: &str) -> String {
    let missing = message.trim().strip_prefix("missing field `").and_then(|m| m.strip_suffix('`'));
    match missing {
        Some(field) => format!("`{table}.{field}` has to be set, too"),
        None => message.trim().to_owned(),
    }
}

/// A file that is not TOML.
pub(super) fn not_toml(known: &KnownSettings, path: &Path, error: SyntaxError) -> Failure {
    let SyntaxError { line, why, key } = error;
    let origin = Origin::File { path: path.to_owned(), line };
    let key = key.filter(|key| known.example(key).is_some());
    let what = match &key {
        Some(key) => format!("{}: `{key}` is not TOML: {why}", origin.place()),
        None => format!("{}: this is not TOML: {why}", origin.place()),
    };
    match key {
        Some(key) => failure(what, example(known, &key, &origin)),
        None => failure(what, "`bowline help configuration` lists every setting"),
    }
}

/// How the setting is written where it was set.
fn example(known: &KnownSettings, key: &str, origin: &Origin) -> String {
    let Some(value) = known.example(key) else {
        return "`bowline help configuration` lists every setting".into();
    };
    match origin {
        Origin::File { .. } => {
            let parts = split(key);
            let name = parts.last().map(String::as_str).unwrap_or_default();
            match key.strip_suffix(name).map(|table| table.trim_end_matches('.')) {
                Some(table) if !table.is_empty() => {
                    format!("for example:\n\n  [{table}]\n  {name} = {value}")
                }
                _ => format!("for example: {key} = {value}"),
            }
        }
        Origin::Environment(_) => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Array(items) => {
                    items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
                }
                value => value.to_string(),
            };
            format!("for example: {}={text}", variable(key))
        }
        Origin::Flag(flag) => format!("for example: {flag} {value}"),
    }
}

/// What kind of value it is, as it is written.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list in square brackets",
        Value::String(_) => "text in quotes",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Table(_) => "a table",
    }
}

fn failure(what: String, hint: impl std::fmt::Display) -> Failure {
    Failure::new(what).hint(hint).kind(FailureKind::Usage)
}
