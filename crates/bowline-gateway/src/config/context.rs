//! Conversations that no longer fit their model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What happens when a conversation is too long.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextConfig {
    /// `trim`: the model is not sent the oldest turns; the log stays whole. `error`: the server's
    /// refusal goes to the caller.
    pub policy: ContextPolicy,
    /// Tokens of prompt and answer together, by model pattern. For other models it is learned from
    /// what their server refuses.
    pub tokens: BTreeMap<String, u64>,
}

/// See [`ContextConfig::policy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextPolicy {
    #[default]
    Trim,
    Error,
}
