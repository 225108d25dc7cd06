//! The audit: what was done at the gateway, and by whom.

use std::time::Duration;

use bowline_net::duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAY: u64 = 24 * 3600;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// Whether anything is recorded.
    pub enabled: bool,
    /// How long entries are kept; also in days: `365d`.
    #[serde(serialize_with = "in_days", deserialize_with = "days")]
    pub keep: Duration,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { enabled: true, keep: Duration::from_secs(365 * DAY) }
    }
}

fn in_days<S: Serializer>(keep: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let seconds = keep.as_secs();
    match seconds > 0 && seconds.is_multiple_of(DAY) && keep.subsec_nanos() == 0 {
        true => to.serialize_str(&format!("{}d", seconds / DAY)),
        false => duration::serialize(keep, to),
    }
}

fn days<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let days = text.trim().strip_suffix('d').and_then(|days| days.trim().parse::<u32>().ok());
    match days {
        Some(days) => Ok(Duration::from_secs(u64::from(days) * DAY)),
        None => duration::parse(&text).map_err(serde::de::Error::custom),
    }
}
