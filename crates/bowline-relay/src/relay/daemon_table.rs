//! All daemon slots, by daemon id, and the number of sessions of each user.
//!
//! Sharded, so that daemons do not wait for each other when they connect and disconnect. Lock
//! order: a shard, then a slot, then an outbound queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::relay::ConnectionId;
use bowline_sbrp::revocation::Revoked;

use super::daemon_slot::{DaemonSlot, Retired};
use super::meters::{Gauges, Meters};
use super::outbound_queue::CloseCause;

const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct DaemonTable {
    grace: Duration,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<DaemonId, Arc<DaemonSlot>>>>,
    users: Mutex<HashMap<Arc<str>, u64>>,
    links: AtomicU64,
}

impl DaemonTable {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            users: Mutex::default(),
            links: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.links.fetch_add(1, Ordering::Relaxed))
    }

    fn shard(&self, daemon: &DaemonId) -> MutexGuard<'_, HashMap<DaemonId, Arc<DaemonSlot>>> {
        let at = self.hasher.hash_one(daemon) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `arrive` with the daemon's slot, which is created if there is none.
    pub(crate) fn with_slot(
        &self,
        daemon: &DaemonId,
        arrive: impl Fn(&DaemonSlot) -> Result<(), Retired>,
    ) -> Arc<DaemonSlot> {
        loop {
            let slot = match self.shard(daemon).entry(daemon.clone()) {
                Entry::Occupied(known) => Arc::clone(known.get()),
                Entry::Vacant(new) => {
                    Arc::clone(new.insert(Arc::new(DaemonSlot::new(daemon.clone(), self.grace))))
                }
            };
            // The slot was removed between the lookup and the call: look it up again.
            if arrive(&slot).is_ok() {
                return slot;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn is_online(&self, daemon: &DaemonId) -> bool {
        let slot = self.shard(daemon).get(daemon).cloned();
        slot.is_some_and(|slot| slot.is_online())
    }

    /// Removes a slot without connections and sessions.
    pub(crate) fn remove_if_empty(&self, slot: &Arc<DaemonSlot>) {
        let mut shard = self.shard(slot.daemon());
        let known = shard.get(slot.daemon()).is_some_and(|known| Arc::ptr_eq(known, slot));
        if known && slot.retire_if_empty() {
            shard.remove(slot.daemon());
            give_up_room(&mut shard);
        }
    }

    /// Starts a task that waits for grace periods to end, if this slot has none yet.
    pub(crate) fn start_timer(self: &Arc<Self>, slot: &Arc<DaemonSlot>, meters: &Arc<Meters>) {
        let Some(mut due) = slot.claim_timer() else { return };
        let (daemons, slot, meters) = (Arc::clone(self), Arc::clone(slot), Arc::clone(meters));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep_until(due.into()).await;
                match slot.tick(&meters) {
                    Some(next) => due = next,
                    None => break,
                }
            }
            daemons.remove_if_empty(&slot);
        });
    }

    fn slots(&self) -> impl Iterator<Item = Arc<DaemonSlot>> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().cloned().collect::<Vec<_>>()
        })
    }

    /// Closes all connections of daemons that were revoked, and all whose tokens are no longer good.
    pub(crate) fn close_revoked(&self, revoked: &Revoked, meters: &Meters) {
        for slot in self.slots() {
            match revoked.contains(slot.daemon()) {
                true => slot.revoked(meters),
                false => slot.end_revoked(revoked, meters),
            }
        }
    }

    /// How many daemons are connected.
    pub(crate) fn online(&self) -> usize {
        self.slots().filter(|slot| slot.is_online()).count()
    }

    /// One step of handing all daemons over to other relays: closes at most so many of them.
    pub(crate) fn hand_over(&self, mut most: usize, now: Instant, meters: &Meters) {
        for slot in self.slots() {
            if slot.hand_over(most > 0, now, meters) {
                most -= 1;
            }
        }
    }

    /// Ends the sessions that are too old.
    pub(crate) fn end_aged(&self, now: Instant, meters: &Meters) {
        for slot in self.slots() {
            slot.end_aged(now, meters);
        }
    }

    pub(crate) fn close_all(&self, cause: CloseCause) {
        for slot in self.slots() {
            slot.close_all(cause);
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let mut gauges = Gauges::default();
        for slot in self.slots() {
            slot.count(&mut gauges);
        }
        gauges
    }

    /// A permit for one more session of this user; none if the user already has `most`.
    pub(crate) fn permit(self: &Arc<Self>, user: &str, most: u64) -> Option<UserPermit> {
        let user: Arc<str> = user.into();
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let count = users.entry(Arc::clone(&user)).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(UserPermit { daemons: Arc::clone(self), user })
    }
}

