//! Pinned identity keys of daemons: trust on first use, stored in a file (SBRP-CLIENT-01).
//!
//! `{"version": 1, "daemons": {"<daemon id>": "<key in base64url>"}}`, readable by its owner only.
//! It is read on every use and changed under a lock, so that several programs can share it. A
//! malformed file is an error and never treated as empty: that would trust the next key presented,
//! as on first use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentityKey;
use serde::{Deserialize, Serialize};

/// The store of pinned keys.
#[derive(Debug, Clone)]
pub struct Pins {
    path: Option<PathBuf>,
}

/// Why a pin was not read or stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is no list of pinned keys", path.display())]
    Malformed { path: PathBuf },
    #[error("there is no file to keep pinned keys in")]
    NowhereToKeep,
}

impl PinError {
    /// What the user can do about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Malformed { path } => format!(
                "restore {} from a backup; without it, compare fingerprints anew",
                path.display()
            ),
            Self::NowhereToKeep => "name a file for pinned keys".into(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Listed {
    version: u32,
    daemons: BTreeMap<String, String>,
}

impl Pins {
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()) }
    }

    /// A store without a file: every start trusts on first use again, and the program is told
    /// (SBRP-CLIENT-08).
    pub fn nowhere() -> Self {
        Self { path: None }
    }

    /// The pin of this daemon, if any. Reads a file: not for async code.
    pub fn trust(&self, daemon: &DaemonId) -> Result<Trust, PinError> {
        let Some(path) = &self.path else { return Ok(Trust::FirstUse) };
        let listed = read(path)?;
        let Some(text) = listed.daemons.get(daemon.as_str()) else { return Ok(Trust::FirstUse) };
        let key = parse(text).ok_or_else(|| PinError::Malformed { path: path.clone() })?;
        Ok(Trust::Key(key))
    }

    /// Pins the verified key; it is on disk when this returns. Not for async code.
    pub fn keep(&self, daemon: &DaemonId, identity: &VerifiedIdentity) -> Result<(), PinError> {
        let path = self.path.as_ref().ok_or(PinError::NowhereToKeep)?;
        let _lock = private_file::lock(&lock_of(path))?;
        let mut listed = read(path)?;
        let text = URL_SAFE_NO_PAD.encode(identity.key().as_bytes());
        let before = listed.daemons.insert(daemon.as_str().to_owned(), text.clone());
        if before.as_ref() == Some(&text) {
            return Ok(());
        }
        let json = serde_json::to_vec_pretty(&listed).expect("strings are JSON");
        Ok(private_file::replace(path, &json)?)
    }
}

fn read(path: &Path) -> Result<Listed, PinError> {
    let Some(bytes) = private_file::read(path, MOST)? else {
        return Ok(Listed { version: VERSION, daemons: BTreeMap::new() });
    };
    let listed = serde_json::from_slice(&bytes).ok();
    let listed = listed.filter(|listed: &Listed| listed.version == VERSION);
    listed.ok_or_else(|| PinError::Malformed { path: path.to_owned() })
}

fn parse(text: &str) -> Option<IdentityKey> {
    let bytes: [u8; 32] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
    IdentityKey::from_bytes(&bytes).ok()
}

/// The pin file is replaced on every change, so a lock on it would lock the old file.
fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    path.with_file_name(name)
}

const VERSION: u32 = 1;
/// Enough for about ten thousand daemons.
const MOST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use bowline_sbrp::frame::Frame;
    use bowline_sbrp::handshake::{AwaitAccept, Ephemeral, answer};
    use bowline_sbrp::id::SessionId;
    use bowline_sbrp::identity::IdentitySecret;
    use zeroize::Zeroizing;

    use super::*;

    /// Only a handshake produces a verified identity.
    fn proven(seed: u8, daemon: &DaemonId) -> VerifiedIdentity {
        let session = SessionId::from_wire(1).unwrap();
        let ephemeral = |byte| Ephemeral::from_random(Zeroizing::new([byte; 32]));
        let (waiting, init) = AwaitAccept::start(session, daemon.clone(), ephemeral(1));
        let Frame::HandshakeInit { payload, .. } = init else { panic!("{init:?}") };
        let secret = IdentitySecret::from_seed(&[seed; 32]);
        let done = answer(session, &payload, daemon, &secret, ephemeral(2)).unwrap();
        let Frame::HandshakeAccept { payload, .. } = done.accept else { panic!() };
        waiting.accept(&payload, &Trust::FirstUse).unwrap().identity
    }

    fn daemon(n: usize) -> DaemonId {
        DaemonId::new(format!("daemon {n} \"ü\""))
    }

    #[test]
    fn sbrp_client_01_pins_outlive_the_program_and_are_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        let pins = Pins::file(&path);
        assert_eq!(pins.trust(&daemon(1)), Ok(Trust::FirstUse));
        let one = proven(1, &daemon(1));
        pins.keep(&daemon(1), &one).unwrap();
        let again = Pins::file(&path);
        assert_eq!(again.trust(&daemon(1)), Ok(Trust::Key(*one.key())));
        assert_eq!(again.trust(&daemon(2)), Ok(Trust::FirstUse));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn sbrp_client_01_pins_kept_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        std::thread::scope(|scope| {
            for n in 0..8 {
                let pins = Pins::file(&path);
                scope.spawn(move || pins.keep(&daemon(n), &proven(1, &daemon(n))).unwrap());
            }
        });
        let pins = Pins::file(&path);
        for n in 0..8 {
            assert!(matches!(pins.trust(&daemon(n)), Ok(Trust::Key(_))), "{n}");
        }
    }

    #[test]
    fn sbrp_client_02_a_list_that_cannot_be_read_is_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        let malformed = || PinError::Malformed { path: path.clone() };
        let pins = Pins::file(&path);
        let weak = format!(r#"{{"version":1,"daemons":{{"d":"{}"}}}}"#, "A".repeat(43));
        for text in ["", "{", "[]", r#"{"version":2,"daemons":{}}"#, &weak] {
            private_file::replace(&path, text.as_bytes()).unwrap();
            assert_eq!(pins.trust(&DaemonId::new("d")), Err(malformed()), "{text}");
        }
        private_file::replace(&path, b"{").unwrap();
        assert_eq!(pins.keep(&daemon(1), &proven(1, &daemon(1))), Err(malformed()));
        assert_eq!(std::fs::read(&path).unwrap(), b"{", "and it is left alone");
    }

    #[test]
    fn sbrp_client_08_without_a_file_nothing_is_said_to_be_kept() {
        let kept = Pins::nowhere().keep(&daemon(1), &proven(1, &daemon(1)));
        assert_eq!(kept, Err(PinError::NowhereToKeep));
    }
}
