//! Which migrations this process carries out now.
//!
//! What nobody carries out is taken up again from time to time. Taking up one that is carried out here would do no
//! harm, but answer its client that somebody else was faster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::federation::ReservationId;

#[derive(Debug, Clone, Default)]
pub(crate) struct Moving(Arc<Mutex<HashMap<ReservationId, usize>>>);

impl Moving {
    /// One more task carries it out, until what is returned is dropped.
    pub(crate) fn begin(&self, id: ReservationId) -> Carrying {
        *self.lock().entry(id).or_default() += 1;
        Carrying { moving: self.clone(), id }
    }

    pub(crate) fn carries(&self, id: ReservationId) -> bool {
        self.lock().contains_key(&id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ReservationId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that carries a migration out.
#[derive(Debug)]
pub(crate) struct Carrying {
    moving: Moving,
    id: ReservationId,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        let mut all = self.moving.lock();
        if let Some(tasks) = all.get_mut(&self.id) {
            *tasks -= 1;
            if *tasks == 0 {
                all.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_migration_is_carried_out_until_the_last_task_has_ended() {
        let (moving, id) = (Moving::default(), ReservationId(Uuid::from_u128(1)));
        let (one, two) = (moving.begin(id), moving.begin(id));
        drop(one);
        assert!(moving.carries(id) && !moving.carries(ReservationId(Uuid::from_u128(2))));
        drop(two);
        assert!(!moving.carries(id));
    }
}
