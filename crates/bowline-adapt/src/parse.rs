//! Parses one block of Markdown into events.

use std::ops::Range;

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser};

/// An event and its range in the block.
pub(super) type Spanned<'a> = (Event<'a>, Range<usize>);

/// CommonMark with tables, strikethrough, task lists and footnotes. Old-style footnotes: their
/// references are recognised without the definition, which may be in another block.
const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_OLD_FOOTNOTES);

/// The deepest nesting of quotes and lists that is parsed.
const DEEPEST: usize = 100;

/// The events of a block, and the ranges of its link definitions, which have no event.
///
/// An image is recognised even if its definition is in another block; if `loose`, a link, too.
pub(super) fn events(
    block: &str,
    loose: bool,
) -> (impl Iterator<Item = Spanned<'_>>, Vec<Range<usize>>) {
    let elsewhere = move |link: BrokenLink<'_>| {
        let (before, text) = block.split_at(link.span.start);
        // Indexing, as in `a[0][1]`, is not a link.
        let indexes = before.ends_with(|c: char| c.is_alphanumeric() || c == ']');
        let known =
            text.starts_with('!') || (loose && link.link_type == LinkType::Reference && !indexes);
        known.then_some((CowStr::Borrowed(""), CowStr::Borrowed("")))
    };
    let parser = Parser::new_with_broken_link_callback(block, OPTIONS, Some(elsewhere));
    let definitions = parser.reference_definitions().iter();
    let mut definitions: Vec<_> =
        definitions.map(|(_, definition)| definition.span.clone()).collect();
    // The parser returns them in hash map order.
    definitions.sort_unstable_by_key(|span| span.start);
    (parser.into_offset_iter(), definitions)
}

/// Whether a block nests quotes and lists so deeply that parsing would take quadratic time. Such a
/// block is sent unchanged.
pub(super) fn is_too_deep(block: &str) -> bool {
    block.lines().any(|line| {
        let space = |c: u8| matches!(c, b' ' | b'\t');
        let mut marks = 0;
        let mut last = b' ';
        for byte in line.bytes() {
            match byte {
                b'>' => marks += 1,
                b'-' | b'+' | b'*' if space(last) || last == b'>' => marks += 1,
                b'.' | b')' if last.is_ascii_digit() => marks += 1,
                b' ' | b'\t' | b'0'..=b'9' => {}
                _ => break,
            }
            last = byte;
        }
        marks > DEEPEST
    })
}

/// Fast path: whether a block is a single paragraph without markup, which need not be parsed. Most
/// blocks of most answers are.
pub(super) fn is_prose(block: &str) -> bool {
    // Some characters are markup only as the first of a line.
    let mut fresh = true;
    let mut indent = 0;
    for byte in block.bytes() {
        match CLASS[usize::from(byte)] {
            Class::Text => fresh = false,
            Class::Mark => return false,
            Class::First if fresh => return false,
            Class::First => {}
            Class::Space if fresh && (indent == 3 || byte == b'\t') => return false,
            Class::Space => indent += 1,
            Class::End => (fresh, indent) = (true, 0),
        }
    }
    true
}

/// Whether the text is a footnote label: `[^a-z]` is more likely a regular expression.
pub(super) fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[derive(Debug, Clone, Copy)]
enum Class {
    Text,
    /// Markup anywhere.
    Mark,
    /// Markup as the first character of a line.
    First,
    Space,
    End,
}

const CLASS: [Class; 256] = {
    let mut table = [Class::Text; 256];
    let mut digit = b'0';
    while digit <= b'9' {
        table[digit as usize] = Class::First;
        digit += 1;
    }
    let (marks, firsts) = (b"\\`*_[]<&~|\r\0", b"#+-=>");
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = Class::Mark;
        at += 1;
    }
    at = 0;
    while at < firsts.len() {
        table[firsts[at] as usize] = Class::First;
        at += 1;
    }
    table[b' ' as usize] = Class::Space;
    table[b'\t' as usize] = Class::Space;
    table[b'\n' as usize] = Class::End;
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pulldown_cmark::{Tag, TagEnd};

    #[test]
    fn what_could_be_markup_is_not_taken_for_prose() {
        for prose in ["", "a", "  a - b # c 1. d\n   e", "Ä, 中文。", "a\n b > c"] {
            assert!(is_prose(prose), "{prose:?}");
        }
        for other in
            ["    a", "\ta", "a\n=", "a\n---", "# a", "1. a", "a*b", "a\n> b", "a|b", "a\r"]
        {
            assert!(!is_prose(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn prose_is_one_paragraph_of_text(
            block in "[a-c][a-c #+=>:.0-]{0,5}(\n {0,3}[a-c=:][a-c #+=>:.0-]{0,5}){0,2}",
        ) {
            let block = block.trim_end();
            prop_assume!(is_prose(block));
            for (event, _) in events(block, false).0 {
                prop_assert!(matches!(
                    event,
                    Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph)
                        | Event::Text(_) | Event::SoftBreak | Event::HardBreak
                ), "{:?}", event);
            }
        }
    }
}
