//! A cursor in the text, and the tokens it can read: strings, numbers, literals.

use super::text::Builder;
use super::{Int, ParseError, Problem, Text, Value, float, scan};

pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    /// Buffer for strings with escapes.
    builder: Builder,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, builder: Builder::default() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    pub(super) fn error(&self, problem: Problem) -> ParseError {
        ParseError { problem, at: self.at }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// A key and the colon after it.
    pub(super) fn key(&mut self) -> Result<Text<'t>, ParseError> {
        if self.peek() != Some(b'"') {
            return Err(self.error(Problem::NoKey));
        }
        let key = self.string()?;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.error(Problem::NoColon));
        }
        Ok(key)
    }

    /// A string, from its opening quote on.
    pub(super) fn string(&mut self) -> Result<Text<'t>, ParseError> {
        self.step();
        let plain = self.plain();
        if self.take(b'"') {
            return Ok(Text::from(plain));
        }
        self.builder.push_str(plain);
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.error(Problem::ControlCharacter)),
                None => return Err(self.error(Problem::OpenString)),
            }
            let plain = self.plain();
            self.builder.push_str(plain);
        }
        self.step();
        Ok(self.builder.finish())
    }

    /// The text up to the next quote, backslash or control character.
    fn plain(&mut self) -> &'t str {
        let start = self.at;
        self.at += scan::readable(&self.text.as_bytes()[start..]);
        &self.text[start..self.at]
    }

    fn escape(&mut self) -> Result<(), ParseError> {
        let char = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'u') => return self.unicode_escape(),
            Some(_) => return Err(self.error(Problem::BadEscape)),
            None => return Err(ParseError { problem: Problem::OpenString, at: self.at + 1 }),
        };
        self.builder.push(char);
        self.at += 2;
        Ok(())
    }

    /// `\uXXXX`, or two of them that form a surrogate pair. A lone surrogate is kept.
    fn unicode_escape(&mut self) -> Result<(), ParseError> {
        let unit = self.unit().ok_or_else(|| self.error(Problem::BadEscape))?;
        self.at += UNIT;
        let (char, second) = match unit {
            0xd800..0xdc00 => match self.unit() {
                Some(low @ 0xdc00..0xe000) => (joined(unit, low), UNIT),
                _ => (None, 0),
            },
            _ => (char::from_u32(unit), 0),
        };
        self.at += second;
        match char {
            Some(char) => self.builder.push(char),
            None => self.builder.push_surrogate(unit as u16),
        }
        Ok(())
    }

    /// The code unit of a `\uXXXX` at the cursor.
    fn unit(&self) -> Option<u32> {
        let escape = self.text.as_bytes().get(self.at..self.at + UNIT)?;
        let digits = escape.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }

    /// A value that is neither string nor container.
    pub(super) fn scalar(&mut self) -> Result<Value<'t>, ParseError> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.name("null", Value::Null),
            Some(b't') => self.name("true", Value::Bool(true)),
            Some(b'f') => self.name("false", Value::Bool(false)),
            Some(b'N') => self.name("NaN", Value::Float(f64::NAN)),
            Some(b'I') => self.name("Infinity", Value::Float(f64::INFINITY)),
            _ => Err(self.error(Problem::NoValue)),
        }
    }

    fn name(&mut self, name: &str, value: Value<'t>) -> Result<Value<'t>, ParseError> {
        if !self.text.as_bytes()[self.at..].starts_with(name.as_bytes()) {
            return Err(self.error(Problem::NoValue));
        }
        self.at += name.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value<'t>, ParseError> {
        let start = self.at;
        self.take(b'-');
        match self.peek() {
            Some(b'0') => self.step(),
            Some(b'1'..=b'9') => self.at += self.digits(self.at),
            Some(b'I') => return self.name("Infinity", Value::Float(f64::NEG_INFINITY)),
            _ => return Err(ParseError { problem: Problem::NoValue, at: start }),
        }
        // A point or an `e` without digits is not part of the number; the container then refuses
        // it as trailing text.
        let end_of_int = self.at;
        if self.peek() == Some(b'.') && self.digits(self.at + 1) > 0 {
            self.at += 1 + self.digits(self.at + 1);
        }
        if let Some(b'e' | b'E') = self.peek() {
            let sign = self.text.as_bytes().get(self.at + 1);
            let digits_at = self.at + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
            let digits = self.digits(digits_at);
            if digits > 0 {
                self.at = digits_at + digits;
            }
        }
        let literal = &self.text[start..self.at];
        if self.at > end_of_int {
            return Ok(Value::Float(float::read(literal)));
        }
        let int = Int::from_literal(literal);
        int.map(Value::Int).ok_or(ParseError { problem: Problem::LongInteger, at: start })
    }

    /// The number of digits at a position.
    fn digits(&self, at: usize) -> usize {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }
}

