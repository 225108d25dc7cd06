//! The line editor of a chat: the text being written, its cursor, and the history.
//!
//! Pure: keys in, changes out; whoever shows it asks for [`Editor::text`] and [`Editor::cursor`].
//! Written by hand, because line-editing libraries own the terminal while they read: an answer that
//! streams above the prompt, word by word, needs both in one hand.
//!
//! Invariant: the cursor stands between graphemes.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation;

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// Nothing to do but to draw the prompt.
    Draw,
    /// The text was entered; the editor is empty.
    Enter(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line.
    End,
    /// Ctrl-L: clear the screen.
    Clear,
    /// Ctrl-Z: suspend the program.
    Suspend,
}

#[derive(Debug, Default)]
pub(super) struct Editor {
    text: String,
    cursor: usize,
    history: Vec<String>,
    /// The history entry that is shown, and what was written before.
    browsing: Option<(usize, String)>,
    /// What Ctrl-K, Ctrl-U and Ctrl-W removed last, for Ctrl-Y.
    removed: String,
}

impl Editor {
    pub(super) fn new(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The byte offset of the cursor.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Discards the text. Returns whether there was any.
    pub(super) fn clear(&mut self) -> bool {
        self.browsing = None;
        self.cursor = 0;
        !std::mem::take(&mut self.text).is_empty()
    }

    /// Replaces the text; the cursor stands at its end.
    pub(super) fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Adds an entered text to the history. Returns whether it is to be kept: not if it is empty,
    /// repeats the last one, or begins with a space.
    pub(super) fn remember(&mut self, text: &str) -> bool {
        let keep = !text.trim().is_empty()
            && !text.starts_with(' ')
            && self.history.last().is_none_or(|last| last != text);
        if keep {
            self.history.push(text.to_owned());
        }
        keep
    }

    /// Inserts pasted text as it is, line breaks included.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let kept: String =
            text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        self.insert(&kept);
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Edit {
        if key.kind == KeyEventKind::Release {
            return Edit::Draw;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Char('c') if control => return Edit::Interrupt,
            KeyCode::Char('d') if control && self.text.is_empty() => return Edit::End,
            KeyCode::Char('l') if control => return Edit::Clear,
            KeyCode::Char('z') if control => return Edit::Suspend,
            KeyCode::Enter if !(alt || shift) => return self.enter(),
            // Ctrl-J, Alt-Enter and, where the terminal tells it apart, Shift-Enter.
            KeyCode::Enter => self.insert("\n"),
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Char('a') if control => self.cursor = self.line_start(),
            KeyCode::Char('e') if control => self.cursor = self.line_end(),
            KeyCode::Char('b') if control => self.cursor = self.before(),
            KeyCode::Char('f') if control => self.cursor = self.after(),
            KeyCode::Char('b') if alt => self.cursor = self.word_before(),
            KeyCode::Char('f') if alt => self.cursor = self.word_after(),
            KeyCode::Char('d') if alt => self.cut(self.cursor, self.word_after()),
            KeyCode::Char('d') if control => self.delete(self.cursor, self.after()),
            KeyCode::Char('h') if control => self.delete(self.before(), self.cursor),
            KeyCode::Char('k') if control => self.cut(self.cursor, self.line_end()),
            KeyCode::Char('u') if control => self.cut(self.line_start(), self.cursor),
            KeyCode::Char('w') if control => self.cut(self.space_before(), self.cursor),
            KeyCode::Char('y') if control => self.insert(&self.removed.clone()),
            KeyCode::Char('p') if control => self.older(),
            KeyCode::Char('n') if control => self.newer(),
            KeyCode::Char(c) if !control && !alt => self.insert(c.encode_utf8(&mut [0; 4])),
            KeyCode::Tab => self.complete(),
            KeyCode::Backspace if alt || control => self.cut(self.word_before(), self.cursor),
            KeyCode::Backspace => self.delete(self.before(), self.cursor),
            KeyCode::Delete => self.delete(self.cursor, self.after()),
            KeyCode::Left if control || alt => self.cursor = self.word_before(),
            KeyCode::Right if control || alt => self.cursor = self.word_after(),
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.after(),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => self.up(),
            KeyCode::Down => self.down(),
            _ => {}
        }
        Edit::Draw
    }

    /// Enter. After a backslash it begins a new line: the way that works in every terminal.
    fn enter(&mut self) -> Edit {
        if self.cursor == self.text.len() && self.text.ends_with('\\') {
            self.text.pop();
            self.cursor = self.text.len();
            self.insert("\n");
            return Edit::Draw;
        }
        self.browsing = None;
        self.cursor = 0;
        Edit::Enter(std::mem::take(&mut self.text))
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // What was inserted may join with its neighbours to one grapheme.
        self.cursor = self.boundary(self.cursor);
    }

    fn delete(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = self.boundary(from);
    }

    fn cut(&mut self, from: usize, to: usize) {
        if from < to {
            self.removed = self.text[from..to].to_owned();
            self.delete(from, to);
        }
    }

    /// Completes a command.
    fn complete(&mut self) {
        let mut found = super::command::NAMES.iter().filter(|name| name.starts_with(&self.text));
        if self.text.starts_with('/')
            && let (Some(name), None) = (found.next(), found.next())
        {
            self.set(format!("{name} "));
        }
    }

    /// The first grapheme boundary at or after an offset.
    fn boundary(&self, offset: usize) -> usize {
        let mut starts = self.text.grapheme_indices(true).map(|(start, _)| start);
        starts.find(|start| *start >= offset).unwrap_or(self.text.len())
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(start, _)| start)
    }

