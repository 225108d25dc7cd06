//! The gateway's identity on disk: `identity.key` in the data folder, made at the first start.
//!
//! Apart from the database, so that a copy of the database alone cannot sign in the gateway's name.
//! 32 random bytes as one line of base64url. Only its owner may read the file: one with wider
//! permissions is refused, not repaired, because others may have the key already.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_sbp::gateway_key::GatewayIdentity;
use zeroize::Zeroizing;

/// The file in the data folder.
pub const IDENTITY_FILE: &str = "identity.key";
/// More than this is no identity.
const MOST: u64 = 256;

/// Why the identity was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} holds no identity of a gateway", path.display())]
    Malformed { path: PathBuf },
    #[error("the operating system gives no random bytes")]
    NoEntropy,
}

impl IdentityFileError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Malformed { path } => format!(
                "restore {} from a backup, or remove it: the gateway then signs with a new key",
                path.display()
            ),
            Self::NoEntropy => "try again".into(),
        }
    }
}

/// The identity of a data folder; none before the first start.
pub fn load(folder: &Path) -> Result<Option<GatewayIdentity>, IdentityFileError> {
    Ok(load_seed(folder)?.map(|seed| GatewayIdentity::from_seed(&seed)))
}

/// What the identity of a data folder is made of; none before the first start.
pub fn load_seed(folder: &Path) -> Result<Option<Zeroizing<[u8; 32]>>, IdentityFileError> {
    let path = folder.join(IDENTITY_FILE);
    match private_file::read(&path, MOST)? {
        None => Ok(None),
        Some(text) => parse(&text).map(Some).ok_or(IdentityFileError::Malformed { path }),
    }
}

/// The identity of a data folder; made if there is none.
pub fn load_or_make(folder: &Path) -> Result<GatewayIdentity, IdentityFileError> {
    if let Some(identity) = load(folder)? {
        return Ok(identity);
    }
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut()).map_err(|_| IdentityFileError::NoEntropy)?;
    let mut line = Zeroizing::new(URL_SAFE_NO_PAD.encode(seed.as_ref()));
    line.push('\n');
    let path = folder.join(IDENTITY_FILE);
    private_file::create(&path, line.as_bytes())?;
    // The file on disk decides: another process may have made it first.
    load(folder)?.ok_or(IdentityFileError::Malformed { path })
}

fn parse(text: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut seed = Zeroizing::new([0; 32]);
    let length = URL_SAFE_NO_PAD.decode_slice(text.trim_ascii(), seed.as_mut()).ok()?;
    (length == seed.len()).then_some(seed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn sbp_l3_16_an_identity_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap().is_none());
        let made = load_or_make(folder.path()).unwrap().public();
        assert_eq!(load_or_make(folder.path()).unwrap().public(), made);
        assert_eq!(load(folder.path()).unwrap().map(|identity| identity.public()), Some(made));
        let path = folder.path().join(IDENTITY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(load_or_make(other.path()).unwrap().public(), made);
    }

    #[test]
    fn sbp_l3_16_an_identity_that_others_can_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        load_or_make(folder.path()).unwrap();
        let path = folder.path().join(IDENTITY_FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = load_or_make(folder.path()).unwrap_err();
        assert!(matches!(refused, IdentityFileError::File(FileError::Loose { .. })), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "AAAA", &"A".repeat(44), "not base64 at all, but as long as a key is."] {
            std::fs::write(&path, wrong).unwrap();
            let refused = load_or_make(folder.path()).unwrap_err();
            assert_eq!(refused, IdentityFileError::Malformed { path: path.clone() }, "{wrong}");
        }
    }
}
