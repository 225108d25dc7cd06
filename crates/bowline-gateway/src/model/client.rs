//! The HTTP client for models' servers.

use bowline_net::outbound;
use reqwest::{Client, ClientBuilder, Url};

use crate::config;

/// Connections kept for the next call.
const MOST_IDLE: usize = 256;

/// The client for the server at `url`.
pub(super) fn client(url: &Url, settings: &config::Upstream) -> Result<Client, String> {
    let patience = settings.idle_timeout.max(settings.first_byte_timeout);
    build(builder(url, settings).read_timeout(patience))
}

/// The same for requests with large bodies. The library's timeout for an answer begins with the
/// request, so it is left out here; [`Upstream::forward`](super::Upstream::forward) has its own.
pub(super) fn patient_client(url: &Url, settings: &config::Upstream) -> Result<Client, String> {
    build(builder(url, settings))
}

fn builder(url: &Url, settings: &config::Upstream) -> ClientBuilder {
    outbound::client(url)
        .connect_timeout(settings.connect_timeout)
        .pool_max_idle_per_host(MOST_IDLE)
        .tcp_nodelay(true)
}

fn build(client: ClientBuilder) -> Result<Client, String> {
    client.build().map_err(|error| error.to_string())
}
