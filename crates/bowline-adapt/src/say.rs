//! Makes a line of text speakable: numbers, symbols, addresses, emoji and punctuation.

use super::language::{Language, Unit, Words};
use super::url;

/// Appends the speakable form of `text`. The output has no double spaces, no `://` and no `..`.
pub(super) fn say(text: &str, language: Language, out: &mut String) {
    let mut voice = Voice { text, words: language.words(), from: out.len(), out };
    voice.run();
}

struct Voice<'a, 'o> {
    /// The remaining text.
    text: &'a str,
    words: Option<&'static Words>,
    from: usize,
    out: &'o mut String,
}

impl<'a> Voice<'a, '_> {
    fn run(&mut self) {
        while let Some(at) = self.text.bytes().position(|b| CAREFUL[usize::from(b)]) {
            self.out.push_str(&self.text[..at]);
            self.text = &self.text[at..];
            let Some(c) = self.text.chars().next() else { break };
            self.one(c);
        }
        self.out.push_str(self.text);
        let end = self.out[self.from..].trim_end().len();
        self.out.truncate(self.from + end);
    }

    fn one(&mut self, c: char) {
        match c {
            '0'..='9' if !self.follows(char::is_alphanumeric) => self.number(),
            '.' if self.is_web() => self.address(".", "www".len()),
            ':' if self.text.starts_with("://") => {
                let scheme = self.said().chars().rev().take_while(|c| url::is_scheme(*c)).count();
                self.address("://", scheme);
            }
            '.' => {
                let dots = self.text.bytes().take_while(|b| *b == b'.').count();
                self.text = &self.text[dots..];
                if !self.follows(|c| matches!(c, '.' | '…')) {
                    self.out.push(if dots > 1 { '…' } else { '.' });
                }
            }
            '…' => {
                self.skip(c);
                if !self.follows(|c| matches!(c, '.' | '…')) {
                    self.out.push(c);
                }
            }
            _ if is_space(c) => {
                self.skip(c);
                self.space();
            }
            _ if is_picture(c) => self.emoji(),
            _ => match self.words {
                Some(words) => self.symbol(c, words),
                None => self.copy(c),
            },
        }
    }

    fn symbol(&mut self, c: char, words: &'static Words) {
        let next = self.text[c.len_utf8()..].trim_start_matches(' ').chars().next();
        let before_digit = next.is_some_and(|c| c.is_ascii_digit());
        let apart = !self.follows(|c| !c.is_whitespace() && c != '(');
        match c {
            '$' | '€' | '£' | '¥' if before_digit => self.money(c, words),
            '–' if before_digit
                && self.said().trim_end().ends_with(|c: char| c.is_ascii_digit()) =>
            {
                self.skip(c);
                self.word(words.to);
            }
            '~' | '≈' if before_digit && apart => {
                self.skip(c);
                self.word(words.about);
            }
            '#' if apart && self.text[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                self.skip(c);
                self.word(words.number);
            }
            '-' if apart && self.text[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                self.skip(c);
                self.word("minus ");
            }
            '&' if apart && self.text[1..].starts_with(' ') => {
                self.skip(c);
                self.word(words.and);
            }
            _ => self.copy(c),
        }
    }

    fn number(&mut self) {
        let (number, rest) = self.text.split_at(number_length(self.text));
        self.text = rest;
        let Some(words) = self.words else { return self.out.push_str(number) };
        push_number(number, words.thousands, self.out);
        let tail = rest.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(rest);
        if let Some(unit) = words.units.iter().find(|unit| begins_word(tail, unit.symbol)) {
            self.text = &tail[unit.symbol.len()..];
            self.unit(unit, number == "1");
        }
    }

    /// `$3 million` becomes `3 million dollars`.
    fn money(&mut self, symbol: char, words: &'static Words) {
        self.skip(symbol);
        self.text = self.text.trim_start_matches(' ');
        if self.follows(char::is_alphanumeric) {
            self.out.push(' ');
        }
        let (number, rest) = self.text.split_at(number_length(self.text));
        push_number(number, words.thousands, self.out);
        let glued = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let scale = rest.strip_prefix(' ').and_then(|rest| {
            words.scales.iter().find(|scale| begins_word(rest, scale)).map(|scale| scale.len() + 1)
        });
        let (scale, rest) = rest.split_at(scale.unwrap_or(glued));
        self.out.push_str(scale);
        self.text = rest;
        let unit = words.units.iter().find(|unit| unit.symbol.starts_with(symbol));
        if let Some(unit) = unit {
            self.unit(unit, number == "1" && scale.is_empty());
        }
    }

    fn unit(&mut self, unit: &Unit, one: bool) {
        self.out.push(' ');
        self.out.push_str(if one { unit.one } else { unit.many });
    }

    /// Replaces a URL, which begins with the last `said` characters of the output, by its host.
    fn address(&mut self, mark: &str, said: usize) {
        self.out.truncate(self.out.len() - said);
        let (host, length) = url::read(&self.text[mark.len()..]);
        self.text = &self.text[mark.len() + length..];
        let dot = self.words.map_or(".", |words| words.dot);
        let mut labels = host.split('.').filter(|label| !label.is_empty());
        self.out.push_str(labels.next().unwrap_or_default());
        for label in labels {
            self.out.push_str(dot);
            self.out.push_str(label);
        }
    }

    /// Whether a URL without scheme begins with the end of the output.
    fn is_web(&self) -> bool {
        self.text[1..].starts_with(|c: char| c.is_alphanumeric())
            && self.said().strip_suffix("www").is_some_and(|before| {
                !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))
            })
    }

    /// Skips emoji and the white space around them.
    fn emoji(&mut self) {
        self.text = self.text.trim_start_matches(|c| is_picture(c) || is_space(c) || c == JOINER);
        if self.text.is_empty() || self.text.starts_with(['.', ',', ';', ':', '!', '?', ')']) {
            let end = self.said().trim_end().len();
            self.out.truncate(self.from + end);
        } else {
            self.space();
        }
    }

    fn word(&mut self, word: &str) {
        let word = if self.follows(char::is_whitespace) { word.trim_start() } else { word };
        self.out.push_str(word);
        if word.ends_with(' ') {
            self.text = self.text.trim_start_matches(' ');
        }
    }

    fn space(&mut self) {
        if !self.said().is_empty() && !self.follows(char::is_whitespace) {
            self.out.push(' ');
        }
    }

    fn copy(&mut self, c: char) {
        self.out.push(c);
        self.skip(c);
    }

    fn skip(&mut self, c: char) {
        self.text = &self.text[c.len_utf8()..];
    }

    fn said(&self) -> &str {
        &self.out[self.from..]
    }

    fn follows(&self, what: impl Fn(char) -> bool) -> bool {
        self.said().chars().next_back().is_some_and(what)
    }
}

