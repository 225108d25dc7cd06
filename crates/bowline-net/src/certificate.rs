//! What a server's certificate file says: the names it is valid for, and whether it is self-signed.
//! For messages that name an address which will work; trust is decided by the TLS library alone.

use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// The first certificate of a PEM file.
#[derive(Debug, Clone)]
pub struct ServedCertificate {
    der: CertificateDer<'static>,
}

impl ServedCertificate {
    /// `None` if the file holds no certificate that can be read.
    pub fn read(pem: &Path) -> Option<Self> {
        let der = CertificateDer::from_pem_file(pem).ok()?;
        EndEntityCert::try_from(&der).ok()?;
        Some(Self { der })
    }

    /// Whether it is valid for a host: a name or an IP address.
    pub fn covers(&self, host: &str) -> bool {
        let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']'));
        let (Ok(name), Ok(cert)) = (name, EndEntityCert::try_from(&self.der)) else { return false };
        cert.verify_is_valid_for_subject_name(&name).is_ok()
    }

    /// The first name it is valid for that is no pattern.
    pub fn first_name(&self) -> Option<String> {
        let cert = EndEntityCert::try_from(&self.der).ok()?;
        cert.valid_dns_names().find(|name| !name.starts_with('*')).map(str::to_owned)
    }

    /// Whether it names itself as its issuer. No system trusts it until it is told to.
    pub fn is_self_signed(&self) -> bool {
        EndEntityCert::try_from(&self.der).is_ok_and(|cert| cert.issuer() == cert.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cert.pem");
        let names =
            ["*.gateway.example".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(&path, made.cert.pem()).unwrap();
        let read = ServedCertificate::read(&path).unwrap();
        for (host, covered) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("a.gateway.example", true),
            ("[::1]", false),
            ("gateway.example", false),
        ] {
            assert_eq!(read.covers(host), covered, "{host}");
        }
        assert_eq!(read.first_name().as_deref(), Some("localhost"));
        assert!(read.is_self_signed());
        std::fs::write(&path, "nothing").unwrap();
        assert!(ServedCertificate::read(&path).is_none());
    }
}
