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

    /// Whether it is marked as an authority (`CA:TRUE`), as `openssl req -x509` does unless it is told
    /// otherwise. rustls refuses such a certificate of a server even if it is trusted; curl does not.
    pub fn is_authority(&self) -> bool {
        // The extension basicConstraints: its identifier, maybe "critical", and a sequence in an
        // octet string that begins with TRUE.
        const IDENTIFIER: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x13];
        const TRUE: [u8; 3] = [0x01, 0x01, 0xff];
        let der = self.der.as_ref();
        let at = der.windows(IDENTIFIER.len()).position(|window| window == IDENTIFIER);
        let Some(rest) = at.map(|at| &der[at + IDENTIFIER.len()..]) else { return false };
        let rest = rest.strip_prefix(&TRUE).unwrap_or(rest);
        matches!(rest, [0x04, _, 0x30, _, flag @ ..] if flag.starts_with(&TRUE))
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
        assert!(read.is_self_signed() && !read.is_authority());
        let key = rcgen::KeyPair::generate().unwrap();
        for (is_ca, authority) in [
            (rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained), true),
            (rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0)), true),
            (rcgen::IsCa::ExplicitNoCa, false),
        ] {
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.is_ca = is_ca;
            std::fs::write(&path, params.self_signed(&key).unwrap().pem()).unwrap();
            assert_eq!(ServedCertificate::read(&path).unwrap().is_authority(), authority);
        }
        std::fs::write(&path, "nothing").unwrap();
        assert!(ServedCertificate::read(&path).is_none());
    }
}
