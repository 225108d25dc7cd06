//! What proxies say about whom they call for: `X-Forwarded-For`, and `Forwarded` (RFC 7239).
//!
//! Each proxy appends, so that the last name is the most trustworthy one. A proxy keeps one of the
//! two headers and passes the other on as its client sent it: where both are there and differ,
//! neither is believed.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use ipnet::IpNet;

/// Headers by which proxies say for whom they call.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];

/// Whether a proxy passed the request on.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// The client address of a request on a connection from `connected`.
pub(crate) fn behind(connected: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let connected = connected.to_canonical();
    let by = |names: Vec<Option<IpAddr>>| {
        (!names.is_empty()).then(|| nearest(connected, names.into_iter(), trusted))
    };
    let older = by(listed(headers, "x-forwarded-for", plain));
    let newer = by(listed(headers, "forwarded", parameter));
    match (older, newer) {
        (Some(one), Some(other)) if one != other => connected,
        (one, other) => one.or(other).unwrap_or(connected),
    }
}

/// Reads from the end, until an address is not a trusted proxy.
fn nearest(
    connected: IpAddr,
    names: impl Iterator<Item = Option<IpAddr>>,
    trusted: &[IpNet],
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    let mut known = connected;
    for name in names {
        if !is_trusted(known) {
            break;
        }
        let Some(address) = name else { break };
        known = address;
    }
    known
}

/// The elements of a header's list, the last one first; `None` for one that names no address.
fn listed(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Vec<Option<IpAddr>> {
    let values = headers.get_all(name).iter().rev();
    let elements = values.flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
    elements.map(|element| read(element.trim())).collect()
}

/// The address in an element of `X-Forwarded-For`.
fn plain(element: &str) -> Option<IpAddr> {
    address_in(element)
}

/// The address in an element of `Forwarded`: `for=192.0.2.1;proto=https`, `for="[2001:db8::1]:80"`.
/// No comma or semicolon is part of an address, so one in quotes needs no care.
fn parameter(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address_in(value.trim_matches('"'))
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address_in(name: &str) -> Option<IpAddr> {
    let with_port = || name.parse::<SocketAddr>().ok().map(|address| address.ip());
    let address = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    address.or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(connected: &str, headers: &[(&'static str, &str)]) -> IpAddr {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().unwrap());
        }
        behind(ip(connected), &all, &trusted)
    }

    #[test]
    fn only_trusted_proxies_say_who_is_behind_them() {
        for (connected, forwarded, expected) in [
            ("192.0.2.1", vec!["203.0.113.9"], "192.0.2.1"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            ("10.0.0.1", vec!["203.0.113.9"], "203.0.113.9"),
            ("::ffff:10.0.0.1", vec!["203.0.113.9"], "203.0.113.9"),
            ("fd00::1", vec!["[2001:db8::1]:443"], "2001:db8::1"),
            ("10.0.0.1", vec!["203.0.113.9:1234"], "203.0.113.9"),
            // What the client sent itself comes before what the proxy appended.
            ("10.0.0.1", vec!["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", vec!["unknown"], "10.0.0.1"),
            ("10.0.0.1", vec!["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        ] {
            let headers: Vec<_> = forwarded.iter().map(|said| ("x-forwarded-for", *said)).collect();
            assert_eq!(client(connected, &headers), ip(expected), "{connected} {forwarded:?}");
        }
    }

    #[test]
    fn the_standard_header_is_read_as_the_older_one() {
        for (connected, forwarded, expected) in [
            ("192.0.2.1", vec!["for=203.0.113.9"], "192.0.2.1"),
            ("10.0.0.1", vec!["for=203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["proto=https; For=\"203.0.113.9:80\" ;by=10.0.0.1"], "203.0.113.9"),
            ("10.0.0.1", vec!["for=\"[2001:db8::1]:443\""], "2001:db8::1"),
            ("10.0.0.1", vec!["for=127.0.0.1, for=203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", vec!["for=127.0.0.1", "for=203.0.113.9, for=10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", vec!["for=_hidden"], "10.0.0.1"),
            ("10.0.0.1", vec!["for=unknown, for=10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", vec!["proto=https"], "10.0.0.1"),
        ] {
            let headers: Vec<_> = forwarded.iter().map(|said| ("forwarded", *said)).collect();
            assert_eq!(client(connected, &headers), ip(expected), "{connected} {forwarded:?}");
        }
    }

    #[test]
    fn a_header_that_the_proxy_only_passed_on_is_not_believed() {
        let proxy = ("x-forwarded-for", "203.0.113.9");
        let (forged, same) = (("forwarded", "for=127.0.0.1"), ("forwarded", "for=203.0.113.9"));
        assert_eq!(client("10.0.0.1", &[proxy, forged]), ip("10.0.0.1"));
        assert_eq!(client("10.0.0.1", &[proxy, same]), ip("203.0.113.9"));
    }

    #[test]
    fn every_header_of_a_proxy_shows_that_there_is_one() {
        for name in FORWARDED {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), "x".parse().unwrap())]);
            assert!(is_forwarded(&headers), "{name}");
        }
        assert!(!is_forwarded(&HeaderMap::new()));
    }
}
