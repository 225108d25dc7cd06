//! Markdown of an answer that is still being written, as lines of a terminal.
//!
//! Reads line by line instead of block by block: a line is final when its line break arrives, so
//! that text can scroll away while more is on its way. A table is final when it has ended. What a
//! line-by-line reader cannot know (a heading underlined by the next line) is shown as it is
//! written. Libraries render a whole document, and have nothing for one that grows.
//!
//! Pure: text in, lines out. Control characters are dropped.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use super::printable;
use super::styled::{Color, Span, Style, StyledLine, wrap};

/// A Markdown text that grows.
#[derive(Debug)]
pub(crate) struct MarkdownStream {
    styled: bool,
    /// The last line, without its line break.
    line: String,
    /// The mark that closes the open code block.
    fence: Option<String>,
    /// The rows of the open table.
    rows: Vec<String>,
    /// The last finished line was empty: empty lines do not pile up.
    blank: bool,
}

impl MarkdownStream {
    /// If not `styled`, text is only wrapped.
    pub(crate) fn new(styled: bool) -> Self {
        Self { styled, line: String::new(), fence: None, rows: Vec::new(), blank: true }
    }

    /// Appends text. Returns the lines that are final.
    pub(crate) fn push(&mut self, text: &str, width: usize) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        for piece in printable(text).split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                Some(end) => {
                    self.line.push_str(end);
                    let line = std::mem::take(&mut self.line);
                    self.finished(&line, width, &mut lines);
                }
                None => self.line.push_str(piece),
            }
        }
        lines
    }

    /// The lines that can still change.
    pub(crate) fn tail(&self, width: usize) -> Vec<StyledLine> {
        let mut lines = table(&self.rows, width);
        if self.line.trim().is_empty() {
            return lines;
        }
        lines.extend(match &self.fence {
            Some(_) => code(&self.line, width),
            None if self.is_row(&self.line) => {
                let mut rows = self.rows.clone();
                rows.push(self.line.clone());
                return table(&rows, width);
            }
            None => self.block(&self.line, width),
        });
        lines
    }

    /// The text has ended: returns the rest.
    pub(crate) fn finish(&mut self, width: usize) -> Vec<StyledLine> {
        let mut lines = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.trim().is_empty() {
            self.finished(&line, width, &mut lines);
        }
        lines.extend(table(&std::mem::take(&mut self.rows), width));
        *self = Self::new(self.styled);
        lines
    }

    fn finished(&mut self, line: &str, width: usize, lines: &mut Vec<StyledLine>) {
        if self.is_row(line) {
            self.rows.push(line.to_owned());
            return;
        }
        if !self.rows.is_empty() {
            lines.extend(table(&std::mem::take(&mut self.rows), width));
            self.blank = false;
        }
        if let Some(mark) = &self.fence {
            self.blank = false;
            match line.trim() == mark.as_str() {
                true => self.fence = None,
                false => lines.extend(code(line, width)),
            }
            return;
        }
        if let Some((mark, language)) = fence(line).filter(|_| self.styled) {
            self.fence = Some(mark);
            if !language.is_empty() {
                lines.push(StyledLine::new(format!("  {language}"), Style::DIM));
            }
            return;
        }
        if line.trim().is_empty() {
            if !self.blank {
                lines.push(StyledLine::default());
            }
            self.blank = true;
            return;
        }
        self.blank = false;
        lines.extend(self.block(line, width));
    }

    fn is_row(&self, line: &str) -> bool {
        self.styled && self.fence.is_none() && line.trim_start().starts_with('|')
    }

    /// A line outside of code and tables.
    fn block(&self, line: &str, width: usize) -> Vec<StyledLine> {
        let plain = |text: &str| Span::new(text, Style::PLAIN);
        if !self.styled {
            return wrap(&[plain(&tabs(line))], width, &plain(""), &plain(""));
        }
        let text = line.trim_start();
        let indent = tabs(&line[..line.len() - text.len()]);
        if is_rule(text) {
            return vec![StyledLine::new("─".repeat(width.min(40)), Style::DIM)];
        }
        if let Some((level, title)) = heading(text) {
            let style = Style { bold: true, underline: level == 1, ..Style::PLAIN };
            return wrap(&inline(title, style), width, &plain(""), &plain(""));
        }
        if let Some(quoted) = text.strip_prefix('>') {
            let style = Style { italic: true, ..Style::PLAIN };
            let bar = Span::new("│ ", Style::DIM);
            return wrap(&inline(quoted.trim_start(), style), width, &bar, &bar);
        }
        let (mark, rest) = item(text).unwrap_or((String::new(), text));
        let first = format!("{indent}{mark}");
        let hanging = " ".repeat(first.width());
        wrap(&inline(rest, Style::PLAIN), width, &plain(&first), &plain(&hanging))
    }
}

