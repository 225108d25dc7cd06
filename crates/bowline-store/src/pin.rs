//! The definition of a server's tool that was seen first, or accepted last.

/// A pinned definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPin {
    /// The name that models use.
    pub tool: String,
    /// What the server said of it, as JSON text.
    pub definition: String,
}
