//! Writes adapted blocks, with the white space between them.
//!
//! Used for whole texts and for streams, which differ only in who owns the text.

use super::blocks::{Blocks, Cut};
use super::limit::Limit;
use super::{Form, Kind, markdown, parse, plain, speech};

#[derive(Debug)]
pub(super) struct FormWriter {
    kind: Kind,
    limit: Option<Limit>,
    blocks: Blocks,
    /// The end of the open block's lines so far.
    read: usize,
    /// There is no line end before this position.
    searched: usize,
    /// The open block continues the list of the previous one.
    continues: bool,
    /// The number of the next item of the list at the end of the previous block.
    ordinal: Option<u64>,
    /// White space of the original since the last block.
    gap: String,
    /// White space before that block, if the block produced no text.
    spare: Option<String>,
    begun: bool,
}

impl FormWriter {
    pub(super) fn new(form: &Form) -> Self {
        Self {
            kind: form.kind,
            limit: form.limit.map(Limit::new),
            blocks: Blocks::default(),
            read: 0,
            searched: 0,
            continues: false,
            ordinal: None,
            gap: String::new(),
            spare: None,
            begun: false,
        }
    }

    /// Whether the limit is reached: no more text will be written.
    pub(super) fn is_full(&self) -> bool {
        self.limit.as_ref().is_some_and(Limit::is_full)
    }

    /// Reads the complete lines of `text`, which begins with the open block. Returns how many bytes
    /// were consumed; the next call begins there.
    pub(super) fn feed(&mut self, text: &str, out: &mut String) -> usize {
        let mut begin = 0;
        while let Some(length) = text[self.searched..].find('\n') {
            let end = self.searched + length + 1;
            let cut = self.blocks.line(&text[self.read..end]);
            begin = self.cut(text, begin, end, cut, out);
            self.read = end;
            self.searched = end;
            if self.is_full() {
                begin = text.len();
                self.read = begin;
                break;
            }
        }
        self.searched = text.len() - begin;
        self.read -= begin;
        begin
    }

    /// The end of the text: `text` is what [`feed`](Self::feed) left, or ends with it.
    pub(super) fn finish(&mut self, text: &str, out: &mut String) {
        if self.is_full() {
            return;
        }
        let text = &text[text.len() - self.searched..];
        let mut begin = 0;
        if self.read < text.len() {
            let cut = self.blocks.line(&text[self.read..]);
            begin = self.cut(text, begin, text.len(), cut, out);
        }
        self.block(&text[begin..], out);
        match &mut self.limit {
            None if matches!(self.kind, Kind::Speech { .. }) => {}
            None => out.push_str(self.gap()),
            Some(limit) => limit.finish(out),
        }
    }

    fn cut(&mut self, text: &str, begin: usize, end: usize, cut: Cut, out: &mut String) -> usize {
        match cut {
            Cut::None => begin,
            Cut::Before { continues } => {
                self.block(&text[begin..self.read], out);
                self.continues = continues;
                self.read
            }
            Cut::After => {
                self.block(&text[begin..end], out);
                end
            }
        }
    }

    fn block(&mut self, source: &str, out: &mut String) {
        let content = source.trim_end();
        let gap = &source[content.len()..];
        if content.is_empty() {
            self.gap.push_str(gap);
            return;
        }
        if !std::mem::take(&mut self.continues) {
            self.ordinal = None;
        }
        let gave = match self.limit.take() {
            None => self.render(content, out),
            Some(mut limit) => {
                let mut piece = String::new();
                let gave = self.render(content, &mut piece);
                let whole = matches!(self.kind, Kind::Markdown { .. }) && is_indivisible(content);
                limit.push(&piece, whole, out);
                self.limit = Some(limit);
                gave
            }
        };
        self.spare = (!gave).then(|| self.gap().to_owned());
        self.gap.clear();
        self.gap.push_str(gap);
    }

    /// The white space between the last text and the next. Around a block that produced no text one
    /// of the two gaps is used, and at the beginning none.
    fn gap(&self) -> &str {
        match &self.spare {
            Some(_) if !self.begun => "",
            Some(spare) if spare.len() > self.gap.len() => spare,
            _ => &self.gap,
        }
    }

    /// Appends the gap and the block; neither if the block produces no text.
    fn render(&mut self, content: &str, out: &mut String) -> bool {
        let before = out.len();
        match self.kind {
            Kind::Speech { .. } if self.begun => out.push('\n'),
            Kind::Speech { .. } => {}
            Kind::Plain { .. } | Kind::Markdown { .. } => out.push_str(self.gap()),
        }
        let from = out.len();
        match self.kind {
            _ if parse::is_too_deep(content) => out.push_str(content),
            Kind::Markdown { tables, images } => markdown::render(content, tables, images, out),
            Kind::Plain { images } => plain::render(content, images, &mut self.ordinal, out),
            Kind::Speech { language } => {
                speech::render(content, language, &mut self.ordinal, out);
            }
        }
        let gave = out.len() > from;
        if !gave {
            out.truncate(before);
        }
        self.begun |= gave;
        gave
    }
}

/// Whether a block must not be cut: half a code block would leave its fence open, and half a table
/// row would lose cells.
fn is_indivisible(block: &str) -> bool {
    block.contains("```") || block.contains("~~~") || block.starts_with('|')
}
