//! Skipped tests are listed at the end of `make test`.

use std::io::Write as _;

/// Records that a test was skipped, and what it would need.
pub(crate) fn not_run(what: &str) {
    eprintln!("not run: {what}");
    let Some(list) = std::env::var_os("BOWLINE_NOT_RUN") else { return };
    let mut list = std::fs::OpenOptions::new().create(true).append(true).open(list).unwrap();
    writeln!(list, "{what}").unwrap();
}
