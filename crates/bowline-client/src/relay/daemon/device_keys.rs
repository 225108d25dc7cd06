//! Tells the control plane which devices may get tokens for this daemon: the paired ones, and those
//! that have a pairing code which was not used yet.
//!
//! The whole set is told whenever it may have changed, so that nothing has to be remembered of what was
//! told before; and again when the presence is renewed, in case the control plane lost it. After a
//! failure, of the book or of the control plane, it is told again after a back-off, or as soon as the
//! set changes: a revocation does not wait.

use std::sync::Arc;

use bowline_sbrp::api::{DeviceKey, MOST_DEVICES};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::relay::RECONNECT;
use crate::relay::control_plane::ControlError;
use crate::relay::devices::{BookError, DeviceBook};
use crate::relay::random::dice;

/// Runs until it is aborted. `tell` is given the whole set; `failed` is told when an attempt failed.
pub(super) async fn keep_told<P, T>(
    book: Arc<dyn DeviceBook>,
    mut presence: watch::Receiver<P>,
    tell: impl Fn(Vec<DeviceKey>) -> T,
    failed: impl Fn(ControlError),
) where
    T: Future<Output = Result<(), ControlError>>,
{
    let mut changed = book.changed();
    let mut attempt = 0;
    loop {
        changed.mark_unchanged();
        presence.mark_unchanged();
        let is_told = match device_keys(&*book).await {
            Ok(devices) => match tell(devices).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "the control plane was not told which devices are paired");
                    failed(error);
                    false
                }
            },
            Err(error) => {
                tracing::warn!(%error, "the control plane is not told which devices are paired");
                false
            }
        };
        let retry_in = RECONNECT.delay(attempt, dice());
        attempt = if is_told { 0 } else { attempt.saturating_add(1) };
        tokio::select! {
            Ok(()) = changed.changed() => {}
            Ok(()) = presence.changed() => {}
            () = sleep(retry_in), if !is_told => {}
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use tokio::time::Instant;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::relay::devices::test_book::{TestBook, device};

    type Told = Arc<Mutex<Vec<Vec<DeviceKey>>>>;

    fn telling(book: &Arc<TestBook>) -> (Told, watch::Sender<()>, AbortOnDropHandle<()>) {
        let told = Told::default();
        let heard = Arc::clone(&told);
        let (renewed, presence) = watch::channel(());
        let tell = move |devices| {
            heard.lock().unwrap().push(devices);
            std::future::ready(Ok(()))
        };
        let telling = keep_told(Arc::<TestBook>::clone(book), presence, tell, |_| {});
        (told, renewed, AbortOnDropHandle::new(tokio::spawn(telling)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_book_that_could_not_be_read_is_told_of_when_it_can() {
        let book = Arc::<TestBook>::default();
        let (told, _renewed, _task) = telling(&book);
        sleep(Duration::from_secs(3)).await;
        assert!(book.reads.load(Ordering::SeqCst) > 1 && told.lock().unwrap().is_empty());
        book.set(Some(vec![device(1)]));
        sleep(Duration::from_secs(10)).await;
        let told = told.lock().unwrap().clone();
        assert_eq!(told, [vec![DeviceKey { key: device(1).key, expires_at: None }]], "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_at_once_while_it_waits_to_try_again() {
        let book = Arc::<TestBook>::default();
        let (told, _renewed, _task) = telling(&book);
        // Time is virtual; by now the waits take 15 s and more.
        sleep(Duration::from_secs(300)).await;
        let reads = book.reads.load(Ordering::SeqCst);
        while book.reads.load(Ordering::SeqCst) == reads {
            sleep(Duration::from_millis(10)).await;
        }
        book.set(Some(vec![]));
        book.tell();
        let changed_at = Instant::now();
        while told.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(changed_at.elapsed() < Duration::from_secs(1), "{:?}", changed_at.elapsed());
    }
}
