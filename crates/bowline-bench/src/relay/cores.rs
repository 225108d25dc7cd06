//! CPU affinity: the measured server on the first core, the generator on the second.
//!
//! Set by programs of util-linux, because the project has no unsafe code. Without them, or with one
//! core, there is no affinity, and a warning says so.

use std::process::{Command, Output, Stdio};

use crate::report::Report;

const MEASURED: &str = "0";
const GENERATOR: &str = "1";

/// Pins this process to its core, and raises the limit of open files to the hard limit.
pub(crate) fn prepare(report: &Report) {
    let own = std::process::id().to_string();
    if asked("taskset", &["-a", "-p", "-c", GENERATOR, &own]).is_none() {
        report.note("warning: no taskset, or one core: generator and relay share their cores");
    }
    let hard = asked("prlimit", &["--pid", &own, "--nofile", "--output", "HARD", "--noheadings"]);
    let hard = hard.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let raised = hard
        .and_then(|hard| asked("prlimit", &["--pid", &own, &format!("--nofile={hard}:{hard}")]));
    if raised.is_none() {
        report.note("warning: the limit of open files stays as it is");
    }
}

/// A program that will run on the measured core.
pub(crate) fn measured(program: &std::path::Path) -> Command {
    match asked("taskset", &["-c", MEASURED, "true"]) {
        Some(_) => {
            let mut command = Command::new("taskset");
            command.args(["-c", MEASURED]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A program that runs on all cores, although this process is bound to one.
pub(super) fn anywhere(program: &std::path::Path) -> Command {
    let all = format!("{MEASURED},{GENERATOR}");
    match asked("taskset", &["-c", &all, "true"]) {
        Some(_) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &all]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn asked(program: &str, args: &[&str]) -> Option<Output> {
    let said = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    said.status.success().then_some(said)
}
