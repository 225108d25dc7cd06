//! The server under test.

use std::time::Duration;

use bowline_net::outbound;
use tokio::sync::OnceCell;
use url::Url;

use crate::mask::Mask;
use crate::way::Way;

/// Where the server under test is, and what opens it.
#[derive(Debug)]
pub struct Target {
    url: Url,
    key: Option<String>,
    pub(crate) http: reqwest::Client,
    pub(crate) mask: Mask,
    /// How many times longer than usual it gets for everything.
    times: u32,
    /// How turns get into its Tether, once that is known.
    pub(crate) tether: OnceCell<Way>,
    /// Whether a surface is shown what was asked over HTTP, once that is known.
    pub(crate) live: OnceCell<bool>,
}

impl Target {
    /// A server by its address, with or without `/v1`, and its API key, if it wants one.
    pub fn new(url: &Url, key: Option<&str>) -> Result<Self, reqwest::Error> {
        let mut url = url.clone();
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        let http = outbound::client(&url).connect_timeout(CONNECT).timeout(PATIENCE).build()?;
        let mask = Mask::default();
        if let Some(key) = key {
            mask.learn(key);
        }
        Ok(Self {
            url,
            key: key.map(str::to_owned),
            http,
            mask,
            times: 1,
            tether: OnceCell::new(),
            live: OnceCell::new(),
        })
    }

    /// Gives the server that many times longer for everything, such as a model that thinks.
    pub fn patient(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// How long something may take here that usually takes this at most.
    pub(crate) fn patience(&self, usual: Duration) -> Duration {
        usual * self.times
    }

    /// The same of a request.
    pub(crate) fn request_patience(&self) -> Duration {
        self.patience(PATIENCE)
    }

    /// A relay by the address of its endpoint, which is `/relay` unless it has a path.
    pub fn relay(url: &Url) -> Result<Self, reqwest::Error> {
        // HTTP by its name: the upgrade of a WebSocket is a request, and so is a refusal.
        let http = url.as_str().replacen("ws", "http", usize::from(url.scheme().starts_with("ws")));
        let mut url = Url::parse(&http).unwrap_or_else(|_| url.clone());
        if url.path() == "/" {
            url.set_path("/relay");
        }
        Self::new(&url, None)
    }

    /// The address as a report names it: without user and password.
    pub(crate) fn shown(&self) -> String {
        let mut url = self.url.clone();
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        url.as_str().trim_end_matches('/').to_owned()
    }

    /// Where a relay has to be: at its address, and beside that at `/`. Below a path of a proxy `/` is not the
    /// relay's, and at an address of another name nothing is known of either.
    pub(crate) fn relay_places(&self) -> Vec<String> {
        let mut url = self.url.clone();
        let mut places = vec![self.socket_at("")];
        if url.path() == "/relay" {
            url.set_path("/");
            places.push(url.as_str().replacen("http", "ws", 1));
        }
        places
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The address of a path that begins with a slash.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.as_str().trim_end_matches('/'))
    }

    /// The WebSocket address of a path.
    pub(crate) fn socket_at(&self, path: &str) -> String {
        let address = self.at(path);
        match address.strip_prefix("https://") {
            Some(rest) => format!("wss://{rest}"),
            None => address.replacen("http://", "ws://", 1),
        }
    }
}

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(15);
/// How long a request may take: longer than the time that a tool call may (SBP-L5-03).
const PATIENCE: Duration = Duration::from_secs(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_with_or_without_its_version() {
        for (given, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/sessions"),
            ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/sessions"),
            ("https://host/sbp/v1?x=1", "https://host/sbp/v1/sessions"),
        ] {
            let target = Target::new(&given.parse().unwrap(), None).unwrap();
            assert_eq!(target.at("/v1/sessions"), expected);
        }
        for (given, expected) in [
            ("ws://host:1", &["ws://host:1/relay", "ws://host:1/"][..]),
            ("wss://host/relay/", &["wss://host/relay", "wss://host/"]),
            ("wss://host/edge/relay", &["wss://host/edge/relay"]),
            ("wss://host/other", &["wss://host/other"]),
        ] {
            let target = Target::relay(&given.parse().unwrap()).unwrap();
            assert_eq!(target.relay_places(), expected);
        }
        let target = Target::new(&"https://host".parse().unwrap(), None).unwrap();
        assert_eq!(target.socket_at("/v1/sbp/ws/x"), "wss://host/v1/sbp/ws/x");
    }
}
