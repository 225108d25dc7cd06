//! Prose to be read aloud: no markup, no URLs, no code, and every item and row is a sentence.

use pulldown_cmark::{Event, Tag, TagEnd};

use super::html;
use super::language::{Language, Words};
use super::parse::{self, Spanned};
use super::say::say;
use super::table::Table;

/// The longest line of code that is read out.
const SAYABLE: usize = 60;

/// Appends a block. `ordinal`: the number that its list continues with; updated to the next one.
pub(super) fn render(block: &str, language: Language, ordinal: &mut Option<u64>, out: &mut String) {
    if parse::is_prose(block) {
        say(block, language, out);
        *ordinal = None;
        return;
    }
    let mut speech = Speech {
        source: block,
        language,
        words: language.words(),
        from: out.len(),
        out,
        line: String::new(),
        ordinal: ordinal.take(),
        lists: Vec::new(),
        links: Vec::new(),
        table: None,
        html: None,
        code: None,
        joined: false,
    };
    for event in parse::events(block, true).0 {
        speech.event(event);
    }
    speech.block();
    *ordinal = speech.ordinal;
}

struct Speech<'a, 'o> {
    source: &'a str,
    language: Language,
    words: Option<&'static Words>,
    from: usize,
    out: &'o mut String,
    /// Buffer of the current sentence, before it is made speakable.
    line: String,
    ordinal: Option<u64>,
    lists: Vec<Option<u64>>,
    /// The start of an open link's text, and its URL.
    links: Vec<(usize, String)>,
    table: Option<Table>,
    html: Option<String>,
    code: Option<String>,
    /// The previous and the next sentence belong to the same list or table.
    joined: bool,
}

impl<'a> Speech<'a, '_> {
    fn event(&mut self, (event, range): Spanned<'a>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Code(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.line.push_str(&text),
            },
            Event::Html(text) => self.html.get_or_insert_default().push_str(&text),
            Event::InlineHtml(tag) => match html::inline(&tag) {
                html::Inline::Break => self.line.push(' '),
                html::Inline::Text(text) if text.starts_with('<') => {
                    self.line.push(' ');
                    self.line.push_str(text.trim_matches(['<', '>', '/']));
                }
                html::Inline::Text(text) => self.line.push_str(&text),
            },
            Event::SoftBreak | Event::HardBreak => self.line.push(' '),
            Event::FootnoteReference(label) if !parse::is_label(&label) => {
                self.line.push_str(&self.source[range]);
            }
            Event::TaskListMarker(done) => {
                let word = self.words.map(|words| if done { words.done } else { words.open });
                self.line.push_str(word.unwrap_or_default());
            }
            Event::Rule => self.block(),
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'a>) {
        match tag {
            Tag::Link { dest_url, .. } => {
                self.links.push((self.line.len(), dest_url.into_string()));
            }
            Tag::Image { .. } | Tag::Emphasis | Tag::Strong | Tag::Strikethrough => {}
            // The label of an item or footnote is part of its first paragraph.
            Tag::Paragraph if self.line.ends_with(": ") => {}
            Tag::List(first) => {
                self.block();
                let goes_on = if self.lists.is_empty() { self.ordinal.take() } else { None };
                self.joined &= !self.lists.is_empty();
                self.lists.push(first.map(|first| goes_on.unwrap_or(first)));
            }
            Tag::Item => {
                self.block();
                if let Some(Some(number)) = self.lists.last_mut() {
                    self.line = format!("{number}: ");
                    *number = number.saturating_add(1);
                }
            }
            Tag::FootnoteDefinition(label) => {
                self.block();
                let word = self.words.map_or("", |words| words.footnote);
                self.line = format!("{word}{label}: ");
            }
            Tag::CodeBlock(_) => {
                self.block();
                self.code = Some(String::new());
            }
            Tag::Table(_) => {
                self.block();
                self.joined = false;
                self.table = Some(Table::new(" ", ", "));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.begin_row(&self.line);
                }
            }
            Tag::TableCell => {
                if let Some(table) = &mut self.table {
                    table.begin_cell(&mut self.line);
                }
            }
            _ => self.block(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Link => self.link(),
            TagEnd::Image | TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {}
            TagEnd::Heading(_) => self.utter(true, false),
            TagEnd::List(_) => {
                self.block();
                let next = self.lists.pop().flatten();
                if self.lists.is_empty() {
                    self.ordinal = next;
                    self.joined = false;
                }
            }
            TagEnd::CodeBlock => self.code(),
            TagEnd::HtmlBlock => {
                let html = self.html.take().unwrap_or_default();
                self.line.push_str(&html::text(&html));
                self.block();
            }
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.end_head();
                }
            }
            TagEnd::TableCell => self.cell(),
            TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
                self.utter(true, true);
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    table.finish(&mut self.line);
                }
                self.utter(true, true);
                self.joined = false;
            }
            _ => self.block(),
        }
    }

    /// A block ends or begins: writes the buffer as a sentence of an item, or as a paragraph.
    fn block(&mut self) {
        let in_list = !self.lists.is_empty();
        self.utter(in_list, in_list);
    }

    /// A link is read as its text or, without one, as its host.
    fn link(&mut self) {
        let Some((from, url)) = self.links.pop() else { return };
        if self.line[from..].trim().is_empty() && url.contains("://") {
            self.line.push_str(&url);
        }
    }

    fn cell(&mut self) {
        let Some(table) = &mut self.table else { return };
        let value = table.value(&self.line).trim_end_matches(['.', ',', ';']);
        let value = match (self.words, value.trim_end_matches('\u{fe0f}')) {
            (Some(words), "✓" | "✔" | "✅" | "☑") => words.yes.to_owned(),
            (Some(words), "✗" | "✘" | "❌" | "✖") => words.no.to_owned(),
            _ => value.to_owned(),
        };
        table.replace_value(&value, &mut self.line);
        table.end_cell(&mut self.line);
    }

    fn code(&mut self) {
        let code = self.code.take().unwrap_or_default();
        let (code, lines) = (code.trim(), code.trim_end().lines().count());
        let short = lines == 1 && code.chars().take(SAYABLE + 1).count() <= SAYABLE;
        match self.words {
            _ if code.is_empty() => {}
            Some(words) if short => self.line.extend([words.code, code]),
            None if short => self.line.push_str(code),
            Some(words) if lines == 1 => self.line.push_str(words.code_line),
            Some(Words { code_block: (before, after), .. }) => {
                self.line = format!("{before}{lines}{after}");
            }
            None => self.line.push('…'),
        }
        self.utter(true, !self.lists.is_empty());
    }

    fn utter(&mut self, sentence: bool, joins: bool) {
        let (before, joined) = (self.out.len(), self.joined && joins);
        if before > self.from {
            self.out.push(if joined { ' ' } else { '\n' });
        }
        let from = self.out.len();
        say(&self.line, self.language, self.out);
        self.line.clear();
        if self.out.len() == from {
            self.out.truncate(before);
            return;
        }
        if sentence {
            end_sentence(self.out);
        }
        self.joined = joins;
    }
}

fn end_sentence(out: &mut String) {
    let text = out.trim_end_matches([',', ';']);
    out.truncate(text.len());
    let last = out.trim_end_matches(['"', '\'', ')', ']', '”', '“', '’', '»', '«']);
    if !last.ends_with(['.', '!', '?', '…', ':', '。', '！', '？']) {
        out.push('.');
    }
}
