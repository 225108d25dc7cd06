//! Which proxy a connection to another server takes: the proxies of the environment.
//!
//! One decision for HTTP requests and WebSockets, made by the code that reqwest uses. `HTTP_PROXY`
//! counts for `http` and `ws`, `HTTPS_PROXY` for `https` and `wss`, `ALL_PROXY` for what has none of
//! its own; `NO_PROXY` lists hosts and networks that are reached without. Lower case counts as well.
//!
//! Invariant: what is on this machine is never asked for through a proxy, whatever the environment
//! says. The proxy would see the key, and loopback is another machine there.

use std::fmt;
use std::net::IpAddr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use url::{Host, Url};

use crate::listen;
use crate::loopback::is_loopback_url;

/// Whether the server at that URL is on this machine: on loopback, or at an address of its own, which
/// packets reach without leaving it.
pub(crate) fn is_here(url: &Url) -> bool {
    let address: Option<IpAddr> = match url.host() {
        Some(Host::Ipv4(address)) => Some(address.into()),
        Some(Host::Ipv6(address)) => Some(address.into()),
        Some(Host::Domain(name)) => name.trim_start_matches('[').trim_end_matches(']').parse().ok(),
        None => None,
    };
    is_loopback_url(url) || address.is_some_and(listen::is_own)
}

/// A proxy of the environment.
#[derive(Clone)]
pub struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy for the server at `url`; `None`: it is reached directly.
    pub fn of(url: &Url) -> Option<Self> {
        Self::chosen_by(&Matcher::from_system(), url)
    }

    fn chosen_by(environment: &Matcher, url: &Url) -> Option<Self> {
        if is_here(url) {
            return None;
        }
        let scheme = match url.scheme() {
            "http" | "ws" => "http",
            "https" | "wss" => "https",
            _ => return None,
        };
        // Rebuilt: a WebSocket URL follows the same rules, and path and query are nobody's business.
        let asked: Uri = format!("{scheme}://{}/", authority(url)?).parse().ok()?;
        environment.intercept(&asked).map(Self::from)
    }

    /// Host and port, without user and password: for messages.
    pub fn address(&self) -> String {
        self.uri.authority().map_or_else(String::new, ToString::to_string)
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The value of `Proxy-Authorization`, from user and password in the proxy's URL.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

/// `HOST:PORT` of a URL, an IPv6 address in brackets; the port also where it is the scheme's default.
pub(crate) fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let port = url.port_or_known_default()?;
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    Some(if bare_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

impl From<Intercept> for Proxy {
    fn from(chosen: Intercept) -> Self {
        Self { uri: chosen.uri().clone(), authorization: chosen.basic_auth().cloned() }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// For tests of other modules: a proxy as the environment would name it.
#[cfg(test)]
pub(crate) fn named(proxy: &str, url: &Url) -> Option<Proxy> {
    Proxy::chosen_by(&Matcher::builder().all(proxy).build(), url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(environment: &Matcher, url: &str) -> Option<String> {
        Proxy::chosen_by(environment, &url.parse().unwrap()).map(|proxy| proxy.address())
    }

    #[test]
    fn no_proxy_is_asked_for_what_is_on_this_machine() {
        let all = Matcher::builder().all("http://proxy.example:3128").build();
        for here in [
            "http://127.0.0.1:8080",
            "https://127.9.9.9",
            "ws://[::1]:1/relay",
            "http://[::1]:1",
            "wss://localhost/relay",
            "http://LOCALHOST:8080/",
            "http://model.localhost",
            "https://[::ffff:127.0.0.1]",
        ] {
            assert_eq!(chosen(&all, here), None, "{here}");
        }
        for own in listen::from_elsewhere("[::]:1".parse().unwrap()) {
            for scheme in ["http", "https", "ws", "wss"] {
                assert_eq!(chosen(&all, &format!("{scheme}://{own}/")), None, "{own}");
            }
        }
        let elsewhere = chosen(&all, "https://localhost.example");
        assert_eq!(elsewhere.as_deref(), Some("proxy.example:3128"));
    }

    #[test]
    fn websockets_take_the_proxy_of_http() {
        let environment = Matcher::builder()
            .http("http://plain.example:1")
            .https("http://secure.example:2")
            .no("direct.example, 192.0.2.0/24")
            .build();
        for (url, proxy) in [
            ("http://host.example", Some("plain.example:1")),
            ("ws://host.example/relay?token=x", Some("plain.example:1")),
            ("https://host.example:8443", Some("secure.example:2")),
            ("wss://host.example/relay", Some("secure.example:2")),
            ("wss://[2001:db8::1]:4/relay", Some("secure.example:2")),
            ("wss://direct.example/relay", None),
            ("https://a.direct.example", None),
            ("wss://192.0.2.7/relay", None),
            ("https://192.0.2.7", None),
            ("ftp://host.example", None),
        ] {
            assert_eq!(chosen(&environment, url).as_deref(), proxy, "{url}");
        }
        assert_eq!(chosen(&Matcher::builder().build(), "https://host.example"), None);
    }

    #[test]
    fn user_and_password_of_a_proxy_are_sent_and_never_shown() {
        let url = "https://host.example".parse().unwrap();
        let proxy = named("http://Aladdin:open%20sesame@proxy.example:3128", &url).unwrap();
        assert_eq!(proxy.authorization().unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(proxy.address(), "proxy.example:3128");
        assert!(!format!("{proxy:?}").contains("Aladdin"));
    }
}
