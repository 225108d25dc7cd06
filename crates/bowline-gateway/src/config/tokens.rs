//! What lies behind tokens, and how long they are valid.

use std::path::PathBuf;
use std::time::Duration;

use bowline_net::duration;
use serde::{Deserialize, Serialize};

/// Where the master secret comes from. It seals the secrets in the database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecretsConfig {
    /// A file that holds it, 0600; made at the first start. Default: `secrets.key` in the data folder;
    /// with PostgreSQL none, and the database holds it.
    pub file: Option<PathBuf>,
    /// A program and its arguments that print it: 32 bytes in base64url. Instead of `file`.
    pub command: Vec<String>,
    /// Replace what cannot be opened any more; for one start, by `--new-secrets`.
    #[serde(skip)]
    pub renew: bool,
    /// Without file and command: keep the master secret in the store, where all replicas find it. A
    /// stolen database then opens everything.
    #[serde(skip)]
    pub keep_in_store: bool,
}

impl SecretsConfig {
    /// Whether a file or a command gives the master secret.
    pub fn is_set(&self) -> bool {
        self.file.is_some() || !self.command.is_empty()
    }
}

/// How long tokens are valid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokensConfig {
    /// How long a session's token is valid after it was made or rotated. `0s`: always.
    #[serde(with = "duration")]
    pub session_ttl: Duration,
}
