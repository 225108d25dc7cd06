//! The HTTP part of the opening handshake (4.2).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};

/// Why a request is not upgraded to a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoUpgrade {
    /// It does not request an upgrade, or requests an unsupported version.
    NotAsked,
    /// Its `Sec-WebSocket-Key` is not sixteen bytes.
    Key,
}

/// The value of `Sec-WebSocket-Accept`.
pub(crate) fn accept(headers: &HeaderMap) -> Result<String, NoUpgrade> {
    let asked = lists(headers, &CONNECTION, "upgrade") && lists(headers, &UPGRADE, "websocket");
    let version = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    if !asked || !version {
        return Err(NoUpgrade::NotAsked);
    }
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else { return Err(NoUpgrade::Key) };
    match STANDARD.decode(key) {
        Ok(bytes) if bytes.len() == 16 => Ok(answer(key.as_bytes())),
        _ => Err(NoUpgrade::Key),
    }
}

fn answer(key: &[u8]) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(hash.finish())
}

fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    #[test]
    fn the_example_of_the_rfc_is_answered_as_it_says() {
        let headers = request(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ]);
        assert_eq!(accept(&headers).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_missing_or_wrong_is_refused() {
        let good = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ];
        for (broken, value, why) in [
            (0, "close", NoUpgrade::NotAsked),
            (1, "h2c", NoUpgrade::NotAsked),
            (2, "8", NoUpgrade::NotAsked),
            (3, "dGVu", NoUpgrade::Key),
            (3, "?", NoUpgrade::Key),
        ] {
            let mut pairs = good;
            pairs[broken].1 = value;
            assert_eq!(accept(&request(&pairs)), Err(why), "{value}");
            let mut without = good.to_vec();
            without.remove(broken);
            assert_eq!(accept(&request(&without)), Err(why), "without {}", good[broken].0);
        }
        let mut twice = request(&good);
        twice.append("sec-websocket-key", KEY.parse().unwrap());
        assert_eq!(accept(&twice), Err(NoUpgrade::Key));
    }
}
