//! A server's certificate, reloaded when the files change.
//!
//! Changes are detected by polling the modification time, which works on every file system and with
//! every tool that renews certificates. An invalid or half-written pair is ignored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;

use crate::duration;

/// Where the certificate is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate chain, in PEM.
    pub cert: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// How often to check whether the files have changed. An invalid new pair is logged, and the
    /// old one stays in use.
    #[serde(with = "duration", default = "Tls::every")]
    pub reload_every: Duration,
}

impl Tls {
    pub fn new(cert: PathBuf, key: PathBuf) -> Self {
        Self { cert, key, reload_every: Self::every() }
    }

    fn every() -> Duration {
        Duration::from_secs(10)
    }
}

/// What HTTP/2 is called in a TLS handshake.
pub(crate) const HTTP_2: &[u8] = b"h2";
/// The shortest interval between two checks.
const SHORTEST: Duration = Duration::from_millis(10);

/// Why a certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    #[error("cannot read {path}: {reason}")]
    File { path: String, reason: String },
    #[error("{path} holds no certificate in PEM")]
    NoCertificate { path: String },
    #[error("{path} holds no private key in PEM")]
    NoKey { path: String },
    #[error("the certificate and its key cannot be used together: {reason}")]
    Unfit { reason: String },
}

#[derive(Debug)]
pub(crate) struct Certificate {
    files: Tls,
    /// HTTP/2 is offered beside HTTP/1.1.
    http2: bool,
    /// The modification times before the files were first read.
    first: Stamp,
    current: RwLock<Arc<ServerConfig>>,
}

impl Certificate {
    pub(crate) fn load(files: Tls, http2: bool) -> Result<Self, BadCertificate> {
        let first = stamp(&files);
        let current = RwLock::new(Arc::new(read(&files, http2)?));
        Ok(Self { files, http2, first, current })
    }

    /// The acceptor for the next connection, with the current certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current))
    }

    /// Polls the files. Never returns.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut seen = Seen { taken: self.first, refused: None };
        loop {
            tokio::time::sleep(self.files.reload_every.max(SHORTEST)).await;
            let certificate = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || certificate.look(seen));
            seen = looked.await.unwrap_or(seen);
        }
    }

    /// Checks once, and loads a new valid pair.
    ///
    /// The modification times are taken before the files are read: a change in between is found by
    /// the next check.
    fn look(&self, seen: Seen) -> Seen {
        let now = stamp(&self.files);
        if now == seen.taken {
            return seen;
        }
        match read(&self.files, self.http2) {
            Ok(new) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                tracing::info!("the certificate was renewed");
                Seen { taken: now, refused: None }
            }
            Err(error) => {
                // Retried at every check, since it may be half written; logged once.
                if seen.refused != Some(now) {
                    tracing::error!(%error, "the new certificate is invalid; the old one is kept");
                }
                Seen { refused: Some(now), ..seen }
            }
        }
    }
}

/// Modification times of the pair in use, and of the last invalid one.
#[derive(Debug, Clone, Copy)]
struct Seen {
    taken: Stamp,
    refused: Option<Stamp>,
}

/// Modification time and size of both files.
type Stamp = [Option<(SystemTime, u64)>; 2];

fn stamp(files: &Tls) -> Stamp {
    [&files.cert, &files.key].map(|path| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.modified().ok()?, file.len()))
    })
}

fn read(files: &Tls, http2: bool) -> Result<ServerConfig, BadCertificate> {
    let path = |path: &Path| path.display().to_string();
    let bytes = |file: &Path| {
        std::fs::read(file)
            .map_err(|error| BadCertificate::File { path: path(file), reason: error.to_string() })
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&bytes(&files.cert)?).collect();
    let certificates = certificates
        .ok()
        .filter(|list| !list.is_empty())
        .ok_or_else(|| BadCertificate::NoCertificate { path: path(&files.cert) })?;
    let key = PrivateKeyDer::from_pem_slice(&zeroize::Zeroizing::new(bytes(&files.key)?))
        .map_err(|_| BadCertificate::NoKey { path: path(&files.key) })?;
    let unfit = |error: rustls::Error| BadCertificate::Unfit { reason: error.to_string() };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(unfit)?;
    let offered: &[&[u8]] = if http2 { &[HTTP_2, b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    }

    #[test]
    fn a_pair_that_is_unfit_leaves_the_old_one_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(folder.path());
        let certificate =
            Certificate::load(Tls::new(path("cert.pem"), path("key.pem")), false).unwrap();
        let current = || Arc::clone(&certificate.current.read().unwrap());
        let (first, seen) = (current(), Seen { taken: certificate.first, refused: None });
        let seen = certificate.look(seen);
        assert!(Arc::ptr_eq(&first, &current()), "nothing has changed");
        // Only one of the two files has been replaced yet.
        std::fs::write(path("cert.pem"), "-----BEGIN NONSENSE").unwrap();
        let seen = certificate.look(seen);
        assert!(seen.refused.is_some() && Arc::ptr_eq(&first, &current()), "the old one stays");
        write(folder.path());
        // Change the modification time: the clock may not have advanced since the first write.
        let file = std::fs::File::options().write(true).open(path("cert.pem")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(9)).unwrap();
        let seen = certificate.look(seen);
        assert!(seen.refused.is_none() && !Arc::ptr_eq(&first, &current()), "it is renewed");
    }
}
