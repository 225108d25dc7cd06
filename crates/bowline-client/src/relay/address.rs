//! Where secrets may be sent: over TLS, or within this machine.

use url::{Host, Url};

/// Whether a key or token on its way there can be read by nobody else.
pub(super) fn is_private(url: &Url) -> bool {
    match url.scheme() {
        "https" | "wss" => url.has_host(),
        "http" | "ws" => is_loopback(url),
        _ => false,
    }
}

fn is_loopback(url: &Url) -> bool {
    // A WebSocket address is not read as HTTP's are: its host may be an address in words.
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Host and port, for people.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_travel_sealed_or_stay_on_this_machine() {
        for (url, private) in [
            ("https://example.org", true),
            ("wss://example.org/relay", true),
            ("http://127.0.0.1:8080", true),
            ("ws://127.9.9.9:1/relay", true),
            ("ws://[::1]:1/relay", true),
            ("http://localhost:8080", true),
            ("http://example.org", false),
            ("ws://10.0.0.1/relay", false),
            ("http://localhost.example.org", false),
            ("ftp://127.0.0.1", false),
            ("unix:/tmp/socket", false),
        ] {
            assert_eq!(is_private(&url.parse().unwrap()), private, "{url}");
        }
    }
}
