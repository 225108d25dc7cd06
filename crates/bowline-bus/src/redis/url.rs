//! Where a Redis is: `redis://[[user]:password@]host[:port][/db]`, or `rediss://` for TLS, there with
//! `?cafile=PATH` for a private authority.
//!
//! Invariant: neither `Debug` nor an error shows a part of it that may be a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use bowline_net::trust::NoTlsConfig;
use redis::{ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};
use url::Url;

#[derive(Clone)]
pub struct RedisUrl {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// Trusts only the authorities in this file.
    pub(super) ca_file: Option<PathBuf>,
    /// Database, user and password.
    pub(super) login: RedisConnectionInfo,
}

/// Why a URL does not lead to a Redis.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadRedisUrl {
    #[error("it is not a URL of the form redis://:password@host:port/db")]
    Unreadable,
    #[error("it begins with {scheme}:, not with redis: or rediss:")]
    Scheme { scheme: String },
    #[error(
        "it has parts that mean nothing in the URL of a Redis (only ?cafile= may follow the database, and only with rediss:)"
    )]
    Surplus,
    #[error(transparent)]
    Tls(#[from] NoTlsConfig),
}

impl FromStr for RedisUrl {
    type Err = BadRedisUrl;

    fn from_str(text: &str) -> Result<Self, BadRedisUrl> {
        let mut url = Url::parse(text).map_err(|_| BadRedisUrl::Unreadable)?;
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            other => return Err(BadRedisUrl::Scheme { scheme: other.to_owned() }),
        };
        let mut ca_file = None;
        for (name, value) in url.query_pairs() {
            if !tls || name != "cafile" || ca_file.is_some() {
                return Err(BadRedisUrl::Surplus);
            }
            ca_file = Some(PathBuf::from(value.as_ref()));
        }
        // The client's parser would take `#insecure` for "trust everybody".
        if url.fragment().is_some() {
            return Err(BadRedisUrl::Surplus);
        }
        url.set_query(None);
        // Its errors may quote the URL.
        let info = url.into_connection_info().map_err(|_| BadRedisUrl::Unreadable)?;
        let login = info.redis_settings().clone().set_skip_set_lib_name();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Ok(Self { host: host.clone(), port: *port, tls, ca_file, login })
            }
            _ => Err(BadRedisUrl::Unreadable),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let login = if self.login.password().is_some() { "***@" } else { "" };
        write!(f, "{scheme}://{login}{}:{}/{}", self.host, self.port, self.login.db())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<RedisUrl, BadRedisUrl> {
        text.parse()
    }

    #[test]
    fn urls_are_taken_apart() {
        let url = parsed("rediss://ann:p%40ss@cache.test:6380/3?cafile=/etc/ca.pem").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.tls), ("cache.test", 6380, true));
        assert_eq!(url.ca_file, Some("/etc/ca.pem".into()));
        assert_eq!((url.login.username(), url.login.password()), (Some("ann"), Some("p@ss")));
        assert_eq!(url.login.db(), 3);
        let url = parsed("redis://[::1]").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.login.db()), ("::1", 6379, 0));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        use BadRedisUrl::{Surplus, Unreadable};
        assert_eq!(parsed("somewhere").unwrap_err(), Unreadable);
        assert_eq!(parsed("redis://host/first").unwrap_err(), Unreadable);
        assert_eq!(parsed("rediss://host/#insecure").unwrap_err(), Surplus);
        assert_eq!(parsed("redis://host/?cafile=/ca.pem").unwrap_err(), Surplus);
        assert_eq!(parsed("rediss://host/?ssl=no").unwrap_err(), Surplus);
        let refused = parsed("http://host").unwrap_err();
        assert_eq!(refused, BadRedisUrl::Scheme { scheme: "http".into() });
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = parsed("redis://:hunter2@host:6379/1").unwrap();
        assert_eq!(format!("{url:?}"), "redis://***@host:6379/1");
        for wrong in ["redis://:hunter2@host:port", "redis://:hunter2@host/x", "hunter2"] {
            let said = parsed(wrong).unwrap_err();
            assert!(!format!("{said} {said:?}").contains("hunter2"));
        }
    }
}
