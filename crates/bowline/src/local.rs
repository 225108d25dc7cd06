//! Files in the data folder by which other commands find the gateway: an API key, and the address
//! it listens on.
//!
//! Who can read the folder can read all data anyway, so the key gives no further access. With it
//! `bowline chat` works without --url and --key, also if the gateway requires API keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use serde::{Deserialize, Serialize};

const KEY: &str = "local.key";
const RUNNING: &str = "running.json";

/// The address and process id of the gateway of a data folder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    /// Where commands on this machine reach it.
    pub(crate) url: String,
    /// What it listens on. Unknown of a gateway of an older version.
    #[serde(default)]
    pub(crate) listen: Option<SocketAddr>,
    /// Names and addresses of its upstreams, without credentials.
    #[serde(default)]
    pub(crate) upstreams: Vec<(String, String)>,
    pub(crate) pid: u32,
    /// The public key with which it signs. Unknown of a gateway of an older version.
    #[serde(default)]
    pub(crate) identity: Option<String>,
}

/// The file of the data folder's API key.
pub(crate) fn key_file(folder: &Path) -> PathBuf {
    folder.join(KEY)
}

/// 256 random bits as base64url.
pub(crate) fn random_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The data folder's API key; created on the first start.
pub(crate) fn key_or_make(folder: &Path) -> Result<String, FileError> {
    if let Some(key) = key(folder) {
        return Ok(key);
    }
    let key = random_secret();
    private_file::replace(&key_file(folder), key.as_bytes())?;
    Ok(key)
}

/// The data folder's API key, if there is one and it is readable.
pub(crate) fn key(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(key_file(folder)).ok()?;
    Some(text.trim().to_owned()).filter(|key| key.len() >= 32)
}

/// Writes the gateway's address to its data folder.
pub(crate) fn announce(folder: &Path, running: &Running) -> Result<(), FileError> {
    let json = serde_json::to_vec(running).unwrap_or_default();
    private_file::replace(&folder.join(RUNNING), &json)
}

pub(crate) fn retract(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(RUNNING));
}

/// The address that the gateway of this folder wrote. It may have stopped since.
pub(crate) fn running(folder: &Path) -> Option<Running> {
    serde_json::from_slice(&std::fs::read(folder.join(RUNNING)).ok()?).ok()
}
