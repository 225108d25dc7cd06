//! A report with a signature: what was checked, when, by which version, and what came of it.
//!
//! Without what was sent and received, which may be anybody's: the verdicts are what is claimed. The signature
//! is that of every signed object of ours, under a purpose of its own.

use bowline_conformance::{About, Report};
use bowline_sbp::gateway_key::{GatewayIdentity, GatewayKey};
use bowline_sbp::signed_object::{self, BadSignature, Purpose, UnverifiedObject};
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SignedReport {
    pub(super) kind: String,
    /// Who signed.
    pub(super) key: String,
    /// The program and its version.
    pub(super) suite: String,
    pub(super) date: Timestamp,
    /// `SBP` or `SBRP`.
    pub(super) protocol: String,
    pub(super) target: String,
    /// The level that was asked for; none for a relay.
    pub(super) level: Option<String>,
    /// What is passed: a level, or the protocol; none if something failed, or was not chosen.
    pub(super) passed: Option<String>,
    /// Whether all checks were chosen.
    pub(super) whole: bool,
    pub(super) checks: Vec<SignedCheck>,
}

/// One check and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SignedCheck {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) verdict: String,
}

/// Why a file is no good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotGood {
    #[error("this is no signed report of conformance")]
    NoReport,
    #[error(transparent)]
    Signature(#[from] BadSignature),
}

pub(super) fn sign(report: &Report, identity: &GatewayIdentity, date: Timestamp) -> String {
    let checks = report.outcomes.iter().map(|outcome| SignedCheck {
        id: outcome.check.id.to_owned(),
        kind: outcome.check.kind.word().to_owned(),
        verdict: outcome.verdict.word().to_owned(),
    });
    let object = SignedReport {
        kind: KIND.to_owned(),
        key: identity.public().to_string(),
        suite: concat!("bowline ", env!("CARGO_PKG_VERSION")).to_owned(),
        date: date.round(Unit::Second).unwrap_or(date),
        protocol: report.about.protocol().to_owned(),
        target: report.url.clone(),
        level: match report.about {
            About::Server(level) => Some(level.to_string()),
            About::Relay => None,
        },
        passed: report.passed().filter(|_| report.whole),
        whole: report.whole,
        checks: checks.collect(),
    };
    signed_object::sign(&object, Purpose::ConformanceReport, identity) + "\n"
}

/// The report and the key that signed it.
pub(super) fn verified(text: &[u8]) -> Result<(SignedReport, GatewayKey), NotGood> {
    let object = UnverifiedObject::parse(text, LARGEST).ok_or(NotGood::NoReport)?;
    let report: SignedReport = object.peek().ok_or(NotGood::NoReport)?;
    let key: GatewayKey = report.key.parse().map_err(|_| NotGood::NoReport)?;
    if report.kind != KIND {
        return Err(NotGood::NoReport);
    }
    object.verify(Purpose::ConformanceReport, &key)?;
    Ok((report, key))
}

impl SignedReport {
    /// How many checks have this verdict, without what is left to the server and without our additions.
    pub(super) fn count(&self, verdict: &str) -> usize {
        let protocols =
            self.checks.iter().filter(|check| !matches!(check.kind.as_str(), "may" | "ours"));
        protocols.filter(|check| check.verdict == verdict).count()
    }
}

const KIND: &str = "bowline-conformance-report";
/// Many times what all checks take.
pub(super) const LARGEST: usize = 1 << 20;
