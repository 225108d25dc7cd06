//! How this replica does, for readiness checks and metrics.
//!
//! Degraded is what works worse and heals by itself: the replica goes on serving. Why exactly is in the log,
//! and not told to whoever asks.

use std::time::Duration;

use bowline_bus::BusHealth;
use bowline_store::Store;
use tokio::sync::watch;

/// How long a readiness check waits for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of an installation that can be degraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Degraded {
    /// Messages between replicas come late, or not at all.
    Bus,
}

impl Degraded {
    const ALL: [Self; 1] = [Self::Bus];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Degraded::Bus => "bus",
        }
    }

    /// What that means for users.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Degraded::Bus => "bus: what happens at other replicas comes late, and live text pauses",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Health {
    bus: Option<watch::Receiver<BusHealth>>,
}

impl Health {
    /// `bus`: none if this gateway is alone.
    pub(crate) fn new(bus: Option<watch::Receiver<BusHealth>>) -> Self {
        Self { bus }
    }

    pub(crate) fn degraded(&self) -> Vec<Degraded> {
        let is_degraded = |part: &Degraded| match part {
            Degraded::Bus => {
                let health = self.bus.as_ref().map(watch::Receiver::borrow);
                health.is_some_and(|health| *health != BusHealth::Good)
            }
        };
        Degraded::ALL.into_iter().filter(is_degraded).collect()
    }

    /// Says in the metrics what is degraded.
    pub(crate) fn measure(&self) {
        let degraded = self.degraded();
        for part in Degraded::ALL {
            let value = if degraded.contains(&part) { 1.0 } else { 0.0 };
            metrics::gauge!("bowline_degraded", "part" => part.as_str()).set(value);
        }
    }
}

/// Writes into the log when the bus becomes degraded, with the reason, and when it is well again.
pub(crate) async fn log_changes(mut bus: watch::Receiver<BusHealth>) {
    let mut is_degraded = false;
    loop {
        let health = bus.borrow_and_update().clone();
        match &health {
            BusHealth::Degraded(why) => tracing::warn!("the bus is degraded: {why}"),
            BusHealth::Good if is_degraded => tracing::info!("the bus is well again"),
            BusHealth::Good => {}
        }
        is_degraded = health != BusHealth::Good;
        if bus.changed().await.is_err() {
            return;
        }
    }
}

/// Whether the store can write, as far as can be known in time.
pub(crate) async fn store_writes(store: &dyn Store) -> bool {
    matches!(tokio::time::timeout(STORE_TIMEOUT, store.check()).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_that_is_lost_degrades_a_replica_until_it_is_back() {
        assert_eq!(Health::new(None).degraded(), []);
        let bus = watch::Sender::new(BusHealth::Good);
        let health = Health::new(Some(bus.subscribe()));
        assert_eq!(health.degraded(), []);
        bus.send_replace(BusHealth::Degraded("redis at 10.0.0.7 is gone".into()));
        assert_eq!(health.degraded(), [Degraded::Bus]);
        assert!(!Degraded::Bus.meaning().contains("10.0.0.7"), "strangers see it");
        bus.send_replace(BusHealth::Good);
        assert_eq!(health.degraded(), []);
    }
}
