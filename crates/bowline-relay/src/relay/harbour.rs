//! All docks, by daemon id; and how many sessions each user holds.
//!
//! Sharded, so that daemons do not wait for each other when they come and go. Lock order: a shard,
//! then a dock, then a line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::relay::Link;
use bowline_sbrp::revocation::Revoked;

use super::dock::{Dock, Retired};
use super::line::Ending;
use super::meters::{Census, Meters};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Harbour {
    grace: Duration,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<DaemonId, Arc<Dock>>>>,
    users: Mutex<HashMap<Arc<str>, u64>>,
    links: AtomicU64,
}

impl Harbour {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            users: Mutex::default(),
            links: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_link(&self) -> Link {
        Link(self.links.fetch_add(1, Ordering::Relaxed))
    }

    fn shard(&self, daemon: &DaemonId) -> MutexGuard<'_, HashMap<DaemonId, Arc<Dock>>> {
        let at = self.hasher.hash_one(daemon) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at the daemon's dock, which is made if there is none.
    pub(crate) fn at(
        &self,
        daemon: &DaemonId,
        arrive: impl Fn(&Dock) -> Result<(), Retired>,
    ) -> Arc<Dock> {
        loop {
            let dock = match self.shard(daemon).entry(daemon.clone()) {
                Entry::Occupied(known) => Arc::clone(known.get()),
                Entry::Vacant(new) => {
                    Arc::clone(new.insert(Arc::new(Dock::new(daemon.clone(), self.grace))))
                }
            };
            // Given up between finding and arriving: the map has forgotten it, or will at once.
            if arrive(&dock).is_ok() {
                return dock;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn is_online(&self, daemon: &DaemonId) -> bool {
        let dock = self.shard(daemon).get(daemon).cloned();
        dock.is_some_and(|dock| dock.is_online())
    }

    /// Forgets a dock where nobody is.
    pub(crate) fn tidy(&self, dock: &Arc<Dock>) {
        let mut shard = self.shard(dock.daemon());
        let known = shard.get(dock.daemon()).is_some_and(|known| Arc::ptr_eq(known, dock));
        if known && dock.retire_if_empty() {
            shard.remove(dock.daemon());
        }
    }

    /// Waits for graces to end, if nobody does so already for this dock.
    pub(crate) fn time(self: &Arc<Self>, dock: &Arc<Dock>, meters: &Arc<Meters>) {
        let Some(mut due) = dock.claim_timer() else { return };
        let (harbour, dock, meters) = (Arc::clone(self), Arc::clone(dock), Arc::clone(meters));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(due.into()).await;
                match dock.tick(&meters) {
                    Some(next) => due = next,
                    None => break,
                }
            }
            harbour.tidy(&dock);
        });
    }

    fn docks(&self) -> impl Iterator<Item = Arc<Dock>> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().cloned().collect::<Vec<_>>()
        })
    }

    /// Ends what goes on at the docks of daemons that were revoked.
    pub(crate) fn send_away(&self, revoked: &Revoked, meters: &Meters) {
        for dock in self.docks().filter(|dock| revoked.contains(dock.daemon())) {
            dock.revoked(meters);
        }
    }

    pub(crate) fn close_all(&self, ending: Ending) {
        for dock in self.docks() {
            dock.close_all(ending);
        }
    }

    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for dock in self.docks() {
            dock.count(&mut census);
        }
        census
    }

    /// One more session of this user, unless it has as many as it may.
    pub(crate) fn seat(self: &Arc<Self>, user: &str, most: u64) -> Option<Seat> {
        let user: Arc<str> = user.into();
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let count = users.entry(Arc::clone(&user)).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Seat { harbour: Arc::clone(self), user })
    }
}

/// A user's place for one session, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    harbour: Arc<Harbour>,
    user: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut users = self.harbour.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = users.entry(Arc::clone(&self.user)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_sbrp::control::Role;

    use super::*;
    use crate::relay::line::{Line, Room};

    #[test]
    fn a_user_has_as_many_seats_as_it_may() {
        let harbour = Arc::new(Harbour::new(Duration::ZERO));
        let first = harbour.seat("ann", 2).unwrap();
        let _second = harbour.seat("ann", 2).unwrap();
        assert!(harbour.seat("ann", 2).is_none());
        assert!(harbour.seat("bob", 2).is_some());
        drop(first);
        assert!(harbour.seat("ann", 2).is_some());
        assert_eq!(harbour.users.lock().unwrap().len(), 1, "bob is forgotten");
    }

    #[test]
    fn an_empty_dock_is_forgotten_and_one_in_use_is_not() {
        let harbour = Harbour::new(Duration::ZERO);
        let meters = Meters::default();
        let daemon = DaemonId::new("d_1");
        let line = Line::new(Link(1), Role::Daemon, Room { frames: 1, bytes: 1 });
        let line = Arc::new(line);
        let dock = harbour.at(&daemon, |dock| dock.daemon_came(&line, true, 1, &meters));
        harbour.tidy(&dock);
        assert!(harbour.is_online(&daemon));
        dock.daemon_went(line.link, &meters);
        harbour.tidy(&dock);
        assert_eq!(harbour.docks().count(), 0);
        assert_eq!(dock.daemon_came(&line, true, 1, &meters), Err(Retired));
        let again = harbour.at(&daemon, |dock| dock.daemon_came(&line, true, 1, &meters));
        assert!(!Arc::ptr_eq(&dock, &again) && harbour.is_online(&daemon));
    }
}