/// The mark of a code block and its language.
fn fence(line: &str) -> Option<(String, &str)> {
    let line = line.trim();
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let marks = line.len() - line.trim_start_matches(sign).len();
    let language = line[marks..].trim();
    (marks >= 3 && !language.contains(sign)).then(|| (line[..marks].to_owned(), language))
}

fn heading(text: &str) -> Option<(usize, &str)> {
    let level = text.len() - text.trim_start_matches('#').len();
    let title = text[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

fn is_rule(text: &str) -> bool {
    let marks: Vec<char> = text.chars().filter(|c| *c != ' ').collect();
    marks.len() >= 3
        && matches!(marks[0], '-' | '*' | '_')
        && marks.iter().all(|mark| *mark == marks[0])
}

/// The mark of a list item as it is shown, and the item's text.
fn item(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        let rest = rest.trim_start();
        let tasks = [("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")];
        let task = tasks.iter().find_map(|(mark, shown)| Some((shown, rest.strip_prefix(mark)?)));
        return Some(match task {
            Some((shown, rest)) => (shown.to_string(), rest),
            None => ("• ".into(), rest),
        });
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = text[digits..].strip_prefix(['.', ')'])?.strip_prefix(' ')?;
    (1..=9).contains(&digits).then(|| (format!("{} ", &text[..=digits]), rest.trim_start()))
}

/// Text of one line with emphasis, code and links.
fn inline(text: &str, base: Style) -> Vec<Span> {
    let text = tabs(text);
    let mut spans = Vec::new();
    let mut styles = vec![base];
    let mut links: Vec<(String, usize)> = Vec::new();
    let top = |styles: &[Style]| styles.last().copied().unwrap_or(base);
    for event in Parser::new_ext(&text, Options::ENABLE_STRIKETHROUGH) {
        let now = top(&styles);
        match event {
            Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) => {}
            Event::Text(words) | Event::Html(words) | Event::InlineHtml(words) => {
                spans.push(Span::new(words.into_string(), now));
            }
            Event::Code(words) => {
                let style = Style { color: Some(Color::Cyan), ..now };
                spans.push(Span::new(words.into_string(), style));
            }
            Event::SoftBreak | Event::HardBreak => spans.push(Span::new(" ", now)),
            Event::Start(Tag::Strong) => styles.push(Style { bold: true, ..now }),
            Event::Start(Tag::Emphasis) => styles.push(Style { italic: true, ..now }),
            Event::Start(Tag::Strikethrough) => styles.push(Style { strike: true, ..now }),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push((dest_url.into_string(), spans.len()));
                styles.push(Style { underline: true, ..now });
            }
            Event::End(TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough) => {
                styles.pop();
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                styles.pop();
                if let Some((address, from)) = links.pop() {
                    let words: String =
                        spans[from..].iter().map(|span| span.text.as_str()).collect();
                    if words != address && format!("mailto:{words}") != address {
                        spans.push(Span::new(format!(" ({address})"), Style::DIM));
                    }
                }
            }
            // Something that is not one paragraph: shown as it is written.
            _ => return vec![Span::new(text.clone(), base)],
        }
    }
    spans
}

fn code(line: &str, width: usize) -> Vec<StyledLine> {
    let indent = Span::new("  ", Style::PLAIN);
    let style = Style::color(Color::Cyan);
    wrap(&[Span::new(tabs(line), style)], width, &indent, &indent)
}

/// A table with aligned columns; as it is written if it does not fit or is not one yet.
fn table(rows: &[String], width: usize) -> Vec<StyledLine> {
    let none = Span::new("", Style::PLAIN);
    let as_written = || -> Vec<StyledLine> {
        rows.iter()
            .flat_map(|row| wrap(&[Span::new(tabs(row), Style::PLAIN)], width, &none, &none))
            .collect()
    };
    let is_delimiter = |row: &String| {
        row.contains('-') && row.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ' | '\t'))
    };
    if !rows.get(1).is_some_and(is_delimiter) {
        return as_written();
    }
    let cells: Vec<Vec<Vec<Span>>> = rows
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != 1)
        .map(|(number, row)| {
            let style = if number == 0 { Style::BOLD } else { Style::PLAIN };
            split(row).iter().map(|cell| inline(cell.trim(), style)).collect()
        })
        .collect();
    let wide = |cell: &Vec<Span>| cell.iter().map(|span| span.text.width()).sum::<usize>();
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| cells.iter().filter_map(|row| row.get(column)).map(wide).max().unwrap_or(0))
        .collect();
    if widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1) > width {
        return as_written();
    }
    let bar = Span::new(" │ ", Style::DIM);
    let mut lines: Vec<StyledLine> = cells
        .iter()
        .map(|row| {
            let mut line = Vec::new();
            for (column, total) in widths.iter().enumerate() {
                let cell = row.get(column).cloned().unwrap_or_default();
                let gap = total - wide(&cell);
                line.extend(cell);
                if column + 1 < columns {
                    line.push(Span::new(" ".repeat(gap), Style::PLAIN));
                    line.push(bar.clone());
                }
            }
            StyledLine(line)
        })
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    lines.insert(1, StyledLine::new(rule.join("─┼─"), Style::DIM));
    lines
}

