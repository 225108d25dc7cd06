//! The master secret: it seals the secrets in the database, and lies outside of it.
//!
//! Apart, so that a stolen database opens nothing: what session tokens are derived from, and the keys
//! that sign roaming tokens, are stored only as ciphertext. The master secret comes from a file
//! (0600, made at the first start) or from a command's output. A database of an older version has them in
//! plain text; they are sealed when it is opened.
//!
//! Replicas share one store, and so need one master secret. Without a file and a command they keep it in the
//! store, where it protects from nothing but a later change to one of these. What is called `master-check` is
//! sealed by the first replica: whoever cannot open it has another master secret, and is refused.
//!
//! A stored secret is 32 bytes in plain text, or sealed: `1`, a nonce of 12 bytes, ciphertext and tag
//! (ChaCha20-Poly1305). Its name is authenticated with it: two of them cannot be swapped.

mod master;

use std::path::PathBuf;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use bowline_net::private_file::FileError;
use bowline_store::{ReplicaLease, Store, StoredSecret};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

pub use self::master::printed_by;
use crate::config::SecretsConfig;

/// The size of every secret.
const BYTES: usize = 32;
const NONCE: usize = 12;
/// The name that signing keys are sealed under.
pub(crate) const SIGNING_KEY: &str = "signing-key";
/// Zeros that the first replica has sealed: who opens them has the same master secret.
const CHECK: &str = "master-check";
/// The master secret itself, unsealed, of an installation without a file or command for it. Empty once there
/// is one.
const MASTER: &str = "master-secret";
/// What the gateway's identity is made of, where replicas share it.
pub(crate) const IDENTITY: &str = "gateway-identity";
/// The statements of the identities before it: public, and so in plain text. Not there before the first one.
pub(crate) const PREVIOUS: &str = "gateway-identity-previous";
/// The first byte of a sealed secret.
const FORMAT: u8 = 1;

/// Why the secrets cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSecrets {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is missing, and the secrets in the database are sealed with it", .0.display())]
    Missing(PathBuf),
    #[error(
        "the secrets in the database are sealed, and neither secrets.file nor secrets.command is set"
    )]
    Unset,
    #[error(
        "the secrets in the database are sealed with another master secret than the one in {0}"
    )]
    Other(String),
    #[error("{0} does not hold 32 bytes in base64url")]
    Malformed(String),
    #[error("secrets.command failed: {0}")]
    Command(String),
    #[error("both secrets.file and secrets.command are set")]
    Both,
    #[error("the master secret cannot be replaced while other replicas use it ({0} of them run)")]
    InUse(usize),
    #[error(transparent)]
    Store(#[from] bowline_store::Error),
}

impl BadSecrets {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Unset => {
                "set secrets.file to the file that they were sealed with: that of the other replicas, or, \
                 of a database that was copied from a data folder, its secrets.key; or start once with \
                 --new-secrets"
                    .into()
            }
            Self::Missing(_) | Self::Other(_) => {
                "give every replica the same one, or restore it from a backup; or start once with \
                 --new-secrets: session tokens stay valid, roaming tokens that were not used yet do not, \
                 and an identity in the database is replaced"
                    .into()
            }
            Self::InUse(_) => "stop the other replicas first, then start them after this one".into(),
            Self::Malformed(_) => {
                "make one with `head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '='`".into()
            }
            Self::Command(_) => "run the command by hand: it prints the secret and exits with 0".into(),
            Self::Both => "keep one of them".into(),
            Self::Store(_) => "run `bowline doctor`".into(),
        }
    }
}

/// Seals and opens secrets. Without a master secret they are stored in plain text.
pub(crate) struct Sealing(Option<LessSafeKey>);

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealing({})", if self.0.is_some() { "sealed" } else { "plain" })
    }
}

