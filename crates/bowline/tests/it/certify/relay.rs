//! `bowline conformance relay` against the built relay, and what it says when it cannot run.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{alone, conformance, free};
use crate::process::{Process, bowline};

/// A relay of this program that accepts the tokens of the suite's control plane. Its limit on messages is one that
/// a test reaches.
fn checked_relay(folder: &Path, issuer: &str) -> Process {
    let mut command = bowline();
    command.args(["relay", "run", "--json", "--listen", "127.0.0.1:0", "--issuer", issuer]);
    command.args(["--rate-frames", "300"]).stderr(Stdio::null());
    Process::spawned(command, folder)
}

#[test]
fn the_relay_passes_the_checks_of_relays() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (listen, report, badge) = (free(), file("report.json"), file("badge.svg"));
    let relay = checked_relay(folder.path(), &format!("http://{listen}"));
    let mut run = conformance();
    run.args(["relay", "--json", "--url", &relay.url, "--jwks-listen", &listen]).args([
        "--report",
        &report,
        "--badge",
        &badge,
        "--identity",
        &file("signer.key"),
    ]);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let checks = seen["checks"].as_array().unwrap();
    let unmet: Vec<_> = checks.iter().filter(|check| check["verdict"] != "passed").collect();
    // Our own additions are there, too.
    assert!(unmet.is_empty(), "{unmet:#?}");
    assert!(output.status.success(), "{said}");
    assert_eq!((&seen["passed"], &seen["protocol"]), (&json!("SBRP"), &json!("SBRP")));
    assert!(checks.len() > 60, "{} checks were run", checks.len());
    let badge = std::fs::read_to_string(&badge).unwrap();
    assert!(badge.contains("SBRP: conformant"), "{badge}");

    let fingerprint = said.lines().find_map(|line| line.strip_prefix("signed by ")).unwrap();
    let verify = |args: &[&str]| conformance().arg("verify").args(args).output().unwrap();
    let output = verify(&[&report, "--key", fingerprint, "--json"]);
    let verified: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verified["report"]["target"], relay.url);
    assert_eq!(verified["report"]["checks"].as_array().unwrap().len(), checks.len());
}

#[test]
fn a_relay_that_cannot_be_checked_says_why_by_its_exit_code() {
    let nowhere = format!("ws://{}", free());
    let listen = free();
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--url", &nowhere], 5, "does not answer"),
        (&["--url", &nowhere, "--only", "SBP-L1-01"], 2, "no check `SBP-L1-01` of a relay"),
        (&["--url", "ftp://127.0.0.1"], 2, "ws:// or wss://"),
    ];
    for (args, code, words) in cases {
        let mut run = conformance();
        let output = run.arg("relay").args(args).args(["--jwks-listen", &listen]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn the_checks_of_relays_are_listed_without_a_relay() {
    let output =
        conformance().args(["relay", "--list", "--only", "SBRP-RELAY-03"]).output().unwrap();
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap(), @r"
    SBRP-RELAY-03   a daemon's `close` ends that session with session_expired, and no other (must)
    SBRP-RELAY-03b  a reason that the relay does not know counts as none (must)
    SBRP-RELAY-03c  a signal that is not of two bytes is malformed_frame (should)
    ");
}