/// The length of a number: digits, with single separators between them.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while digit(at) || (at > 0 && matches!(bytes.get(at), Some(b'.' | b',')) && digit(at + 1)) {
        at += 1;
    }
    at
}

/// Appends a number without its thousands separators.
fn push_number(number: &str, thousands: u8, out: &mut String) {
    let thousands = char::from(thousands);
    let decimal = if thousands == ',' { '.' } else { ',' };
    let (whole, fraction) = number.split_once(decimal).unwrap_or((number, ""));
    let mut groups = whole.split(thousands);
    let first = groups.next().unwrap_or_default();
    let grouped = first.len() <= 3 && !first.starts_with('0') && groups.all(|g| g.len() == 3);
    if grouped && fraction.bytes().all(|b| b.is_ascii_digit()) {
        out.extend(number.chars().filter(|c| *c != thousands));
    } else {
        out.push_str(number);
    }
}

fn begins_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '/'))
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\u{a0}' | '\u{202f}' | '\u{2009}')
}

/// Joins emoji, but also letters of some scripts.
const JOINER: char = '\u{200d}';

/// Emoji and their modifiers.
fn is_picture(c: char) -> bool {
    matches!(c,
        '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{231a}'..='\u{231b}'
        | '\u{23e9}'..='\u{23fa}' | '\u{2b1b}'..='\u{2b1c}' | '\u{2b50}' | '\u{2b55}'
        | '\u{fe0f}' | '\u{20e3}' | '\u{e0020}'..='\u{e007f}')
}

/// The bytes that may need replacement; the rest is copied in long runs.
const CAREFUL: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"0123456789.: \t\n\r\x0c$-&~#\xc2\xe2\xef\xf0\xf3";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};
