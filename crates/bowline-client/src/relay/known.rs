//! The daemons that this machine knows, by the name that a person typed: their pinned keys, and the
//! keys of this device that they are paired with.
//!
//! `{"version": 2, "names": {"<name>": {daemon, key, pairing: {control, device}}}}`, readable by its owner
//! only. It is read on every use and changed under a lock, so that several programs can share it. A
//! malformed file is an error and never treated as empty: that would trust the next key presented, as
//! on first use.
//!
//! A pin belongs to the name and not to the id that a control plane gives for it (SBRP-CLIENT-01): an
//! id protects against nothing that whoever hands it out does. Pins of earlier versions, which were kept
//! by id in `pins.json` beside this file, are taken over when a name is used for the first time.
//!
//! Invariants
//! - What a name stands for changes only if a person vouches for the new key's fingerprint.
//! - A pin is compared and written under one lock: of two first uses at once one counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file;
use bowline_sbrp::handshake::{Trust, VerifiedIdentity};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::{IdentityKey, IdentitySecret};
use serde::{Deserialize, Serialize};
use url::Url;
use zeroize::Zeroizing;

use super::pins::{KnownError, OtherDaemon, PinStore};

/// The file of known daemons.
#[derive(Debug, Clone)]
pub struct KnownDaemons {
    path: Option<PathBuf>,
}

/// What is known of a daemon.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KnownDaemon {
    /// The daemon's id.
    pub daemon: DaemonId,
    /// Its pinned key.
    pub key: IdentityKey,
    /// Set if this device is paired with it.
    pub pairing: Option<KnownPairing>,
}

/// How this device reaches a daemon that it is paired with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KnownPairing {
    /// The control plane that gives out the relay tokens.
    pub control: Url,
    /// The key that the daemon knows this device by. It is for this daemon alone.
    pub device: Arc<IdentitySecret>,
}

/// A device's key for a daemon that it is being paired with.
#[derive(Debug)]
pub struct PendingPairing {
    /// The seed of the device's key.
    pub seed: Zeroizing<[u8; 32]>,
    /// It was begun before, and interrupted.
    pub was_begun: bool,
}

/// A device's key that is to be kept.
#[derive(Debug)]
pub struct NewPairing {
    /// The control plane that gives out the relay tokens.
    pub control: Url,
    /// The seed of the device's key.
    pub seed: Zeroizing<[u8; 32]>,
}

#[derive(Default, Serialize, Deserialize)]
struct Listed {
    version: u32,
    names: BTreeMap<String, ListedDaemon>,
    /// The keys of this device for daemons that it is being paired with, by their ids.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct ListedDaemon {
    daemon: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pairing: Option<ListedPairing>,
}

#[derive(Serialize, Deserialize)]
struct ListedPairing {
    control: String,
    device: String,
}

/// Pins of earlier versions, by daemon id.
#[derive(Deserialize)]
struct EarlierPins {
    version: u32,
    daemons: BTreeMap<String, String>,
}

impl KnownDaemons {
    /// In this file, which need not exist yet.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()) }
    }

    /// Without a file: every start trusts on first use again, and the program is told
    /// (SBRP-CLIENT-08).
    pub fn nowhere() -> Self {
        Self { path: None }
    }

    /// All names. Reads a file: not for async code.
    pub fn names(&self) -> Result<Vec<String>, KnownError> {
        let Some(path) = &self.path else { return Ok(vec![]) };
        Ok(read(path)?.names.into_keys().collect())
    }

    /// What is known under this name. Reads a file: not for async code.
    pub fn look_up(&self, name: &str) -> Result<Option<KnownDaemon>, KnownError> {
        let Some(path) = &self.path else { return Ok(None) };
        let malformed = || KnownError::Malformed { path: path.clone() };
        let listed = read(path)?.names.remove(name);
        listed.map(|listed| listed.read().ok_or_else(malformed)).transpose()
    }

    /// A new key of this device for a daemon that it is to be paired with, on disk before a code is used
    /// up. The same one again if that was interrupted: the daemon may know it already.
    pub fn begin_pairing(&self, daemon: &DaemonId) -> Result<PendingPairing, KnownError> {
        let mut fresh = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *fresh).map_err(|_| KnownError::NoEntropy)?;
        let mut pending = PendingPairing { seed: fresh, was_begun: false };
        self.change(|listed, path| {
            if let Some(begun) = listed.pending.get(daemon.as_str()) {
                let malformed = || KnownError::Malformed { path: path.to_owned() };
                let seed = Zeroizing::new(decode(begun).ok_or_else(malformed)?);
                pending = PendingPairing { seed, was_begun: true };
                return Ok(false);
            }
            if listed.pending.len() >= MOST_PENDING {
                listed.pending.clear();
            }
            listed.pending.insert(daemon.as_str().to_owned(), encode(&*pending.seed));
            Ok(true)
        })?;
        Ok(pending)
    }

    /// Keeps a daemon that this device was paired with. Its key came with the pairing code.
    pub fn keep_pairing(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        pairing: &NewPairing,
    ) -> Result<(), KnownError> {
        self.change(|listed, _| {
            let one = ListedDaemon {
                daemon: daemon.as_str().to_owned(),
                key: encode(identity.key().as_bytes()),
                pairing: Some(ListedPairing {
                    control: pairing.control.to_string(),
                    device: encode(&*pairing.seed),
                }),
            };
            listed.names.insert(name.to_owned(), one);
            listed.pending.remove(daemon.as_str());
            Ok(true)
        })
    }

    /// Forgets a name, its pin and its pairing. Whether it was there.
    pub fn forget(&self, name: &str) -> Result<bool, KnownError> {
        let mut was_there = false;
        self.change(|listed, _| {
            was_there = listed.names.remove(name).is_some();
            Ok(was_there)
        })?;
        Ok(was_there)
    }

    /// Reads, changes and replaces the file under its lock, if `change` says that it changed.
    fn change(
        &self,
        change: impl FnOnce(&mut Listed, &Path) -> Result<bool, KnownError>,
    ) -> Result<(), KnownError> {
        let path = self.path.as_ref().ok_or(KnownError::NowhereToKeep)?;
        let _lock = private_file::lock(&lock_of(path))?;
        let mut listed = read(path)?;
        if !change(&mut listed, path)? {
            return Ok(());
        }
        let json = serde_json::to_vec_pretty(&listed).expect("strings are JSON");
        Ok(private_file::replace(path, &Zeroizing::new(json))?)
    }
}

