//! Writing to people and to pipes: whatever a command prints goes through here.
//!
//! A pipe that is closed (`bowline sessions list | head -1`) ends the reading, not the command: nothing
//! here panics.

/// A line on stdout.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Text on stdout, without an end of line.
macro_rules! show {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($words)*);
    }};
}

/// A line on stderr: what is not the command's result.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

pub(crate) use {note, say, show};

/// Text without control characters that could play with a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
