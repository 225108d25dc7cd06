//! Which certificates of other servers are trusted: those of this system's store, and those of a
//! private authority that the operator names (`--ca-file`).
//!
//! Apart, so that HTTP requests (`outbound`), WebSockets (`dial`) and connections to other servers
//! ([`tls_config`]) trust the same.
//! The list is one for the process, as the system's store is: it is added to once, before the first
//! connection.

mod server_check;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

pub use self::server_check::ServerCheck;
use self::server_check::{AnyHost, Anybody};

/// Why a file of certificates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCaFile {
    #[error("cannot read the certificates in {}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("{} holds no certificate in PEM", path.display())]
    Empty { path: PathBuf },
    #[error("{} holds a private key and no certificate", path.display())]
    Key { path: PathBuf },
    #[error("certificate {number} in {} cannot be used: {why}", path.display())]
    Certificate { path: PathBuf, number: usize, why: String },
}

impl BadCaFile {
    /// What to do about it.
    pub const HINT: &str = "give the certificate of the authority as a PEM file, which begins with \
        -----BEGIN CERTIFICATE-----; a file in DER becomes one with `openssl x509 -inform der -in FILE`";
}

/// Added by [`add`].
static ADDED: RwLock<Vec<CertificateDer<'static>>> = RwLock::new(Vec::new());

/// Trusts the certificates in these files as well, in the whole process, for connections that begin
/// after it. To be called once, when the program starts. If one file is wrong, none counts.
pub fn add<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Result<(), BadCaFile> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read(file.as_ref())?);
    }
    ADDED.write().unwrap_or_else(PoisonError::into_inner).extend(all);
    Ok(())
}

/// The certificates in a PEM file, each of them usable as an authority's.
pub fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadCaFile> {
    let owned = || path.to_owned();
    let text = std::fs::read(path)
        .map_err(|error| BadCaFile::File { path: owned(), why: error.to_string() })?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .enumerate()
        .map(|(at, certificate)| usable(certificate).map_err(|why| (at + 1, why)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|(number, why)| BadCaFile::Certificate { path: owned(), number, why })?;
    if !certificates.is_empty() {
        return Ok(certificates);
    }
    Err(match PrivateKeyDer::from_pem_slice(&text) {
        Ok(_) => BadCaFile::Key { path: owned() },
        Err(_) => BadCaFile::Empty { path: owned() },
    })
}

fn usable(
    certificate: Result<CertificateDer<'static>, rustls::pki_types::pem::Error>,
) -> Result<CertificateDer<'static>, String> {
    let certificate = certificate.map_err(|_| "it is not PEM".to_owned())?;
    let added = RootCertStore::empty().add(certificate.clone());
    added.map_err(|_| "it is not a certificate (X.509, version 3)".to_owned())?;
    Ok(certificate)
}

/// Those that were added.
pub fn added() -> Vec<CertificateDer<'static>> {
    ADDED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The TLS settings of HTTP connections that are not reqwest's. Made once: the system's store is read
/// from disk, and sessions are resumed by what is kept here.
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    static MADE: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(Arc::clone(made));
    }
    let made = Arc::new(trusting(added())?);
    Ok(Arc::clone(MADE.get_or_init(|| made)))
}

/// TLS settings for servers that do not speak HTTP. With a file, only the authorities in it are
/// trusted; without one, what all other connections trust.
pub fn tls_config(check: ServerCheck, ca_file: Option<&Path>) -> Result<ClientConfig, NoTlsConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let verifier = match (check, ca_file) {
        // The system's authorities sign for everybody: without the host, that says nothing.
        (ServerCheck::Authority | ServerCheck::Host, None) => {
            return Ok(with_system_store(added())?);
        }
        (ServerCheck::Host, Some(file)) => {
            return Ok(config.with_root_certificates(roots(file)?).with_no_client_auth());
        }
        (ServerCheck::Nothing, None) => {
            config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
        // As libpq: who names authorities wants them to be looked at.
        (ServerCheck::Nothing | ServerCheck::Authority, Some(file)) => {
            let roots = Arc::new(roots(file)?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
            config.dangerous().with_custom_certificate_verifier(Arc::new(AnyHost(inner)))
        }
    };
    Ok(verifier.with_no_client_auth())
}

fn roots(file: &Path) -> Result<RootCertStore, NoTlsConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in read(file)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Why there are no TLS settings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoTlsConfig {
    #[error(transparent)]
    CaFile(#[from] BadCaFile),
    #[error("no certificate can be verified: {0}")]
    Verifier(#[from] rustls::Error),
    #[error("no certificate can be verified: {0}")]
    Authorities(String),
}

impl From<VerifierBuilderError> for NoTlsConfig {
    fn from(error: VerifierBuilderError) -> Self {
        Self::Authorities(error.to_string())
    }
}

/// TLS settings for HTTP that trust this system's store and these.
pub(crate) fn trusting(extra: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let mut config = with_system_store(extra)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn with_system_store(extra: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider))?;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        // The verifier that reqwest has, so that both trust the same.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_wrong_file_is_refused_with_what_is_wrong_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let made = rcgen::generate_simple_self_signed(vec!["ca.test".into()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let two = file(folder, "two.pem", &format!("# our own\n{cert}{key}{cert}"));
        assert_eq!(read(&two).unwrap().len(), 2, "what else is in the file does not matter");

        let missing = read(&folder.join("missing.pem")).unwrap_err().to_string();
        assert!(missing.contains("missing.pem: No such file"), "{missing}");
        let path = file(folder, "text.pem", "# no certificate\n");
        assert_eq!(read(&path), Err(BadCaFile::Empty { path }));
        let path = file(folder, "key.pem", &key);
        assert_eq!(read(&path), Err(BadCaFile::Key { path }));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let path = file(folder, "broken.pem", &format!("{cert}{broken}"));
        let said = read(&path).unwrap_err().to_string();
        assert!(said.starts_with("certificate 2 in ") && said.contains("X.509"), "{said}");
    }
}