impl Sealing {
    /// Reads the master secret, or makes it; then every secret in the store is sealed with it.
    pub(crate) async fn prepare(
        config: &SecretsConfig,
        store: &dyn Store,
    ) -> Result<Self, BadSecrets> {
        let (in_store, stored): (Vec<_>, Vec<_>) = store
            .all_secrets()
            .await?
            .into_iter()
            .filter(|secret| secret.name != PREVIOUS)
            .partition(|secret| secret.name == MASTER && !secret.is_signing_key);
        let in_store = in_store.into_iter().next().map(|secret| secret.bytes);
        let any_sealed = stored.iter().any(|secret| is_sealed(&secret.bytes));
        let (master, from) = match (&config.file, config.command.as_slice()) {
            (Some(_), [_, ..]) => return Err(BadSecrets::Both),
            (Some(path), _) => {
                let is_needed = any_sealed && !config.renew;
                let is_needed = is_needed && in_store.as_ref().is_none_or(Vec::is_empty);
                (Some(master::of_file(path, is_needed)?), path.display().to_string())
            }
            (None, []) if config.keep_in_store => {
                let is_needed = any_sealed && !config.renew;
                let master = shared_master(store, in_store.as_deref(), is_needed).await?;
                (Some(master), "the database".to_owned())
            }
            (None, []) => (None, String::new()),
            (None, command) => {
                (Some(master::of_command(command).await?), "secrets.command".to_owned())
            }
        };
        let sealing = Self(master.map(key));
        if sealing.0.is_none() && any_sealed && !config.renew {
            return Err(BadSecrets::Unset);
        }
        // What the store held until now, if a file or command takes its place.
        let replaced = in_store
            .filter(|_| !config.keep_in_store || config.is_set())
            .and_then(|bytes| <[u8; BYTES]>::try_from(bytes).ok());
        let earlier = Self(replaced.map(key));
        let mut changed = Vec::new();
        for mut secret in stored {
            let name = sealed_as(&secret);
            let opened = sealing.open(name, &secret.bytes);
            let opened = match opened.or_else(|| earlier.open(name, &secret.bytes)) {
                None if config.renew => {
                    if secret.name == IDENTITY {
                        // What older keys say leads to the one that is lost.
                        changed.push(plain(PREVIOUS, Vec::new()));
                    }
                    crate::auth::random()
                }
                None => return Err(BadSecrets::Other(from)),
                Some(opened) => opened,
            };
            if sealing.0.is_some() != is_sealed(&secret.bytes) || !sealing.opens(&secret) {
                secret.bytes = sealing.seal(sealed_as(&secret), opened);
                changed.push(secret);
            }
        }
        if replaced.is_some() {
            changed.push(plain(MASTER, Vec::new()));
        }
        if !changed.is_empty() {
            refuse_beside_others(store).await?;
            store.replace_secrets(changed).await?;
        }
        if sealing.0.is_some() {
            let check = store.secret(CHECK, sealing.seal(CHECK, [0; BYTES])).await?;
            sealing.open(CHECK, &check).ok_or(BadSecrets::Other(from))?;
        }
        if config.keep_in_store && !config.is_set() {
            tracing::warn!(
                "the master secret is in the database, so who steals a copy of it can make tokens and \
                 sign in this gateway's name; set secrets.file or secrets.command to the same secret \
                 for every replica"
            );
        }
        Ok(sealing)
    }

    fn opens(&self, secret: &StoredSecret) -> bool {
        self.open(sealed_as(secret), &secret.bytes).is_some()
    }

