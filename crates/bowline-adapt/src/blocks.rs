//! Splits Markdown into top-level blocks, line by line.
//!
//! Reads each line once and never ahead, so that a stream is split like a complete text. When in
//! doubt it does not cut: two blocks in one piece render the same, half a block does not.
//!
//! Invariants
//! - A cut depends only on the lines up to the current one.
//! - No cut falls into a fenced code block, an HTML comment, `<pre>`, `<script>`, `<style>` or
//!   `<textarea>`, nor between a list item and what is indented under it.
//! - Items of a list with a blank line between them are separate blocks: a long list can be sent
//!   before its end.

/// Where to cut, relative to the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    None,
    /// The line begins a block; `continues`: one that continues the list before it.
    Before {
        continues: bool,
    },
    /// The line ends its block.
    After,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    state: Within,
}

#[derive(Debug, Clone, Copy, Default)]
enum Within {
    #[default]
    Between,
    /// A paragraph, heading, quote, table, …: ends at a blank line.
    Leaf,
    /// A list, or indented code (no marker): continues after blank lines with indented lines.
    Indented {
        marker: Option<u8>,
        after_blank: bool,
    },
    Fence(Fence),
    /// HTML that ends only with this text.
    Html {
        until: &'static str,
    },
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: u8,
    length: usize,
    indent: usize,
    /// The marker of the list that contains it.
    list: Option<u8>,
}

/// Start and end of HTML that does not end at blank lines.
const HTML: [(&str, &str); 5] = [
    ("<!--", "-->"),
    ("<pre", "</pre>"),
    ("<script", "</script>"),
    ("<style", "</style>"),
    ("<textarea", "</textarea>"),
];

impl Blocks {
    /// The next line, with its line end if it has one.
    pub(super) fn line(&mut self, line: &str) -> Cut {
        let body = line.trim_start_matches([' ', '\t']);
        let indent = columns(&line[..line.len() - body.len()]);
        let body = body.trim_end();
        match self.state {
            Within::Between if body.is_empty() => Cut::After,
            Within::Between => {
                self.state = open(Within::Between, indent, body);
                Cut::None
            }
            Within::Leaf if body.is_empty() => self.close(),
            Within::Leaf => {
                self.state = open(Within::Leaf, indent, body);
                Cut::None
            }
            Within::Indented { marker, .. } if body.is_empty() => {
                self.state = Within::Indented { marker, after_blank: true };
                Cut::None
            }
            Within::Indented { marker, after_blank: true } if indent == 0 => {
                self.state = open(Within::Between, indent, body);
                let continues = marker.is_some() && marker == self::marker(body).map(|m| m.kind);
                Cut::Before { continues }
            }
            Within::Indented { marker, .. } => {
                self.state = open(Within::Indented { marker, after_blank: false }, indent, body);
                Cut::None
            }
            Within::Fence(_) if body.is_empty() => Cut::None,
            // A line without indentation ends the item, and with it the item's code.
            Within::Fence(Fence { list: Some(_), .. }) if indent == 0 => {
                self.state = open(Within::Between, indent, body);
                Cut::Before { continues: false }
            }
            Within::Fence(fence) if fence.ends(indent, body) => match fence.list {
                None => self.close(),
                list => {
                    self.state = Within::Indented { marker: list, after_blank: false };
                    Cut::None
                }
            },
            Within::Fence(_) => Cut::None,
            Within::Html { until } if find_ignoring_case(body, until) => self.close(),
            Within::Html { .. } => Cut::None,
        }
    }

    fn close(&mut self) -> Cut {
        self.state = Within::Between;
        Cut::After
    }
}

/// The state after a line that has text.
fn open(state: Within, indent: usize, body: &str) -> Within {
    let list = match state {
        Within::Indented { marker, .. } => marker,
        Within::Between if indent >= 4 => {
            return Within::Indented { marker: None, after_blank: false };
        }
        // After a paragraph it is not code, but the paragraph's next line.
        Within::Leaf if indent >= 4 => return Within::Leaf,
        _ => None,
    };
    if let Some(fence) = Fence::begins(indent, body, list.filter(|_| indent > 0)) {
        return Within::Fence(fence);
    }
    if let Some(first) = marker(body) {
        let kind = list.filter(|_| indent > 0).unwrap_or(first.kind);
        let mut rest = body;
        while let Some(marker) = marker(rest) {
            rest = rest[marker.width..].trim_start_matches([' ', '\t']);
        }
        return match Fence::begins(indent + body.len() - rest.len(), rest, Some(kind)) {
            Some(fence) => Within::Fence(fence),
            None => Within::Indented { marker: Some(kind), after_blank: false },
        };
    }
    let html = HTML.iter().find(|(begin, _)| starts_ignoring_case(body, begin));
    match html {
        Some((begin, until)) if !find_ignoring_case(&body[begin.len()..], until) => {
            Within::Html { until }
        }
        _ if matches!(state, Within::Indented { .. }) => state,
        _ => Within::Leaf,
    }
}

