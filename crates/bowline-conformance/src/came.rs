//! Something that came from the server, and what it should have been.

use serde_json::Value;

use crate::verdict::{Ended, Finding, Stop};

/// A JSON value that came: the body of an answer, or a frame.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    /// What it is the answer to.
    pub(crate) sent: String,
    pub(crate) json: Value,
    /// How a report shows it.
    pub(crate) shown: String,
}

impl Came {
    /// The finding that something else was expected.
    pub(crate) fn wrong(&self, expected: impl Into<String>) -> Stop {
        Stop::broken(&self.sent, expected, &self.shown)
    }

    /// The finding that the server does not have an optional part at all.
    pub(crate) fn not_offered(&self, expected: impl Into<String>) -> Stop {
        Stop::NotOffered(Finding::new(&self.sent, expected, format!("not offered: {}", self.shown)))
    }

    /// The finding that the server has something in another form than the suite.
    pub(crate) fn other_form(&self, expected: impl Into<String>) -> Stop {
        Stop::OtherForm(Finding::new(&self.sent, expected, &self.shown))
    }

    /// Fails unless it is so.
    pub(crate) fn holds(&self, is: bool, expected: &str) -> Ended {
        if is { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// The first of these fields that is there. Several names, because the protocol's versions have
    /// different ones.
    pub(crate) fn field(&self, names: &[&str]) -> Result<&Value, Stop> {
        let found = names.iter().find_map(|name| self.json.pointer(name));
        found.ok_or_else(|| self.wrong(format!("a field {}", either(names))))
    }

    /// The same, a text that is not empty.
    pub(crate) fn text(&self, names: &[&str]) -> Result<&str, Stop> {
        let found = names.iter().find_map(|name| self.json.pointer(name)?.as_str());
        let found = found.filter(|text| !text.is_empty());
        found.ok_or_else(|| self.wrong(format!("a text in {}", either(names))))
    }

    /// The same, a whole number.
    pub(crate) fn number(&self, names: &[&str]) -> Result<u64, Stop> {
        let found = names.iter().find_map(|name| self.json.pointer(name)?.as_u64());
        found.ok_or_else(|| self.wrong(format!("a whole number in {}", either(names))))
    }

    /// The same, a list.
    pub(crate) fn list(&self, names: &[&str]) -> Result<&Vec<Value>, Stop> {
        let found = names.iter().find_map(|name| self.json.pointer(name)?.as_array());
        found.ok_or_else(|| self.wrong(format!("a list in {}", either(names))))
    }

    /// Fails unless the field has that value.
    pub(crate) fn is(&self, names: &[&str], expected: impl Into<Value>) -> Ended {
        let expected = expected.into();
        let found = names.iter().any(|name| self.json.pointer(name) == Some(&expected));
        self.holds(found, &format!("{} = {expected}", either(names)))
    }

    /// The frame's `type`.
    pub(crate) fn kind(&self) -> &str {
        self.json["type"].as_str().unwrap_or_default()
    }
}

/// Field names as people write them.
fn either(names: &[&str]) -> String {
    let plain = |name: &&str| format!("`{}`", name.trim_start_matches('/').replace('/', "."));
    names.iter().map(plain).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn came(json: Value) -> Came {
        Came { sent: "GET /x".into(), shown: json.to_string(), json }
    }

    #[test]
    fn either_name_of_a_field_is_accepted() {
        let count = ["/queued_turns", "/tether_turns_pending"];
        assert_eq!(came(json!({ "tether_turns_pending": 2 })).number(&count), Ok(2));
        assert_eq!(came(json!({ "queued_turns": 0 })).number(&count), Ok(0));
        let Err(Stop::Broken(finding)) = came(json!({ "queued_turns": "2" })).number(&count) else {
            panic!("a text is no number");
        };
        assert_eq!(finding.expected, "a whole number in `queued_turns` or `tether_turns_pending`");
        assert_eq!(finding.sent, "GET /x");
    }

    #[test]
    fn a_value_has_to_be_equal() {
        let came = came(json!({ "sbp": { "step_count": 1 } }));
        assert!(came.is(&["/sbp/step_count"], 1).is_ok());
        assert!(came.is(&["/sbp/step_count"], 2).is_err());
        assert!(came.field(&["/sbp/session_id"]).is_err());
    }
}
