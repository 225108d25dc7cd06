//! The master secret: it seals the secrets in the database, and lies outside of it.
//!
//! Apart, so that a stolen database opens nothing: what session tokens are derived from, and the keys
//! that sign roaming tokens, are stored only as ciphertext. The master secret comes from a file
//! (0600, made at the first start) or from a command's output. A database of an older version has them in
//! plain text; they are sealed when it is opened.
//!
//! A stored secret is 32 bytes in plain text, or sealed: `1`, a nonce of 12 bytes, ciphertext and tag
//! (ChaCha20-Poly1305). Its name is authenticated with it: two of them cannot be swapped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_store::{Store, StoredSecret};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::config::SecretsConfig;

/// The size of every secret.
const BYTES: usize = 32;
const NONCE: usize = 12;
/// The name that signing keys are sealed under.
pub(crate) const SIGNING_KEY: &str = "signing-key";
/// The first byte of a sealed secret.
const FORMAT: u8 = 1;
/// The largest file or output that can hold a master secret.
const LARGEST: u64 = 1024;
/// How long `secrets.command` may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

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
    #[error(transparent)]
    Store(#[from] bowline_store::Error),
}

impl BadSecrets {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Missing(_) | Self::Unset | Self::Other(_) => {
                "restore it from a backup; or start once with --new-secrets: session tokens stay valid, \
                 roaming tokens that were not used yet do not"
                    .into()
            }
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
        let stored = store.all_secrets().await?;
        let any_sealed = stored.iter().any(|secret| is_sealed(&secret.bytes));
        let (master, from) = match (&config.file, config.command.as_slice()) {
            (Some(_), [_, ..]) => return Err(BadSecrets::Both),
            (Some(path), _) => {
                (Some(of_file(path, any_sealed && !config.renew)?), path.display().to_string())
            }
            (None, []) => (None, String::new()),
            (None, command) => (Some(of_command(command).await?), "secrets.command".to_owned()),
        };
        let sealing = Self(master.map(key));
        if sealing.0.is_none() && any_sealed && !config.renew {
            return Err(BadSecrets::Unset);
        }
        let mut changed = Vec::new();
        for mut secret in stored {
            let opened = match sealing.open(sealed_as(&secret), &secret.bytes) {
                None if config.renew => crate::auth::random(),
                None => return Err(BadSecrets::Other(from)),
                Some(opened) => opened,
            };
            if sealing.0.is_some() != is_sealed(&secret.bytes) || !sealing.opens(&secret) {
                secret.bytes = sealing.seal(sealed_as(&secret), opened);
                changed.push(secret);
            }
        }
        if !changed.is_empty() {
            store.replace_secrets(changed).await?;
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

fn of_file(path: &Path, needed: bool) -> Result<[u8; BYTES], BadSecrets> {
    if let Some(text) = private_file::read(path, LARGEST)? {
        return parse(&text, &path.display().to_string());
    }
    // A new one would not open what is sealed with the one that is missing.
    if needed {
        return Err(BadSecrets::Missing(path.to_owned()));
    }
    let fresh: [u8; BYTES] = crate::auth::random();
    let text = format!("{}\n", URL_SAFE_NO_PAD.encode(fresh));
    if private_file::create(path, text.as_bytes())? {
        return Ok(fresh);
    }
    let text = private_file::read(path, LARGEST)?;
    let text = text.ok_or_else(|| BadSecrets::Missing(path.to_owned()))?;
    parse(&text, &path.display().to_string())
}

async fn of_command(command: &[String]) -> Result<[u8; BYTES], BadSecrets> {
    let failed = |why: String| BadSecrets::Command(why);
    let (program, args) = command.split_first().ok_or_else(|| failed("it is empty".into()))?;
    let mut child = tokio::process::Command::new(program);
    child.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, child.output()).await;
    let late = format!("it did not end within {} s", COMMAND_TIMEOUT.as_secs());
    let output = output.map_err(|_| failed(late))?.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    parse(&output.stdout, "the output of secrets.command")
}

fn parse(text: &[u8], from: &str) -> Result<[u8; BYTES], BadSecrets> {
    let decoded = URL_SAFE_NO_PAD.decode(text.trim_ascii());
    let bytes = decoded.ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| BadSecrets::Malformed(from.to_owned()))
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

    #[tokio::test]
    async fn a_command_prints_the_secret() {
        let text = URL_SAFE_NO_PAD.encode([9; 32]);
        let echo = |text: &str| vec!["echo".to_owned(), text.to_owned()];
        assert_eq!(of_command(&echo(&text)).await, Ok([9; 32]));
        assert!(matches!(of_command(&echo("short")).await, Err(BadSecrets::Malformed(_))));
        let fails = of_command(&["false".to_owned()]).await.unwrap_err();
        assert!(fails.to_string().contains("exit status: 1"), "{fails}");
        let missing = of_command(&["/no/such/program".to_owned()]).await;
        assert!(matches!(missing, Err(BadSecrets::Command(_))));
    }

    #[test]
    fn a_file_is_made_once_and_not_where_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.key");
        assert_eq!(of_file(&path, true), Err(BadSecrets::Missing(path.clone())));
        let made = of_file(&path, false).unwrap();
        assert_eq!(of_file(&path, true), Ok(made));
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
