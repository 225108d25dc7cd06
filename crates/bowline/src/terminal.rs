//! Writing to people and to pipes: whatever a command prints goes through here.
//!
//! A pipe that is closed (`bowline sessions list | head -1`) ends the reading, not the command: nothing
//! here panics. What cannot be written for another reason, such as a full disk, makes the command fail
//! at its end: a key that was shown only once may be lost with it.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// A line on stdout.
macro_rules! say {
    () => { $crate::terminal::out(format_args!("\n")) };
    ($($words:tt)*) => {
        $crate::terminal::out(format_args!("{}\n", format_args!($($words)*)))
    };
}

/// Text on stdout, without an end of line.
macro_rules! show {
    ($($words:tt)*) => { $crate::terminal::out(format_args!($($words)*)) };
}

/// A line on stderr: what is not the command's result.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

pub(crate) use {note, say, show};

/// Use [`say!`] and [`show!`].
pub(crate) fn out(words: Arguments<'_>) {
    noticed(io::stdout().write_fmt(words));
}

/// How the command ends, given that it succeeded in all but, perhaps, saying so.
pub(crate) fn finished(code: ExitCode) -> ExitCode {
    noticed(io::stdout().flush());
    if !LOST.load(Ordering::Relaxed) {
        return code;
    }
    note!("error: not all of the output could be written");
    note!("\nhint: check the disk that it goes to, then run the command again");
    ExitCode::from(74)
}

fn noticed(written: io::Result<()>) {
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Text without control characters that could play with a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