/// The cells of a row; `\|` is not a border.
fn split(row: &str) -> Vec<String> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let row = row.strip_suffix('|').filter(|row| !row.ends_with('\\')).unwrap_or(row);
    let mut cells = vec![String::new()];
    let mut chars = row.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'|') => {
                chars.next();
                cells.last_mut().expect("there is always a cell").push('|');
            }
            '|' => cells.push(String::new()),
            c => cells.last_mut().expect("there is always a cell").push(c),
        }
    }
    cells
}

/// Tabs as spaces: their width depends on where they stand.
fn tabs(text: &str) -> String {
    text.replace('\t', "    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(lines: Vec<StyledLine>) -> Vec<String> {
        lines.iter().map(StyledLine::plain).collect()
    }

    fn whole(text: &str, width: usize) -> Vec<StyledLine> {
        let mut stream = MarkdownStream::new(true);
        let mut lines = stream.push(text, width);
        lines.extend(stream.finish(width));
        lines
    }

    const ANSWER: &str = "# A title\n\nSome **bold** and `code`, [a link](https://x.example).\n\n\n\
        - one\n  - nested and long enough to wrap\n1. first\n- [x] done\n> quoted\n\n\
        ```rust\nfn  main() {}\n\n```\n| a | b \\| c |\n|---|:-:|\n| 1 | 22 |\n\n---\nend";

    #[test]
    fn markdown_becomes_lines() {
        insta::assert_snapshot!(plain(whole(ANSWER, 30)).join("\n"), @r"
        A title

        Some bold and code, a link
        (https://x.example).

        • one
          • nested and long enough to
            wrap
        1. first
        ☑ done
        │ quoted

          rust
          fn  main() {}

        a │ b | c
        ──┼──────
        1 │ 22

        ──────────────────────────────
        end
        ");
        let ansi: Vec<_> = whole("**b** *i* ~~s~~ `c`", 30).iter().map(StyledLine::ansi).collect();
        assert_eq!(
            ansi,
            ["\u{1b}[1mb\u{1b}[0m \u{1b}[3mi\u{1b}[0m \u{1b}[9ms\u{1b}[0m \u{1b}[36mc\u{1b}[0m"]
        );
    }

    #[test]
    fn however_the_text_is_cut_the_lines_are_the_same() {
        for size in 1..20 {
            let mut stream = MarkdownStream::new(true);
            let chars: Vec<char> = ANSWER.chars().collect();
            let mut lines = Vec::new();
            for piece in chars.chunks(size) {
                lines.extend(stream.push(&piece.iter().collect::<String>(), 30));
                stream.tail(30);
            }
            lines.extend(stream.finish(30));
            assert_eq!(lines, whole(ANSWER, 30), "{size}");
        }
    }

    #[test]
    fn the_tail_shows_what_is_not_final_yet() {
        let mut stream = MarkdownStream::new(true);
        assert_eq!(plain(stream.push("done\nnot **yet", 30)), ["done"]);
        assert_eq!(plain(stream.tail(30)), ["not **yet"]);
        assert_eq!(plain(stream.push("**\n|a|\n|-|\n|b", 30)), ["not yet"]);
        assert_eq!(plain(stream.tail(30)), ["a", "─", "b"]);
    }

    #[test]
    fn unstyled_text_keeps_its_marks_and_is_wrapped() {
        let mut stream = MarkdownStream::new(false);
        let mut lines = stream.push("**bold** and more\n```\n| x |\n", 10);
        lines.extend(stream.finish(10));
        assert_eq!(plain(lines), ["**bold**", "and more", "```", "| x |"]);
    }

    #[test]
    fn what_looks_like_markdown_but_is_not_stays() {
        for text in ["#hashtag", "1986 was long ago", "a * b * c", "2*3*4 = 24", "-5 degrees"] {
            let expected = text.replace("*3*", "3");
            assert_eq!(plain(whole(text, 60)), [expected], "{text}");
        }
        assert_eq!(plain(whole("bell\u{7}\u{1b}[2J", 60)), ["bell[2J"]);
    }

    #[test]
    fn character_references_bring_no_control_characters() {
        let text = "a&#27;]0;t&#7;b&#x9b;1m&#10;c `&#27;` [x](y&#27;z)\n\n| &#27;[2J |\n|-|\n";
        for line in whole(text, 80) {
            let plain = line.plain();
            assert!(!plain.contains(char::is_control), "{plain:?}");
        }
    }

    #[test]
    fn a_table_that_does_not_fit_is_shown_as_written() {
        let text = "|alpha beta|gamma|\n|-|-|\n|1|2|\n";
        assert_eq!(plain(whole(text, 12)), ["|alpha", "beta|gamma|", "|-|-|", "|1|2|"]);
    }
}
