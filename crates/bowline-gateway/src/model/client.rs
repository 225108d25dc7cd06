//! The HTTP client for models' servers.

use std::net::IpAddr;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::config;

/// Connections kept for the next call.
const MOST_IDLE: usize = 256;

/// The client for the server at `url`.
pub(super) fn client(url: &Url, settings: &config::Upstream) -> Result<Client, String> {
    let mut client = Client::builder()
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.idle_timeout.max(settings.first_byte_timeout))
        .redirect(Policy::none())
        .pool_max_idle_per_host(MOST_IDLE)
        .tcp_nodelay(true);
    // A proxy of the environment is for other machines: on itself it would find another server.
    if is_loopback(url) {
        client = client.no_proxy();
    }
    client.build().map_err(|error| error.to_string())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The innermost reason. Never the URL, which may hold a password.
pub(super) fn root(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_are_called_without_a_proxy() {
        let is_local = |url| is_loopback(&Url::parse(url).unwrap());
        for url in ["http://127.0.0.1:1/v1", "http://127.9.9.9", "http://[::1]:1/v1"] {
            assert!(is_local(url), "{url}");
        }
        assert!(is_local("https://LocalHost/v1") && is_local("http://model.localhost:80"));
        for url in ["http://10.0.0.1", "https://api.example", "http://localhost.example"] {
            assert!(!is_local(url), "{url}");
        }
    }
}
