//! Text with styles, measured and wrapped by display width.
//!
//! Apart, because a column is not a byte nor a character: an ideograph fills two columns, an accent
//! none. Pure: whoever writes to the terminal asks for the escape sequences.

use super::one_line;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Style {
    pub(crate) bold: bool,
    pub(crate) dim: bool,
    pub(crate) italic: bool,
    pub(crate) underline: bool,
    pub(crate) strike: bool,
    pub(crate) color: Option<Color>,
}

/// Colours of the terminal's own palette, so that they fit a light and a dark background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Yellow,
    Magenta,
    Cyan,
}

/// A piece of text in one style, without line breaks and control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// One row of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StyledLine(pub(crate) Vec<Span>);

impl Style {
    pub(crate) const DIM: Style = Style { dim: true, ..Style::PLAIN };
    pub(crate) const BOLD: Style = Style { bold: true, ..Style::PLAIN };
    pub(crate) const PLAIN: Style = Style {
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        strike: false,
        color: None,
    };

    pub(crate) fn color(color: Color) -> Self {
        Self { color: Some(color), ..Self::PLAIN }
    }

    fn sequence(self) -> String {
        let color = self.color.map(|color| match color {
            Color::Red => "31",
            Color::Yellow => "33",
            Color::Magenta => "35",
            Color::Cyan => "36",
        });
        let codes = [
            self.bold.then_some("1"),
            self.dim.then_some("2"),
            self.italic.then_some("3"),
            self.underline.then_some("4"),
            self.strike.then_some("9"),
            color,
        ];
        format!("\x1b[{}m", codes.into_iter().flatten().collect::<Vec<_>>().join(";"))
    }
}

impl Span {
    /// Control characters are dropped here, whatever they were decoded from: a model must not play
    /// with the terminal.
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        let text = if text.contains(char::is_control) { one_line(&text) } else { text };
        Self { text, style }
    }
}

impl StyledLine {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        Self(vec![Span::new(text, style)])
    }

    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|span| span.text.width()).sum()
    }

    /// The text alone.
    pub(crate) fn plain(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// The text with escape sequences.
    pub(crate) fn ansi(&self) -> String {
        let piece = |span: &Span| match span.style == Style::PLAIN {
            true => span.text.clone(),
            false => format!("{}{}\x1b[0m", span.style.sequence(), span.text),
        };
        self.0.iter().map(piece).collect()
    }

    /// Appends text; neighbours of one style are one span.
    fn push(&mut self, text: &str, style: Style) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style => last.text.push_str(text),
            _ => self.0.push(Span::new(text, style)),
        }
    }

    fn trim_end(&mut self) {
        while let Some(last) = self.0.last_mut() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
            if !last.text.is_empty() {
                break;
            }
            self.0.pop();
        }
    }
}

/// Wraps spans at spaces to lines of at most `width` columns. The first line begins with `first`,
/// the others with `rest`. A word that is wider than a line is cut between graphemes.
pub(crate) fn wrap(spans: &[Span], width: usize, first: &Span, rest: &Span) -> Vec<StyledLine> {
    let mut lines = vec![StyledLine(Vec::new())];
    let mut used = first.text.width();
    lines[0].push(&first.text, first.style);
    // A word can consist of several spans: `un**believ**able`.
    let mut word: Vec<Span> = Vec::new();
    let mut place = |word: &mut Vec<Span>, space: Option<Style>| {
        let wide: usize = word.iter().map(|span| span.text.width()).sum();
        let indent = rest.text.width();
        if used + wide > width && used > indent {
            start(&mut lines, rest);
            used = indent;
        }
        for span in word.drain(..) {
            for grapheme in span.text.graphemes(true) {
                let columns = grapheme.width();
                if used + columns > width && used > indent {
                    start(&mut lines, rest);
                    used = indent;
                }
                used += columns;
                last(&mut lines).push(grapheme, span.style);
            }
        }
        if let Some(style) = space {
            last(&mut lines).push(" ", style);
            used += 1;
        }
    };
    for span in spans {
        let mut parts = span.text.split(' ').peekable();
        while let Some(part) = parts.next() {
            if !part.is_empty() {
                word.push(Span::new(part, span.style));
            }
            if parts.peek().is_some() {
                place(&mut word, Some(span.style));
            }
        }
    }
    place(&mut word, None);
    lines.iter_mut().for_each(StyledLine::trim_end);
    lines
}

fn start(lines: &mut Vec<StyledLine>, indent: &Span) {
    let mut line = StyledLine::default();
    line.push(&indent.text, indent.style);
    lines.push(line);
}

fn last(lines: &mut [StyledLine]) -> &mut StyledLine {
    lines.last_mut().expect("there is always a line")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize) -> Vec<String> {
        let none = Span::new("", Style::PLAIN);
        let spans = [Span::new(text, Style::PLAIN)];
        wrap(&spans, width, &none, &none).iter().map(StyledLine::plain).collect()
    }

    #[test]
    fn text_is_wrapped_at_spaces_by_the_columns_it_fills() {
        assert_eq!(wrapped("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrapped("日本語 日本語", 7), ["日本語", "日本語"]);
        assert_eq!(wrapped("e\u{301}e\u{301}e\u{301} x", 5), ["e\u{301}e\u{301}e\u{301} x"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("  indented", 20), ["  indented"]);
    }

    #[test]
    fn a_word_wider_than_a_line_is_cut_between_graphemes() {
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("日本語", 3), ["日", "本", "語"]);
        assert_eq!(wrapped("日本", 1), ["日", "本"], "wider than the line itself");
    }

    #[test]
    fn a_hanging_indent_and_styles_survive_a_break() {
        let spans = [Span::new("one ", Style::PLAIN), Span::new("two three", Style::BOLD)];
        let lines = wrap(&spans, 9, &Span::new("• ", Style::PLAIN), &Span::new("  ", Style::PLAIN));
        assert_eq!(
            lines.iter().map(StyledLine::plain).collect::<Vec<_>>(),
            ["• one two", "  three"]
        );
        assert_eq!(lines[0].ansi(), "• one \x1b[1mtwo\x1b[0m");
        assert_eq!(lines[1].ansi(), "  \x1b[1mthree\x1b[0m");
    }
}
