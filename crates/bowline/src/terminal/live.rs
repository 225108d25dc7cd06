//! A terminal whose last rows are redrawn.
//!
//! Finished lines are printed once and scroll away. Below them stand the live rows: the unfinished
//! line of an answer, and the prompt. Each update erases the live rows, prints what is finished, and
//! draws the live rows anew, in one write. The whole screen is never taken over: what was said stays
//! in the terminal's own scrollback, and can be searched and copied there.

use std::io::{self, Write};

use super::styled::StyledLine;

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    /// What a terminal reports; some report 0 for a size that they do not know.
    pub(crate) fn reported(columns: u16, rows: u16) -> Self {
        let or = |reported: u16, usual: usize| match reported {
            0 => usual,
            reported => reported.into(),
        };
        Self { columns: or(columns, 80), rows: or(rows, 24) }
    }
}

/// The rows that are redrawn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LiveRows {
    pub(crate) rows: Vec<StyledLine>,
    /// Row and column of the cursor; at the end if there is no prompt.
    pub(crate) cursor: Option<(usize, usize)>,
}

#[derive(Debug)]
pub(crate) struct LiveScreen<W> {
    out: W,
    size: Size,
    styled: bool,
    /// The widths of the live rows on the screen.
    drawn: Vec<usize>,
    /// Where the cursor stands in them.
    cursor: (usize, usize),
}

