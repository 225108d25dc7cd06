//! How a gateway is named in a federation: an id that it chose, and the address it serves at.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest id, in characters.
const LONGEST_ID: usize = 64;
/// The longest base URL, in bytes.
const LONGEST_URL: usize = 512;

/// The id of a gateway: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`, with a letter or digit at both
/// ends. Who has that id is said by a key that was pinned for it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GatewayId(String);

/// The text is not a gateway id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a gateway id is 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and begins and ends with a letter or digit"
)]
pub struct InvalidGatewayId;

impl GatewayId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GatewayId {
    type Err = InvalidGatewayId;

    fn from_str(text: &str) -> Result<Self, InvalidGatewayId> {
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let fits = bytes.len() <= LONGEST_ID
            && bytes.iter().all(|byte| plain(byte) || b"._-".contains(byte))
            && bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain);
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidGatewayId) }
    }
}

impl TryFrom<String> for GatewayId {
    type Error = InvalidGatewayId;

    fn try_from(text: String) -> Result<Self, InvalidGatewayId> {
        text.parse()
    }
}

impl From<GatewayId> for String {
    fn from(id: GatewayId) -> Self {
        id.0
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a gateway serves: `https://host[:port][/path]`, or `http://` (who may use that is decided
/// by whoever dials). Without user, query, fragment and `/` at the end, so that paths are appended
/// to it. This looks at the form only: whoever dials parses the host and checks its addresses.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BaseUrl(String);

/// The text is not the base URL of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the base URL of a gateway is https://host[:port][/path], without user, query and fragment"
)]
pub struct BadBaseUrl;

impl BaseUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of a path below it; `path` begins with `/`.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl FromStr for BaseUrl {
    type Err = BadBaseUrl;

    fn from_str(text: &str) -> Result<Self, BadBaseUrl> {
        let text = text.trim_end_matches('/');
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let authority = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\@?#\"<>^`{|}%".contains(&byte);
        let fits = text.len() <= LONGEST_URL && !authority.is_empty() && text.bytes().all(plain);
        if fits { Ok(Self(text.to_owned())) } else { Err(BadBaseUrl) }
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = BadBaseUrl;

    fn try_from(text: String) -> Result<Self, BadBaseUrl> {
        text.parse()
    }
}

impl From<BaseUrl> for String {
    fn from(url: BaseUrl) -> Self {
        url.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l6_01_a_gateway_id_is_short_and_plain() {
        for good in ["a", "7", "home", "gw-1.example_net", &"a".repeat(64)] {
            assert_eq!(good.parse::<GatewayId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", ".a", "a.", "_", "A", "ä", "a b", "a/b", "a:b", &"a".repeat(65)]
        {
            assert_eq!(bad.parse::<GatewayId>(), Err(InvalidGatewayId), "{bad}");
            assert!(serde_json::from_str::<GatewayId>(&format!("{bad:?}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn sbp_l6_01_a_base_url_has_one_form() {
        for (text, read) in [
            ("https://gw.example", "https://gw.example"),
            ("https://gw.example/", "https://gw.example"),
            ("https://gw.example:8443/sbp//", "https://gw.example:8443/sbp"),
            ("http://127.0.0.1:9", "http://127.0.0.1:9"),
            ("https://[2001:db8::1]:9", "https://[2001:db8::1]:9"),
        ] {
            assert_eq!(text.parse::<BaseUrl>().unwrap().as_str(), read);
        }
        let url: BaseUrl = "https://gw.example/sbp/".parse().unwrap();
        assert_eq!(url.join("/.well-known/sbp"), "https://gw.example/sbp/.well-known/sbp");
        for bad in [
            "",
            "gw.example",
            "ftp://gw.example",
            "HTTPS://gw.example",
            "https://",
            "https:///path",
            "https://user@gw.example",
            "https://gw.example?x",
            "https://gw.example#x",
            "https://gw.example\\x",
            "https://gw.example/%2e%2e",
            "https://gw.example/a b",
            "https://gw.example/\n",
            "https://gẃ.example",
            &format!("https://{}", "a".repeat(512)),
        ] {
            assert_eq!(bad.parse::<BaseUrl>(), Err(BadBaseUrl), "{bad}");
        }
    }
}
