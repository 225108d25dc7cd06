//! Markdown as text for a terminal: no markup, lines that fit, tables as columns or, where these
//! would not fit, as records.
//!
//! Apart from `bowline_adapt`, whose plain form is for small devices: it keeps the lines of the
//! source and puts each row of a table on one.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The narrowest column that text is wrapped into.
const NARROWEST: usize = 30;

/// The text, with a line break at its end.
pub(super) fn render(markdown: &str, width: usize) -> String {
    let mut writer = Writer { width, ..Writer::default() };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        writer.event(event);
    }
    writer.out.trim_end().to_owned() + "\n"
}

#[derive(Default)]
struct Writer {
    width: usize,
    out: String,
    /// The inline text of the open block.
    text: String,
    /// The open lists: the next number, or `None` for bullets.
    lists: Vec<Option<u64>>,
    /// What stands before the first line of the next block: a bullet or a number.
    mark: String,
    rows: Vec<Vec<String>>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Code(text) => self.text += &text,
            Event::SoftBreak => self.text.push(' '),
            Event::HardBreak => self.text.push('\n'),
            Event::Rule => self.out += "\n",
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
            }
            Tag::Item => {
                self.mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "- ".into(),
                };
            }
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::Paragraph => {
                self.flush();
                if self.lists.is_empty() {
                    self.out.push('\n');
                }
            }
            TagEnd::Item => self.flush(),
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() {
                    self.out.push('\n');
                }
            }
            TagEnd::CodeBlock => self.code(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                self.rows.last_mut().expect("a cell is in a row").push(cell);
            }
            TagEnd::Table => self.table(),
            _ => {}
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let text = std::mem::take(&mut self.text);
        let line = match level {
            HeadingLevel::H1 => "=",
            HeadingLevel::H2 => "-",
            _ => "",
        };
        let line = line.repeat(text.chars().count());
        self.out += &format!("{text}\n{line}\n");
        if !line.is_empty() {
            self.out.push('\n');
        }
    }

    /// Ends the open text, if there is one.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return;
        }
        let mark = std::mem::take(&mut self.mark);
        let depth = self.lists.len().saturating_sub(1) * 2;
        let first = format!("{}{mark}", " ".repeat(depth));
        let rest = " ".repeat(depth + if self.lists.is_empty() { 0 } else { mark.len().max(2) });
        for line in text.trim().lines() {
            self.out +=
                &filled(line, if mark.is_empty() { &rest } else { &first }, &rest, self.width);
        }
    }

    fn code(&mut self) {
        let indent = " ".repeat(self.lists.len() * 2 + 4);
        for line in std::mem::take(&mut self.text).lines() {
            self.out += format!("{indent}{line}").trim_end();
            self.out.push('\n');
        }
        self.out.push('\n');
    }

    fn table(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let Some((head, body)) = rows.split_first() else { return };
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let Some(last) = head.len().checked_sub(1) else { return };
        let widths: Vec<_> = (0..last).map(|column| width(column) + 2).collect();
        let before: usize = widths.iter().sum();
        // The last column may be wrapped; the others may not.
        if before + width(last).min(NARROWEST) <= self.width {
            for row in &rows {
                let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
                let (first, cell) = (cells.collect::<String>(), row.get(last));
                let cell = cell.map_or("", String::as_str);
                self.out += &filled(cell, &first, &" ".repeat(before), self.width);
            }
        } else {
            body.iter().for_each(|row| self.record(head, row));
        }
        self.out.push('\n');
    }

    /// A row as its first cell, and below it the others with their headings.
    fn record(&mut self, head: &[String], row: &[String]) {
        let label = head.iter().skip(1).map(|name| name.chars().count()).max().unwrap_or(0);
        self.out += &filled(row.first().map_or("", String::as_str), "", "", self.width);
        for (name, cell) in head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            let first = format!("    {name:label$}  ");
            self.out += &filled(cell, &first, &" ".repeat(label + 6), self.width);
        }
    }
}

/// Text in lines of at most this width, each with its prefix.
fn filled(text: &str, first: &str, rest: &str, width: usize) -> String {
    let mut out = first.to_owned();
    let mut column = first.chars().count();
    let mut is_begin = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !is_begin && column + 1 + length > width {
            out += &format!("\n{rest}");
            column = rest.chars().count();
            is_begin = true;
        }
        if !is_begin {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
        is_begin = false;
    }
    out.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_filled_and_lists_hang() {
        let text = "# Title\n\nSome `code` and a\n[link](x.md) to it.\n\n## Part\n\n- one two three \
                    four\n  - below\n- five\n\n1. first\n2. second\n\n```sh\nbowline up\n\n  x\n```\n\nEnd.";
        insta::assert_snapshot!(render(text, 16), @r"
        Title
        =====

        Some code and a
        link to it.

        Part
        ----

        - one two three
          four
          - below
        - five

        1. first
        2. second

            bowline up

              x

        End.
        ");
    }

    #[test]
    fn a_table_is_columns_if_they_fit_and_records_if_not() {
        let text = "| key | what |\n|---|---|\n| a | short |\n| long | x y |\n";
        insta::assert_snapshot!(render(text, 40), @r"
        key   what
        a     short
        long  x y
        ");
        let text =
            "| key | what |\n|---|---|\n| a | it is so long that it is wrapped at the end |\n";
        insta::assert_snapshot!(render(text, 40), @r"
        key  what
        a    it is so long that it is wrapped at
             the end
        ");
        let text = "| key | default | what |\n|---|---|---|\n| a | | it is long and is wrapped |\n";
        insta::assert_snapshot!(render(text, 30), @r"
        a
            what     it is long and is
                     wrapped
        ");
    }
}
