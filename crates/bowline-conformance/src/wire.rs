//! The way to the server: shared by the check and by the requests that it has begun.

use std::sync::Arc;

use serde_json::Value;

use crate::target::Target;
use crate::transcript::{Transcript, shortened};

/// The server, and the record of what is said to it.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) target: Arc<Target>,
    pub(crate) transcript: Arc<Transcript>,
}

impl Wire {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { target, transcript: Arc::default() }
    }

    /// Records what was sent, and returns it as a report may show it.
    pub(crate) fn sent(&self, what: &str, body: Option<&Value>) -> String {
        let whole = match body {
            None => what.to_owned(),
            Some(body) => {
                self.target.mask.learn_from(body);
                format!("{what} {body}")
            }
        };
        let whole = self.clean(&whole);
        self.transcript.sent(&whole);
        whole
    }

    /// Records what came, and returns it as a report may show it.
    pub(crate) fn came(&self, what: &str, text: &str) -> (Value, String) {
        let json = serde_json::from_str(text).unwrap_or_default();
        self.target.mask.learn_from(&json);
        let whole = self.clean(format!("{what} {text}").trim());
        self.transcript.came(&whole);
        (json, whole)
    }

    /// The text without secrets, and not longer than a report should be. Masked first: half a secret
    /// would not be recognised.
    pub(crate) fn clean(&self, text: &str) -> String {
        shortened(&self.target.mask.clean(text), LONGEST)
    }
}

/// The longest text of a finding, in characters.
const LONGEST: usize = 1500;
