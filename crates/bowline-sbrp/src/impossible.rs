//! What all three state machines say of an event they have no row for.

/// Nothing happened: the machine is as it was. Peers can cause this, so it is no panic; whoever
/// drives the machine counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} means nothing to one that is {state}")]
pub struct Impossible {
    pub state: &'static str,
    pub event: &'static str,
}
