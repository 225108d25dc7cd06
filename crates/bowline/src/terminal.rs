//! Writing to people and to pipes: whatever a command prints goes through here.
//!
//! A pipe that is closed (`bowline sessions list | head -1`) ends the reading, not the command: nothing
//! here panics. What cannot be written for another reason, such as a full disk, makes the command fail
//! at its end: a key that was shown only once may be lost with it.

mod table;

pub(crate) use table::{columns, table};

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

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
    let hint = "check the disk that it goes to, then run the command again";
    error("not all of the output could be written", Some(hint));
    ExitCode::from(74)
}

/// What went wrong, and what to do about it, on stderr.
pub(crate) fn error(what: &str, hint: Option<&str>) {
    note!("error: {what}");
    if let Some(hint) = hint {
        note!("\nhint: {hint}");
    }
}

/// A time to the second, in UTC.
pub(crate) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// One of many steps of long work begins.
pub(crate) fn progress(doing: &str, number: usize, of: usize, what: impl Display) {
    if of > 1 {
        note!("{doing} {number} of {of}: {what}");
    }
}

fn noticed(written: io::Result<()>) {
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Text without control characters, which could change what a terminal shows.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
