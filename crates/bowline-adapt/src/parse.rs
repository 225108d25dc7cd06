//! One block of Markdown as events.

use std::ops::Range;

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser};

/// An event and where in the block it comes from.
pub(super) type Spanned<'a> = (Event<'a>, Range<usize>);

/// Tables, struck text, check boxes and footnotes beside CommonMark. Footnotes of the older kind:
/// their references are known as such without the definition, which may be in another block.
const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_OLD_FOOTNOTES);

/// The deepest nesting of quotes and lists that is read.
const DEEPEST: usize = 100;

/// The events of a block, and the places of its link definitions, which are in no event.
///
/// An image is one even if its definition is in another block; `loose` says the same of links.
pub(super) fn events(
    block: &str,
    loose: bool,
) -> (impl Iterator<Item = Spanned<'_>>, Vec<Range<usize>>) {
    let elsewhere = move |link: BrokenLink<'_>| {
        let (before, text) = block.split_at(link.span.start);
        // An index of an index, as in `a[0][1]`, is no link.
        let indexes = before.ends_with(|c: char| c.is_alphanumeric() || c == ']');
        let known =
            text.starts_with('!') || (loose && link.link_type == LinkType::Reference && !indexes);
        known.then_some((CowStr::Borrowed(""), CowStr::Borrowed("")))
    };
    let parser = Parser::new_with_broken_link_callback(block, OPTIONS, Some(elsewhere));
    let definitions = parser.reference_definitions().iter();
    let mut definitions: Vec<_> =
        definitions.map(|(_, definition)| definition.span.clone()).collect();
    // They come in the order of a hash map.
    definitions.sort_unstable_by_key(|span| span.start);
    (parser.into_offset_iter(), definitions)
}

/// Whether a block nests quotes and lists so deep that reading it would cost its depth on every
/// line. Nobody writes that; it goes out as it is.
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

/// Whether a block is prose that Markdown reads as nothing but one paragraph, so that it need not
/// be parsed at all. Most blocks of most answers are.
pub(super) fn is_prose(block: &str) -> bool {
    // Line starts are the rarer ones, and only a line's first character counts.
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

/// Whether a footnote's label is one: `[^a-z]` is more likely to be meant as it stands.
pub(super) fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[derive(Debug, Clone, Copy)]
enum Class {
    Text,
    /// Means something anywhere.
    Mark,
    /// Means something as the first of its line.
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