fn joined(high: u32, low: u32) -> Option<char> {
    char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))
}

/// The length of `\uXXXX`.
const UNIT: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Value::parse(text).unwrap().to_canonical()
    }

    fn problem(text: &str) -> (Problem, usize) {
        let error = Value::parse(text).unwrap_err();
        (error.problem, error.at)
    }

    #[test]
    fn sbp_l3_04_escapes_are_read_and_written_pythons_way() {
        assert_eq!(canonical(r#""\" \\ \/ / \b\f\n\r\t""#), r#""\" \\ / / \b\f\n\r\t""#);
        assert_eq!(
            canonical(r#""\u00E9\uABCD\u0041\u0000\u001F""#),
            r#""\u00e9\uabcdA\u0000\u001f""#
        );
        assert_eq!(canonical("\"\x7f\u{80}é世😀~\""), r#""\u007f\u0080\u00e9\u4e16\ud83d\ude00~""#);
    }

    #[test]
    fn sbp_l3_04_surrogates_pair_up_or_stay_halves() {
        let joined = Value::parse(r#""\uD83D\uDE00""#).unwrap();
        assert_eq!(joined.as_str(), Some("😀"));
        for halves in [
            r#""\ud800""#,
            r#""\udc00x""#,
            r#""\ude00\ud83d""#,
            r#""\ud83d\ud83d\ude00""#,
            r#""\ud800A\n\u00e9""#,
            r#""\ud800\ue000""#,
            r#""\ud800\\udc00""#,
        ] {
            assert_eq!(canonical(halves), halves);
            assert_eq!(Value::parse(halves).unwrap().as_str(), None);
        }
    }

    #[test]
    fn sbp_l3_04_what_python_refuses_in_strings_is_refused() {
        assert_eq!(problem("\"a\nb\""), (Problem::ControlCharacter, 2));
        assert_eq!(problem("\"\0\""), (Problem::ControlCharacter, 1));
        assert_eq!(problem(r#""\x41""#), (Problem::BadEscape, 1));
        assert_eq!(problem(r#""\u12""#), (Problem::BadEscape, 1));
        assert_eq!(problem(r#""\u12g4""#), (Problem::BadEscape, 1));
        assert_eq!(problem(r#""\u+123""#), (Problem::BadEscape, 1));
        assert_eq!(problem(r#""\ud800\u12""#), (Problem::BadEscape, 7));
        assert_eq!(problem("\"\\u123é\""), (Problem::BadEscape, 1));
        assert_eq!(problem("\"abc"), (Problem::OpenString, 4));
        assert_eq!(problem("\"\\"), (Problem::OpenString, 2));
    }

    #[test]
    fn sbp_l3_04_numbers_are_read_pythons_way() {
        assert_eq!(
            canonical("[-0, -0.0, 0e5, 1E400, -1e400]"),
            "[0, -0.0, 0.0, Infinity, -Infinity]"
        );
        assert_eq!(canonical("[NaN,Infinity,-Infinity]"), "[NaN, Infinity, -Infinity]");
        assert_eq!(canonical("[1,1.0,1e0,10.0E-1]"), "[1, 1.0, 1.0, 1.0]");
        let longest = "9".repeat(4300);
        assert_eq!(canonical(&longest), longest);
        assert_eq!(problem(&"9".repeat(4301)), (Problem::LongInteger, 0));
    }

    #[test]
    fn sbp_l3_04_what_python_refuses_in_numbers_is_refused() {
        for text in [
            "01",
            "-01",
            "00",
            ".5",
            "1.",
            "1.e5",
            "1e",
            "1e+",
            "+1",
            "-",
            "--1",
            "0x10",
            "1_000",
            "1.5.5",
            "- 1",
            "nan",
            "inf",
            "-NaN",
            "+Infinity",
            "Infinit",
            "NaNs",
            "nul",
            "True",
        ] {
            assert!(Value::parse(text).is_err(), "{text}");
            assert!(Value::parse(&format!("[{text}]")).is_err(), "[{text}]");
        }
    }
}