    /// A secret as it is stored.
    pub(crate) fn seal(&self, name: &str, secret: [u8; BYTES]) -> Vec<u8> {
        let Some(key) = &self.0 else { return secret.to_vec() };
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).expect("the operating system gives random bytes");
        let mut sealed = secret.to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut sealed,
        )
        .expect("32 bytes are not too many");
        [&[FORMAT], nonce.as_slice(), sealed.as_slice()].concat()
    }

    /// A stored secret, if it can be opened.
    pub(crate) fn open(&self, name: &str, stored: &[u8]) -> Option<[u8; BYTES]> {
        if !is_sealed(stored) {
            return stored.try_into().ok();
        }
        let nonce: [u8; NONCE] = stored[1..=NONCE].try_into().ok()?;
        let mut sealed = stored[1 + NONCE..].to_vec();
        let key = self.0.as_ref()?;
        let aad = Aad::from(name.as_bytes());
        let opened =
            key.open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        <[u8; BYTES]>::try_from(&*opened).ok()
    }
}

/// The master secret that the store holds; one that is made now, if it never held one. `is_needed`: there
/// are secrets that a new one would not open.
async fn shared_master(
    store: &dyn Store,
    in_store: Option<&[u8]>,
    is_needed: bool,
) -> Result<[u8; BYTES], BadSecrets> {
    let fresh: [u8; BYTES] = crate::auth::random();
    let found = match in_store {
        // It was replaced by a file or command, which is not set here.
        Some([]) | None if is_needed => return Err(BadSecrets::Unset),
        Some([]) => {
            refuse_beside_others(store).await?;
            store.replace_secrets(vec![plain(MASTER, fresh.to_vec())]).await?;
            return Ok(fresh);
        }
        Some(found) => found.to_vec(),
        // Of several replicas that start at once, one makes it.
        None => store.secret(MASTER, fresh.to_vec()).await?,
    };
    found.try_into().map_err(|_| BadSecrets::Malformed("the database".into()))
}

/// What is stored under that name as it is.
fn plain(name: &str, bytes: Vec<u8>) -> StoredSecret {
    StoredSecret { name: name.to_owned(), is_signing_key: false, bytes }
}

/// Replicas that run have the secrets in memory, and would go on with what nobody else can open.
async fn refuse_beside_others(store: &dyn Store) -> Result<(), BadSecrets> {
    let replicas = store.replicas().await?;
    // A lease without an end is that of a folder, which has one process.
    let runs = |replica: &&ReplicaLease| replica.expires_at.is_some() && !replica.has_expired;
    match replicas.iter().filter(runs).count() {
        0 => Ok(()),
        others => Err(BadSecrets::InUse(others)),
    }
}

/// The name that is authenticated with a secret. Signing keys share one: which number one gets is known
/// only when it is stored.
fn sealed_as(secret: &StoredSecret) -> &str {
    if secret.is_signing_key { SIGNING_KEY } else { &secret.name }
}

fn is_sealed(stored: &[u8]) -> bool {
    stored.len() > BYTES + NONCE && stored[0] == FORMAT
}

/// The key that seals, derived so that the master secret can serve for more.
fn key(master: [u8; BYTES]) -> LessSafeKey {
    let mut mac = Hmac::<Sha256>::new_from_slice(&master).expect("HMAC takes keys of any length");
    mac.update(b"bowline stored secrets 1");
    let key = UnboundKey::new(&CHACHA20_POLY1305, &mac.finalize().into_bytes());
    LessSafeKey::new(key.expect("the digest has the key's size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_only_with_its_key_and_name() {
        let (one, other) = (Sealing(Some(key([1; 32]))), Sealing(Some(key([2; 32]))));
        let sealed = one.seal("a", [7; 32]);
        assert!(is_sealed(&sealed) && !sealed.windows(8).any(|bytes| bytes == [7; 8]));
        assert_eq!(one.open("a", &sealed), Some([7; 32]));
        assert_eq!(one.open("b", &sealed), None);
        assert_eq!(other.open("a", &sealed), None);
        assert_eq!(Sealing(None).open("a", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(one.open("a", &changed), None, "byte {at}");
        }
        assert_ne!(one.seal("a", [7; 32]), sealed, "a nonce is used once");
        assert_eq!(one.open("a", &[7; 32]), Some([7; 32]), "what an older version stored");
    }
}
