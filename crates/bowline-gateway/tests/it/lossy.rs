//! A bus that loses, doubles and delays messages, by a seed.

use std::sync::Mutex;
use std::time::Duration;

use bowline_bus::{Bus, BusError, BusHealth, Inbox, Lane, Memory};
use bowline_store::ReplicaId;
use bytes::Bytes;
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Lossy {
    bus: Memory,
    seed: Mutex<u64>,
}

impl Lossy {
    pub(crate) fn new(seed: u64) -> Self {
        Self { bus: Memory::new(), seed: Mutex::new(seed) }
    }

    /// The next number below 100.
    fn percent(&self) -> u64 {
        let mut seed = self.seed.lock().unwrap();
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % 100
    }
}

#[async_trait::async_trait]
impl Bus for Lossy {
    async fn open(&self, me: ReplicaId) -> Result<Box<dyn Inbox>, BusError> {
        self.bus.open(me).await
    }

    async fn send(&self, to: ReplicaId, lane: Lane, messages: Vec<Bytes>) -> Result<(), BusError> {
        for message in messages {
            let copies = match self.percent() {
                0..10 => 0,
                10..20 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let (bus, message, late) = (self.bus.clone(), message.clone(), self.percent());
                let sent = async move { bus.send(to, lane, vec![message]).await };
                if late < 70 {
                    sent.await?;
                } else {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(late - 70)).await;
                        let _ = sent.await;
                    });
                }
            }
        }
        Ok(())
    }

    fn health(&self) -> watch::Receiver<BusHealth> {
        self.bus.health()
    }
}
