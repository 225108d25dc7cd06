//! Addresses, for people.

use url::Url;

/// Host and port, for people.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
