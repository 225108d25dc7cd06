//! The control plane: who gets which token, and who does not.

mod bench;
mod bounds;
mod devices;
mod files;
mod fuzz;
mod guesses;
mod registration;
mod relays;
mod revocation;
mod rotation;
mod secrets;
mod sessions;
mod status;
