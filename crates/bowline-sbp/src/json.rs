//! Checks on raw JSON text, without a parser.
//!
//! Raw values are stored and forwarded unparsed, so no parser limits their nesting or finds lone
//! surrogates, which strict servers reject. These scans do, without recursion.

use std::borrow::Cow;

/// The deepest nesting a request may have (G11).
pub const MAX_DEPTH: usize = 64;

/// Whether `text` nests objects and arrays at most `limit` deep. For text that is not JSON the
/// result is unspecified; the parser refuses it later.
pub fn within_depth(text: &[u8], limit: usize) -> bool {
    // Fast path: most texts have at most `limit` opening brackets in all.
    if text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= limit {
        return true;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// The text with every lone surrogate escape replaced by `\ufffd`: many upstreams reject a request
/// that contains one. Stored and exported messages keep them.
pub fn without_halves(json: &str) -> Cow<'_, str> {
    // Fast path: nearly every text has none.
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (spelled, length) = match (surrogate(escape), surrogate(escape.get(6..).unwrap_or("")))
        {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (&escape[..12], 12),
            (Some(_), _) => ("\\ufffd", 6),
            (None, _) => {
                let length = escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at);
                (&escape[..length], length)
            }
        };
        out.push_str(spelled);
        rest = &escape[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The surrogate, if `text` starts with the escape of one.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    (0xd800..=0xdfff).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_nesting_past_the_limit_is_seen() {
        let nested = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(within_depth(&nested(MAX_DEPTH), MAX_DEPTH));
        assert!(!within_depth(&nested(MAX_DEPTH + 1), MAX_DEPTH));
        assert!(!within_depth(&vec![b'{'; 1 << 20], MAX_DEPTH));
    }

    #[test]
    fn brackets_inside_strings_do_not_count() {
        let text = format!(r#"{{"a":"{}\"{}"}}"#, "[".repeat(100), "{".repeat(100));
        assert!(within_depth(text.as_bytes(), 1));
    }

    #[test]
    fn halves_of_pairs_are_replaced_and_nothing_else() {
        for (text, expected) in [
            (r#"{"a":"é\n"}"#, r#"{"a":"é\n"}"#),
            (r#""\ud83d\ude00 \uD83D\uDE00""#, r#""\ud83d\ude00 \uD83D\uDE00""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            // `ud800` after an escaped backslash is not a surrogate.
            (r#""\\ud800 \udc00é""#, r#""\\ud800 \ufffdé""#),
            (r"\ud8", r"\ud8"),
            (r"\", r"\"),
        ] {
            assert_eq!(without_halves(text), expected);
        }
    }
}
