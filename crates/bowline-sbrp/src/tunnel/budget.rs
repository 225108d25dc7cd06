//! What the tunnels of one process may hold in memory together.
//!
//! Each tunnel is bounded by itself. A daemon has many, whose devices may all be fast or may all lie, so
//! what goes beyond the least that a tunnel needs comes out of one budget: the first credit of each
//! stream, windows that grow, and what is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may still be promised. Clones share it.
#[derive(Debug, Clone)]
pub struct TunnelBudget(Arc<AtomicUsize>);

impl TunnelBudget {
    /// As much as a daemon with some hundred streams in full use needs: 256 MiB.
    pub const DEFAULT: usize = 256 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes so many bytes, or none.
    fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

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
        self.budget.0.fetch_add(bytes, Ordering::Relaxed);
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
