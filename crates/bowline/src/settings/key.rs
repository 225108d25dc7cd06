//! Dotted keys of settings: `limits.drain`. A part that contains a dot is quoted:
//! `prices."gpt-4.1*".input`.

use toml::{Table, Value};

/// The key of a table's entry.
pub(super) fn joined(prefix: &str, name: &str) -> String {
    let name = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
    if prefix.is_empty() { name } else { format!("{prefix}.{name}") }
}

/// The parts of a key, without quotes.
pub(super) fn split(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in key.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c => parts.last_mut().expect("there is always one").push(c),
        }
    }
    parts
}

/// All values of a table that are no tables, with their keys.
pub(super) fn leaves(table: &Table) -> Vec<(String, Value)> {
    fn collect(table: &Table, prefix: &str, into: &mut Vec<(String, Value)>) {
        for (name, value) in table {
            let key = joined(prefix, name);
            match value {
                Value::Table(inner) => collect(inner, &key, into),
                value => into.push((key, value.clone())),
            }
        }
    }
    let mut found = Vec::new();
    collect(table, "", &mut found);
    found
}

/// Sets a value, and makes the tables on the way to it.
pub(super) fn insert(table: &mut Table, key: &str, value: Value) {
    let parts = split(key);
    let Some((last, folders)) = parts.split_last() else { return };
    let mut table = table;
    for folder in folders {
        let place = table.entry(folder.clone()).or_insert_with(|| Value::Table(Table::new()));
        if !place.is_table() {
            *place = Value::Table(Table::new());
        }
        let Value::Table(next) = place else { return };
        table = next;
    }
    table.insert(last.clone(), value);
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    // Variables can define only the upstream `default`, so its name is left out.
    let key = key.replace("upstream.default.", "upstream.");
    format!("BOWLINE_{}", key.replace('.', "_").to_uppercase())
}
