//! The devices that are paired with `bowline daemon run`, and its pairing codes, in a file.
//!
//! `{"version": 1, "devices": [{id, key, name, services, paired_at}], "codes": [{code, services,
//! expires_at}]}`, readable by its owner only and changed under a lock, because `bowline pair` and
//! `bowline devices` change it while the daemon runs. The daemon looks at it every half a second and
//! in every pairing. A malformed file is an error, never an empty list.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file::{self, FileError};
use bowline_net::rate::{Bucket, Rate};
use bowline_sbrp::identity::{Fingerprint, IdentityKey};
use bowline_sbrp::pairing::{CODE_LEN, PairingCode};
use bowline_sbrp::peer::PairingClaim;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::blocking::blocking;
use super::devices::{
    BookError, DeviceBook, MOST_CODES, MOST_PAIRED, PairError, PairedDevice, WaitingCode,
};

/// How long a pairing code is valid.
pub const CODE_LIFE: Duration = Duration::from_secs(5 * 60);

/// The file of a daemon's devices.
#[derive(Debug, Clone)]
pub struct DeviceFile {
    path: PathBuf,
    changes: watch::Sender<u64>,
    attempts: Arc<Mutex<Bucket>>,
    /// How long to wait for others who change the file.
    lock_patience: Duration,
    _watching: Option<Arc<AbortOnDropHandle<()>>>,
}

/// A device as the file lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedDevice {
    /// Its id in the list.
    pub id: String,
    key: String,
    /// What its owner calls it.
    pub name: String,
    /// The services that it may open; empty: all.
    pub services: Vec<String>,
    /// Seconds since 1970.
    pub paired_at: u64,
}

/// Why the file was not read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a list of devices, or was damaged.
    #[error("{} is no list of paired devices", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// Another program changes the file for too long.
    #[error("another process has kept {} locked for {waited:?}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// As many devices are paired as may be; how many.
    #[error("{0} devices are paired, and there may be no more")]
    TooManyDevices(usize),
    /// As many codes wait as may; how many.
    #[error("{0} pairing codes are waiting to be used")]
    TooManyCodes(usize),
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    NoEntropy,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct BookFile {
    version: u32,
    devices: Vec<ListedDevice>,
    codes: Vec<ListedCode>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ListedCode {
    code: String,
    services: Vec<String>,
    expires_at: u64,
}

impl DeviceFile {
    /// For a command that lists or changes the devices.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let attempts = Bucket::new(Some(ATTEMPTS), Instant::now());
        Self {
            path: path.into(),
            changes: watch::Sender::new(0),
            attempts: Arc::new(Mutex::new(attempts)),
            lock_patience: LOCK_PATIENCE,
            _watching: None,
        }
    }

    /// For a daemon: looks for changes by others. Call it inside a Tokio runtime.
    pub fn watched(path: impl Into<PathBuf>) -> Self {
        let mut file = Self::new(path);
        let watching = watch_file(file.path.clone(), file.changes.clone());
        file._watching = Some(Arc::new(AbortOnDropHandle::new(tokio::spawn(watching))));
        file
    }

    /// The paired devices. Reads a file: not for async code.
    pub fn list(&self) -> Result<Vec<ListedDevice>, DeviceFileError> {
        Ok(read(&self.path)?.devices)
    }

    /// Makes a code with which one device can be paired, within [`CODE_LIFE`].
    pub fn offer(&self, services: Vec<String>) -> Result<PairingCode, DeviceFileError> {
        let mut bytes = [0; CODE_LEN];
        getrandom::fill(&mut bytes).map_err(|_| DeviceFileError::NoEntropy)?;
        let made = self.change(|contents| {
            if contents.codes.len() >= MOST_CODES {
                return Err(DeviceFileError::TooManyCodes(contents.codes.len()));
            }
            let (code, expires_at) = (URL_SAFE_NO_PAD.encode(bytes), now() + CODE_LIFE.as_secs());
            contents.codes.push(ListedCode { code, services, expires_at });
            Ok(Some(PairingCode::from_random(bytes)))
        })?;
        Ok(made.expect("a code that was made is returned"))
    }

    /// Revokes a device by its id or name. Whether it was there.
    pub fn revoke(&self, named: &str) -> Result<Option<ListedDevice>, DeviceFileError> {
        self.change(|contents| {
            let found =
                contents.devices.iter().position(|one| one.id == named || one.name == named);
            Ok(found.map(|at| contents.devices.remove(at)))
        })
    }

    fn pair_now(&self, claim: &PairingClaim) -> Result<Option<PairedDevice>, DeviceFileError> {
        self.change(|contents| {
            let knows = |waiting: &ListedCode| {
                code_bytes(&waiting.code).is_some_and(|code| claim.knows(&code))
            };
            let Some(at) = contents.codes.iter().position(knows) else { return Ok(None) };
            let key = claim.device.key();
            let others = contents.devices.iter().filter(|one| one.id != id_of(key)).count();
            if others >= MOST_PAIRED {
                return Err(DeviceFileError::TooManyDevices(others));
            }
            let ListedCode { services, .. } = contents.codes.remove(at);
            let listed = ListedDevice {
                id: id_of(key),
                key: URL_SAFE_NO_PAD.encode(key.as_bytes()),
                name: claim.name.clone(),
                services,
                paired_at: now(),
            };
            contents.devices.retain(|one| one.id != listed.id);
            contents.devices.push(listed.clone());
            Ok(listed.paired())
        })
    }

    /// Reads, changes and replaces the file under its lock; expired codes are dropped on the way. `None`:
    /// nothing is to change.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut BookFile) -> Result<Option<T>, DeviceFileError>,
    ) -> Result<Option<T>, DeviceFileError> {
        let _lock = self.lock()?;
        let mut contents = read(&self.path)?;
        contents.codes.retain(|code| code.expires_at > now());
        let Some(done) = change(&mut contents)? else { return Ok(None) };
        let json = serde_json::to_vec_pretty(&contents).expect("strings are JSON");
        private_file::replace(&self.path, &json)?;
        self.changes.send_modify(|count| *count += 1);
        Ok(Some(done))
    }

    /// Waits for those who change the file, and not for ever: one that was stopped while it held the lock
    /// would stop all pairing.
    fn lock(&self) -> Result<File, DeviceFileError> {
        let path = self.path.with_extension("lock");
        let failed = |error: io::Error| FileError::Io {
            what: "lock",
            path: path.clone(),
            why: error.to_string(),
        };
        let open = || OpenOptions::new().write(true).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_file::create(&path, b"")?;
                open()
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        let give_up = Instant::now() + self.lock_patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error).into()),
                Err(TryLockError::WouldBlock) if Instant::now() >= give_up => {
                    let waited = self.lock_patience;
                    return Err(DeviceFileError::Locked { path: path.clone(), waited });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_EVERY),
            }
        }
    }

    /// Work on the file, on a thread that may wait for the disk.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, DeviceFileError> + Send + 'static,
    ) -> Result<T, BookError> {
        let file = self.clone();
        blocking(move || work(&file)).await.map_err(|error| BookError(error.to_string()))
    }
}

