//! What this machine cannot do is said at the end of `make test`, not left out in silence.

use std::io::Write as _;

/// Notes that a test was not run, and what it would need.
pub(crate) fn not_run(what: &str) {
    eprintln!("not run: {what}");
    let Some(list) = std::env::var_os("BOWLINE_NOT_RUN") else { return };
    let mut list = std::fs::OpenOptions::new().create(true).append(true).open(list).unwrap();
    writeln!(list, "{what}").unwrap();
}
