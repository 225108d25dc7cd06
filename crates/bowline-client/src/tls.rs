//! Secure connections, for surfaces and for both ends of a relay.

/// rustls panics at the first secure address if a build has no provider or two and nobody chose.
pub(crate) fn provide_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may be first; then there is one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}
