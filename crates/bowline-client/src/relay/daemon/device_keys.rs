//! Tells the control plane which devices may get tokens for this daemon: the paired ones, and those
//! that have a pairing code which was not used yet.
//!
//! The whole set is told whenever it may have changed, so that nothing has to be remembered of what was
//! told before; and again when the presence is renewed, in case the control plane lost it.

use std::sync::Arc;

use bowline_sbrp::api::{DeviceKey, MOST_DEVICES};
use bowline_sbrp::id::DaemonId;
use tokio::sync::watch;
use tokio::time::sleep;

use super::presence::Presence;
use crate::relay::RECONNECT;
use crate::relay::control_plane::{ControlError, ControlPlane};
use crate::relay::devices::{BookError, DeviceBook};
use crate::relay::random::dice;

/// Runs until it is aborted. `failed` is told when an attempt failed.
pub(super) async fn keep_told(
    control: ControlPlane,
    daemon: DaemonId,
    book: Arc<dyn DeviceBook>,
    mut presence: watch::Receiver<Presence>,
    failed: impl Fn(ControlError),
) {
    let mut changed = book.changed();
    let mut attempt = 0;
    loop {
        changed.mark_unchanged();
        presence.mark_unchanged();
        let told = match device_keys(&*book).await {
            Ok(devices) => control.set_devices(&daemon, &devices).await,
            Err(error) => {
                tracing::warn!(%error, "the control plane is not told which devices are paired");
                Ok(())
            }
        };
        if let Err(error) = told {
            tracing::warn!(%error, "the control plane was not told which devices are paired");
            failed(error);
            sleep(RECONNECT.delay(attempt, dice())).await;
            attempt = attempt.saturating_add(1);
            continue;
        }
        attempt = 0;
        tokio::select! {
            Ok(()) = changed.changed() => {}
            Ok(()) = presence.changed() => {}
            else => return,
        }
    }
}

async fn device_keys(book: &dyn DeviceBook) -> Result<Vec<DeviceKey>, BookError> {
    let (devices, codes) = (book.all().await?, book.codes().await?);
    let paired = devices.iter().map(|device| DeviceKey { key: device.key, expires_at: None });
    let waiting = codes.iter().map(|waiting| DeviceKey {
        key: waiting.code.token_key().public(),
        expires_at: Some(waiting.expires_at),
    });
    let mut keys: Vec<_> = waiting.chain(paired).collect();
    if keys.len() > MOST_DEVICES {
        let most = MOST_DEVICES;
        tracing::warn!(
            most,
            "more devices are paired than the control plane takes: some get no tokens"
        );
        keys.truncate(MOST_DEVICES);
    }
    Ok(keys)
}
