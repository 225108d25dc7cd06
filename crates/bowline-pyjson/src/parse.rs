//! The parser of arrays and objects.
//!
//! Iterative: open arrays and objects are kept in a `Vec`, so depth costs bounded memory, never
//! stack. Finished parts are collected in two shared buffers, from which each container takes its
//! tail in one exact allocation when it closes.

use super::cursor::Cursor;
use super::{MAX_VALUES, Object, ParseError, Problem, Text, Value};

/// Parses one document that is nested at most `depth` deep.
pub(super) fn parse(text: &str, depth: usize) -> Result<Value<'_>, ParseError> {
    let mut parser = Parser {
        cursor: Cursor::new(text),
        depth,
        values: 0,
        open: Vec::new(),
        items: Vec::new(),
        members: Vec::new(),
    };
    let value = parser.value()?;
    if !parser.cursor.is_at_end() {
        return Err(parser.cursor.error(Problem::TrailingText));
    }
    Ok(value)
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    depth: usize,
    /// The number of values so far, limited because a value takes more memory than its text may.
    values: usize,
    open: Vec<Open>,
    /// Finished items of the open arrays, outermost first.
    items: Vec<Value<'t>>,
    /// Members of the open objects, outermost first; the last one of each waits for its value.
    members: Vec<(Text<'t>, Value<'t>)>,
}

/// A container whose end has not been read, and where its part of the shared buffer begins.
enum Open {
    Array { start: usize },
    Object { start: usize },
}

