//! The original Markdown, except for tables and images that a surface cannot display.
//!
//! Everything else is copied from the original, byte for byte.

use pulldown_cmark::{Event, Tag, TagEnd};

use super::html;
use super::parse::{self, Spanned};
use super::table::Table;

/// Appends a block. Without `tables` they become lists, without `images` their descriptions.
pub(super) fn render(block: &str, tables: bool, images: bool, out: &mut String) {
    let has_table = !tables && block.contains('|');
    let has_image = !images && (block.contains("![") || html::has_image(block));
    if !has_table && !has_image {
        out.push_str(block);
        return;
    }
    let mut splice =
        Splice { source: block, tables, images, out, copied: 0, table: None, in_image: 0 };
    for event in parse::events(block, false).0 {
        splice.event(event);
    }
    splice.copy(block.len());
}

struct Splice<'a, 'o> {
    source: &'a str,
    tables: bool,
    images: bool,
    out: &'o mut String,
    /// The original is processed up to here.
    copied: usize,
    /// The open table, and the prefix of each of its lines after the first.
    table: Option<(Table, String)>,
    in_image: usize,
}

impl<'a> Splice<'a, '_> {
    fn event(&mut self, (event, range): Spanned<'a>) {
        match event {
            Event::Start(Tag::Image { .. }) if !self.images => {
                if self.in_image == 0 {
                    self.copy(range.start);
                }
                self.in_image += 1;
            }
            Event::End(TagEnd::Image) if !self.images => {
                self.in_image -= 1;
                self.copied = range.end;
            }
            // Copied from the original, so that escaped characters stay escaped.
            Event::Text(_) | Event::Code(_) if self.in_image > 0 => {
                if self.source[..range.start].ends_with('\\') {
                    self.out.push('\\');
                }
                self.out.push_str(&self.source[range]);
            }
            Event::SoftBreak if self.in_image > 0 => self.out.push(' '),
            Event::Html(text) | Event::InlineHtml(text)
                if !self.images && html::has_image(&text) =>
            {
                self.copy(range.start);
                self.out.push_str(&html::without_images(&text));
                self.copied = range.end;
            }
            Event::Start(tag) if !self.tables => self.start(&tag, range.start),
            Event::End(tag) if !self.tables => self.end(tag, range.end),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'a>, at: usize) {
        match (tag, &mut self.table) {
            (Tag::Table(_), _) => {
                self.copy(at);
                self.table = Some((Table::new(": ", "; "), prefix(self.source, at)));
            }
            (Tag::TableHead, Some((table, _))) => table.begin_row(self.out),
            (Tag::TableRow, Some((table, prefix))) => {
                if !table.is_empty() {
                    self.out.push('\n');
                    self.out.push_str(prefix);
                }
                self.out.push_str("- ");
                table.begin_row(self.out);
            }
            (Tag::TableCell, Some((table, _))) => {
                table.begin_cell(self.out);
                self.copied = at;
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd, at: usize) {
        if tag == TagEnd::TableCell {
            self.copy(at);
        }
        let Some((table, _)) = &mut self.table else { return };
        match tag {
            TagEnd::TableCell => {
                // Outside a table a bar needs no escape.
                let value = table.value(self.out).replace("\\|", "|").replace('\n', " ");
                table.replace_value(&value, self.out);
                table.end_cell(self.out);
            }
            TagEnd::TableHead => {
                table.end_head();
                self.copied = after_next_line(self.source, at);
            }
            TagEnd::TableRow => {
                table.end_row();
                self.copied = at;
            }
            // Not up to the end of its range: rows that the parser rejected are text after it.
            TagEnd::Table => {
                if let Some((table, _)) = self.table.take() {
                    table.finish(self.out);
                }
                self.copied = self.source[..self.copied].trim_end().len();
            }
            _ => {}
        }
    }

    fn copy(&mut self, until: usize) {
        if let Some(original) = self.source.get(self.copied..until) {
            self.out.push_str(original);
            self.copied = until;
        }
    }
}

/// The end of the line after the one that ends at `at`: the delimiter row under a table head.
fn after_next_line(source: &str, at: usize) -> usize {
    let head = source[..at].trim_end().len();
    source[head..].match_indices('\n').nth(1).map_or(source.len(), |(end, _)| head + end)
}

/// The prefix that puts a new line into the same quote and list item as the text at `at`.
fn prefix(source: &str, at: usize) -> String {
    let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let keep = |c: char| if matches!(c, '>' | ' ' | '\t') { c } else { ' ' };
    source[line..at].chars().map(keep).collect()
}
