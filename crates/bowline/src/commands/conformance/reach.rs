//! How the suite and what it checks reach each other: without TLS, and by which addresses.

use std::net::SocketAddr;

use bowline_net::outbound;
use url::Url;

use crate::api::in_private;
use crate::failure::{Failure, FailureKind};
use crate::terminal::note;

/// Refuses an address to which a key would be sent in the clear, unless that is allowed. Where no key is sent, the
/// suite says nothing that is worth reading: its sessions are its own, as in a network of containers.
pub(super) fn is_allowed(url: &Url, has_key: bool, insecure: bool) -> Result<(), Failure> {
    let is_plain = url.scheme() == "http" && !outbound::is_private(url);
    if is_plain && has_key && !insecure {
        let hint = "use https://, or allow that the key is sent in the clear with --insecure";
        return in_private(url).map_err(|failure| failure.hint(hint));
    }
    if is_plain {
        let host = url.host_str().unwrap_or_default();
        note!(
            "{host} is on another machine, and without TLS: what is said there can be read on the way"
        );
    }
    Ok(())
}

/// Refuses to listen at all addresses without a word on which of them is meant: others could not come back to it.
pub(super) fn is_named(
    listen: SocketAddr,
    url: Option<&Url>,
    flags: [&str; 2],
) -> Result<(), Failure> {
    if url.is_some() || !listen.ip().is_unspecified() {
        return Ok(());
    }
    let [at, by] = flags;
    Err(Failure::new(format!("{at} {listen} says not how it is reached"))
        .hint(format!(
            "name the address by which it is reached with {by}, such as http://suite:{}",
            listen.port()
        ))
        .kind(FailureKind::Usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_sent_in_the_clear_unless_that_is_allowed() {
        let url = |text: &str| text.parse::<Url>().unwrap();
        for plain in ["http://sbp:8080", "http://198.51.100.1"] {
            assert!(is_allowed(&url(plain), false, false).is_ok(), "{plain}: there is no key");
            assert!(is_allowed(&url(plain), true, true).is_ok());
            assert_eq!(is_allowed(&url(plain), true, false).unwrap_err().exit_code(), 2);
        }
        for private in ["http://127.0.0.1:8080", "https://sbp"] {
            assert!(is_allowed(&url(private), true, false).is_ok(), "{private}");
        }
    }

    #[test]
    fn all_addresses_are_no_address_to_come_back_to() {
        let flags = ["--peer-listen", "--peer-url"];
        let (all, one) = ("0.0.0.0:8098".parse().unwrap(), "10.0.0.1:8098".parse().unwrap());
        let url: Url = "http://suite:8098".parse().unwrap();
        assert!(is_named(all, None, flags).is_err());
        assert!(is_named(all, Some(&url), flags).is_ok() && is_named(one, None, flags).is_ok());
    }
}
