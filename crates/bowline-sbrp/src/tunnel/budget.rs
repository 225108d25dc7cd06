//! What the tunnels of one process may hold in memory together.
//!
//! Each tunnel is bounded by itself. A daemon has many, whose devices may all be fast or may all lie, so
//! what goes beyond the least that a tunnel needs comes out of one budget: the first credit of each
//! stream, windows that grow, and what is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may still be promised. Clones share it.
#[derive(Debug, Clone)]
pub struct TunnelBudget {
    left: Arc<AtomicUsize>,
    total: usize,
    /// What this one is a part of.
    whole: Option<Arc<TunnelBudget>>,
}

impl TunnelBudget {
    /// As much as a daemon with some hundred streams in full use needs: 256 MiB.
    pub const DEFAULT: usize = 256 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)), total: bytes, whole: None }
    }

    /// A part of this budget for one device: what it takes counts in both, and it gets no more than a
    /// quarter, or enough for some streams. So no device can take everything from the others.
    #[must_use]
    pub fn for_one_device(&self) -> Self {
        let most = (self.total / 4).max(LEAST_PART).min(self.total);
        Self { whole: Some(Arc::new(self.clone())), ..Self::new(most) }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        self.whole.as_ref().map_or(left, |whole| left.min(whole.left()))
    }

    /// Takes so many bytes, or none.
    fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return false;
        }
        let taken = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !taken {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give(bytes);
        }
    }
}

/// The least part of a device.
const LEAST_PART: usize = 2 << 20;

impl Default for TunnelBudget {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

/// One tunnel's part of the budget; given back when it is dropped.
#[derive(Debug)]
pub(super) struct BudgetShare {
    budget: TunnelBudget,
    held: usize,
}

impl BudgetShare {
    pub(super) fn new(budget: TunnelBudget) -> Self {
        Self { budget, held: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.budget.left()
    }

    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken = self.budget.take(bytes);
        if taken {
            self.held += bytes;
        }
        taken
    }

    pub(super) fn give(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.budget.give(bytes);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.give(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_one_device_cannot_take_the_budget_of_all() {
        let budget = TunnelBudget::new(100 << 20);
        let greedy = budget.for_one_device();
        let mut tunnels: Vec<_> = (0..16).map(|_| BudgetShare::new(greedy.clone())).collect();
        while tunnels.iter_mut().any(|tunnel| tunnel.take(64 << 10)) {}
        assert_eq!(budget.left(), 75 << 20);
        let mut other = BudgetShare::new(budget.for_one_device());
        assert!(other.take(20 << 20) && !other.take(6 << 20));
        drop(tunnels);
        assert_eq!((budget.left(), greedy.left()), (80 << 20, 25 << 20));
        // All devices together have no more than there is.
        let mut parts: Vec<_> = (0..4).map(|_| BudgetShare::new(budget.for_one_device())).collect();
        let taken: Vec<_> = parts.iter_mut().map(|part| part.take(25 << 20)).collect();
        assert_eq!(taken, [true, true, true, false]);
    }

    #[test]
    fn what_a_tunnel_took_comes_back_with_it() {
        let budget = TunnelBudget::new(100);
        let mut one = BudgetShare::new(budget.clone());
        let mut other = BudgetShare::new(budget.clone());
        assert!(one.take(60) && !other.take(41) && other.take(40));
        one.give(10);
        assert_eq!(budget.left(), 10);
        one.give(1000);
        assert_eq!(budget.left(), 60, "no more than it held");
        drop(other);
        assert_eq!(budget.left(), 100);
    }
}