    fn after(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let mut words = self.text[..self.cursor].unicode_word_indices();
        words.next_back().map_or(0, |(start, _)| start)
    }

    fn word_after(&self) -> usize {
        let rest = &self.text[self.cursor..];
        let word = rest.unicode_word_indices().next();
        word.map_or(self.text.len(), |(start, word)| self.cursor + start + word.len())
    }

    /// The start of the text without spaces before the cursor, as Ctrl-W of a shell.
    fn space_before(&self) -> usize {
        let before = self.text[..self.cursor].trim_end_matches(char::is_whitespace);
        before
            .rfind(char::is_whitespace)
            .map_or(0, |space| space + before[space..].chars().next().map_or(0, char::len_utf8))
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |end| end + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |end| self.cursor + end)
    }

    fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.older();
        }
        let column = self.text[start..self.cursor].graphemes(true).count();
        self.cursor = start - 1;
        self.move_to_column(column);
    }

    fn down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.newer();
        }
        let column = self.text[self.line_start()..self.cursor].graphemes(true).count();
        self.cursor = end + 1;
        self.move_to_column(column);
    }

    /// Moves to a column of the cursor's line.
    fn move_to_column(&mut self, column: usize) {
        let (start, end) = (self.line_start(), self.line_end());
        let place = self.text[start..end].grapheme_indices(true).nth(column);
        self.cursor = place.map_or(end, |(offset, _)| start + offset);
    }

    fn older(&mut self) {
        let shown = self.browsing.as_ref().map_or(self.history.len(), |(shown, _)| *shown);
        let Some(next) = shown.checked_sub(1) else { return };
        let draft = match self.browsing.take() {
            Some((_, draft)) => draft,
            None => std::mem::take(&mut self.text),
        };
        self.browsing = Some((next, draft));
        self.set(self.history[next].clone());
    }

    fn newer(&mut self) {
        let Some((shown, draft)) = self.browsing.take() else { return };
        match self.history.get(shown + 1) {
            Some(text) => {
                self.set(text.clone());
                self.browsing = Some((shown + 1, draft));
            }
            None => self.set(draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types a script: `^x` is Ctrl-X, `~x` is Alt-X, `<Name>` a named key, all else itself.
    fn typed(editor: &mut Editor, script: &str) -> Edit {
        let mut last = Edit::Draw;
        let mut rest = script;
        while let Some(c) = rest.chars().next() {
            let name_end = rest.find('>').map_or(0, |end| end + 1);
            let mut take = |n: usize| {
                let (head, tail) = rest.split_at(n);
                rest = tail;
                head.to_owned()
            };
            let key = match c {
                '^' | '~' => {
                    let modifier = if c == '^' { KeyModifiers::CONTROL } else { KeyModifiers::ALT };
                    KeyEvent::new(KeyCode::Char(take(2).chars().nth(1).unwrap()), modifier)
                }
                '<' => {
                    let name = take(name_end);
                    let (modifiers, name) = match name.strip_prefix("<~") {
                        Some(name) => (KeyModifiers::ALT, name),
                        None => (KeyModifiers::NONE, &name[1..]),
                    };
                    let code = match name.trim_end_matches('>') {
                        "Enter" => KeyCode::Enter,
                        "Up" => KeyCode::Up,
                        "Down" => KeyCode::Down,
                        "Left" => KeyCode::Left,
                        "Right" => KeyCode::Right,
                        "Back" => KeyCode::Backspace,
                        "Del" => KeyCode::Delete,
                        "Tab" => KeyCode::Tab,
                        other => panic!("{other}"),
                    };
                    KeyEvent::new(code, modifiers)
                }
                c => {
                    take(c.len_utf8());
                    KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
                }
            };
            last = editor.key(key);
        }
        last
    }

    /// What a script makes of an empty editor; `|` is the cursor.
    fn after(script: &str) -> String {
        let mut editor = Editor::default();
        typed(&mut editor, script);
        let mut text = editor.text.clone();
        text.insert(editor.cursor, '|');
        text
    }

    #[test]
    fn keys_edit_as_they_do_in_a_shell() {
        for (script, expected) in [
            ("abc<Left><Left>X", "aX|bc"),
            ("abc^aX^eY", "XabcY|"),
            ("one two three^w", "one two |"),
            ("one two three~b~b^k", "one |"),
            ("one two^u^y^y", "one twoone two|"),
            ("one two^a~fX", "oneX| two"),
            ("one two^a~d", "| two"),
            ("abc<Back>^bX", "aX|b"),
            ("abc^a<Del>^d", "|c"),
            ("a<~Enter>b", "a\nb|"),
            ("a^jb^aX", "a\nX|b"),
            ("a\\<Enter>b", "a\nb|"),
            ("abc^jd<Up>X", "aX|bc\nd"),
            ("ab^jcd<Up><Up>X<Down>Y", "abX\ncdY|"),
            ("/qu<Tab>", "/quit |"),
            ("/zz<Tab>", "/zz|"),
        ] {
            assert_eq!(after(script), expected, "{script}");
        }
    }

    #[test]
    fn the_cursor_stands_between_graphemes() {
        assert_eq!(after("👩\u{200d}👧é<Left><Left>X"), "X|👩\u{200d}👧é");
        assert_eq!(after("e\u{301}<Back>"), "|");
        assert_eq!(after("👧^a👩\u{200d}"), "👩\u{200d}👧|", "joined with what follows");
    }

    #[test]
    fn a_paste_is_one_text_with_its_line_breaks() {
        let mut editor = Editor::default();
        editor.paste("one\r\ntwo\rthree\u{1b}[2J\n");
        assert_eq!(editor.text(), "one\ntwo\nthree[2J\n");
        assert_eq!(typed(&mut editor, "<Enter>"), Edit::Enter("one\ntwo\nthree[2J\n".into()));
        assert_eq!(editor.text(), "");
    }

    #[test]
    fn the_history_is_walked_and_the_draft_comes_back() {
        let mut editor = Editor::new(vec!["first".into(), "second".into()]);
        typed(&mut editor, "draft<Up>");
        assert_eq!(editor.text(), "second");
        typed(&mut editor, "<Up><Up>");
        assert_eq!(editor.text(), "first");
        typed(&mut editor, "<Down><Down><Down>");
        assert_eq!(editor.text(), "draft");
        assert!(editor.remember("third"));
        for kept in ["third", " secret", "", "  "] {
            assert!(!editor.remember(kept), "{kept:?}");
        }
        typed(&mut editor, "^p");
        assert_eq!(editor.text(), "third");
    }

    #[test]
    fn control_keys_are_told() {
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "^d"), Edit::End);
        assert_eq!(typed(&mut editor, "a^d"), Edit::Draw, "deletes on a line with text");
        assert_eq!(typed(&mut editor, "^c"), Edit::Interrupt);
        assert!(editor.clear());
        assert!(!editor.clear());
    }
}
