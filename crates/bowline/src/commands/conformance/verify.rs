//! `bowline conformance verify`: whether a report is as its signer wrote it, and what that is worth.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use bowline_sbp::gateway_key::{GatewayKey, KeyFingerprint};
use serde_json::json;

use super::signed::{LARGEST, NotGood, SignedReport, verified};
use crate::cli::conformance::VerifyArgs;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{say, show};

pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let expected = args.key.as_deref().map(fingerprint).transpose()?;
    let text = read(&args.file)?;
    let (report, key) = verified(&text).map_err(|error| match error {
        NotGood::NoReport => Failure::new(error)
            .hint("`bowline conformance --report FILE` writes one")
            .kind(FailureKind::Usage),
        NotGood::Signature(_) => Failure::new("the report was changed after it was signed")
            .hint("it proves nothing; ask its author for the original"),
    })?;
    let found = key.fingerprint();
    if expected.is_some_and(|expected| expected != found) {
        return Err(Failure::new(format!("another key signed it: {found}"))
            .hint("the report is whole, but it is not of the key that --key names")
            .kind(FailureKind::KeyChanged));
    }
    match args.json {
        true => say!("{}", seen(&report, &key, expected.is_some())),
        false => show!("{}", words(&report, &key, expected.is_some())),
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| {
        let failure = Failure::new(format!("cannot read {}: {error}", file.display()));
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                failure.hint("check the name").kind(FailureKind::NotFound)
            }
            _ => failure.hint("check that it is a file of yours"),
        }
    };
    let mut text = Vec::new();
    let open = std::fs::File::open(file).map_err(failed)?;
    open.take(LARGEST as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

/// A key by itself or by its fingerprint.
fn fingerprint(text: &str) -> Result<KeyFingerprint, Failure> {
    let by_key = text.parse::<GatewayKey>().map(|key| key.fingerprint());
    by_key.or_else(|_| text.parse()).map_err(|_| {
        Failure::new("--key is neither a key nor a fingerprint")
            .hint("a key has 43 characters; a fingerprint is written SHA256:0A:1B:…")
            .kind(FailureKind::Usage)
    })
}

fn seen(report: &SignedReport, key: &GatewayKey, is_expected: bool) -> serde_json::Value {
    json!({
        "signature": "good",
        "key": key.to_string(),
        "fingerprint": key.fingerprint().to_string(),
        "expected_key": is_expected,
        "report": report,
    })
}

fn words(report: &SignedReport, key: &GatewayKey, is_expected: bool) -> String {
    let [good, warnings, failed, not_run] =
        ["passed", "warning", "failed", "not_run"].map(|verdict| report.count(verdict));
    let asked = report.level.as_ref().map_or(String::new(), |level| format!(", level {level}"));
    let whole = if report.whole { "all checks" } else { "some checks only" };
    let passed = match (&report.passed, report.whole) {
        (Some(passed), _) => passed,
        (None, true) => "none",
        (None, false) => "not said: that takes all checks",
    };
    let whose = match is_expected {
        true => "The key is the one that --key names.",
        false => {
            "Whose key it is, the report cannot prove: compare the fingerprint, or give --key."
        }
    };
    // What somebody else wrote is not printed unchecked.
    let clean = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    format!(
        "\
the signature is good
signed by  {}
date       {}
suite      {}
target     {}
checked    {}{asked}, {whole}
verdicts   {good} passed, {warnings} warnings, {failed} failed, {not_run} not run
passed     {}

What this proves: whoever has this key wrote the report, and nobody changed it since.
{whose}
What it does not prove: that the checks were run, that the target was what its address says, or that it is
the same today. Whoever has a key can sign anything with it. To know, run the checks yourself.
",
        key.fingerprint(),
        report.date,
        clean(&report.suite),
        clean(&report.target),
        clean(&report.protocol),
        clean(passed),
    )
}
