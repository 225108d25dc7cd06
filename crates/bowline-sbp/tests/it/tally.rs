//! Counts events, to check that the schedules really contain faults.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn extend(&mut self, other: &Tally) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
}
