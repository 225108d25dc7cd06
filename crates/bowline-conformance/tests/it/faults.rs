//! One switch after another: the checks that are about it fail, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_conformance::{
    Check, Kind, Level, Model, Outcome, Peer, Problem, Report, Restart, Selection, Suite, Target,
    Verdict, checks,
};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};

use crate::server::{Fault, Server};

/// Runs the checks that `is` takes against a server with these faults.
pub(crate) async fn report_of(faults: &[Fault], is: impl Fn(&Check) -> bool) -> Report {
    run_of(faults, is).await.unwrap()
}

/// The same, of a run that may not begin.
pub(crate) async fn run_of(
    faults: &[Fault],
    is: impl Fn(&Check) -> bool,
) -> Result<Report, Problem> {
    let here = || "127.0.0.1:0".parse().unwrap();
    let model = Model::start(here(), None).await.unwrap();
    let peer = Peer::start(here(), None).await.unwrap();
    let server = Server::start(model.url(), &peer, faults).await;
    let suite = Suite {
        target: Arc::new(Target::new(&server.url.parse().unwrap(), None).unwrap()),
        model: Some(Arc::new(model)),
        model_name: "conformance".into(),
        restart: Some(Restart::new(&server.restart_command)),
        issuer: None,
        ready_within: std::time::Duration::ZERO,
        peer: Some(Arc::new(peer)),
    };
    let mut selection = Selection::new(Level::L6, &[]).unwrap();
    selection.keep(is);
    suite.run(&selection, |_| {}).await
}

/// All checks but those that wait for the protocol's own timers.
pub(crate) async fn report(faults: &[Fault]) -> Report {
    report_of(faults, |check| !check.is_slow()).await
}

/// The checks that did not pass.
pub(crate) fn not_passed(report: &Report) -> BTreeSet<&'static str> {
    let unmet = |verdict: &Verdict| *verdict != Verdict::Passed;
    report.outcomes.iter().filter(|o| unmet(&o.verdict)).map(|o| o.check.id).collect()
}

/// Whether the check says that the server does something else: that it cannot tell is no finding.
fn is_finding(outcome: &Outcome) -> bool {
    match (outcome.check.kind, &outcome.verdict) {
        (Kind::Must, verdict) => matches!(verdict, Verdict::Failed(_)),
        (Kind::Should, verdict) => matches!(verdict, Verdict::Warning(_)),
        // Nobody fails these.
        (Kind::May | Kind::Ours, Verdict::NotRun(why)) => why.starts_with("not offered: "),
        (Kind::May | Kind::Ours, _) => false,
    }
}

