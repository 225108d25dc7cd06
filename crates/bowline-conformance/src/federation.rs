//! What the suite brings for a federation: a gateway and a tracker of its own, and some that lie.

pub mod keys;
mod offer;
mod peer;
mod serve;

pub(crate) use offer::Offer;
pub use peer::Peer;
pub(crate) use peer::{Persona, now, stranger};
pub(crate) use serve::REDIRECTED;
