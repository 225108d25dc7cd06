//! Where a client keeps the identity keys of the daemons that it has met.
//!
//! A trait, because a program may have a place of its own for secrets, such as a keychain or a database.
//! [`KnownDaemons`](super::KnownDaemons) is a file (feature `files`), [`MemoryPins`] forgets.
//!
//! What every store promises
//! - A pin belongs to the name that a person typed, not to the id that somebody gives for it
//!   (SBRP-CLIENT-01).
//! - What a name stands for changes only if a person vouches for the new key.
//! - Comparing and writing is one step: of two first uses at once one counts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_net::private_file::FileError;
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::{Fingerprint, IdentityKey};

/// The pinned keys of daemons, by name. Its methods may block: they are not called from async code.
pub trait PinStore: Send + Sync + fmt::Debug {
    /// The key that a name's daemon has to show: [`Trust::Key`] if one is pinned, and
    /// [`Trust::FirstUse`] if none is. Fails with [`KnownError::OtherDaemon`] if the name stood for
    /// another daemon.
    fn trust(&self, name: &str, daemon: &DaemonId) -> Result<Trust, KnownError>;

    /// Pins a key that was verified. It is kept when this returns. If another one was pinned meanwhile,
    /// that one counts, and this fails with [`KnownError::OtherDaemon`]; unless a person vouches for this
    /// one. Any other error leaves the session open, and the program is told that the key was not pinned
    /// (SBRP-CLIENT-08).
    fn keep(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        is_vouched_for: bool,
    ) -> Result<(), KnownError>;
}

impl<T: PinStore + ?Sized> PinStore for Arc<T> {
    fn trust(&self, name: &str, daemon: &DaemonId) -> Result<Trust, KnownError> {
        (**self).trust(name, daemon)
    }

    fn keep(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        is_vouched_for: bool,
    ) -> Result<(), KnownError> {
        (**self).keep(name, daemon, identity, is_vouched_for)
    }
}

/// Pins for as long as the program runs. Clones share them.
///
/// The next start trusts on first use again: for tests, and for programs that know the key by a
/// fingerprint ([`ClientConfig::vouched_for`](super::ClientConfig::vouched_for)).
#[derive(Debug, Clone, Default)]
pub struct MemoryPins(Arc<Mutex<BTreeMap<String, (DaemonId, IdentityKey)>>>);

impl MemoryPins {
    /// No pins.
    pub fn new() -> Self {
        Self::default()
    }
}

impl PinStore for MemoryPins {
    fn trust(&self, name: &str, daemon: &DaemonId) -> Result<Trust, KnownError> {
        let pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pins.get(name) {
            None => Ok(Trust::FirstUse),
            Some((pinned, key)) if pinned == daemon => Ok(Trust::Key(*key)),
            Some((pinned, key)) => Err(KnownError::OtherDaemon(OtherDaemon {
                pinned: pinned.clone(),
                pinned_key: key.fingerprint(),
                offered: daemon.clone(),
                offered_key: None,
            })),
        }
    }

    fn keep(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        is_vouched_for: bool,
    ) -> Result<(), KnownError> {
        let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let offered = (daemon.clone(), *identity.key());
        if let Some(before) = pins.get(name).filter(|before| **before != offered)
            && !is_vouched_for
        {
            return Err(KnownError::OtherDaemon(OtherDaemon {
                pinned: before.0.clone(),
                pinned_key: before.1.fingerprint(),
                offered: offered.0,
                offered_key: Some(offered.1.fingerprint()),
            }));
        }
        pins.insert(name.to_owned(), offered);
        Ok(())
    }
}

/// Why a daemon was not looked up or kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnownError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not one of known daemons, or was damaged.
    #[error("{} is no list of known daemons", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// There is no file.
    #[error("there is no file to keep known daemons in")]
    NowhereToKeep,
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    NoEntropy,
    /// The name stood for another daemon before.
    #[error("the name stands for another daemon than before")]
    OtherDaemon(OtherDaemon),
    /// A [`PinStore`] of the program's own failed.
    #[error("the pins of daemons cannot be used: {0}")]
    Store(String),
}

/// A name that stood for one daemon, and is said to stand for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherDaemon {
    /// The daemon that the name stood for.
    pub pinned: DaemonId,
    /// The fingerprint of its key.
    pub pinned_key: Fingerprint,
    /// The daemon that the name is said to stand for.
    pub offered: DaemonId,
    /// `None` if the other one was not asked for its key.
    pub offered_key: Option<Fingerprint>,
}

impl KnownError {
    /// What the user can do about the error.
    pub fn hint(&self) -> String {
        match self {
            Self::File(error) => error.hint(),
            Self::Malformed { path } => format!(
                "restore {} from a backup; without it, pair again or compare fingerprints anew",
                path.display()
            ),
            Self::NowhereToKeep => "name a folder for it with --data".into(),
            Self::NoEntropy => "try again".into(),
            Self::OtherDaemon(_) => "do not go on unless you know why".into(),
            Self::Store(_) => "look at the program that keeps them".into(),
        }
    }
}

#[cfg(test)]
mod tests;
