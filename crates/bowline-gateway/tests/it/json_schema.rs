//! A JSON Schema validator for the keywords that our one schema uses.
//!
//! Our own, because the library for it brings two dozen crates, and because this one parses bundles
//! like the gateway does: with numbers of any size and unpaired surrogates. An unknown keyword
//! fails the test, so that none is ignored.

use bowline_pyjson::{Object, Value as Instance};
use jiff::Timestamp;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    /// The violations of the schema in `text`, as `/path keyword`.
    pub(crate) fn faults(&self, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(&self.0, &Instance::parse(text).unwrap(), "", &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Instance<'_>, path: &str, faults: &mut Vec<String>) {
        let Some(rules) = schema.as_object() else {
            assert_eq!(schema, true, "the only schema that is no object");
            return;
        };
        for (keyword, rule) in rules {
            let holds = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" => true,
                // `if` decides whether it applies.
                "then" => true,
                "$ref" => {
                    let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.0.pointer(pointer).unwrap(), value, path, faults);
                    true
                }
                "if" => {
                    let mut against = Vec::new();
                    self.check(rule, value, path, &mut against);
                    if against.is_empty() {
                        self.check(&rules["then"], value, path, faults);
                    }
                    true
                }
                "properties" => {
                    for (name, rule) in rule.as_object().unwrap() {
                        if let Some(member) = value.get(name) {
                            self.check(rule, member, &format!("{path}/{name}"), faults);
                        }
                    }
                    true
                }
                "additionalProperties" => self.check_others(rules, value, path, faults),
                "items" => {
                    for (n, item) in value.as_array().unwrap_or_default().iter().enumerate() {
                        self.check(rule, item, &format!("{path}/{n}"), faults);
                    }
                    true
                }
                "required" => value.as_object().is_none_or(|object| has_all(object, rule)),
                "type" => match rule {
                    Value::Array(types) => types.iter().any(|name| is_a(value, name)),
                    name => is_a(value, name),
                },
                "const" => is_equal(value, rule),
                "enum" => rule.as_array().unwrap().iter().any(|one| is_equal(value, one)),
                "minimum" => value.as_f64().is_none_or(|n| n >= rule.as_f64().unwrap()),
                "minLength" => length(value).is_none_or(|n| n >= rule.as_u64().unwrap()),
                "maxLength" => length(value).is_none_or(|n| n <= rule.as_u64().unwrap()),
                "pattern" => value.as_str().is_none_or(|text| matches(text, rule)),
                "format" => value.as_str().is_none_or(|text| has_format(text, rule)),
                unknown => panic!("the validator does not know the keyword {unknown}"),
            };
            if !holds {
                faults.push(format!("{path} {keyword}"));
            }
        }
    }

    /// Members that `properties` beside it does not name.
    fn check_others(
        &self,
        rules: &serde_json::Map<String, Value>,
        value: &Instance<'_>,
        path: &str,
        faults: &mut Vec<String>,
    ) -> bool {
        let Some(object) = value.as_object() else { return true };
        let (rule, named) = (&rules["additionalProperties"], &rules["properties"]);
        let mut others =
            object.iter().filter(|(name, _)| named.get(&*name.to_string_lossy()).is_none());
        if rule == false {
            return others.next().is_none();
        }
        for (name, member) in others {
            self.check(rule, member, &format!("{path}/{}", name.to_string_lossy()), faults);
        }
        true
    }
}

fn has_all(object: &Object<'_>, names: &Value) -> bool {
    names.as_array().unwrap().iter().all(|name| object.get(name.as_str().unwrap()).is_some())
}

fn is_a(value: &Instance<'_>, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.as_object().is_some(),
        "array" => value.as_array().is_some(),
        "string" => value.as_text().is_some(),
        "null" => value.is_null(),
        // NaN and the infinities are Python's, not JSON's.
        "number" => value.as_f64().is_some_and(f64::is_finite),
        // `1.0` is an integer in JSON Schema.
        "integer" => value.as_f64().is_some_and(|n| n.is_finite() && n.fract() == 0.0),
        unknown => panic!("the validator does not know the type {unknown}"),
    }
}

