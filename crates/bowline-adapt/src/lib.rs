//! Markdown, put into the form a device can show or say: plain, short, or spoken (SBP-L4-03).
//!
//! The stored turn stays the full original: adaptation happens per delivery and may be done over for
//! every surface. It knows texts and forms, and nothing of sessions. Pure and deterministic: the same text in the same form
//! gives the same bytes, however it is cut into pieces.
//!
//! The text is cut into top-level blocks (`blocks`), each of which is read as a document of its
//! own. So a link reference counts only inside its block: elsewhere `[text][1]` stays as it is
//! and the definition `[1]: url` stays as a line. That is what lets a block go out before the
//! rest of the answer exists.
//!
//! Invariants
//! - What [`Stream`] gives, joined, is [`Form::whole`] of the whole text.
//! - Blank lines of plain text and Markdown stay where the original has them.

mod blocks;
mod html;
mod language;
mod limit;
mod markdown;
mod parse;
mod plain;
mod say;
mod speech;
mod table;
#[cfg(test)]
mod tests;
mod url;
mod write;

pub use language::Language;

use write::FormWriter;

/// How a surface wants its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub kind: Kind,
    /// The most tokens of one turn; longer text ends after a sentence, with `…`. Estimated: four
    /// characters a token, but one for each ideograph, kana, hangul syllable or emoji.
    pub limit: Option<u32>,
}

/// What the text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Markdown as it was written, with rows for tables and descriptions for images that the
    /// surface cannot show.
    Markdown { tables: bool, images: bool },
    /// Text without marks. Images are described; their addresses help only who can show them.
    Plain { images: bool },
    /// Prose to be read aloud.
    Speech { language: Language },
}

impl Form {
    /// A whole turn in this form.
    pub fn whole(&self, text: &str) -> String {
        // Adapted text is seldom longer than the original, and a limit makes it much shorter.
        let mut out = String::with_capacity(if self.limit.is_some() { 0 } else { text.len() });
        let mut writer = FormWriter::new(self);
        writer.feed(text, &mut out);
        writer.finish(text, &mut out);
        out
    }

    /// The same for a turn that is still being written.
    pub fn stream(&self) -> Stream {
        Stream { writer: FormWriter::new(self), unread: String::new() }
    }
}

/// A turn on its way out while it is written, block by block.
#[derive(Debug)]
pub struct Stream {
    writer: FormWriter,
    /// From the beginning of the block that may still grow.
    unread: String,
}

impl Stream {
    /// More of the original text; gives what can be said by now, which may be nothing.
    pub fn push(&mut self, more: &str) -> String {
        let mut out = String::new();
        if !self.writer.is_full() {
            self.unread.push_str(more);
            let used = self.writer.feed(&self.unread, &mut out);
            self.unread.drain(..used);
        }
        out
    }

    /// The rest. Nothing may be pushed after it.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.writer.finish(&self.unread, &mut out);
        self.unread = String::new();
        out
    }
}
