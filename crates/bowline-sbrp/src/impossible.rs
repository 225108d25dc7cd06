//! The error of all three state machines for an event that is not valid in the current state.

/// The event was ignored and the state is unchanged. A peer can cause this, so it is not a panic;
/// the driver of the state machine counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} means nothing to one that is {state}")]
pub struct Impossible {
    /// The state, in words.
    pub state: &'static str,
    /// The event, in words.
    pub event: &'static str,
}
