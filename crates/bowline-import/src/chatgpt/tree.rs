//! The messages of a conversation by id, and the path from one of them up to the root.

use std::collections::{HashMap, HashSet};
use std::fmt;

use bowline_pyjson::{Object, Text, Value};

use super::super::words::time;

/// The nodes of a conversation.
pub(super) struct Tree<'t> {
    nodes: Vec<Node<'t>>,
    /// Index by id: lookups in the object itself would take quadratic time.
    places: HashMap<Text<'t>, usize>,
}

struct Node<'t> {
    parent: Option<Text<'t>>,
    message: Value<'t>,
}

/// The path from the root to the current message.
pub(super) struct Path {
    pub(super) nodes: Vec<usize>,
    pub(super) problems: Vec<Problem>,
}

/// Why a path may not be the whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    NoCurrent,
    Circle,
    NoParent,
}

impl<'t> Tree<'t> {
    pub(super) fn new(mapping: Option<Value<'t>>) -> Self {
        let Some(Value::Object(mapping)) = mapping else {
            return Self { nodes: Vec::new(), places: HashMap::new() };
        };
        let mut nodes = Vec::with_capacity(mapping.len());
        let mut places = HashMap::with_capacity(mapping.len());
        for (name, node) in mapping {
            places.insert(name, nodes.len());
            let mut node = match node {
                Value::Object(node) => node,
                _ => Object::new(),
            };
            let parent = match node.remove("parent") {
                Some(Value::String(parent)) => Some(parent),
                _ => None,
            };
            nodes.push(Node { parent, message: node.remove("message").unwrap_or_default() });
        }
        Self { nodes, places }
    }

    pub(super) fn path_to(&self, current: Option<&Text<'t>>) -> Path {
        let mut problems = Vec::new();
        let mut next = current.and_then(|current| self.places.get(current)).copied();
        if next.is_none() && !self.nodes.is_empty() {
            problems.push(Problem::NoCurrent);
            next = self.newest_end();
        }
        let mut nodes = Vec::new();
        let mut seen = HashSet::new();
        while let Some(node) = next {
            if !seen.insert(node) {
                problems.push(Problem::Circle);
                break;
            }
            nodes.push(node);
            let parent = self.nodes[node].parent.as_ref();
            next = parent.and_then(|parent| self.places.get(parent)).copied();
            if parent.is_some() && next.is_none() {
                problems.push(Problem::NoParent);
            }
        }
        nodes.reverse();
        Path { nodes, problems }
    }

    /// The newest leaf; the last one in the file if times do not decide.
    fn newest_end(&self) -> Option<usize> {
        let parents = self.nodes.iter().filter_map(|node| self.places.get(node.parent.as_ref()?));
        let parents: HashSet<usize> = parents.copied().collect();
        let ends = (0..self.nodes.len()).filter(|node| !parents.contains(node));
        ends.max_by_key(|node| time(self.nodes[*node].message.get("create_time")))
            .or(self.nodes.len().checked_sub(1))
    }

    pub(super) fn take(&mut self, node: usize) -> Value<'t> {
        self.nodes[node].message.take()
    }

    /// The remaining messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Object<'t>> {
        self.nodes.iter().filter_map(|node| node.message.as_object())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCurrent => "it has no current message; the newest one was used",
            Self::Circle => "its messages form a cycle, which was cut",
            Self::NoParent => "its beginning is missing",
        })
    }
}
