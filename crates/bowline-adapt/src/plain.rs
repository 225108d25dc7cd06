//! Plain text, for displays without Markdown.
//!
//! Only markup is removed; every line with content stays, and blank lines stay where they were.

use pulldown_cmark::{Event, Tag, TagEnd};

use super::html;
use super::parse::{self, Spanned};
use super::table::Table;

/// The deepest indentation of nested lists: without a limit the output could be quadratic.
const DEEPEST: usize = 24;

/// Appends a block. `ordinal`: the number that its list continues with; updated to the next one.
pub(super) fn render(block: &str, images: bool, ordinal: &mut Option<u64>, out: &mut String) {
    if parse::is_prose(block) {
        out.push_str(block);
        *ordinal = None;
        return;
    }
    let (events, definitions) = parse::events(block, false);
    let mut plain = Plain {
        source: block,
        images,
        out,
        ordinal: ordinal.take(),
        lists: Vec::new(),
        indent: Vec::new(),
        links: Vec::new(),
        table: None,
        html: None,
        in_code: false,
        newlines: 0,
        fresh: true,
    };
    for event in events {
        plain.event(event);
    }
    for span in definitions {
        plain.block(span.start);
        plain.write(block[span].trim());
    }
    *ordinal = plain.ordinal;
}

struct Plain<'a, 'o> {
    source: &'a str,
    images: bool,
    out: &'o mut String,
    ordinal: Option<u64>,
    /// The open lists, with the next number of the numbered ones.
    lists: Vec<Option<u64>>,
    /// The width of the open items' markers.
    indent: Vec<usize>,
    /// The open links and images: the start of their text, and their URL.
    links: Vec<(usize, String)>,
    table: Option<Table>,
    html: Option<String>,
    in_code: bool,
    /// Line ends to write before the next text.
    newlines: usize,
    /// Nothing was written since the start of the block or the item's marker.
    fresh: bool,
}

impl<'a> Plain<'a, '_> {
    fn event(&mut self, (event, range): Spanned<'a>) {
        match event {
            Event::Start(tag) => self.start(tag, range.start),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.in_code => self.lines(&text),
            Event::Text(text) | Event::Code(text) => self.write(&text),
            Event::Html(text) => self.html.get_or_insert_default().push_str(&text),
            Event::InlineHtml(tag) => match html::inline(&tag) {
                html::Inline::Break => self.line_break(),
                html::Inline::Text(text) => self.write(&text),
            },
            Event::SoftBreak | Event::HardBreak => self.line_break(),
            Event::Rule if !self.fresh => self.newlines = 2,
            Event::FootnoteReference(label) => {
                let text = &self.source[range];
                self.write(&if parse::is_label(&label) {
                    format!("[{label}]")
                } else {
                    text.into()
                });
            }
            Event::TaskListMarker(done) => self.write(if done { "[x] " } else { "[ ] " }),
            Event::Rule | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'a>, at: usize) {
        match tag {
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.write("");
                self.links.push((self.out.len(), dest_url.into_string()));
            }
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough => {}
            Tag::List(first) => {
                self.block(at);
                let goes_on = if self.lists.is_empty() { self.ordinal.take() } else { None };
                self.lists.push(first.map(|first| goes_on.unwrap_or(first)));
            }
            Tag::Item => self.item(at),
            Tag::FootnoteDefinition(label) => {
                self.block(at);
                self.write(&format!("[{label}]: "));
                self.fresh = true;
            }
            Tag::CodeBlock(_) => {
                self.block(at);
                self.in_code = true;
            }
            Tag::Table(_) => {
                self.block(at);
                self.table = Some(Table::new(": ", "; "));
            }
            Tag::TableHead | Tag::TableRow => {
                self.write("");
                if let Some(table) = &mut self.table {
                    table.begin_row(self.out);
                }
            }
            Tag::TableCell => {
                if let Some(table) = &mut self.table {
                    table.begin_cell(self.out);
                }
            }
            _ => self.block(at),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Link => self.link(true),
            TagEnd::Image => self.link(self.images),
            TagEnd::List(_) => {
                let next = self.lists.pop().flatten();
                if self.lists.is_empty() {
                    self.ordinal = next;
                }
            }
            TagEnd::Item => {
                self.indent.pop();
                self.fresh = false;
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                // The end of its last line is not part of the gap.
                self.newlines = 0;
            }
            TagEnd::HtmlBlock => {
                let html = self.html.take().unwrap_or_default();
                self.lines(html::text(&html).trim());
            }
            TagEnd::TableCell => {
                if let Some(table) = &mut self.table {
                    table.end_cell(self.out);
                }
            }
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.end_head();
                }
            }
            TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                    self.newlines = 1;
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    table.finish(self.out);
                    self.newlines = 0;
                    self.fresh = false;
                }
            }
            _ => {}
        }
    }

    /// Starts a block: on a new line, after a blank one if the original has one there.
    fn block(&mut self, at: usize) {
        if !self.fresh && self.newlines == 0 {
            self.newlines = if follows_blank_line(self.source, at) { 2 } else { 1 };
        }
    }

    fn item(&mut self, at: usize) {
        self.block(at);
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            _ => "- ".into(),
        };
        self.write(&mark);
        self.indent.push(mark.len());
        self.fresh = true;
    }

    fn link(&mut self, shown: bool) {
        let Some((from, url)) = self.links.pop() else { return };
        let text = &self.out[from..];
        // An anchor in the same document has no meaning in plain text.
        if !shown || url.is_empty() || url.starts_with('#') || is_same(text, &url) {
            return;
        }
        let url = if text.is_empty() { url } else { format!(" ({url})") };
        self.write(&url);
    }

    fn line_break(&mut self) {
        if self.table.is_some() {
            self.write(" ");
        } else {
            self.newlines = 1;
        }
    }

    fn lines(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            let text = line.trim_end_matches(['\n', '\r']);
            if !text.is_empty() {
                self.write(text);
            }
            if text.len() < line.len() {
                self.newlines += 1;
            }
        }
    }

    fn write(&mut self, text: &str) {
        if self.newlines > 0 {
            for _ in 0..std::mem::take(&mut self.newlines) {
                self.out.push('\n');
            }
            let indent = self.indent.iter().take(DEEPEST).sum::<usize>().min(DEEPEST);
            self.out.extend(std::iter::repeat_n(' ', indent));
        }
        self.out.push_str(text);
        self.fresh = false;
    }
}

fn is_same(text: &str, url: &str) -> bool {
    text == url || url.strip_prefix("mailto:") == Some(text)
}

/// Whether the line before that of `at` is blank, apart from quote markers.
fn follows_blank_line(source: &str, at: usize) -> bool {
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '>');
    let before = source[..at].trim_end_matches(space);
    before.strip_suffix('\n').is_some_and(|b| b.trim_end_matches(space).ends_with('\n'))
}
