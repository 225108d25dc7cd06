//! Translation of answers for small devices.

use std::time::Duration;

use bowline_net::duration;
use serde::{Deserialize, Serialize};

use super::matches;

/// Translation: a model rewrites each answer for the small device it is delivered to (SBP-L4-03).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Translate {
    /// The model that rewrites; an upstream has to serve it. Empty: translation is off.
    pub model: String,
    /// Device types that get translations; `*` matches anything.
    pub devices: Vec<String>,
    /// Agents whose sessions are translated; `*` matches anything.
    pub agents: Vec<String>,
    /// How long the first text of a translation may take. Then the answer is delivered as the
    /// formatting rules adapt it.
    #[serde(with = "duration")]
    pub first_token: Duration,
    /// How long a whole translation may take. Then the same.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Concurrent translations; further answers are delivered as the formatting rules adapt them.
    pub passes: usize,
}

impl Default for Translate {
    fn default() -> Self {
        Self {
            model: String::new(),
            devices: ["mobile", "iot", "watch", "voice"].map(str::to_owned).to_vec(),
            agents: vec!["*".into()],
            first_token: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            passes: 16,
        }
    }
}

impl Translate {
    /// Whether turns of that agent are translated for that kind of device.
    pub fn serves(&self, agent: &str, device: &str) -> bool {
        let device = device.to_ascii_lowercase();
        !self.model.is_empty()
            && self.agents.iter().any(|pattern| matches(pattern, agent))
            && self.devices.iter().any(|pattern| matches(&pattern.to_ascii_lowercase(), &device))
    }
}
