//! Values of rows as both databases have them, and hashes of rows.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// A value, without a trace of the database that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
}

pub(super) type Row = Vec<Value>;

/// Some rows in the order of the database, and where the next ones begin.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    pub(super) last: Option<Cursor>,
}

/// The key of the last row that was read, as text: numbers in decimal, bytes in hexadecimal.
pub(super) type Cursor = Vec<String>;

/// The SHA-256 of a row.
pub(super) fn hash(row: &[Value]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for value in row {
        let (tag, bytes): (u8, &[u8]) = match value {
            Value::Null => (0, &[]),
            Value::Int(number) => (1, &number.to_le_bytes()),
            Value::Bool(yes) => (2, &[u8::from(*yes)]),
            Value::Real(number) => (3, &number.to_bits().to_le_bytes()),
            Value::Text(text) => (4, text.as_bytes()),
            Value::Bytes(bytes) => (5, bytes),
            Value::Uuid(id) => (6, id.as_bytes()),
        };
        hash.update([tag]);
        // With its length: no two rows give the same bytes.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of [`hex`].
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_have_different_hashes() {
        let text = |text: &str| Value::Text(text.into());
        let rows = [
            vec![text("ab"), text("c")],
            vec![text("a"), text("bc")],
            vec![text("abc"), Value::Null],
            vec![Value::Bytes(b"ab".to_vec()), text("c")],
            vec![Value::Int(1), Value::Bool(true)],
            vec![Value::Int(1), Value::Int(1)],
        ];
        let mut hashes: Vec<_> = rows.iter().map(|row| hash(row)).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), rows.len());
        assert_eq!(unhex(&hex(&[0, 15, 255])), Some(vec![0, 15, 255]));
        assert_eq!(unhex("0"), None);
    }
}
