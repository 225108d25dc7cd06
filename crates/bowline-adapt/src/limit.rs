//! Cuts a text after a number of tokens, at the end of a sentence.
//!
//! Works character by character, so that the result does not depend on how the text is split.
//!
//! Invariants
//! - A text that fits is unchanged. One that does not ends in `…`, which counts, too.
//! - No cut inside a word; inside a sentence only if not even the first one fits.

/// Quarters of a token for the ellipsis and the white space before it.
const ELLIPSIS: u64 = 3;

#[derive(Debug)]
pub(super) struct Limit {
    /// In quarters of a token.
    most: u64,
    used: u64,
    /// Text that may still be cut off.
    held: String,
    /// The ends of the last sentence and the last word in `held` that leave room for the ellipsis.
    sentence: usize,
    word: usize,
    /// The last character that was written.
    said: Option<char>,
    full: bool,
    last: Last,
}

/// State for finding the ends of sentences.
#[derive(Debug, Default)]
struct Last {
    char: char,
    /// The number of letters and digits directly before.
    word: usize,
    end: SentenceEnd,
    /// The line is a list item; its end is the end of a sentence.
    item: bool,
    /// The line has a character already.
    in_line: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SentenceEnd {
    #[default]
    Not,
    /// As in `3. May` and `e. g.`: the end of a sentence only at the end of a line.
    Perhaps,
    Surely,
}

impl Limit {
    pub(super) fn new(tokens: u32) -> Self {
        Self {
            most: u64::from(tokens) * 4,
            used: 0,
            held: String::new(),
            sentence: 0,
            word: 0,
            said: None,
            full: false,
            last: Last::default(),
        }
    }

    /// Whether the text was cut: nothing more is written.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Adds text; `whole`: it must not be cut inside.
    pub(super) fn push(&mut self, text: &str, whole: bool, out: &mut String) {
        let mut inside = false;
        for c in text.chars() {
            if self.full {
                return;
            }
            self.character(c, inside, out);
            inside |= whole && !c.is_whitespace();
        }
        if whole {
            self.last.end = SentenceEnd::Perhaps;
        }
        if self.sentence > 0 {
            self.say(self.sentence, out);
        }
    }

    /// The end of the text: writes what is held, which fits.
    pub(super) fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held = String::new();
    }

    fn character(&mut self, c: char, inside: bool, out: &mut String) {
        let at = self.held.len();
        if self.used + ELLIPSIS <= self.most {
            if self.last.is_word_before(c) {
                self.word = at;
            }
            if !inside && self.last.is_sentence_before(c) {
                self.sentence = at;
            }
        }
        self.last.see(c);
        self.used += if is_wide(c) { 4 } else { 1 };
        if self.used > self.most && !c.is_whitespace() {
            self.cut(out);
        } else {
            self.held.push(c);
        }
    }

    fn cut(&mut self, out: &mut String) {
        self.full = true;
        if self.sentence > 0 {
            self.say(self.sentence, out);
        }
        match self.said {
            None => {
                out.push_str(self.held[..self.word].trim_end());
                out.push('…');
            }
            // On the same line it would reopen a fence, or become a table cell.
            Some('`' | '~' | '|') => out.push_str("\n\n…"),
            Some(_) => out.push_str(" …"),
        }
        self.held = String::new();
    }

    fn say(&mut self, end: usize, out: &mut String) {
        self.said = self.held[..end].chars().next_back();
        out.push_str(&self.held[..end]);
        self.held.drain(..end);
        self.sentence = 0;
        self.word = self.word.saturating_sub(end);
    }
}

impl Last {
    /// Whether a word ends before this character.
    fn is_word_before(&self, c: char) -> bool {
        !self.char.is_whitespace() && (c.is_whitespace() || is_wide(c) || is_wide(self.char))
    }

    /// Whether a sentence ends before this character.
    fn is_sentence_before(&self, c: char) -> bool {
        match self.char {
            '。' | '！' | '？' => !is_closing(c),
            _ if c == '\n' => self.end != SentenceEnd::Not || (self.item && self.char != ':'),
            _ => c.is_whitespace() && self.end == SentenceEnd::Surely,
        }
    }

    fn see(&mut self, c: char) {
        let ordinal = self.char.is_ascii_digit() || self.word == 1;
        self.end = match c {
            '.' if ordinal => SentenceEnd::Perhaps,
            '.' | '!' | '?' | '…' => SentenceEnd::Surely,
            _ if is_closing(c) => self.end,
            _ => SentenceEnd::Not,
        };
        if c == '\n' {
            (self.in_line, self.item) = (false, false);
        } else if !self.in_line && c != ' ' {
            (self.in_line, self.item) = (true, matches!(c, '-' | '*' | '+' | '0'..='9'));
        }
        self.word = if c.is_alphanumeric() { self.word + 1 } else { 0 };
        self.char = c;
    }
}

fn is_closing(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | ')' | ']' | '*' | '_' | '`' | '”' | '“' | '’' | '»' | '«' | '」' | '』'
    )
}

/// Ideographs, kana, hangul and emoji: about one token each, and words without spaces.
fn is_wide(c: char) -> bool {
    c >= '\u{2e80}'
}
