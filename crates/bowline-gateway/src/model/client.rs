//! The HTTP client for models' servers.

use bowline_net::outbound;
use reqwest::{Client, Url};

use crate::config;

/// Connections kept for the next call.
const MOST_IDLE: usize = 256;

/// The client for the server at `url`.
pub(super) fn client(url: &Url, settings: &config::Upstream) -> Result<Client, String> {
    outbound::client(url)
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.idle_timeout.max(settings.first_byte_timeout))
        .pool_max_idle_per_host(MOST_IDLE)
        .tcp_nodelay(true)
        .build()
        .map_err(|error| error.to_string())
}
