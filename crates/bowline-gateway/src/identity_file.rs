//! The gateway's identity on disk: `identity.key` in the data folder, made at the first start.
//!
//! Apart from the database, so that a copy of the database alone cannot sign in the gateway's name.
//! 32 random bytes as one line of base64url. Only its owner may read the file: one with wider
//! permissions is refused, not repaired, because others may have the key already.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_sbp::federation::{GatewayId, PreviousKey, rotation};
use bowline_sbp::gateway_key::{GatewayIdentity, GatewayKey};
use jiff::Timestamp;
use zeroize::Zeroizing;

/// The file in the data folder.
pub const IDENTITY_FILE: &str = "identity.key";
/// The statements of older keys of the ones after them, in the data folder.
pub const PREVIOUS_FILE: &str = "identity.previous";
/// More than this is no identity.
const MOST: u64 = 256;
const MOST_PREVIOUS: u64 = 4096;

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
    seed_at(&folder.join(IDENTITY_FILE))
}

fn seed_at(path: &Path) -> Result<Option<Zeroizing<[u8; 32]>>, IdentityFileError> {
    let malformed = || IdentityFileError::Malformed { path: path.to_owned() };
    match private_file::read(path, MOST)? {
        None => Ok(None),
        Some(text) => parse(&text).map(Some).ok_or_else(malformed),
    }
}

/// The identity of a data folder; made if there is none.
pub fn load_or_make(folder: &Path) -> Result<GatewayIdentity, IdentityFileError> {
    load_or_make_at(&folder.join(IDENTITY_FILE))
}

/// The identity in this file; made if there is none.
pub fn load_or_make_at(path: &Path) -> Result<GatewayIdentity, IdentityFileError> {
    if let Some(seed) = seed_at(path)? {
        return Ok(GatewayIdentity::from_seed(&seed));
    }
    let (_, line) = fresh()?;
    private_file::create(path, line.as_bytes())?;
    // The file on disk decides: another process may have made it first.
    let seed = seed_at(path)?;
    let seed = seed.ok_or_else(|| IdentityFileError::Malformed { path: path.to_owned() })?;
    Ok(GatewayIdentity::from_seed(&seed))
}

/// The older keys whose statements still count at that time.
pub fn load_previous(folder: &Path, now: Timestamp) -> Result<Vec<PreviousKey>, IdentityFileError> {
    let path = folder.join(PREVIOUS_FILE);
    let Some(text) = private_file::read(&path, MOST_PREVIOUS)? else { return Ok(Vec::new()) };
    let all = std::str::from_utf8(&text).ok().and_then(statements);
    let mut all = all.ok_or(IdentityFileError::Malformed { path })?;
    all.retain(|previous| previous.until > now.as_second());
    Ok(all)
}

/// Replaces the identity of a data folder. The old key signs that the new one is that gateway's, which the manifest
/// shows until then: who knows the old key accepts the new one. Returns both public keys.
pub fn rotate(
    folder: &Path,
    gateway: &GatewayId,
    until: Timestamp,
    now: Timestamp,
) -> Result<(GatewayKey, GatewayKey), IdentityFileError> {
    let old = load_or_make(folder)?;
    let (seed, line) = fresh()?;
    let new = GatewayIdentity::from_seed(&seed).public();
    let mut all = load_previous(folder, now)?;
    all.push(PreviousKey::sign(&old, gateway, &new, until));
    let newest = all.len().saturating_sub(rotation::MOST_PREVIOUS);
    let text = statements_text(&all[newest..]);
    // The statement first: of a key that is not used yet it says nothing to anybody.
    private_file::replace(&folder.join(PREVIOUS_FILE), text.as_bytes())?;
    private_file::replace(&folder.join(IDENTITY_FILE), line.as_bytes())?;
    Ok((old.public(), new))
}

/// Statements as lines: the key, until when it counts, and the signature.
pub(crate) fn statements_text(all: &[PreviousKey]) -> String {
    let line = |previous: &PreviousKey| {
        let signature = URL_SAFE_NO_PAD.encode(previous.signature);
        format!("{} {} {signature}\n", previous.key, previous.until)
    };
    all.iter().map(line).collect()
}

/// What [`statements_text`] wrote; none if it is something else.
pub(crate) fn statements(text: &str) -> Option<Vec<PreviousKey>> {
    text.lines().map(statement).collect()
}

fn statement(line: &str) -> Option<PreviousKey> {
    let mut words = line.split(' ');
    let (key, until) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let signature = URL_SAFE_NO_PAD.decode(words.next()?).ok()?.try_into().ok()?;
    words.next().is_none().then_some(PreviousKey { key, until, signature })
}

/// A new seed, and the line that the file has.
fn fresh() -> Result<(Zeroizing<[u8; 32]>, Zeroizing<String>), IdentityFileError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut()).map_err(|_| IdentityFileError::NoEntropy)?;
    let mut line = Zeroizing::new(URL_SAFE_NO_PAD.encode(seed.as_ref()));
    line.push('\n');
    Ok((seed, line))
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
    fn sbp_l6_01_a_rotated_identity_is_found_from_every_older_key_until_its_time_ends() {
        let folder = tempfile::tempdir().unwrap();
        let gateway: GatewayId = "home".parse().unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = load_or_make(folder.path()).unwrap().public();
        assert!(load_previous(folder.path(), at(0)).unwrap().is_empty());
        let (old, second) = rotate(folder.path(), &gateway, at(100), at(0)).unwrap();
        assert_eq!(old, first);
        assert_eq!(load(folder.path()).unwrap().unwrap().public(), second);
        let (old, third) = rotate(folder.path(), &gateway, at(200), at(50)).unwrap();
        assert_eq!(old, second);
        let kept = |now| {
            let all = load_previous(folder.path(), at(now)).unwrap();
            all.into_iter().map(|previous| previous.key).collect::<Vec<_>>()
        };
        assert_eq!(kept(99), [first, second]);
        assert_eq!(kept(100), [second]);
        assert!(kept(200).is_empty());
        let url: bowline_sbp::federation::BaseUrl = "https://home.example".parse().unwrap();
        let manifest = |now| bowline_sbp::federation::Manifest {
            gateway_id: gateway.clone(),
            gateway_name: "home".into(),
            role: bowline_sbp::federation::Role::Gateway,
            key: third,
            endpoints: bowline_sbp::federation::Endpoints::of_gateway(&url),
            url: url.clone(),
            issued_at: now,
            previous: load_previous(folder.path(), at(now)).unwrap(),
        };
        let trusts = |key, now| {
            let pin = bowline_sbp::federation::Pin { key, issued_at: 0 };
            manifest(now).trust(Some(&gateway), Some(&pin), at(now)).is_ok()
        };
        assert!(trusts(first, 99) && trusts(second, 99) && trusts(third, 500));
        assert!(!trusts(first, 100) && trusts(second, 199) && !trusts(second, 200));
        for file in [IDENTITY_FILE, PREVIOUS_FILE] {
            let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        std::fs::write(folder.path().join(PREVIOUS_FILE), "x").unwrap();
        assert!(load_previous(folder.path(), at(0)).is_err());
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
