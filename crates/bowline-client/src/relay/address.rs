//! Addresses in messages to the user.

use url::Url;

/// Host and port, for messages to the user.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
