//! The content id against fixed vectors, properties and Python; the session actor in simulations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod federation_docs;
mod migration_world;
mod properties;
mod python;
mod random;
mod session_wire;
mod session_world;
mod tally;
mod vectors;
