//! Integers of any size.
//!
//! Nothing here computes with them, so those past 64 bits are kept as decimal text: converting
//! 4,300 digits to a number and back would cost quadratic time for no gain.

use std::fmt;

/// The most digits of an integer that CPython parses.
pub const MAX_INT_DIGITS: usize = 4300;

/// An integer of up to [`MAX_INT_DIGITS`] digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Int(Repr);

// `Large` only for what `Small` cannot hold, so that equal integers compare equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repr {
    Small(i64),
    Large(Box<str>),
}

impl Int {
    /// Parses `-?(0|[1-9][0-9]*)`; the parser has checked the form. `None` past the digit limit.
    pub(super) fn from_literal(literal: &str) -> Option<Self> {
        if let Ok(small) = literal.parse() {
            return Some(Self(Repr::Small(small)));
        }
        let digits = literal.strip_prefix('-').unwrap_or(literal).len();
        (digits <= MAX_INT_DIGITS).then(|| Self(Repr::Large(literal.into())))
    }

    pub fn as_i64(&self) -> Option<i64> {
        match self.0 {
            Repr::Small(value) => Some(value),
            Repr::Large(_) => None,
        }
    }

    /// The nearest floating-point number; an infinity if it is out of range.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Repr::Small(value) => *value as f64,
            Repr::Large(text) => text.parse().expect("decimal digits are a float, too"),
        }
    }
}

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(value) => value.fmt(f),
            Repr::Large(text) => f.write_str(text),
        }
    }
}

impl From<i64> for Int {
    fn from(value: i64) -> Self {
        Self(Repr::Small(value))
    }
}

impl From<u64> for Int {
    fn from(value: u64) -> Self {
        match i64::try_from(value) {
            Ok(small) => Self(Repr::Small(small)),
            Err(_) => Self(Repr::Large(value.to_string().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(literal: &str) -> Int {
        Int::from_literal(literal).unwrap()
    }

    #[test]
    fn sbp_l3_04_integers_keep_every_digit() {
        for literal in
            ["0", "-17", "9223372036854775807", "-9223372036854775809", &"9".repeat(4300)]
        {
            assert_eq!(read(literal).to_string(), literal);
        }
    }

    #[test]
    fn sbp_l3_04_minus_zero_is_zero() {
        assert_eq!(read("-0"), Int::from(0i64));
        assert_eq!(read("-0").to_string(), "0");
    }

    #[test]
    fn sbp_l3_04_the_digit_limit_does_not_count_the_sign() {
        assert!(Int::from_literal(&format!("-{}", "1".repeat(4300))).is_some());
        assert!(Int::from_literal(&"1".repeat(4301)).is_none());
    }

    #[test]
    fn one_integer_has_one_form() {
        assert_eq!(Int::from(u64::MAX), read("18446744073709551615"));
        assert_eq!(Int::from(7u64), read("7"));
        assert_eq!(read("9223372036854775808").as_i64(), None);
        assert_eq!(read(&"9".repeat(400)).to_f64(), f64::INFINITY);
    }
}
