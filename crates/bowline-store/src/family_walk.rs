//! The walk through a lineage tree, without the database.
//!
//! Breadth first, so that a limited result has the nearest relatives. The backends read the edges of
//! one session at a time, or of a whole generation.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::Edge;

/// A lineage tree, as far as it was walked.
#[derive(Debug)]
pub(crate) struct FamilyWalk {
    most: usize,
    to_visit: VecDeque<String>,
    known: HashSet<String>,
    /// In the order in which they were found.
    members: Vec<String>,
    /// By their number.
    edges: BTreeMap<i64, Edge>,
    cut: bool,
}

impl FamilyWalk {
    /// Begins at a session; finds at most `most` of its nearest relatives.
    pub(crate) fn new(session: String, most: u32) -> Self {
        Self {
            most: most as usize,
            to_visit: VecDeque::from([session.clone()]),
            known: HashSet::from([session.clone()]),
            members: vec![session],
            edges: BTreeMap::new(),
            cut: false,
        }
    }

    /// The next session whose edges are to be read.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.to_visit.pop_front()
    }

    /// How many edges to its children are to be read. At the limit none: only edges between known
    /// sessions are missing then, and each of those is found from its target session.
    pub(crate) fn children_wanted(&self) -> i64 {
        if self.cut { 0 } else { self.most as i64 + 1 }
    }

    /// The edges of a session that was visited.
    pub(crate) fn visited(&mut self, member: &str, edges: Vec<(i64, Edge)>) {
        for (number, edge) in edges {
            let other = if edge.origin == member { &edge.session } else { &edge.origin };
            if !self.known.contains(other) {
                if self.known.len() >= self.most {
                    self.cut = true;
                    continue;
                }
                self.known.insert(other.clone());
                self.members.push(other.clone());
                self.to_visit.push_back(other.clone());
            }
            self.edges.insert(number, edge);
        }
    }

    /// The edges, oldest first; whether the tree has more sessions; and all sessions that were found,
    /// the first one first.
    pub(crate) fn end(self) -> (Vec<Edge>, bool, Vec<String>) {
        (self.edges.into_values().collect(), self.cut, self.members)
    }
}
