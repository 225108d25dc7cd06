//! A peer that is about to be asked: where it serves, and whether the operator named it.
//!
//! Apart, because this is decided once, before anything is dialled. A peer of the configuration is
//! always asked at the address of the configuration, whatever a token or a record says of it; every
//! other address is a stranger's.

use bowline_net::outbound;
use bowline_sbp::federation::{BaseUrl, GatewayId};
use bowline_sbp::gateway_key::GatewayKey;
use url::{Host, Url};

use crate::address::{self, NotPublic};

/// A gateway or tracker that the operator named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticPeer {
    pub id: GatewayId,
    pub url: BaseUrl,
    /// Its key, if the operator gave it; otherwise the first one that it shows is pinned.
    pub key: Option<GatewayKey>,
}

/// Which addresses may be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The operator named it: loopback and private addresses, too, and plain HTTP on this machine.
    Static,
    /// A stranger: public addresses over TLS.
    Public,
}

/// Whom to ask, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The gateway that has to be there. None: whoever asks learns from the manifest whose it is.
    pub expected: Option<GatewayId>,
    pub url: BaseUrl,
    pub reach: Reach,
    /// The key of the configuration.
    pub key: Option<GatewayKey>,
}

/// Why nothing is asked there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error("its address is no URL with a host")]
    NoHost,
    #[error("its address begins with http://, and a stranger is asked over https:// only")]
    PlainStranger,
    #[error("its address begins with http://, and it is not on this machine")]
    Plain,
    #[error("its address is {0}, and only peers of the configuration may have one")]
    NotPublic(#[from] NotPublic),
}

impl Target {
    /// A peer of the configuration.
    pub fn named(peer: &StaticPeer) -> Self {
        let StaticPeer { id, url, key } = peer.clone();
        Self { expected: Some(id), url, reach: Reach::Static, key }
    }

    /// What somebody said.
    pub fn stranger(expected: Option<GatewayId>, url: BaseUrl) -> Self {
        Self { expected, url, reach: Reach::Public, key: None }
    }

    /// The URL, if it may be asked as far as can be seen without resolving its name.
    pub fn check(&self) -> Result<Url, BadTarget> {
        // Parsed as browsers do: 2130706433, 0x7f.1 and 0177.0.0.1 are addresses.
        let url = Url::parse(self.url.as_str()).map_err(|_| BadTarget::NoHost)?;
        let host = url.host().ok_or(BadTarget::NoHost)?;
        match self.reach {
            Reach::Static if url.scheme() == "https" || outbound::is_private(&url) => {}
            Reach::Static => return Err(BadTarget::Plain),
            Reach::Public => {
                match host {
                    Host::Ipv4(ip) => address::check(ip.into())?,
                    Host::Ipv6(ip) => address::check(ip.into())?,
                    // By convention, whatever a resolver says.
                    Host::Domain(name) if is_localhost(name) => {
                        return Err(NotPublic::Loopback.into());
                    }
                    Host::Domain(_) => {}
                }
                if url.scheme() != "https" {
                    return Err(BadTarget::PlainStranger);
                }
            }
        }
        Ok(url)
    }

    /// The name under which failures are counted: for strangers the whole address, because whoever names an
    /// address says also whose it is, and must not get another gateway punished. Neither by its id, nor by
    /// another path on its host.
    pub fn name(&self) -> String {
        match (&self.reach, &self.expected) {
            (Reach::Static, Some(id)) => id.to_string(),
            _ => self.of_url(url::Position::BeforeHost, url::Position::AfterPath),
        }
    }

    /// The name under which it is counted how often others make us ask there: for strangers the host alone.
    /// Whoever names an address chooses its port and path, too, and floods the same machine.
    pub fn host(&self) -> String {
        match (&self.reach, &self.expected) {
            (Reach::Static, Some(id)) => id.to_string(),
            _ => {
                let host = self.of_url(url::Position::BeforeHost, url::Position::AfterHost);
                host.trim_end_matches('.').to_owned()
            }
        }
    }

