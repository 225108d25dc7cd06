//! JSON as CPython's `json` module parses and writes it.
//!
//! The content id of a bundle is the hash of what Python's `json.dumps(bundle, sort_keys=True)`
//! writes (SBP-L3-04), so parsing must keep everything that Python keeps: integers of any size, the
//! difference between `1` and `1.0`, `NaN`, and lone surrogates. `serde_json` loses or refuses each
//! of these; hence a parser and a writer of our own.
//!
//! Invariants
//! - [`Value::parse`] accepts and refuses exactly the texts that `json.loads(str)` does, except
//!   that nesting is bounded by an argument rather than by Python's stack, and the number of
//!   values by [`MAX_VALUES`].
//! - The canonical form depends on the value alone: parsing it and writing it again gives the same
//!   bytes.
//! - No text, however hostile, costs more than O(n log n) time or recurses past the depth limit.

mod cursor;
mod error;
mod float;
mod int;
mod object;
mod parse;
mod scan;
mod text;
mod value;
mod write;

pub use error::{ParseError, Problem};
pub use int::{Int, MAX_INT_DIGITS};
pub use object::Object;
pub use text::Text;
pub use value::Value;

/// How deep a bundle may nest unless the caller says otherwise.
pub const DEFAULT_DEPTH: usize = 512;

/// The most values a document may have: 64 MiB of `0,0,0,…` would otherwise take more than a
/// gigabyte of memory. Real bundles have a few for every message.
pub const MAX_VALUES: usize = 4_000_000;

/// The largest depth limit. CPython fails just below its recursion limit of 1,000, so nothing
/// deeper has a content id there; and values are dropped recursively.
pub const MAX_DEPTH: usize = 1000;

impl<'t> Value<'t> {
    /// Reads a document nested at most [`DEFAULT_DEPTH`] deep.
    pub fn parse(text: &'t str) -> Result<Self, ParseError> {
        Self::parse_within(text, DEFAULT_DEPTH)
    }

    /// Reads a document from bytes: UTF-8 without a byte order mark.
    pub fn parse_bytes(bytes: &'t [u8]) -> Result<Self, ParseError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => Err(ParseError { problem: Problem::NotUtf8, at: error.valid_up_to() }),
        }
    }

    /// Reads a document nested at most `depth` deep; more than [`MAX_DEPTH`] counts as that.
    pub fn parse_within(text: &'t str, depth: usize) -> Result<Self, ParseError> {
        parse::parse(text, depth.min(MAX_DEPTH))
    }

    /// Compact text for storing: ASCII, members in their order. Any strict JSON parser reads it,
    /// unless the value holds a NaN or an infinity, which are written as Python writes them.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        write::compact(self, &mut |piece| out.extend_from_slice(piece));
        ascii(out)
    }

    /// The output of `json.dumps(value, sort_keys=True)`.
    pub fn to_canonical(&self) -> String {
        let mut out = Vec::new();
        self.write_canonical(|piece| out.extend_from_slice(piece));
        ascii(out)
    }

    /// The canonical form in pieces, so that hashing a large bundle needs no second copy of it.
    pub fn write_canonical(&self, mut sink: impl FnMut(&[u8])) {
        write::canonical(self, None, &mut sink);
    }

    /// As [`Value::write_canonical`], as if the top-level object had no member `key`.
    pub fn write_canonical_without(&self, key: &str, mut sink: impl FnMut(&[u8])) {
        write::canonical(self, Some(key), &mut sink);
    }
}

fn ascii(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the writer emits ASCII only")
}
