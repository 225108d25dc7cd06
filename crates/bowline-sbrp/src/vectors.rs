//! `tests/vectors`: bytes made by an independent implementation. `sbrp.json` is the relay protocol,
//! `tunnel.json` what is said inside it. Tests only.

use serde_json::Value;

/// One section of the relay protocol's file.
pub(crate) fn section(name: &str) -> Value {
    let text = include_str!("../tests/vectors/sbrp.json");
    let mut file: Value = serde_json::from_str(text).unwrap();
    file[name].take()
}

/// All of the tunnel's file.
pub(crate) fn tunnel() -> Value {
    serde_json::from_str(include_str!("../tests/vectors/tunnel.json")).unwrap()
}

/// The rows of a section. Fails if their number is not `expected`.
pub(crate) fn rows(name: &str, expected: usize) -> Vec<Value> {
    counted(section(name), name, expected)
}

/// The same of the tunnel's file.
pub(crate) fn tunnel_rows(name: &str, expected: usize) -> Vec<Value> {
    counted(tunnel()[name].take(), name, expected)
}

fn counted(section: Value, name: &str, expected: usize) -> Vec<Value> {
    let Value::Array(rows) = section else { panic!("{name} is no list") };
    assert_eq!(rows.len(), expected, "rows of {name}");
    rows
}

/// The row with this id.
pub(crate) fn row(name: &str, id: &str) -> Value {
    let Value::Array(rows) = section(name) else { panic!("{name} is no list") };
    rows.into_iter().find(|row| row["id"] == id).unwrap()
}

pub(crate) fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("no text {field} in {}", row["id"]))
}

/// A u64, which the file writes as a decimal string.
pub(crate) fn number(row: &Value, field: &str) -> u64 {
    text(row, field).parse().unwrap()
}

pub(crate) fn hex(row: &Value, field: &str) -> Vec<u8> {
    unhex(text(row, field))
}

pub(crate) fn key(row: &Value, field: &str) -> [u8; 32] {
    hex(row, field).try_into().unwrap()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd hex");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A frame given whole, or as its start and a fill byte.
pub(crate) fn frame(row: &Value) -> Vec<u8> {
    if row["frame_hex"].is_string() {
        return hex(row, "frame_hex");
    }
    let fill = hex(row, "fill_byte")[0];
    let length = row["fill_len"].as_u64().or(row["length"].as_u64()).unwrap();
    let mut frame = hex(row, "frame_head_hex");
    frame.resize(frame.len() + length as usize, fill);
    frame
}
