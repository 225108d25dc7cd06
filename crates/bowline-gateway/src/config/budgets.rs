//! Budgets of all users and keys that were given none of their own.

use bowline_sbp::budget::{Budget, BudgetLimits, usd_micros};
use serde::{Deserialize, Serialize};

/// Limits of members and of their keys. An owner, and an owner's keys, have only their own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetsConfig {
    /// Each member, with all keys and tokens together.
    pub user: DefaultLimits,
    /// Each key of a member.
    pub key: DefaultLimits,
}

/// What is not set is not limited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultLimits {
    /// Requests, and messages of surfaces, in a minute of the clock.
    pub requests_per_minute: Option<u64>,
    /// Turns that run at the same time.
    pub turns_at_once: Option<u64>,
    /// Tokens of prompts and answers in a UTC day.
    pub tokens_per_day: Option<u64>,
    /// US dollars in a UTC day. Models without a known price cost nothing.
    pub usd_per_day: Option<f64>,
    /// Bytes of the user's sessions.
    pub stored_bytes: Option<u64>,
    /// Exports in a UTC day.
    pub exports_per_day: Option<u64>,
}

impl DefaultLimits {
    pub(crate) fn limits(&self) -> BudgetLimits {
        BudgetLimits::default()
            .with(Budget::Requests, self.requests_per_minute)
            .with(Budget::Turns, self.turns_at_once)
            .with(Budget::Tokens, self.tokens_per_day)
            .with(Budget::Usd, self.usd_per_day.map(usd_micros))
            .with(Budget::Stored, self.stored_bytes)
            .with(Budget::Exports, self.exports_per_day)
    }
}
