//! How a bus does: good, unless one of its connections is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::{BusError, BusHealth};

/// What the connections of a bus report.
#[derive(Debug)]
pub(crate) struct Reports {
    troubles: Mutex<Troubles>,
    health: watch::Sender<BusHealth>,
}

#[derive(Debug, Default)]
struct Troubles {
    of: BTreeMap<u64, String>,
    connections: u64,
}

/// The reports of one connection. Forgotten when it is dropped.
#[derive(Debug)]
pub(crate) struct Reporter {
    reports: Arc<Reports>,
    connection: u64,
}

impl Reports {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { troubles: Mutex::default(), health: watch::Sender::new(BusHealth::Good) })
    }

    pub(crate) fn health(&self) -> watch::Receiver<BusHealth> {
        self.health.subscribe()
    }

    pub(crate) fn reporter(self: &Arc<Self>) -> Reporter {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.connections += 1;
        Reporter { reports: Arc::clone(self), connection: troubles.connections }
    }

    fn set(&self, connection: u64, trouble: Option<String>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(why) => troubles.of.insert(connection, why),
            None => troubles.of.remove(&connection),
        };
        let now = troubles.of.values().next().cloned().map_or(BusHealth::Good, BusHealth::Degraded);
        self.health.send_if_modified(|health| std::mem::replace(health, now.clone()) != now);
    }
}

impl Reporter {
    pub(crate) fn good(&self) {
        self.reports.set(self.connection, None);
    }

    pub(crate) fn bad(&self, why: &BusError) {
        self.reports.set(self.connection, Some(why.to_string()));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.good();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_good_when_no_connection_is_in_trouble() {
        let reports = Reports::new();
        let health = reports.health();
        let (one, two) = (reports.reporter(), reports.reporter());
        let why = BusError::Unreachable("connection refused".into());
        one.bad(&why);
        two.bad(&why);
        assert_eq!(*health.borrow(), BusHealth::Degraded(why.to_string()));
        one.good();
        assert_eq!(*health.borrow(), BusHealth::Degraded(why.to_string()));
        drop(two);
        assert_eq!(*health.borrow(), BusHealth::Good);
    }
}
