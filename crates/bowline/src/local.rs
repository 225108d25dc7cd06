//! What a gateway leaves in its data folder for its owner's other commands: a key, and where it
//! listens.
//!
//! Whoever can read the folder owns the data anyway, so the key gives nothing away. It is what
//! lets `bowline chat` just work, also when API keys are on.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use serde::{Deserialize, Serialize};

const KEY: &str = "local.key";
const RUNNING: &str = "running.json";

/// Where the gateway of a data folder listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) pid: u32,
}

/// A random secret as text.
pub(crate) fn random_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The folder's key, made on the first start.
pub(crate) fn key_or_make(folder: &Path) -> Result<String, FileError> {
    if let Some(key) = key(folder) {
        return Ok(key);
    }
    let key = random_secret();
    private_file::replace(&folder.join(KEY), key.as_bytes())?;
    Ok(key)
}

/// The folder's key, if there is one that we may read.
pub(crate) fn key(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(KEY)).ok()?;
    Some(text.trim().to_owned()).filter(|key| key.len() >= 32)
}

/// Notes where the gateway listens.
pub(crate) fn announce(folder: &Path, url: &str) -> Result<(), FileError> {
    let running = Running { url: url.to_owned(), pid: std::process::id() };
    let json = serde_json::to_vec(&running).unwrap_or_default();
    private_file::replace(&folder.join(RUNNING), &json)
}

pub(crate) fn retract(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(RUNNING));
}

/// Where the gateway of this folder said it listens. It may be gone since.
pub(crate) fn running(folder: &Path) -> Option<Running> {
    serde_json::from_slice(&std::fs::read(folder.join(RUNNING)).ok()?).ok()
}