/// Shrinks a map that is much larger than what is left in it. A map does not do so by itself.
fn give_up_room<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

/// A user's permit for one session; released when it is dropped.
#[derive(Debug)]
pub(crate) struct UserPermit {
    daemons: Arc<DaemonTable>,
    user: Arc<str>,
}

impl UserPermit {
    /// The user, shared with the count.
    pub(crate) fn user(&self) -> Arc<str> {
        Arc::clone(&self.user)
    }
}

impl Drop for UserPermit {
    fn drop(&mut self) {
        let mut users = self.daemons.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = users.entry(Arc::clone(&self.user)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                give_up_room(&mut users);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_sbrp::control::Role;

    use super::*;
    use crate::relay::daemon_slot::{DaemonArrival, Grant};
    use crate::relay::outbound_queue::{OutboundQueue, QueueLimits};

    #[test]
    fn a_user_has_as_many_sessions_as_it_may() {
        let daemons = Arc::new(DaemonTable::new(Duration::ZERO));
        let first = daemons.permit("ann", 2).unwrap();
        let _second = daemons.permit("ann", 2).unwrap();
        assert!(daemons.permit("ann", 2).is_none());
        assert!(daemons.permit("bob", 2).is_some());
        drop(first);
        assert!(daemons.permit("ann", 2).is_some());
        assert_eq!(daemons.users.lock().unwrap().len(), 1, "bob is forgotten");
    }

    #[test]
    fn a_table_gives_up_the_room_of_those_who_left() {
        let daemons = Arc::new(DaemonTable::new(Duration::ZERO));
        let mut permits: Vec<_> =
            (0..1000).filter_map(|user| daemons.permit(&user.to_string(), 1)).collect();
        let most = daemons.users.lock().unwrap().capacity();
        permits.truncate(10);
        let (left, room) = {
            let users = daemons.users.lock().unwrap();
            (users.len(), users.capacity())
        };
        assert_eq!((permits.len(), left), (10, 10));
        assert!(room < most / 4, "{room} of {most}");
    }

    #[test]
    fn an_empty_slot_is_forgotten_and_one_in_use_is_not() {
        let daemons = DaemonTable::new(Duration::ZERO);
        let meters = Meters::default();
        let daemon = DaemonId::new("d_1");
        let queue =
            OutboundQueue::new(ConnectionId(1), Role::Daemon, QueueLimits { frames: 1, bytes: 1 });
        let queue = Arc::new(queue);
        let grant = Grant { user: None, issued_at: 0, ends_at: None };
        let arrival = DaemonArrival { epoch: 0, resumable: true, max_sessions: 1 };
        let arrive = |slot: &DaemonSlot| slot.daemon_arrived(&queue, &grant, arrival, &meters);
        let slot = daemons.with_slot(&daemon, arrive);
        daemons.remove_if_empty(&slot);
        assert!(daemons.is_online(&daemon));
        slot.daemon_left(queue.connection, &meters);
        daemons.remove_if_empty(&slot);
        assert_eq!(daemons.slots().count(), 0);
        assert_eq!(arrive(&slot), Err(Retired));
        let again = daemons.with_slot(&daemon, arrive);
        assert!(!Arc::ptr_eq(&slot, &again) && daemons.is_online(&daemon));
    }
}
