//! A paired device's key, and how far the control plane's clock is from this machine's.
//!
//! A machine whose clock is wrong can still sign for the control plane's time: it is told that time
//! in the first refusal, and remembers the difference for later requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bowline_sbrp::api::OpenDeviceSession;
use bowline_sbrp::device_auth::DeviceRequest;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;

pub(super) struct DeviceSigner {
    device: Arc<IdentitySecret>,
    /// Seconds by which the control plane is ahead.
    ahead: AtomicI64,
}

impl DeviceSigner {
    pub(super) fn new(device: Arc<IdentitySecret>) -> Self {
        Self { device, ahead: AtomicI64::new(0) }
    }

    pub(super) fn sign(&self, daemon: &DaemonId) -> OpenDeviceSession {
        let at = local_time().saturating_add_signed(self.ahead.load(Ordering::Relaxed));
        OpenDeviceSession::from(&DeviceRequest::sign(&self.device, daemon, at))
    }

    /// The control plane says that it is this late now, in seconds since 1970.
    pub(super) fn adjust(&self, now: u64) {
        let ahead = i128::from(now) - i128::from(local_time());
        let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

fn local_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