    fn of_url(&self, from: url::Position, to: url::Position) -> String {
        let url = Url::parse(self.url.as_str());
        url.map_or_else(|_| String::new(), |url| url[from..to].trim_end_matches('/').to_owned())
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(url: &str) -> Result<(), BadTarget> {
        Target::stranger(None, url.parse().unwrap()).check().map(drop)
    }

    #[test]
    fn sbp_l6_06_a_strangers_address_is_refused_however_it_is_spelled() {
        for (url, why) in [
            ("https://127.0.0.1", NotPublic::Loopback),
            ("https://127.1", NotPublic::Loopback),
            ("https://2130706433", NotPublic::Loopback),
            ("https://0x7f000001", NotPublic::Loopback),
            ("https://0x7f.1", NotPublic::Loopback),
            ("https://0177.0.0.1", NotPublic::Loopback),
            ("https://017700000001:8443/x", NotPublic::Loopback),
            ("https://127.0.0.1.", NotPublic::Loopback),
            ("https://0", NotPublic::Unspecified),
            ("https://0xa9fea9fe", NotPublic::Metadata),
            ("https://169.254.43518", NotPublic::Metadata),
            ("https://012.0.0.1", NotPublic::Private),
            ("https://192.168.257", NotPublic::Private),
            ("https://localhost", NotPublic::Loopback),
            ("https://LOCALHOST.:9", NotPublic::Loopback),
            ("https://gw.localhost", NotPublic::Loopback),
            ("https://[::1]", NotPublic::Loopback),
            ("https://[::]", NotPublic::Unspecified),
            ("https://[::ffff:127.0.0.1]", NotPublic::Embedded),
            ("https://[::ffff:7f00:1]", NotPublic::Embedded),
            ("https://[64:ff9b::a00:1]", NotPublic::Embedded),
            ("https://[2002:a00:1::]", NotPublic::Embedded),
            ("https://[fd00:ec2::254]", NotPublic::Metadata),
            ("https://[fe80::1]", NotPublic::LinkLocal),
        ] {
            assert_eq!(stranger(url), Err(BadTarget::NotPublic(why)), "{url}");
        }
        assert_eq!(stranger("http://gw.example"), Err(BadTarget::PlainStranger));
        assert_eq!(stranger("https://256.256.256.256"), Err(BadTarget::NoHost));
        for url in ["https://gw.example", "https://1.1.1.1:8443", "https://[2606:4700::1111]"] {
            assert_eq!(stranger(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn sbp_l6_06_a_peer_of_the_configuration_may_be_anywhere_but_not_in_the_clear() {
        let named = |url: &str| {
            let id = "a".parse().unwrap();
            let peer = StaticPeer { id, url: url.parse().unwrap(), key: None };
            Target::named(&peer).check().map(drop)
        };
        for url in ["http://127.0.0.1:9", "https://10.0.0.5", "https://[fd00::1]:1", "https://gw"] {
            assert_eq!(named(url), Ok(()), "{url}");
        }
        for url in ["http://10.0.0.5", "http://gw.example"] {
            assert_eq!(named(url), Err(BadTarget::Plain), "{url}");
        }
    }

    #[test]
    fn sbp_l6_06_a_stranger_is_blamed_by_its_address_and_limited_by_its_host() {
        let id: GatewayId = "a".parse().unwrap();
        let of = |url: &str| Target::stranger(Some(id.clone()), url.parse().unwrap());
        for (url, name) in [
            ("https://GW.example:8443/base", "gw.example:8443/base"),
            ("https://gw.example:443/", "gw.example"),
            ("https://gw.example", "gw.example"),
            ("https://gw.example/any/path", "gw.example/any/path"),
            ("https://gw.example:1/any/path", "gw.example:1/any/path"),
        ] {
            assert_eq!((of(url).name().as_str(), of(url).host().as_str()), (name, "gw.example"));
        }
        assert_eq!(of("https://gw.example.:9").host(), "gw.example");
        let url = "https://gw.example".parse().unwrap();
        let named = Target::named(&StaticPeer { id, url, key: None });
        assert_eq!((named.name(), named.host()), ("a".into(), "a".into()));
    }
}