impl Fence {
    fn begins(indent: usize, body: &str, list: Option<u8>) -> Option<Self> {
        let mark = *body.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
        let length = run(body, mark);
        let info = &body[length..];
        let opens = length >= 3 && !(mark == b'`' && info.contains('`'));
        opens.then_some(Self { mark, length, indent, list })
    }

    fn ends(self, indent: usize, body: &str) -> bool {
        let length = run(body, self.mark);
        length >= self.length && length == body.len() && indent < self.indent + 4
    }
}

struct Marker {
    /// The bullet, or the character after the number: another kind begins another list.
    kind: u8,
    width: usize,
}

fn marker(body: &str) -> Option<Marker> {
    let bytes = body.as_bytes();
    let digits = bytes.iter().take(10).take_while(|b| b.is_ascii_digit()).count();
    let kind = *bytes.get(digits)?;
    let marks = match digits {
        0 => matches!(kind, b'-' | b'+' | b'*'),
        1..=9 => matches!(kind, b'.' | b')'),
        _ => false,
    };
    let apart = matches!(bytes.get(digits + 1), None | Some(b' ' | b'\t'));
    (marks && apart).then_some(Marker { kind, width: digits + 1 })
}

fn run(body: &str, mark: u8) -> usize {
    body.bytes().take_while(|b| *b == mark).count()
}

fn columns(space: &str) -> usize {
    space.bytes().fold(0, |at, b| if b == b'\t' { at / 4 * 4 + 4 } else { at + 1 })
}

fn starts_ignoring_case(text: &str, begin: &str) -> bool {
    text.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin))
}

fn find_ignoring_case(text: &str, what: &str) -> bool {
    text.as_bytes().windows(what.len()).any(|window| window.eq_ignore_ascii_case(what.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with a `¦` at every cut.
    fn cuts(text: &str) -> String {
        let mut blocks = Blocks::default();
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            match blocks.line(line) {
                Cut::None => out.push_str(line),
                Cut::Before { continues } => {
                    out.push_str(if continues { "+" } else { "¦" });
                    out.push_str(line);
                }
                Cut::After => {
                    out.push_str(line);
                    out.push('¦');
                }
            }
        }
        out
    }

    #[test]
    fn a_blank_line_ends_a_paragraph_a_quote_and_a_table_at_once() {
        assert_eq!(cuts("a\nb\n\nc\n"), "a\nb\n\n¦c\n");
        assert_eq!(cuts("> a\nb\n\n> c\n"), "> a\nb\n\n¦> c\n");
        assert_eq!(cuts("|a|\n|-|\n|b|\n\nc"), "|a|\n|-|\n|b|\n\n¦c");
    }

    #[test]
    fn a_fence_is_one_block_whatever_is_in_it() {
        assert_eq!(cuts("```rs\na\n\n- b\n~~~\n```\nc\n"), "```rs\na\n\n- b\n~~~\n```\n¦c\n");
        assert_eq!(cuts("a\n~~~~\n\n~~~\n\n~~~~\nb"), "a\n~~~~\n\n~~~\n\n~~~~\n¦b");
        assert_eq!(cuts("```a`b\n\nc"), "```a`b\n\n¦c", "an info string has no backtick");
        assert_eq!(cuts("```\n\n    ```\n\na"), "```\n\n    ```\n\na", "too far in to end it");
    }

    #[test]
    fn a_list_goes_on_after_blank_lines_with_what_is_indented() {
        assert_eq!(cuts("- a\n\n  b\n- c\n\nd\n"), "- a\n\n  b\n- c\n\n¦d\n");
        assert_eq!(cuts("1. a\n\n2. b\n\n* c\n"), "1. a\n\n+2. b\n\n¦* c\n");
        assert_eq!(cuts("- a\n\n  1. b\n\n- c\n"), "- a\n\n  1. b\n\n+- c\n");
        assert_eq!(cuts("    a\n\n    b\n\nc"), "    a\n\n    b\n\n¦c");
    }

    #[test]
    fn code_under_an_item_ends_with_its_fence_or_with_the_item() {
        assert_eq!(
            cuts("- a\n  ```\n  b\n\n  c\n  ```\n\nd"),
            "- a\n  ```\n  b\n\n  c\n  ```\n\n¦d"
        );
        assert_eq!(cuts("- ```\n  b\n\n  c\n  ```\n- d"), "- ```\n  b\n\n  c\n  ```\n- d");
        assert_eq!(cuts("- ```\n  b\n\nc\n\nd"), "- ```\n  b\n\n¦c\n\n¦d");
    }

    #[test]
    fn html_with_an_end_of_its_own_is_not_ended_by_a_blank_line() {
        assert_eq!(cuts("<!-- a\n\nb -->\nc"), "<!-- a\n\nb -->\n¦c");
        assert_eq!(cuts("<PRE>\n\na\n</pre>\nb"), "<PRE>\n\na\n</pre>\n¦b");
        assert_eq!(cuts("<!-- a -->\n\nb"), "<!-- a -->\n\n¦b");
        assert_eq!(cuts("<div>\n\nb"), "<div>\n\n¦b");
    }
}