impl PinStore for KnownDaemons {
    fn trust(&self, name: &str, daemon: &DaemonId) -> Result<Trust, KnownError> {
        match (self.look_up(name)?, &self.path) {
            (Some(known), _) if known.daemon == *daemon => Ok(Trust::Key(known.key)),
            (Some(known), _) => Err(KnownError::OtherDaemon(OtherDaemon {
                pinned: known.daemon,
                pinned_key: known.key.fingerprint(),
                offered: daemon.clone(),
                offered_key: None,
            })),
            (None, Some(path)) => {
                Ok(earlier_pin(path, daemon)?.map_or(Trust::FirstUse, Trust::Key))
            }
            (None, None) => Ok(Trust::FirstUse),
        }
    }

    fn keep(
        &self,
        name: &str,
        daemon: &DaemonId,
        identity: &VerifiedIdentity,
        is_vouched_for: bool,
    ) -> Result<(), KnownError> {
        self.change(|listed, path| {
            let key = encode(identity.key().as_bytes());
            let before = listed.names.get(name);
            if before.is_some_and(|one| one.daemon == daemon.as_str() && one.key == key) {
                return Ok(false);
            }
            if !is_vouched_for {
                let pinned = match before {
                    Some(one) => Some(
                        one.read()
                            .ok_or_else(|| KnownError::Malformed { path: path.to_owned() })?,
                    ),
                    None => None,
                };
                let (id, pinned) = match pinned {
                    Some(pinned) => (pinned.daemon, Some(pinned.key)),
                    None => (daemon.clone(), earlier_pin(path, daemon)?),
                };
                if let Some(pinned) = pinned.filter(|key| key != identity.key() || id != *daemon) {
                    return Err(KnownError::OtherDaemon(OtherDaemon {
                        pinned: id,
                        pinned_key: pinned.fingerprint(),
                        offered: daemon.clone(),
                        offered_key: Some(identity.key().fingerprint()),
                    }));
                }
            }
            // A pairing is with one daemon.
            let before = listed.names.remove(name).filter(|one| one.daemon == daemon.as_str());
            let (daemon, pairing) =
                (daemon.as_str().to_owned(), before.and_then(|one| one.pairing));
            listed.names.insert(name.to_owned(), ListedDaemon { daemon, key, pairing });
            Ok(true)
        })
    }
}

impl ListedDaemon {
    fn read(&self) -> Option<KnownDaemon> {
        let pairing = match &self.pairing {
            None => None,
            Some(ListedPairing { control, device }) => {
                let seed = Zeroizing::new(decode(device)?);
                let device = Arc::new(IdentitySecret::from_seed(&seed));
                Some(KnownPairing { control: control.parse().ok()?, device })
            }
        };
        let daemon = DaemonId::new(self.daemon.as_str());
        Some(KnownDaemon { daemon, key: parse(&self.key)?, pairing })
    }
}

fn read(path: &Path) -> Result<Listed, KnownError> {
    let Some(bytes) = private_file::read(path, MOST)? else {
        return Ok(Listed { version: VERSION, ..Listed::default() });
    };
    let listed = serde_json::from_slice(&Zeroizing::new(bytes)).ok();
    let listed = listed.filter(|listed: &Listed| listed.version == VERSION);
    listed.ok_or_else(|| KnownError::Malformed { path: path.to_owned() })
}

/// The key that an earlier version pinned for this id.
fn earlier_pin(path: &Path, daemon: &DaemonId) -> Result<Option<IdentityKey>, KnownError> {
    let path = path.with_file_name(EARLIER);
    let Some(bytes) = private_file::read(&path, MOST)? else { return Ok(None) };
    let malformed = || KnownError::Malformed { path: path.clone() };
    let pins: EarlierPins = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
    if pins.version != 1 {
        return Err(malformed());
    }
    pins.daemons.get(daemon.as_str()).map(|key| parse(key).ok_or_else(malformed)).transpose()
}

fn parse(text: &str) -> Option<IdentityKey> {
    IdentityKey::from_bytes(&decode(text)?).ok()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<[u8; 32]> {
    let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
    bytes.as_slice().try_into().ok()
}

/// The file is replaced on every change, so a lock on it would lock the old file.
fn lock_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    path.with_file_name(name)
}

const VERSION: u32 = 2;
/// Pairings that were begun and never finished.
const MOST_PENDING: usize = 16;
const EARLIER: &str = "pins.json";
/// Enough for some thousand daemons.
const MOST: u64 = 1 << 20;

#[cfg(test)]
mod tests;
