//! Arguments for a server's TLS certificate.

use std::path::PathBuf;

use bowline_net::tls::Tls;
use clap::Args;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsArgs {
    /// The certificate chain, in PEM; reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl TlsArgs {
    pub(crate) fn files(self) -> Option<Tls> {
        self.tls_cert.zip(self.tls_key).map(|(cert, key)| Tls::new(cert, key))
    }
}
