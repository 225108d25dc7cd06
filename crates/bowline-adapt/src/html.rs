//! Removes HTML tags from an answer.
//!
//! Only known HTML tags are removed. `Vec<String>` and `git push <remote>` look like tags, too, and
//! removing those would change the answer.

use std::borrow::Cow;

/// The replacement of an inline tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inline<'a> {
    Break,
    Text(Cow<'a, str>),
}

/// The replacement of one inline tag or comment.
pub(super) fn inline(tag: &str) -> Inline<'_> {
    match Tag::read(tag) {
        Some(Tag { name: "br" | "BR", .. }) => Inline::Break,
        Some(tag) if tag.is("img") => Inline::Text(alt(tag.source).into()),
        Some(tag) if is_known(tag.name) => Inline::Text("".into()),
        None if tag.starts_with("<!--") => Inline::Text("".into()),
        _ => Inline::Text(tag.into()),
    }
}

/// The text of a piece of HTML.
pub(super) fn text(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("<!--") {
            rest = rest.find("-->").map_or("", |end| &rest[end + 3..]);
        } else if let Some(tag) = Tag::read(rest).filter(|tag| is_known(tag.name)) {
            if BREAKING.contains(&tag.name) && !out.ends_with('\n') && !out.is_empty() {
                out.push('\n');
            }
            if tag.is("img") {
                out.push_str(&alt(tag.source));
            }
            rest = &rest[tag.source.len()..];
            if (tag.is("script") || tag.is("style")) && !tag.source.starts_with("</") {
                rest = rest.find("</").map_or("", |end| &rest[end..]);
            }
        } else if let Some((character, length)) = entity(rest) {
            out.push(character);
            rest = &rest[length..];
        } else {
            out.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    let lines = out.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether there may be an image in a text.
pub(super) fn has_image(text: &str) -> bool {
    text.contains("<img") || text.contains("<IMG")
}

/// The HTML with images replaced by their descriptions.
pub(super) fn without_images(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = match Tag::read(from).filter(|tag| tag.is("img")) {
            Some(tag) => {
                out.push_str(&alt(tag.source));
                tag.source.len()
            }
            None => {
                out.push('<');
                1
            }
        };
        rest = &from[length..];
    }
    out.push_str(rest);
    out
}

#[derive(Debug, Clone, Copy)]
struct Tag<'a> {
    name: &'a str,
    source: &'a str,
}

impl<'a> Tag<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let inner = text.strip_prefix('<')?;
        let inner = inner.strip_prefix('/').unwrap_or(inner);
        let length = inner.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let name = &inner[..length];
        let apart =
            matches!(inner.as_bytes().get(length)?, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r');
        if !apart || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        // Not past the next `<`: many unclosed tags would otherwise cost quadratic time.
        let end = inner.find(['<', '>'])? + text.len() - inner.len();
        text[end..].starts_with('>').then(|| Self { name, source: &text[..=end] })
    }

    fn is(self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

fn alt(tag: &str) -> String {
    let value = tag.split_once(" alt=").and_then(|(_, rest)| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        rest[1..].split(quote).next()
    });
    let mut out = String::new();
    let mut rest = value.unwrap_or_default();
    while let Some(at) = rest.find('&') {
        let (character, length) = entity(&rest[at..]).unwrap_or(('&', 1));
        out.push_str(&rest[..at]);
        out.push(character);
        rest = &rest[at + length..];
    }
    out + rest
}

/// The character of the entity at the start of the text, and the entity's length.
fn entity(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(12).position(|b| b == b';')?;
    let name = text[..end].strip_prefix('&')?;
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "copy" => '©',
        "euro" => '€',
        "deg" => '°',
        "times" => '×',
        "rarr" => '→',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        _ => {
            let code = name.strip_prefix('#')?;
            let code = match code.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => code.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((character, end + 1))
}

/// A capital `<T>` is a type far more often than a tag.
fn is_known(name: &str) -> bool {
    let name = if name.len() == 1 { name.to_owned() } else { name.to_ascii_lowercase() };
    TAGS.binary_search(&name.as_str()).is_ok()
}

/// Tags that begin or end a line.
#[rustfmt::skip]
const BREAKING: [&str; 22] = [
    "br", "p", "div", "li", "ul", "ol", "tr", "table", "h1", "h2", "h3", "h4", "h5", "h6",
    "summary", "details", "section", "dt", "dd", "hr", "pre", "blockquote",
];

/// In alphabetical order.
#[rustfmt::skip]
const TAGS: [&str; 98] = [
    "a", "abbr", "address", "article", "aside", "audio", "b", "bdi", "bdo", "big", "blockquote",
    "body", "br", "button", "canvas", "caption", "center", "cite", "code", "col", "colgroup", "dd",
    "del", "details", "dfn", "dialog", "div", "dl", "dt", "em", "figcaption", "figure", "font",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "i",
    "iframe", "img", "input", "ins", "kbd", "label", "legend", "li", "link", "main", "mark",
    "meta", "nav", "noscript", "ol", "option", "p", "picture", "pre", "q", "rp", "rt", "ruby", "s",
    "samp", "script", "section", "select", "small", "source", "span", "strike", "strong", "style",
    "sub", "summary", "sup", "svg", "table", "tbody", "td", "template", "textarea", "tfoot", "th",
    "thead", "tr", "tt", "u", "ul", "var", "video",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_by_binary_search() {
        assert!(TAGS.is_sorted());
        for known in ["b", "BR", "Video", "a"] {
            assert!(is_known(known), "{known}");
        }
        for unknown in ["T", "B", "String", "", "remote"] {
            assert!(!is_known(unknown), "{unknown}");
        }
    }

    #[test]
    fn entities_and_images_are_decoded_and_what_is_none_is_kept() {
        assert_eq!(
            text("a &lt;b&gt; &#65;&#x42; &nope; & &#xd800; <c d"),
            "a <b> AB &nope; & &#xd800; <c d"
        );
        assert_eq!(text("<p>a</p><p>b<script>c < d</script>e"), "a\nbe");
        assert_eq!(without_images("<b>a<img src=x alt='b'><i"), "<b>ab<i");
        assert_eq!(inline("<img src=x>"), Inline::Text("".into()));
        assert_eq!(inline("<br />"), Inline::Break);
    }
}
