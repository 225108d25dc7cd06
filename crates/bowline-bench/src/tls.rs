//! TLS for the mock upstream.
//!
//! A self-signed certificate is created when the mock starts. Its key never leaves the process;
//! clients read the certificate from a file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// An acceptor with a new certificate for this machine, which is written to the file as PEM.
pub(crate) fn acceptor(file: &Path) -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let written = std::fs::write(file, made.cert.pem());
    written.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