/// Nothing, if these checks and no others did not pass, and found something; else what is wrong.
pub(crate) fn compared(
    fault: &impl std::fmt::Debug,
    expected: &[&'static str],
    report: &Report,
) -> String {
    let found = not_passed(report);
    let mut broken = report.outcomes.iter().filter(|o| found.contains(o.check.id));
    if found == expected.iter().copied().collect() && broken.all(is_finding) {
        return String::new();
    }
    let broken = report.outcomes.iter().filter(|o| found.contains(o.check.id));
    let broken = broken.map(|o| format!("  {} {:?}\n", o.check.id, o.verdict));
    format!("{fault:?}: expected {expected:?}, found {found:?}\n{}\n", broken.collect::<String>())
}

/// Each fault, and the checks that are about what it breaks.
const FAULTS: &[(Fault, &[&str])] = &[
    (Fault::MadeTimeless, &["SBP-L1-01"]),
    (Fault::OwnTokenIgnored, &["SBP-L1-01b"]),
    (Fault::NoObject, &["SBP-L1-02"]),
    (Fault::NoLegacyPrompt, &["SBP-L1-02b"]),
    (Fault::UnknownForbidden, &["SBP-L1-03"]),
    (Fault::InMemory, &["SBP-L1-04", "SBP-L1-04b"]),
    (Fault::TetherInMemory, &["SBP-L2-12"]),
    (Fault::AgentHeaderIgnored, &["SBP-L1-05"]),
    (Fault::UnknownOptionRefused, &["SBP-L1-06"]),
    (Fault::SbpForwarded, &["SBP-L1-06b"]),
    (Fault::NoTokenHeader, &["SBP-L1-07"]),
    (Fault::ModelRewritten, &["SBP-L1-08", "SBP-L3-13"]),
    (Fault::PassThroughRewritten, &["SBP-L1-09"]),
    (Fault::NoDone, &["SBP-L1-10"]),
    (Fault::EndsWithItsReader, &["SBP-L1-10b", "SBP-L2-11"]),
    (Fault::HistoryReversed, &["SBP-L1-11", "SBP-L1-12", "SBP-L3-05b"]),
    (Fault::EmptyIsComplete, &["SBP-L1-13"]),
    (Fault::HalfIsComplete, &["SBP-L1-13b"]),
    (Fault::AnyFirstFrame, &["SBP-L2-02"]),
    (Fault::AnyToken, &["SBP-L2-03"]),
    (Fault::NoLevel, &["SBP-L2-04"]),
    (Fault::IndexFromOne, &["SBP-L2-05"]),
    (Fault::LiveBeforeAttached, &["SBP-L2-05b"]),
    (Fault::ClearedOnSend, &["SBP-L2-06", "SBP-L2-16", "SBP-L2-21"]),
    (Fault::NeverConfirmed, &["SBP-L2-06b", "SBP-L2-07"]),
    (
        Fault::OtherChunkId,
        &["SBP-L2-07", "SBP-L2-16", "SBP-L2-20", "SBP-L4-03", "SBP-L4-03b", "SBP-L4-04"],
    ),
    (Fault::ChunksForAll, &["SBP-L2-09"]),
    (Fault::DetachGoingAway, &["SBP-L2-01", "SBP-L2-10"]),
    (Fault::NeverSuspended, &["SBP-L2-13", "SBP-L2-15", "SBP-L3-10", "SBP-L6-05e"]),
    (Fault::NoSnapshot, &["SBP-L2-14"]),
    (Fault::SuspendedRuns, &["SBP-L2-15"]),
    (Fault::AlwaysSuspended, &["SBP-L2-15b"]),
    (Fault::UnknownFrameCloses, &["SBP-L2-17"]),
    (Fault::TurnsAtOnce, &["SBP-L2-18", "SBP-L2-18b"]),
    (Fault::DetachLosesTurns, &["SBP-L2-06", "SBP-L2-21"]),
    (Fault::ContextRefused, &["SBP-L4-01b", "SBP-L4-04"]),
    (Fault::NoEcho, &["SBP-L2-04", "SBP-L4-01"]),
    (Fault::NamesDropped, &["SBP-L5-01", "SBP-L5-02"]),
    (Fault::ResultsMixed, &["SBP-L5-02b"]),
    (Fault::DeviceGoneForgotten, &["SBP-L5-03"]),
    (Fault::UnknownResultCloses, &["SBP-L5-04"]),
    (Fault::ErrorsDropped, &["SBP-L5-03c"]),
    (Fault::Undeclared, &["SBP-L5-04b"]),
    (Fault::ResentTwice, &["SBP-L1-11b"]),
    (Fault::CallersToolsDropped, &["SBP-L1-12"]),
    (Fault::DroppedLiveLost, &["SBP-L2-07b", "SBP-L2-11"]),
    (Fault::MidSentenceLost, &["SBP-L2-08"]),
    (Fault::InterruptedForgotten, &["SBP-L2-13b"]),
    (Fault::OlderStays, &["SBP-L2-16b"]),
    (Fault::WaitsUnbounded, &["SBP-L2-18b"]),
    (Fault::PendingUntold, &["SBP-L2-19"]),
    (Fault::TetherAlways, &["SBP-L2-19b"]),
    (Fault::JoinReplaces, &["SBP-L2-20"]),
    (Fault::AckIgnored, &["SBP-L2-21"]),
    (Fault::AnyLifetime, &["SBP-L3-01"]),
    (Fault::NoExpiry, &["SBP-L3-02"]),
    (Fault::BundleWithoutCosts, &["SBP-L3-03"]),
    (Fault::OtherHash, &["SBP-L3-04", "SBP-L6-02"]),
    (Fault::ImportKeepsAgent, &["SBP-L3-05"]),
    (Fault::ImportReversed, &["SBP-L3-05b"]),
    (Fault::TokensReusable, &["SBP-L3-06", "SBP-L6-05e"]),
    (Fault::AnySignature, &["SBP-L3-06b"]),
    (Fault::AnyBundle, &["SBP-L3-06d"]),
    (Fault::ReuseConsumes, &["SBP-L3-07"]),
    (Fault::UnknownMemoryRefused, &["SBP-L3-08"]),
    (Fault::InspectConsumes, &["SBP-L3-09"]),
    (Fault::HandoffLeavesSource, &["SBP-L3-10"]),
    (Fault::HandoffForgetsMessage, &["SBP-L3-10b"]),
    (Fault::ForkStepsLost, &["SBP-L3-11"]),
    (Fault::ForkForgets, &["SBP-L3-11b"]),
    (Fault::NoForksInLineage, &["SBP-L3-12"]),
    (Fault::ImportKeepsModel, &["SBP-L3-13"]),
    (Fault::EndedTakesTurns, &["SBP-L3-14"]),
    (Fault::NoSchema, &["SBP-L3-15"]),
    (Fault::Unsigned, &["SBP-L3-16"]),
    (Fault::DeviceUntold, &["SBP-L4-02"]),
    (Fault::MarkdownForAll, &["SBP-L4-03"]),
    (Fault::AdaptedStored, &["SBP-L4-03b"]),
    (Fault::SurfaceIdForgotten, &["SBP-L4-05"]),
    (Fault::NoBundleEndpoint, &["SBP-L6-01"]),
    (Fault::ManifestUnsigned, &["SBP-L6-01b"]),
    (Fault::ClaimsSeven, &["SBP-L6-07"]),
    (Fault::OtherBundleGiven, &["SBP-L6-02"]),
    (Fault::NoFederationToken, &["SBP-L6-02b"]),
    (Fault::AnyFederationToken, &["SBP-L6-02c"]),
    (Fault::FederationTokensAgain, &["SBP-L6-02d"]),
    (Fault::UnknownBundleFails, &["SBP-L6-02e", "SBP-L6-03b"]),
    (Fault::LongFederationTokens, &["SBP-L6-02f"]),
    (Fault::RegistryUnsigned, &["SBP-L6-03"]),
    (Fault::TrackerProxies, &["SBP-L6-03b"]),
    (Fault::AnnouncementForged, &["SBP-L6-03c"]),
    (Fault::TokensForHome, &["SBP-L6-05"]),
    (Fault::ForeignStepsLost, &["SBP-L6-05b"]),
    (Fault::ForeignForgets, &["SBP-L6-05c"]),
    (Fault::ForeignReused, &["SBP-L6-05d"]),
    (Fault::NoReservations, &["SBP-L6-05e"]),
    (Fault::ForeignAnyBundle, &["SBP-L6-06"]),
    (Fault::ForeignAnySignature, &["SBP-L6-06b"]),
    (Fault::ReadsEndless, &["SBP-L6-06c"]),
    (Fault::FollowsRedirects, &["SBP-L6-06d"]),
    (Fault::RefusedIsKept, &["SBP-L6-06", "SBP-L6-06b", "SBP-L6-06c", "SBP-L6-06d"]),
    (Fault::EndedNotHandedOff, &["SBP-L3-14b"]),
    (Fault::AttachBringsNothing, &["SBP-L6-05f"]),
];

/// The same for checks that wait for the protocol's own timers, which are run with these faults alone; here all others
/// are run, too.
const SLOW_FAULTS: &[(Fault, &[&str])] = &[
    (Fault::SilentKept, &["SBP-L2-02b"]),
    (Fault::NeverPings, &["SBP-L2-17b"]),
    (Fault::NeverExpires, &["SBP-L3-06c"]),
    (Fault::DeviceWaitedForever, &["SBP-L5-03b", "SBP-L5-03d"]),
    (Fault::DeviceWaitedLong, &["SBP-L5-03d"]),
];

/// How many servers are checked at the same time: nearly all of a run is waiting.
pub(crate) const AT_ONCE: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_faults_passes() {
    let report = report_of(&[], |_| true).await;
    assert!(not_passed(&report).is_empty(), "{}", report.to_text());
    assert_eq!(report.outcomes.len(), checks().count());
    assert_eq!(report.level(), Some(Level::L6));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_is_found_by_the_checks_that_are_about_it_and_by_no_others() {
    let mut reports = stream::iter(FAULTS)
        .map(|(fault, expected)| async move { (fault, *expected, report(&[*fault]).await) })
        .buffer_unordered(AT_ONCE);
    let mut all = String::new();
    let mut again = Vec::new();
    while let Some((fault, expected, report)) = reports.next().await {
        if !compared(fault, expected, &report).is_empty() {
            again.push((fault, expected));
        }
    }
    // Beside others a busy machine may be slower than a check waits: what differs has to differ alone, too.
    for (fault, expected) in again {
        all += &compared(fault, expected, &report(&[*fault]).await);
    }
    assert!(all.is_empty(), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_take_their_time_are_found_by_the_checks_that_are_about_them() {
    let runs = SLOW_FAULTS.iter().map(|(fault, expected)| async move {
        compared(fault, expected, &report_of(&[*fault], |_| true).await)
    });
    let all = join_all(runs).await.concat();
    assert!(all.is_empty(), "{all}");
}

#[test]
fn no_check_is_without_a_fault_that_it_finds() {
    let rows = FAULTS.iter().chain(SLOW_FAULTS);
    let found: BTreeSet<_> = rows.flat_map(|(_, checks)| checks.iter().copied()).collect();
    let all: BTreeSet<_> = checks().map(|check| check.id).collect();
    assert_eq!(found, all);
}
