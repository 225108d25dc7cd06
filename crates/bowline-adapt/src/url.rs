//! URLs in a text, and the host to speak in their place.

/// Parses the text after a `://`: the host, and the length of the URL in bytes.
pub(super) fn read(text: &str) -> (&str, usize) {
    let mut open = 0usize;
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' if open > 0 => open -= 1,
            _ if is_part(c) => {}
            _ => {
                end = at;
                break;
            }
        }
    }
    // Trailing punctuation belongs to the sentence, not to the URL.
    let address = text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_']);
    let authority = address.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    (host.strip_prefix("www.").unwrap_or(host), address.len())
}

/// Whether a character may be part of a scheme.
pub(super) fn is_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// Whether a character may be part of a URL. Hosts may have accented Latin letters; text in other
/// scripts is the next word.
fn is_part(c: char) -> bool {
    (c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '`' | '|' | ')' | '{' | '}' | '\\'))
        || (c.is_alphabetic() && ('\u{c0}'..'\u{250}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_ends_before_the_punctuation_of_its_sentence() {
        for (text, host, rest) in [
            ("example.com", "example.com", ""),
            ("example.com.", "example.com", "."),
            ("www.a.org/x?y=z#w, and", "a.org", ", and"),
            ("a.org/wiki/B_(c)) d", "a.org", ") d"),
            ("me:secret@a.org:8080/", "a.org", ""),
            ("müller.de。次", "müller.de", "。次"),
            ("/etc/hosts", "", ""),
            ("", "", ""),
        ] {
            let (found, length) = read(text);
            assert_eq!((found, &text[length..]), (host, rest), "{text}");
        }
    }
}
