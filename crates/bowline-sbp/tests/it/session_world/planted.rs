//! Mistakes that can be switched on: the world must notice each of them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// The store does not look at who owns the session and under which fence.
    IgnoresLease,
    /// The store does not look at the session's version.
    IgnoresVersion,
    /// A commit counts as applied if one with its fence and version was, whoever sent that.
    ResendByNumbers,
    /// Effects are carried out while the commit is on its way.
    EffectsFirst,
    /// What was in the inbox of an actor that ends is dropped without a word.
    ForgetsInbox,
    /// A turn is taken again although the log has it.
    ForgetsTurns,
}
