//! TLS, for surfaces and for both ends of a relay.

/// Installs a crypto provider: without one, or with two and no default, rustls panics at the first
/// TLS connection.
pub(crate) fn provide_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails if another thread was first; then a provider is installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}
