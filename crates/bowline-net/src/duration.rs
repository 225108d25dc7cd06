//! Durations as people write them: `250ms`, `30s`, `5m`, `1h 30m`, `30d` (jiff's friendly format; a day
//! has 24 hours). For settings (`#[serde(with = "bowline_net::duration")]`) and for flags ([`parse`]).

use std::time::Duration;

use jiff::fmt::friendly::{SpanParser, SpanPrinter};
use jiff::{SignedDuration, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serializer};

/// Parses a duration; the error says how to write one.
pub fn parse(text: &str) -> Result<Duration, String> {
    let read = SpanParser::new().parse_span(text).ok();
    let read = read.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let read = read.and_then(|duration| Duration::try_from(duration).ok());
    read.ok_or_else(|| format!("`{text}` is not a duration; write it like 250ms, 30s, 2h or 30d"))
}

/// Formats a duration so that [`parse`] can read it.
pub fn format(duration: Duration) -> String {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    SpanPrinter::new().duration_to_string(&duration)
}

pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format(*duration))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0s", 0),
            ("0ms", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("30 s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("24h", 86_400_000),
            ("1h 30m", 5_400_000),
            ("90 seconds", 90_000),
            ("30d", 2_592_000_000),
            ("1d 12h", 129_600_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5", "-1s", "1s ago", "99999999999999999999h", "1mo", "soon"] {
            assert!(parse(text).unwrap_err().contains("250ms"), "{text}");
        }
    }

    #[test]
    fn durations_are_written_so_that_they_read_back() {
        for (millis, text) in [(0, "0s"), (250, "250ms"), (30_000, "30s"), (86_400_000, "24h")] {
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        for millis in [1, 999, 1_500, 61_001, 5_400_000, 90_061_007] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