fn is_equal(value: &Instance<'_>, other: &Value) -> bool {
    let other = other.to_string();
    value.to_canonical() == Instance::parse(&other).unwrap().to_canonical()
}

/// In characters, as JSON Schema counts.
fn length(value: &Instance<'_>) -> Option<u64> {
    value.as_text().map(|text| text.to_string_lossy().chars().count() as u64)
}

fn matches(text: &str, pattern: &Value) -> bool {
    match pattern.as_str().unwrap() {
        "^[0-9a-f]{64}$" => {
            text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        }
        base64url @ ("^[A-Za-z0-9_-]{43}$" | "^[A-Za-z0-9_-]{86}$") => {
            let length = if base64url.contains("43") { 43 } else { 86 };
            let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            text.len() == length && text.bytes().all(is_digit)
        }
        unknown => panic!("the validator does not know the pattern {unknown}"),
    }
}

fn has_format(text: &str, format: &Value) -> bool {
    match format.as_str().unwrap() {
        "date-time" => text.parse::<Timestamp>().is_ok(),
        unknown => panic!("the validator does not know the format {unknown}"),
    }
}

#[test]
fn every_keyword_takes_what_fits_and_finds_what_does_not() {
    let schema = |rules: &str| {
        let end = r#""$defs": {"word": {"type": "string"}}}"#;
        Schema::parse(&format!("{{{rules}, {end}"))
    };
    let wide = format!("\"{}\"", "0a".repeat(32));
    let narrow = format!("\"{}\"", "0A".repeat(32));
    for (rules, good, bad, fault) in [
        (r#""type": "object""#, "{}", "[]", " type"),
        (r#""type": ["array", "null"]"#, "null", "0", " type"),
        (r#""type": "number""#, "1.5", "NaN", " type"),
        (r#""type": "integer""#, "2.0", "2.5", " type"),
        (r#""const": "a""#, "\"a\"", "\"b\"", " const"),
        (r#""enum": ["a", 1]"#, "1", "2", " enum"),
        (r#""minimum": 0"#, "0", "-0.1", " minimum"),
        (r#""minLength": 1"#, "\"é\"", "\"\"", " minLength"),
        (r#""maxLength": 1"#, "\"é\"", "\"ab\"", " maxLength"),
        (r#""pattern": "^[0-9a-f]{64}$""#, wide.as_str(), narrow.as_str(), " pattern"),
        (r#""format": "date-time""#, "\"2026-03-14T08:00:00Z\"", "\"today\"", " format"),
        (r#""required": ["a"]"#, r#"{"a": 0}"#, r#"{"b": 0}"#, " required"),
        (r#""properties": {"a": {"type": "null"}}"#, r#"{"b": 0}"#, r#"{"a": 0}"#, "/a type"),
        (
            r#""properties": {"a": true}, "additionalProperties": false"#,
            r#"{"a": 0}"#,
            r#"{"b": 0}"#,
            " additionalProperties",
        ),
        (
            r##""properties": {"a": true}, "additionalProperties": {"$ref": "#/$defs/word"}"##,
            r#"{"a": 0, "b": ""}"#,
            r#"{"b": 0}"#,
            "/b type",
        ),
        (r##""items": {"$ref": "#/$defs/word"}"##, r#"["a"]"#, r#"["a", 0]"#, "/1 type"),
        (
            r#""if": {"type": "object"}, "then": {"required": ["a"]}"#,
            "7",
            r#"{"b": 0}"#,
            " required",
        ),
    ] {
        assert_eq!(schema(rules).faults(good), [""; 0], "{rules}");
        assert_eq!(schema(rules).faults(bad), [fault], "{rules}");
    }
}