impl ListedDevice {
    /// The fingerprint of its key.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        Some(self.paired()?.key.fingerprint())
    }

    fn paired(&self) -> Option<PairedDevice> {
        let bytes = URL_SAFE_NO_PAD.decode(&self.key).ok()?.try_into().ok()?;
        let key = IdentityKey::from_bytes(&bytes).ok()?;
        let (id, name, services) = (self.id.clone(), self.name.clone(), self.services.clone());
        Some(PairedDevice { id, key, name, services })
    }
}

#[async_trait]
impl DeviceBook for DeviceFile {
    async fn find(&self, key: &IdentityKey) -> Result<Option<PairedDevice>, BookError> {
        Ok(self.all().await?.into_iter().find(|device| device.key == *key))
    }

    async fn pair(&self, claim: &PairingClaim) -> Result<PairedDevice, PairError> {
        if !self.attempts.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now()) {
            return Err(PairError::TooMany);
        }
        let (file, claim) = (self.clone(), claim.clone());
        match blocking(move || file.pair_now(&claim)).await {
            Ok(paired) => paired.ok_or(PairError::BadCode),
            Err(DeviceFileError::TooManyDevices(_)) => Err(PairError::Full { most: MOST_PAIRED }),
            Err(error) => Err(BookError(error.to_string()).into()),
        }
    }

    async fn all(&self) -> Result<Vec<PairedDevice>, BookError> {
        let listed = self.off_thread(Self::list).await?;
        let malformed = || BookError(format!("{} is malformed", self.path.display()));
        listed.iter().map(|one| one.paired().ok_or_else(malformed)).collect()
    }

    async fn codes(&self) -> Result<Vec<WaitingCode>, BookError> {
        let codes = self.off_thread(|file| Ok(read(&file.path)?.codes)).await?;
        let waiting = codes.iter().filter(|listed| listed.expires_at > now());
        let waiting = waiting.filter_map(|listed| {
            let code = PairingCode::from_random(code_bytes(&listed.code)?);
            Some(WaitingCode { code, expires_at: listed.expires_at })
        });
        Ok(waiting.collect())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn read(path: &Path) -> Result<BookFile, DeviceFileError> {
    let Some(bytes) = private_file::read(path, MOST_BYTES)? else {
        return Ok(BookFile { version: VERSION, ..BookFile::default() });
    };
    let contents = serde_json::from_slice(&bytes).ok();
    let contents = contents.filter(|contents: &BookFile| contents.version == VERSION);
    contents.ok_or_else(|| DeviceFileError::Malformed { path: path.to_owned() })
}

/// Notices changes by other processes.
async fn watch_file(path: PathBuf, changes: watch::Sender<u64>) {
    let look = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        use std::os::unix::fs::MetadataExt as _;
        // Changes of the mode or the owner count: they decide whether the file can be used.
        let changed = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        Some((meta.ino(), meta.len(), changed))
    };
    let mut last = look(&path);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = look(&path);
        if now != last {
            last = now;
            changes.send_modify(|count| *count += 1);
        }
    }
}

fn code_bytes(text: &str) -> Option<[u8; CODE_LEN]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// A device's id: the beginning of its key's fingerprint.
fn id_of(key: &IdentityKey) -> String {
    key.fingerprint().as_bytes()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const VERSION: u32 = 1;
const MOST_BYTES: u64 = 1 << 20;
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Attempts to pair: ten at once, and then one in ten seconds.
const ATTEMPTS: Rate = Rate { burst: 10, every: Duration::from_secs(10) };

#[cfg(test)]
mod tests;
