//! Keeps keys and tokens out of reports.
//!
//! Reports are shown to others and kept in build logs. What a check sends and receives is full of
//! session tokens, so every text passes through [`Mask::clean`] before it becomes part of a report.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// The secrets that were seen so far.
#[derive(Debug, Default)]
pub(crate) struct Mask {
    secrets: Mutex<BTreeSet<String>>,
}

impl Mask {
    /// A secret that the caller knows to be one.
    pub(crate) fn learn(&self, secret: &str) {
        // Shorter ones are no secrets, and masking them would make texts unreadable.
        if secret.len() >= SHORTEST {
            self.lock().insert(secret.to_owned());
        }
    }

    /// Learns all texts in fields whose name says that they are secret.
    pub(crate) fn learn_from(&self, value: &Value) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::String(text) if is_secret(name) => self.learn(text),
                value => self.learn_from(value),
            }),
            Value::Array(items) => items.iter().for_each(|item| self.learn_from(item)),
            _ => {}
        }
    }

    /// The text with the secrets replaced.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        // The longest first: one may be the beginning of another.
        let secrets = self.lock();
        let mut secrets: Vec<&String> = secrets.iter().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), MASKED);
            }
        }
        clean
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a field of this name holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("token") || name.ends_with("secret") || name.ends_with("authorization")
}

/// Stands for a secret.
pub(crate) const MASKED: &str = "[masked]";
const SHORTEST: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_and_keys_are_masked_wherever_they_come_again() {
        let mask = Mask::default();
        mask.learn("the-api-key-of-the-server");
        mask.learn_from(&json!({
            "session_id": "visible",
            "sbp": { "session_token": "sbt_1234567890", "fork_session_token": "sbt_1234567890-longer" },
            "list": [{ "roaming_token": "eyJ0eXAi.eyJzdWIi.sig" }],
        }));
        let text = "GET /v1/sbp/token/eyJ0eXAi.eyJzdWIi.sig with the-api-key-of-the-server, \
                    sbt_1234567890-longer, sbt_1234567890 and visible";
        let expected = "GET /v1/sbp/token/[masked] with [masked], [masked], [masked] and visible";
        assert_eq!(mask.clean(text), expected);
    }

    #[test]
    fn short_texts_and_numbers_are_no_secrets() {
        let mask = Mask::default();
        mask.learn_from(&json!({ "session_token": "x", "tokens": 7, "total_tokens": 1000 }));
        assert_eq!(mask.clean("x 7 1000"), "x 7 1000");
    }
}
