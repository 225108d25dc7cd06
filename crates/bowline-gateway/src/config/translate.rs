//! The second pass over answers, for small devices.

use std::time::Duration;

use bowline_net::duration;
use serde::{Deserialize, Serialize};

use super::matches;

/// The second pass over answers for small devices: a model rewrites each for the device it is
/// delivered to (SBP-L4-03).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Translate {
    /// The model that rewrites; an upstream has to serve it. Empty: none does.
    pub model: String,
    /// Device types it is done for; `*` stands for anything.
    pub devices: Vec<String>,
    /// Agents whose sessions it is done in; `*` stands for anything.
    pub agents: Vec<String>,
    /// How long the first word of a pass may take. Then the answer comes as the rules have it.
    #[serde(with = "duration")]
    pub first_token: Duration,
    /// How long a whole pass may take. The same then.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Passes at once; over it answers come as the rules have them.
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
