//! Arguments for the path between a server and its clients: TLS, a proxy in front, or neither.

use std::path::PathBuf;

use bowline_net::peer;
use clap::Args;
use ipnet::IpNet;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsArgs {
    /// The certificate chain, in PEM; reloaded when the file changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// A server's other ways to listen where other machines can reach it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PathArgs {
    /// A proxy in front that ends TLS, by address or network: its Forwarded and X-Forwarded-For are
    /// believed, and plain HTTP is taken from nobody else; repeatable
    #[arg(long, value_name = "NETWORK", alias = "trusted-proxy", value_parser = peer::parse_network)]
    pub(crate) behind_proxy: Vec<IpNet>,
    /// Allow plain HTTP with everybody on a public address
    #[arg(long, alias = "insecure-plain")]
    pub(crate) insecure: bool,
}
