//! The servers that a URL names, and which of them takes writes: `postgres://user@one,two/database`.
//!
//! All but one are standbys. After a failover it is another one, so every connection asks anew. A server
//! whose machine is gone does not refuse, it says nothing: the next one is asked meanwhile, or a lease of
//! three seconds would end before its turn came.
//!
//! Invariant: a connection leads to a server that took writes when it was made.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

/// How long a server may say nothing before the next one is asked, too.
const HEAD_START: Duration = Duration::from_millis(300);

/// Each as a configuration of its own, in the order of the URL.
#[derive(Clone)]
pub(super) struct Servers(Vec<Config>);

impl Servers {
    /// Reads a URL; `set` sets what does not depend on the server.
    pub(super) fn read(url: &str, set: impl Fn(&mut Config)) -> Result<Self, Error> {
        let read = |url: String| {
            let mut config: Config = url.parse()?;
            set(&mut config);
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            Ok(config)
        };
        one_by_one(url).into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The servers with their ports, as in the URL.
    pub(super) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(host).collect();
        hosts.join(",")
    }

    /// What is the same for all.
    pub(super) fn first(&self) -> &Config {
        &self.0[0]
    }

    /// A connection to the one that takes writes.
    pub(super) async fn connect<T>(
        &self,
        tls: &T,
    ) -> Result<(Client, Connection<Socket, T::Stream>), Error>
    where
        T: MakeTlsConnect<Socket> + Clone,
    {
        let (mut asked, mut failed) = (FuturesUnordered::new(), None);
        let mut rest = self.0.iter();
        loop {
            let next = rest.next();
            asked.extend(next.map(|server| server.connect(tls.clone())));
            let is_last = rest.len() == 0;
            tokio::select! {
                biased;
                Some(answer) = asked.next() => match answer {
                    Ok(connected) => return Ok(connected),
                    // The one that is named first is the one that is expected to be there.
                    Err(error) => {
                        let error = failed.get_or_insert(error);
                        tracing::debug!(reason = super::error::text_of(error), "a server takes no writes");
                    }
                },
                () = tokio::time::sleep(HEAD_START), if !is_last => {}
            }
            if let Some(error) = failed.take_if(|_| asked.is_empty() && is_last) {
                return Err(error);
            }
        }
    }
}

fn host(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) if host.contains(':') => format!("[{host}]"),
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().map(|port| format!(":{port}"));
    format!("{host}{}", port.unwrap_or_default())
}

/// A URL for each of the servers between user and path.
fn one_by_one(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_of_a_url_keeps_user_database_and_options() {
        let url = "postgres://me:a%2Fb@one:5433,two,[::1]:7/db?connect_timeout=3";
        let all = [
            "postgres://me:a%2Fb@one:5433/db?connect_timeout=3",
            "postgres://me:a%2Fb@two/db?connect_timeout=3",
            "postgres://me:a%2Fb@[::1]:7/db?connect_timeout=3",
        ];
        assert_eq!(one_by_one(url), all);
        assert_eq!(one_by_one("postgres://one"), ["postgres://one"]);
        let servers = Servers::read(url, |_| {}).unwrap();
        assert_eq!(servers.hosts(), "one:5433,two:5432,[::1]:7");
        assert_eq!(servers.first().get_dbname(), Some("db"));
    }
}
