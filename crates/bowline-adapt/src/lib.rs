//! Adapts Markdown to a form that a device can display or speak: plain, short, or speech
//! (SBP-L4-03).
//!
//! The stored turn stays the full original: adaptation happens per delivery and may be repeated for
//! every surface. This crate knows texts and forms, and nothing of sessions. Pure and
//! deterministic: the same text in the same form gives the same bytes, however it is split into
//! chunks.
//!
//! The text is split into top-level blocks (`blocks`), each of which is parsed as a document of its
//! own. So a link reference counts only inside its block: elsewhere `[text][1]` stays as it is and
//! the definition `[1]: url` stays as a line. This allows sending a block before the rest of the
//! answer exists.
//!
//! Invariants
//! - The output of [`Stream`], joined, equals [`Form::whole`] of the whole text.
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

/// The output form for a surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub kind: Kind,
    /// The most tokens of one turn; longer text is cut after a sentence, with `…`. Estimated: four
    /// characters per token, but one token for each ideograph, kana, hangul syllable or emoji.
    pub limit: Option<u32>,
}

/// The kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The original Markdown; tables become lists and images descriptions if the surface cannot
    /// display them.
    Markdown { tables: bool, images: bool },
    /// Text without markup. Images are described; their URLs are included only if the surface can
    /// display images.
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

    /// The same for a turn that is still being generated.
    pub fn stream(&self) -> Stream {
        Stream { writer: FormWriter::new(self), unread: String::new() }
    }
}

/// Adapts a turn block by block while it is generated.
#[derive(Debug)]
pub struct Stream {
    writer: FormWriter,
    /// The text from the start of the block that is not complete yet.
    unread: String,
}

impl Stream {
    /// Adds original text; returns the adapted text of completed blocks, which may be empty.
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
