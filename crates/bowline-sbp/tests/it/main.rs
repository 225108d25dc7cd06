//! The content id against fixed vectors, against itself, and against Python.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod documents;
mod properties;
mod python;
mod session_wire;
mod session_world;
mod vectors;
