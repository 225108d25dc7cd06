//! Output to stdout and stderr. Everything a command prints goes through here.
//!
//! A closed pipe (`bowline sessions list | head -1`) is ignored: nothing here panics, and the
//! command runs to its end. Any other write error, such as a full disk, makes the command exit with
//! code 74: an API key that is shown only once may have been lost.

pub(crate) mod live;
pub(crate) mod markdown;
pub(crate) mod raw;
pub(crate) mod styled;
mod table;
mod waiting;

pub(crate) use table::{columns, table};
pub(crate) use waiting::{no_waiting_line, waiting};

use std::fmt::{Arguments, Display};
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;

/// A write to stdout failed, other than by a closed pipe.
static LOST: AtomicBool = AtomicBool::new(false);
/// Notes are not printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints a line on stdout.
macro_rules! say {
    () => { $crate::terminal::out(format_args!("\n")) };
    ($($words:tt)*) => {
        $crate::terminal::out(format_args!("{}\n", format_args!($($words)*)))
    };
}

/// Prints text on stdout, without a line break.
macro_rules! show {
    ($($words:tt)*) => { $crate::terminal::out(format_args!($($words)*)) };
}

/// Prints a line on stderr: what is neither the command's result nor an error.
macro_rules! note {
    () => { $crate::terminal::talk(format_args!("\n")) };
    ($($words:tt)*) => {
        $crate::terminal::talk(format_args!("{}\n", format_args!($($words)*)))
    };
}

pub(crate) use {note, say, show};

/// With --quiet: no notes, only errors.
pub(crate) fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Use [`note!`].
pub(crate) fn talk(words: Arguments<'_>) {
    if !is_quiet() {
        let _ = io::stderr().write_fmt(words);
    }
}

/// Prints an error and its hint on stderr, also with --quiet.
pub(crate) fn error(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Use [`say!`] and [`show!`].
pub(crate) fn out(words: Arguments<'_>) {
    noticed(io::stdout().write_fmt(words));
}

/// The exit code of a command that succeeded: 74 if some of its output could not be written.
pub(crate) fn finished(code: ExitCode) -> ExitCode {
    noticed(io::stdout().flush());
    if !LOST.load(Ordering::Relaxed) {
        return code;
    }
    let hint = "check the disk that stdout is written to, then run the command again";
    error(error_text("not all of the output could be written", Some(hint)));
    ExitCode::from(74)
}

/// An error and its hint as they are printed on stderr.
pub(crate) fn error_text(what: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
    format!("error: {what}{hint}")
}

/// A time to the second, in UTC.
pub(crate) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Prints progress on stderr; nothing if there is only one step.
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

/// Whether colours are wanted: not with `NO_COLOR` (<https://no-color.org>).
pub(crate) fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The width of the terminal, at most 100; 80 if there is none.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.unwrap_or(80).clamp(20, 100)
}

/// [`printable`] text on one line.
pub(crate) fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Text without control characters, which could change what a terminal shows.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}
