//! Words of commands that go on for long.

/// A line on stdout, if anyone still reads it: a closed pipe ends the reading, not the command.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

pub(crate) use say;