/// What follows a finished value.
enum Then<'t> {
    /// Its container continues.
    Value,
    /// Its container ended, and is itself a finished value.
    Closed(Value<'t>),
    /// It is the outermost value.
    Done(Value<'t>),
}

impl<'t> Parser<'t> {
    /// The outermost value, and the space after it.
    fn value(&mut self) -> Result<Value<'t>, ParseError> {
        loop {
            self.cursor.skip_space();
            // `None`: a container was opened, and its first value comes next.
            let Some(mut value) = self.begin()? else { continue };
            loop {
                self.cursor.skip_space();
                match self.hand_over(value)? {
                    Then::Value => break,
                    Then::Closed(container) => value = container,
                    Then::Done(value) => return Ok(value),
                }
            }
        }
    }

    fn begin(&mut self) -> Result<Option<Value<'t>>, ParseError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.cursor.error(Problem::TooMany));
        }
        let value = match self.cursor.peek() {
            Some(b'"') => Value::String(self.cursor.string()?),
            Some(b'{') => return self.open_object(),
            Some(b'[') => return self.open_array(),
            _ => self.cursor.scalar()?,
        };
        Ok(Some(value))
    }

    fn open_array(&mut self) -> Result<Option<Value<'t>>, ParseError> {
        self.descend()?;
        if self.cursor.take(b']') {
            return Ok(Some(Value::Array(Vec::new())));
        }
        self.open.push(Open::Array { start: self.items.len() });
        Ok(None)
    }

    fn open_object(&mut self) -> Result<Option<Value<'t>>, ParseError> {
        self.descend()?;
        if self.cursor.take(b'}') {
            return Ok(Some(Value::Object(Object::new())));
        }
        self.open.push(Open::Object { start: self.members.len() });
        self.begin_member()?;
        Ok(None)
    }

    /// Reads a key; null is its placeholder until the value is read.
    fn begin_member(&mut self) -> Result<(), ParseError> {
        let key = self.cursor.key()?;
        self.members.push((key, Value::Null));
        Ok(())
    }

    /// Skips an opening bracket and the white space after it.
    fn descend(&mut self) -> Result<(), ParseError> {
        if self.open.len() >= self.depth {
            return Err(self.cursor.error(Problem::TooDeep { limit: self.depth }));
        }
        self.cursor.step();
        self.cursor.skip_space();
        Ok(())
    }

    /// Adds a finished value to its container, and closes the container if it ends here.
    fn hand_over(&mut self, value: Value<'t>) -> Result<Then<'t>, ParseError> {
        let closed = match self.open.last() {
            None => return Ok(Then::Done(value)),
            Some(Open::Array { start }) => {
                self.items.push(value);
                if self.cursor.take(b',') {
                    return Ok(Then::Value);
                }
                if !self.cursor.take(b']') {
                    return Err(self.cursor.error(Problem::OpenArray));
                }
                Value::Array(self.items.split_off(*start))
            }
            Some(Open::Object { start }) => {
                // Members of inner objects were removed when those closed.
                if let Some((_, waiting)) = self.members.last_mut() {
                    *waiting = value;
                }
                if self.cursor.take(b',') {
                    self.cursor.skip_space();
                    self.begin_member()?;
                    return Ok(Then::Value);
                }
                if !self.cursor.take(b'}') {
                    return Err(self.cursor.error(Problem::OpenObject));
                }
                Value::Object(Object::from_members(self.members.split_off(*start)))
            }
        };
        self.open.pop();
        Ok(Then::Closed(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DEFAULT_DEPTH, MAX_DEPTH};
    use super::*;

    #[test]
    fn g11_a_document_of_many_tiny_values_is_refused() {
        let many = |n: usize| format!("[{}]", vec!["0"; n].join(","));
        assert!(parse(&many(1000), 9).is_ok());
        let error = parse(&many(MAX_VALUES), 9).unwrap_err();
        assert_eq!(error.problem, Problem::TooMany);
    }

    fn problem(text: &str) -> (Problem, usize) {
        let error = Value::parse(text).unwrap_err();
        (error.problem, error.at)
    }

    #[test]
    fn sbp_l3_04_space_is_dropped_and_order_kept_until_writing() {
        let value = Value::parse("\n{ \"b\" :\t1 ,\r\n \"a\": [ 1 , [ ] , { } ] }\n").unwrap();
        assert_eq!(value.to_json(), r#"{"b":1,"a":[1,[],{}]}"#);
        assert_eq!(value.to_canonical(), r#"{"a": [1, [], {}], "b": 1}"#);
    }

    #[test]
    fn errors_say_what_and_where() {
        assert_eq!(problem(""), (Problem::NoValue, 0));
        assert_eq!(problem("\u{feff}{}"), (Problem::NoValue, 0));
        assert_eq!(problem("[1,]"), (Problem::NoValue, 3));
        assert_eq!(problem("[1 2]"), (Problem::OpenArray, 3));
        assert_eq!(problem("[1"), (Problem::OpenArray, 2));
        assert_eq!(problem("{,}"), (Problem::NoKey, 1));
        assert_eq!(problem("{\"a\":1,}"), (Problem::NoKey, 7));
        assert_eq!(problem("{\"a\" 1}"), (Problem::NoColon, 5));
        assert_eq!(problem("{\"a\":1]"), (Problem::OpenObject, 6));
        assert_eq!(problem("{} x"), (Problem::TrailingText, 3));
        assert_eq!(Value::parse("[1,]").unwrap_err().to_string(), "a value is missing at byte 3");
        let error = Value::parse_bytes(b"\"a\xff\"").unwrap_err();
        assert_eq!(error, ParseError { problem: Problem::NotUtf8, at: 2 });
    }

    #[test]
    fn g11_nesting_is_refused_by_error_and_never_by_the_stack() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Value::parse(&nested(DEFAULT_DEPTH)).is_ok());
        let too_deep = Problem::TooDeep { limit: DEFAULT_DEPTH };
        assert_eq!(problem(&nested(DEFAULT_DEPTH + 1)), (too_deep, DEFAULT_DEPTH));
        assert_eq!(problem(&"[".repeat(1 << 20)), (too_deep, DEFAULT_DEPTH));
        assert_eq!(problem(&"{\"a\":".repeat(1 << 20)), (too_deep, 5 * DEFAULT_DEPTH));

        let deepest = nested(MAX_DEPTH);
        let value = Value::parse_within(&deepest, usize::MAX).unwrap();
        assert_eq!(value.to_canonical(), deepest);
        assert!(Value::parse_within(&nested(MAX_DEPTH + 1), usize::MAX).is_err());
        assert!(Value::parse_within("7", 0).is_ok());
        assert!(Value::parse_within("[]", 0).is_err());
    }

    #[test]
    fn a_million_equal_keys_cost_no_more_than_sorting_them() {
        let text = format!("{{{}\"k\":-1}}", "\"k\":0,".repeat(1 << 18));
        assert_eq!(Value::parse(&text).unwrap().to_json(), r#"{"k":-1}"#);
        let distinct: Vec<_> = (0..1 << 16).map(|n| format!("\"{n:x}\":{n}")).collect();
        let text = format!("{{{}}}", distinct.join(","));
        let value = Value::parse(&text).unwrap();
        assert_eq!(value.as_object().map(Object::len), Some(1 << 16));
    }
}
