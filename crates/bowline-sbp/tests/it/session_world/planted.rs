//! Bugs that can be switched on: the simulation must find each of them.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// The store does not check the owner and the fence.
    IgnoresLease,
    /// The store does not check the session's version.
    IgnoresVersion,
    /// A commit counts as applied if one with the same fence and version was, from any sender.
    ResendByNumbers,
    /// Effects are executed before the commit is confirmed.
    EffectsFirst,
    /// The inbox of an actor that ends is dropped without replies.
    ForgetsInbox,
    /// A replica is declared dead by the first look that sees its lease expired.
    DeclaresAfterOneLook,
    /// A replica never suspends, however long it cannot renew.
    ServesForEver,
    /// The store gives calls that an owner leaves open another id.
    RenamesOpenCalls,
    /// A turn is accepted again although it is in the log.
    ForgetsTurns,
}
