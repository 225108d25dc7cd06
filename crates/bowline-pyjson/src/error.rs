//! Parse errors.

use super::{MAX_INT_DIGITS, MAX_VALUES};

/// A parse error and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub struct ParseError {
    pub problem: Problem,
    /// The offset of the unexpected byte.
    pub at: usize,
}

/// The kind of a parse error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error("a value is missing")]
    NoValue,
    #[error("a key in quotes is missing")]
    NoKey,
    #[error("a colon is missing")]
    NoColon,
    #[error("a comma or the end of the array is missing")]
    OpenArray,
    #[error("a comma or the end of the object is missing")]
    OpenObject,
    #[error("a string has no end")]
    OpenString,
    #[error("a string holds a raw control character")]
    ControlCharacter,
    #[error("a string holds an escape that does not exist")]
    BadEscape,
    #[error("an integer has more than {MAX_INT_DIGITS} digits")]
    LongInteger,
    #[error("arrays and objects nest deeper than {limit}")]
    TooDeep { limit: usize },
    #[error("there are more than {MAX_VALUES} values")]
    TooMany,
    #[error("something follows the value")]
    TrailingText,
}
