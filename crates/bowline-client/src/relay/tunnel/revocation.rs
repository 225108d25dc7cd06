//! Ends the tunnels of devices that may not use the daemon any more, with or without a session.
//!
//! One task for all tunnels of a server. It looks at the book whenever that changes.
//!
//! Invariants
//! - A device whose entry is gone or differs from what it was admitted with loses its tunnels.
//! - A book that cannot be read for [`CUT_OFF_AFTER`] counts as one without devices: not to know who was
//!   revoked must not be worth more than to know it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::peer::TunnelPeer;
use super::tunnels::Tunnels;
use crate::relay::devices::{BookError, DeviceBook, PairedDevice};

/// Runs until the tunnels are dropped or it is aborted. `look` is notified when a device came in that the
/// book may have lost meanwhile.
pub(super) async fn end_revoked(
    book: Arc<dyn DeviceBook>,
    mut changed: watch::Receiver<u64>,
    look: Arc<Notify>,
    tunnels: Weak<Tunnels>,
) {
    let mut failing_since: Option<Instant> = None;
    loop {
        tokio::select! {
            Ok(()) = changed.changed() => {}
            () = look.notified() => {}
            () = sleep(RETRY), if failing_since.is_some() => {}
        }
        let read = read(&*book).await;
        let Some(tunnels) = tunnels.upgrade() else { return };
        let ended = match read {
            Ok(devices) => {
                failing_since = None;
                tunnels.retain(|peer| is_among(peer, &devices))
            }
            Err(error) => {
                let since = *failing_since.get_or_insert_with(Instant::now);
                tracing::warn!(%error, "cannot tell whether devices were revoked");
                if since.elapsed() < CUT_OFF_AFTER {
                    continue;
                }
                failing_since = None;
                tunnels.retain(|peer| is_among(peer, &[]))
            }
        };
        if ended > 0 {
            tracing::info!(ended, "tunnels of devices that may not use the daemon any more ended");
        }
    }
}

async fn read(book: &dyn DeviceBook) -> Result<Vec<PairedDevice>, BookError> {
    let late = |_| BookError("it takes too long to read it".into());
    timeout(CUT_OFF_AFTER, book.all()).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}

fn is_among(peer: &TunnelPeer, devices: &[PairedDevice]) -> bool {
    match peer {
        TunnelPeer::Device(device) => devices.contains(device),
        TunnelPeer::Plain => true,
    }
}

const RETRY: Duration = Duration::from_secs(1);
const CUT_OFF_AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use bowline_sbrp::tunnel::{TunnelBudget, TunnelId};
    use tokio_util::task::AbortOnDropHandle;

    use super::super::services::{Services, TcpTargets};
    use super::super::tunnels::HeldTunnel;
    use super::*;
    use crate::relay::devices::test_book::{TestBook, device};

    struct World {
        book: Arc<TestBook>,
        tunnels: Arc<Tunnels>,
        look: Arc<Notify>,
        _watching: AbortOnDropHandle<()>,
    }

    impl World {
        fn new(devices: &[u8]) -> Self {
            let book = Arc::<TestBook>::default();
            book.set(Some(devices.iter().copied().map(device).collect()));
            let hour = Duration::from_secs(3600);
            let tunnels = Tunnels::new(hour, hour, TunnelBudget::default());
            let look = Arc::new(Notify::new());
            let watching = end_revoked(
                Arc::<TestBook>::clone(&book),
                book.changed(),
                Arc::clone(&look),
                Arc::downgrade(&tunnels),
            );
            let _watching = AbortOnDropHandle::new(tokio::spawn(watching));
            Self { book, tunnels, look, _watching }
        }

        fn tunnel(&self, peer: &TunnelPeer) -> HeldTunnel {
            let services: Arc<dyn Services> = Arc::new(TcpTargets::default());
            let id = TunnelId::from_random([1; 16]);
            self.tunnels.hold(id, None, peer, &services).unwrap().0
        }

        fn of_device(&self, seed: u8) -> HeldTunnel {
            self.tunnel(&TunnelPeer::Device(Arc::new(device(seed))))
        }
    }

    /// Time is virtual: this is after all that can happen in it.
    async fn after(seconds: f64) {
        sleep(Duration::from_secs_f64(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_is_gone_or_changed_loses_its_tunnels_and_others_do_not() {
        let world = World::new(&[1, 2, 3]);
        let held = [1, 2, 3].map(|seed| world.of_device(seed));
        let plain = world.tunnel(&TunnelPeer::Plain);
        let renamed = PairedDevice { name: "tablet".into(), ..device(2) };
        world.book.set(Some(vec![renamed, device(3)]));
        world.book.tell();
        after(0.1).await;
        assert_eq!(held.each_ref().map(|one| one.session.is_cancelled()), [true, true, false]);
        assert!(!plain.session.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_device_that_is_away_loses_its_tunnels() {
        let world = World::new(&[1]);
        let held = world.of_device(1);
        let (core, session) = (Arc::clone(&held.core), held.session.clone());
        drop(held);
        after(60.0).await;
        assert!(!session.is_cancelled(), "it waits");
        world.book.set(Some(vec![]));
        world.book.tell();
        after(0.1).await;
        assert!(session.is_cancelled());
        assert_eq!(Arc::strong_count(&core), 1, "nothing holds it any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revocation_that_could_not_be_read_at_first_still_counts() {
        let world = World::new(&[1, 2]);
        let (gone, stays) = (world.of_device(1), world.of_device(2));
        world.book.set(None);
        world.book.tell();
        after(2.5).await;
        assert!(!gone.session.is_cancelled(), "unknown, for now");
        // Readable again, and nothing else changes.
        world.book.set(Some(vec![device(2)]));
        after(1.0).await;
        assert!(gone.session.is_cancelled());
        after(60.0).await;
        assert!(!stays.session.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn devices_are_cut_off_when_the_book_cannot_be_read_for_long() {
        let world = World::new(&[1]);
        let (phone, plain) = (world.of_device(1), world.tunnel(&TunnelPeer::Plain));
        world.book.set(None);
        world.book.tell();
        after(4.5).await;
        assert!(!phone.session.is_cancelled());
        after(2.0).await;
        assert!(phone.session.is_cancelled() && !plain.session.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn the_book_is_looked_at_when_asked() {
        let world = World::new(&[]);
        let late = world.of_device(1);
        after(60.0).await;
        assert!(!late.session.is_cancelled(), "nobody has looked");
        world.look.notify_one();
        after(0.1).await;
        assert!(late.session.is_cancelled());
    }
}
