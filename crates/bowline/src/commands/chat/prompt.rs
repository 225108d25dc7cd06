//! The rows of the prompt: the text being written, and where its cursor stands.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::terminal::styled::{Span, Style, StyledLine};

/// Rows of at most `width` columns, and row and column of the cursor. Rows break between graphemes,
/// not at spaces, so that nothing moves while a word is written. If there are more than `most`, only
/// those around the cursor are returned.
pub(super) fn rows(
    label: &str,
    text: &str,
    cursor: usize,
    width: usize,
    most: usize,
) -> (Vec<StyledLine>, (usize, usize)) {
    let indent = label.width();
    let room = width.saturating_sub(1).max(indent + 1);
    let mut rows = vec![String::new()];
    let mut column = indent;
    let mut place = None;
    for (offset, grapheme) in text.grapheme_indices(true) {
        if offset == cursor {
            place = Some((rows.len() - 1, column));
        }
        if grapheme == "\n" {
            rows.push(String::new());
            column = indent;
            continue;
        }
        let shown = if grapheme == "\t" { "    " } else { grapheme };
        if column + shown.width() > room && column > indent {
            rows.push(String::new());
            column = indent;
            if offset == cursor {
                place = Some((rows.len() - 1, column));
            }
        }
        column += shown.width();
        rows.last_mut().expect("there is always a row").push_str(shown);
    }
    let (row, column) = place.unwrap_or((rows.len() - 1, column));
    let first = (row + 1).saturating_sub(most.max(1)).min(rows.len().saturating_sub(most.max(1)));
    let line = |(number, text): (usize, String)| {
        let start = if number == 0 { label.to_owned() } else { " ".repeat(indent) };
        StyledLine(vec![Span::new(start, Style::BOLD), Span::new(text, Style::PLAIN)])
    };
    let shown = rows.into_iter().enumerate().skip(first).take(most.max(1)).map(line).collect();
    (shown, (row - first, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(
        text: &str,
        cursor: usize,
        width: usize,
        most: usize,
    ) -> (Vec<String>, (usize, usize)) {
        let (rows, cursor) = rows("> ", text, cursor, width, most);
        (rows.iter().map(StyledLine::plain).collect(), cursor)
    }

    #[test]
    fn long_and_several_lines_are_broken_and_the_cursor_is_found() {
        let some =
            |rows: &[&str], cursor| (rows.iter().map(|row| row.to_string()).collect(), cursor);
        assert_eq!(shown("", 0, 20, 9), some(&["> "], (0, 2)));
        assert_eq!(shown("ab\ncd", 3, 20, 9), some(&["> ab", "  cd"], (1, 2)));
        assert_eq!(shown("abcdef", 6, 6, 9), some(&["> abc", "  def"], (1, 5)));
        assert_eq!(shown("abcdef", 3, 6, 9), some(&["> abc", "  def"], (1, 2)));
        assert_eq!(shown("日本語", 3, 20, 9), some(&["> 日本語"], (0, 4)));
    }

    #[test]
    fn of_a_long_text_the_rows_around_the_cursor_are_shown() {
        let text = "1\n2\n3\n4\n5";
        assert_eq!(shown(text, text.len(), 20, 2).0, ["  4", "  5"]);
        assert_eq!(shown(text, text.len(), 20, 2).1, (1, 3));
        assert_eq!(shown(text, 0, 20, 2).0, ["> 1", "  2"]);
        assert_eq!(shown(text, 4, 20, 2).0, ["  2", "  3"]);
    }
}