impl<W: Write> LiveScreen<W> {
    /// If not `styled`, lines are printed without colours.
    pub(crate) fn new(out: W, size: Size, styled: bool) -> Self {
        Self { out, size, styled, drawn: Vec::new(), cursor: (0, 0) }
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The widest line that does not wrap by itself.
    pub(crate) fn width(&self) -> usize {
        self.size.columns.saturating_sub(1).max(1)
    }

    /// The terminal has another size. Call [`LiveScreen::update`] afterwards.
    pub(crate) fn resize(&mut self, size: Size) {
        self.size = size;
    }

    /// Whether lines of these widths, printed last, are still on the screen.
    pub(crate) fn fits(&self, widths: &[usize]) -> bool {
        let drawn: usize = self.drawn.iter().map(|width| self.rows_of(*width)).sum();
        let rows: usize = widths.iter().map(|width| self.rows_of(*width)).sum();
        rows + drawn.max(1) <= self.size.rows
    }

    /// Removes lines that were printed last, whose widths are given and which
    /// [fit](LiveScreen::fits), prints finished lines, and replaces the live rows.
    pub(crate) fn update(
        &mut self,
        removed: &[usize],
        finished: &[StyledLine],
        live: LiveRows,
    ) -> io::Result<()> {
        // Begin and end of a synchronised update: terminals that know it show no flicker.
        let mut text = String::from("\x1b[?2026h\x1b[?25l");
        let up = self.rows_above_cursor()
            + removed.iter().map(|width| self.rows_of(*width)).sum::<usize>();
        if up > 0 {
            text += &format!("\x1b[{up}A");
        }
        text += "\r\x1b[J";
        for line in finished {
            text += &self.painted(line);
            text += "\r\n";
        }
        let last = live.rows.len().saturating_sub(1);
        for (number, line) in live.rows.iter().enumerate() {
            text += &self.painted(line);
            if number < last {
                text += "\r\n";
            }
        }
        self.drawn = live.rows.iter().map(StyledLine::width).collect();
        self.cursor = match live.cursor {
            Some((row, column)) => {
                let up = last - row.min(last);
                if up > 0 {
                    text += &format!("\x1b[{up}A");
                }
                text += &format!("\r\x1b[{}G", column + 1);
                (row.min(last), column)
            }
            None => (last, self.drawn.last().copied().unwrap_or(0)),
        };
        text += "\x1b[?25h\x1b[?2026l";
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Clears the screen; the live rows are drawn at its top.
    pub(crate) fn clear(&mut self, live: LiveRows) -> io::Result<()> {
        self.out.write_all(b"\x1b[2J\x1b[H")?;
        (self.drawn, self.cursor) = (Vec::new(), (0, 0));
        self.update(&[], &[], live)
    }

    fn painted(&self, line: &StyledLine) -> String {
        if self.styled { line.ansi() } else { line.plain() }
    }

    /// How many rows the cursor stands below the first live row. After a resize the terminal may
    /// have broken rows that became too wide.
    fn rows_above_cursor(&self) -> usize {
        let (row, column) = self.cursor;
        let above: usize = self.drawn.iter().take(row).map(|width| self.rows_of(*width)).sum();
        above + column / self.size.columns.max(1)
    }

    fn rows_of(&self, width: usize) -> usize {
        width.div_ceil(self.size.columns.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::styled::Style;

    /// A terminal emulator behind the screen.
    struct Emulated(vt100::Parser);

    impl Write for Emulated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.process(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn screen(rows: usize, columns: usize) -> LiveScreen<Emulated> {
        let emulator = vt100::Parser::new(rows as u16, columns as u16, 100);
        LiveScreen::new(Emulated(emulator), Size { columns, rows }, true)
    }

    fn lines(texts: &[&str]) -> Vec<StyledLine> {
        texts.iter().map(|text| StyledLine::new(*text, Style::PLAIN)).collect()
    }

    fn live(texts: &[&str], cursor: Option<(usize, usize)>) -> LiveRows {
        LiveRows { rows: lines(texts), cursor }
    }

    fn shown(screen: &LiveScreen<Emulated>) -> (Vec<String>, (u16, u16)) {
        let emulator = screen.out.0.screen();
        let mut rows: Vec<String> =
            emulator.rows(0, 200).map(|row| row.trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        (rows, emulator.cursor_position())
    }

    #[test]
    fn finished_lines_stay_and_live_rows_are_replaced() {
        let mut screen = screen(6, 20);
        screen.update(&[], &[], live(&["> "], Some((0, 2)))).unwrap();
        screen.update(&[], &lines(&["> hi"]), live(&["Hel", "> "], Some((1, 2)))).unwrap();
        assert_eq!(shown(&screen), (vec!["> hi".into(), "Hel".into(), ">".into()], (2, 2)));
        screen.update(&[], &[], live(&["Hello", "> ab"], Some((1, 3)))).unwrap();
        screen.update(&[], &lines(&["Hello!", ""]), live(&["> abc"], Some((0, 1)))).unwrap();
        let (rows, cursor) = shown(&screen);
        assert_eq!(rows, ["> hi", "Hello!", "", "> abc"]);
        assert_eq!(cursor, (3, 1));
    }

    #[test]
    fn what_does_not_fit_scrolls_away() {
        let mut screen = screen(3, 20);
        for number in 0..9 {
            let line = number.to_string();
            screen.update(&[], &lines(&[&line]), live(&["tail", "> "], Some((1, 2)))).unwrap();
        }
        assert_eq!(shown(&screen).0, ["8", "tail", ">"]);
    }

    #[test]
    fn lines_of_an_answer_that_starts_over_are_removed() {
        let mut screen = screen(6, 20);
        screen.update(&[], &lines(&["kept", "a", "b"]), live(&["c", "> x"], Some((1, 3)))).unwrap();
        assert!(screen.fits(&[1, 1]));
        screen.update(&[1, 1], &lines(&["A"]), live(&["> x"], Some((0, 3)))).unwrap();
        assert_eq!(shown(&screen).0, ["kept", "A", "> x"]);
        assert!(screen.fits(&[1; 5]) && !screen.fits(&[1; 6]) && !screen.fits(&[1, 1, 1, 1, 21]));
    }

    #[test]
    fn a_narrower_terminal_has_broken_the_live_rows() {
        // The emulator does not rewrap; the rows that a terminal would make of them are printed.
        let mut screen = screen(8, 10);
        screen.update(&[], &lines(&["old"]), live(&["12345678", "> "], Some((1, 2)))).unwrap();
        screen.resize(Size { columns: 5, rows: 8 });
        assert_eq!(screen.rows_above_cursor(), 2);
    }
}
