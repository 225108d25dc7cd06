//! The two primitives that have more than one implementation: ChaCha20-Poly1305 and X25519.
//!
//! Apart, because the fast implementation is C and assembly and does not exist for browsers. The rest
//! (SHA-256, HKDF, HMAC, Ed25519) is portable already and used where it is needed.
//!
//! | feature | implementation | for |
//! |---|---|---|
//! | `aws-lc` (default) | `aws-lc-rs` | servers and command lines |
//! | `rustcrypto` | Rust only | `wasm32-unknown-unknown`, and wherever there is no C compiler |
//!
//! With both features `aws-lc` is used, and the tests compare the two.
//!
//! Invariants
//! - Both give the same bytes for the same input (SBRP-CRYPTO-01).
//! - Secrets are wiped when they are dropped (SBRP-CRYPTO-10).
//! - `open` writes no plaintext that did not authenticate to where a caller may use it: on failure the
//!   output is unspecified and the caller drops it.

#[cfg(feature = "aws-lc")]
mod aws_lc;
#[cfg(all(feature = "rustcrypto", any(test, not(feature = "aws-lc"))))]
mod rustcrypto;

#[cfg(feature = "aws-lc")]
pub(crate) use aws_lc::{AeadKey, AgreementKey};
#[cfg(all(feature = "rustcrypto", not(feature = "aws-lc")))]
pub(crate) use rustcrypto::{AeadKey, AgreementKey};

#[cfg(not(any(feature = "aws-lc", feature = "rustcrypto")))]
compile_error!("bowline-sbrp needs the feature `aws-lc` (default) or `rustcrypto`");

pub(crate) const NONCE_LEN: usize = 12;
pub(crate) const TAG_LEN: usize = 16;

/// The message was not sealed with this key and nonce, or was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAuthentic;

#[cfg(test)]
#[cfg(all(feature = "aws-lc", feature = "rustcrypto"))]
mod tests;
