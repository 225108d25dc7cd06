//! Pairs equal keys of two lists: unique keys as anchors, as in a patience diff, and runs grown from
//! both ends. Pairs never cross.
//!
//! Apart, because its cost must stay bounded whatever a caller sends: a list can be made so that
//! each division finds one anchor only. So the ranges to divide are on a work list, not on the
//! stack, and once the budget of [`PASSES`] over both lists is spent, what is left is paired in one
//! pass.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

/// How often each key may be looked at in the search for anchors. Conversations need two or three.
const PASSES: usize = 32;

/// For each key of `sent`, the index of its partner in `log`.
pub(super) fn equal<K: Hash + Eq + Copy>(log: &[K], sent: &[K]) -> Vec<Option<usize>> {
    let mut pairing = Pairing::new(log, sent);
    pairing.run();
    pairing.partner
}

/// A range of each list.
type Gap = (Range<usize>, Range<usize>);

struct Pairing<'a, K> {
    log: &'a [K],
    sent: &'a [K],
    partner: Vec<Option<usize>>,
    /// How many keys were looked at in the search for anchors.
    looked_at: usize,
}

impl<'a, K: Hash + Eq + Copy> Pairing<'a, K> {
    fn new(log: &'a [K], sent: &'a [K]) -> Self {
        Self { log, sent, partner: vec![None; sent.len()], looked_at: 0 }
    }

    fn run(&mut self) {
        let budget = PASSES * (self.log.len() + self.sent.len());
        let mut work = vec![(0..self.log.len(), 0..self.sent.len())];
        while let Some(gap) = work.pop() {
            let (logs, sents) = self.grow(gap);
            if logs.is_empty() || sents.is_empty() {
                continue;
            }
            let size = logs.len() + sents.len();
            // An edited message between two matches: most gaps.
            if size == 2 {
                continue;
            }
            let anchors = match self.looked_at + size <= budget {
                true => self.anchors(&logs, &sents),
                false => Vec::new(),
            };
            if anchors.is_empty() {
                self.latest(logs, sents);
                continue;
            }
            let (mut log_at, mut sent_at) = (logs.start, sents.start);
            for (log_anchor, sent_anchor) in anchors {
                work.push((log_at..log_anchor, sent_at..sent_anchor));
                self.partner[sent_anchor] = Some(log_anchor);
                (log_at, sent_at) = (log_anchor + 1, sent_anchor + 1);
            }
            work.push((log_at..logs.end, sent_at..sents.end));
        }
    }

    /// Pairs equal keys at both ends; returns what is left. From the end first: clients cut the
    /// beginning of a conversation.
    fn grow(&mut self, (mut logs, mut sents): Gap) -> Gap {
        let (log, sent) = (self.log, self.sent);
        while !logs.is_empty() && !sents.is_empty() && log[logs.end - 1] == sent[sents.end - 1] {
            logs.end -= 1;
            sents.end -= 1;
            self.partner[sents.end] = Some(logs.end);
        }
        while !logs.is_empty() && !sents.is_empty() && log[logs.start] == sent[sents.start] {
            self.partner[sents.start] = Some(logs.start);
            logs.start += 1;
            sents.start += 1;
        }
        (logs, sents)
    }

    /// Without anchors: from the end, each key is paired with its latest equal one.
    fn latest(&mut self, logs: Range<usize>, sents: Range<usize>) {
        let mut places: HashMap<K, Vec<usize>> = HashMap::new();
        for at in logs.clone() {
            places.entry(self.log[at]).or_default().push(at);
        }
        let mut end = logs.end;
        for at in sents.rev() {
            let Some(known) = places.get_mut(&self.sent[at]) else { continue };
            while known.last().is_some_and(|place| *place >= end) {
                known.pop();
            }
            if let Some(place) = known.pop() {
                self.partner[at] = Some(place);
                end = place;
            }
        }
    }

    /// Keys that occur once on both sides, at places that do not cross.
    fn anchors(&mut self, logs: &Range<usize>, sents: &Range<usize>) -> Vec<(usize, usize)> {
        self.looked_at += logs.len() + sents.len();
        // How often a key was sent, and its place in the log with how often it is there.
        let mut places: HashMap<K, (u32, usize, u32)> = HashMap::new();
        for key in &self.sent[sents.clone()] {
            places.entry(*key).or_default().0 += 1;
        }
        for at in logs.clone() {
            if let Some((_, place, times)) = places.get_mut(&self.log[at]) {
                *place = at;
                *times += 1;
            }
        }
        let once = |at: usize| match places.get(&self.sent[at]) {
            Some((1, place, 1)) => Some((*place, at)),
            _ => None,
        };
        increasing(sents.clone().filter_map(once).collect())
    }
}

/// The longest run of pairs whose log places increase (patience sorting).
fn increasing(pairs: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    if pairs.is_sorted_by_key(|(log, _)| *log) {
        return pairs;
    }
    // The pairs on top of the piles, and each pair's predecessor.
    let mut tops: Vec<usize> = Vec::new();
    let mut before = vec![None; pairs.len()];
    for (n, (log, _)) in pairs.iter().enumerate() {
        let pile = tops.partition_point(|top| pairs[*top].0 < *log);
        before[n] = pile.checked_sub(1).map(|below| tops[below]);
        match tops.get_mut(pile) {
            Some(top) => *top = n,
            None => tops.push(n),
        }
    }
    let mut found = Vec::with_capacity(tops.len());
    let mut at = tops.last().copied();
    while let Some(n) = at {
        found.push(pairs[n]);
        at = before[n];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n n+1 n-1 n … 2 3 1 2` and `n n-1 … 1`: each division finds one anchor.
    fn one_anchor_each(n: usize) -> (Vec<usize>, Vec<usize>) {
        let log = (1..=n).rev().flat_map(|k| [k, k + 1]).collect();
        (log, (1..=n).rev().collect())
    }

    #[test]
    fn lists_with_one_anchor_a_division_are_paired_with_bounded_work_and_a_small_stack() {
        let pair = || {
            let (log, mut sent) = one_anchor_each(10_000);
            sent.push(0);
            let mut pairing = Pairing::new(&log, &sent);
            pairing.run();
            assert!(pairing.looked_at <= PASSES * 30_001, "{}", pairing.looked_at);
            let found: Vec<_> = pairing.partner.into_iter().flatten().collect();
            assert!(found.is_sorted_by(|a, b| a < b), "pairs cross");
            assert!(found.len() >= 10_000 - 1);
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(pair).unwrap().join().unwrap();
    }
}
