//! A look at JSON text before anything parses it.
//!
//! Raw values are stored and forwarded as they came, so no parser ever walks their depth. This
//! scan does, without recursion and without allocating.

/// The deepest nesting a request may have (G11).
pub const MAX_DEPTH: usize = 64;

/// Whether `text` nests objects and arrays at most `limit` deep. Text that is not JSON may get
/// either answer; the parser behind will refuse it.
pub fn within_depth(text: &[u8], limit: usize) -> bool {
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
}
