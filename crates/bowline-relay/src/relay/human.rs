//! Durations as people write them: `250ms`, `30s`, `5m`, `2h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Reads a duration, or says how to write one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let read = number.parse::<u64>().ok().and_then(|number| match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    });
    read.ok_or_else(|| format!("`{text}` is not a duration; write it like 250ms, 30s, 5m or 2h"))
}

fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0ms".into(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*duration))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back() {
        for text in ["0ms", "250ms", "30s", "5m", "2h"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
        for text in ["", "s", "5", "5 days", "-1s", "99999999999999999999h"] {
            assert!(parse(text).unwrap_err().contains("250ms"), "{text}");
        }
    }
}
