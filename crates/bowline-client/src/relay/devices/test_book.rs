//! A book for tests: it can be changed, broken, and told to be changed, each apart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bowline_sbrp::identity::IdentitySecret;

use super::*;

#[derive(Debug, Default)]
pub(in crate::relay) struct TestBook {
    /// `None`: it cannot be read.
    devices: Mutex<Option<Vec<PairedDevice>>>,
    changes: watch::Sender<u64>,
    pub(in crate::relay) reads: AtomicUsize,
}

impl TestBook {
    /// Does not tell.
    pub(in crate::relay) fn set(&self, devices: Option<Vec<PairedDevice>>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    pub(in crate::relay) fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl DeviceBook for TestBook {
    async fn find(&self, key: &IdentityKey) -> Result<Option<PairedDevice>, BookError> {
        Ok(self.all().await?.into_iter().find(|device| device.key == *key))
    }

    async fn pair(&self, _: &PairingClaim) -> Result<PairedDevice, PairError> {
        Err(PairError::BadCode)
    }

    async fn all(&self) -> Result<Vec<PairedDevice>, BookError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        devices.ok_or_else(|| BookError("broken".into()))
    }

    async fn codes(&self) -> Result<Vec<WaitingCode>, BookError> {
        Ok(vec![])
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

pub(in crate::relay) fn device(seed: u8) -> PairedDevice {
    let key = IdentitySecret::from_seed(&[seed; 32]).public();
    PairedDevice { id: seed.to_string(), key, name: "phone".into(), services: vec![] }
}
