//! A daemon's identity on disk: 32 random bytes, generated once (SBRP-DAEMON-01).
//!
//! One line of base64url. Anyone who has it can impersonate the daemon, so only its owner may read
//! the file. A file with wider permissions is refused, not repaired: the secret may be known
//! already.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_sbrp::identity::IdentitySecret;
use zeroize::Zeroizing;

/// Why no identity could be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds no identity, or was damaged.
    #[error("{} holds no identity", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    NoEntropy,
}

impl IdentityError {
    /// What the user can do about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Malformed { .. } => {
                "restore it from a backup, or move it away to become a new daemon".into()
            }
            Self::NoEntropy => "try again".into(),
        }
    }
}

/// Loads the identity from this file, or generates it if the file does not exist.
pub fn load_or_create(path: &Path) -> Result<IdentitySecret, IdentityError> {
    if let Some(text) = private_file::read(path, MOST)? {
        return parse(&text).ok_or_else(|| IdentityError::Malformed { path: path.to_owned() });
    }
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut()).map_err(|_| IdentityError::NoEntropy)?;
    let mut line = Zeroizing::new(URL_SAFE_NO_PAD.encode(seed.as_ref()));
    line.push('\n');
    private_file::create(path, line.as_bytes())?;
    // The file on disk decides: another process may have created it first.
    let text = private_file::read(path, MOST)?;
    let secret = text.and_then(|text| parse(&text));
    secret.ok_or_else(|| IdentityError::Malformed { path: path.to_owned() })
}

fn parse(text: &[u8]) -> Option<IdentitySecret> {
    let mut seed = Zeroizing::new([0; 32]);
    let length = URL_SAFE_NO_PAD.decode_slice(text.trim_ascii(), seed.as_mut()).ok()?;
    (length == seed.len()).then(|| IdentitySecret::from_seed(&seed))
}

const MOST: u64 = 256;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sbrp_daemon_01_an_identity_is_made_once_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        let first = load_or_create(&path).unwrap().public();
        assert_eq!(load_or_create(&path).unwrap().public(), first);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let other = load_or_create(&folder.path().join("other")).unwrap().public();
        assert_ne!(other, first);
    }

    #[test]
    fn sbrp_daemon_01_an_identity_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = load_or_create(&path).unwrap_err();
            let shown = path.display();
            assert_eq!(error.to_string(), format!("others can read {shown} (mode {mode:o})"));
            assert_eq!(error.hint(), format!("run `chmod 600 {shown}`"));
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        load_or_create(&path).unwrap();
    }

    #[test]
    fn what_is_no_identity_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        for text in ["", "short", &"A".repeat(42), &"A".repeat(44), &"!".repeat(43)] {
            private_file::replace(&path, text.as_bytes()).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert_eq!(error, IdentityError::Malformed { path: path.clone() }, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
