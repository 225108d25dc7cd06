//! One switch of the small relay after another: the checks that are about it fail, and no others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bowline_conformance::{Check, Issuer, Report, Selection, Suite, Target};
use futures_util::{StreamExt, stream};

use crate::faults::{compared, not_passed};
use crate::relay::{Fault, SmallRelay};

/// Checks that move megabytes: run for the faults that are about them, and without faults.
const HEAVY: &[&str] = &["SBRP-RELAY-07", "SBRP-RELAY-08", "SBRP-RELAY-08b"];

/// Runs all checks, the heavy ones only if wanted, against a relay with these faults.
async fn report(faults: &[Fault], with_heavy: bool) -> Report {
    match with_heavy {
        true => report_of(faults, |_| true).await,
        false => report_of(faults, |check| !HEAVY.contains(&check.id)).await,
    }
}

async fn report_of(faults: &[Fault], is: impl Fn(&Check) -> bool) -> Report {
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let issuer = Issuer::start(anywhere, None).await.unwrap();
    let relay = SmallRelay::start(issuer.url(), faults).await;
    let target = Target::relay(&relay.url.parse().unwrap()).unwrap();
    let mut selection = Selection::relay(&[]).unwrap();
    selection.keep(is);
    Suite::relay(target, issuer).run(&selection, |_| {}).await.unwrap()
}

/// Each fault, and the checks that are about what it breaks.
const FAULTS: &[(Fault, &[&str])] = &[
    // These wait for timers: first, so that the others run meanwhile.
    (Fault::DeadStay, &["SBRP-RELAY-14e"]),
    (Fault::NoPings, &["SBRP-RELAY-14d", "SBRP-RELAY-14e"]),
    (Fault::NeverRefetches, &["SBRP-TOKEN-03b"]),
    (Fault::PausedForever, &["SBRP-RELAY-10c"]),
    (Fault::PendingForever, &["SBRP-RELAY-10d"]),
    (Fault::CloseIgnored, &["SBRP-RELAY-03", "SBRP-RELAY-03b", "SBRP-RELAY-10b"]),
    (Fault::CloseWhilePendingIgnored, &["SBRP-RELAY-10b"]),
    (Fault::NoTokenIs500, &["SBRP-TOKEN-01"]),
    (Fault::AnyType, &["SBRP-TOKEN-02"]),
    (Fault::UnknownKeyIsTheFirst, &["SBRP-TOKEN-03", "SBRP-TOKEN-03c"]),
    (Fault::AlwaysRefetches, &["SBRP-TOKEN-03c"]),
    (Fault::AnySignature, &["SBRP-TOKEN-04"]),
    (Fault::AnyAlgorithm, &["SBRP-TOKEN-04b"]),
    (Fault::AnyAudience, &["SBRP-TOKEN-05"]),
    (Fault::AnyIssuer, &["SBRP-TOKEN-06"]),
    (Fault::NoTimes, &["SBRP-TOKEN-07"]),
    (Fault::Expired, &["SBRP-TOKEN-08"]),
    (Fault::CutAtExpiry, &["SBRP-TOKEN-08b"]),
    (Fault::AnyVersion, &["SBRP-TOKEN-09"]),
    (Fault::AnyRole, &["SBRP-TOKEN-10"]),
    (Fault::NoDaemonId, &["SBRP-TOKEN-11"]),
    (Fault::AnySid, &["SBRP-TOKEN-12"]),
    (Fault::AnyRegion, &["SBRP-TOKEN-13"]),
    (Fault::LongClients, &["SBRP-TOKEN-14"]),
    (Fault::AnyScopes, &["SBRP-TOKEN-15"]),
    (Fault::AnyLimit, &["SBRP-TOKEN-16"]),
    (Fault::LimitIgnored, &["SBRP-TOKEN-16b"]),
    (Fault::NotAtRoot, &["SBRP-RELAY-01"]),
    (Fault::QueryDid, &["SBRP-RELAY-01b"]),
    (Fault::Modified, &["SBRP-RELAY-02"]),
    (Fault::Reordered, &["SBRP-RELAY-02b"]),
    (Fault::EmptyDropped, &["SBRP-RELAY-02c"]),
    (Fault::FragmentsDropped, &["SBRP-RELAY-02d"]),
    (Fault::UnknownReasonRefused, &["SBRP-RELAY-03b"]),
    (Fault::SignalLengthIgnored, &["SBRP-RELAY-03c"]),
    (Fault::ClientSignals, &["SBRP-RELAY-04", "SBRP-RELAY-05g"]),
    (Fault::ControlIgnored, &["SBRP-RELAY-04b"]),
    (Fault::HandshakeAnyWay, &["SBRP-RELAY-04c"]),
    (Fault::ShortHeaderIgnored, &["SBRP-RELAY-05", "SBRP-RELAY-05g"]),
    (Fault::TrailingIgnored, &["SBRP-RELAY-05b"]),
    (Fault::TextIgnored, &["SBRP-RELAY-05c"]),
    (Fault::TooLargeAccepted, &["SBRP-RELAY-05b", "SBRP-RELAY-05d", "SBRP-RELAY-05g"]),
    (Fault::UnknownTypeIgnored, &["SBRP-RELAY-05e", "SBRP-RELAY-05g"]),
    (Fault::ZeroSessionIgnored, &["SBRP-RELAY-05f", "SBRP-RELAY-05g"]),
    (Fault::TypeBeforeSize, &["SBRP-RELAY-05g"]),
    (Fault::ForeignSessionEnds, &["SBRP-RELAY-05h", "SBRP-RELAY-06"]),
    (Fault::OtherSessionIgnored, &["SBRP-RELAY-06"]),
    (Fault::LimitedDropped, &["SBRP-RELAY-07"]),
    (Fault::SlowClientDropped, &["SBRP-RELAY-08"]),
    (Fault::SlowDaemonDropped, &["SBRP-RELAY-08b"]),
    (Fault::PausedTellsOne, &["SBRP-RELAY-09"]),
    (
        Fault::ResumedAtOnce,
        &["SBRP-RELAY-10", "SBRP-RELAY-10b", "SBRP-RELAY-10d", "SBRP-RELAY-10e", "SBRP-RELAY-19b"],
    ),
    (Fault::EarlyForwarded, &["SBRP-RELAY-10e"]),
    (Fault::ResumesAnyway, &["SBRP-RELAY-11"]),
    (Fault::OfflinePauses, &["SBRP-RELAY-13"]),
    (Fault::NewerRefused, &["SBRP-RELAY-18"]),
    (Fault::SilentDiscard, &["SBRP-RELAY-19", "SBRP-RELAY-19b"]),
    (Fault::DiscardToldOnce, &["SBRP-RELAY-19b"]),
    (Fault::NoSessionEnded, &["SBRP-RELAY-12"]),
    (Fault::EndedToldLater, &["SBRP-RELAY-12b"]),
    (Fault::TakenOver, &["SBRP-RELAY-20"]),
    (Fault::PongEmpty, &["SBRP-RELAY-14"]),
    (Fault::PingForwarded, &["SBRP-RELAY-14b"]),
    (Fault::LongPing, &["SBRP-RELAY-14c"]),
    (Fault::TextNames, &["SBRP-RELAY-15", "SBRP-RELAY-15b"]),
    (Fault::TextHarmless, &["SBRP-RELAY-15b"]),
    (Fault::UnknownSessionIgnored, &["SBRP-RELAY-10e", "SBRP-RELAY-16", "SBRP-RELAY-16b"]),
    (Fault::DaemonCut, &["SBRP-RELAY-10e", "SBRP-RELAY-16b"]),
];

/// A relay with this fault; the heavy checks are run if they are about it.
async fn checked(fault: Fault, expected: &[&str]) -> Report {
    report(&[fault], expected.iter().any(|id| HEAVY.contains(id))).await
}

/// How many relays are checked at the same time: nearly all of a run is waiting.
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_faults_passes() {
    let report = report(&[], true).await;
    assert!(not_passed(&report).is_empty(), "{}", report.to_text());
    assert_eq!(report.passed().as_deref(), Some("SBRP"));
    let all: BTreeSet<_> = bowline_conformance::relay_checks().map(|check| check.id).collect();
    assert_eq!(report.outcomes.len(), all.len());
    // Each check has a fault that it finds.
    let found: BTreeSet<_> = FAULTS.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
    assert_eq!(found, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_relay_is_found_by_the_checks_that_are_about_it_and_by_no_others() {
    let mut reports = stream::iter(FAULTS)
        .map(|(fault, expected)| async move { (fault, *expected, checked(*fault, expected).await) })
        .buffer_unordered(AT_ONCE);
    let mut wrong = String::new();
    let mut again = Vec::new();
    while let Some((fault, expected, report)) = reports.next().await {
        if !compared(fault, expected, &report).is_empty() {
            again.push((fault, expected));
        }
    }
    // Beside others a busy machine may be slower than a check waits: what differs has to differ alone, too.
    for (fault, expected) in again {
        wrong += &compared(fault, expected, &checked(*fault, expected).await);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What an honest relay may do in another way.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_protocol_leaves_open_fails_no_relay() {
    for (habit, only) in
        [(Fault::NeverCameNotFound, "SBRP-RELAY-13"), (Fault::BelowPath, "SBRP-RELAY-01")]
    {
        let report = report_of(&[habit], |check| check.id == only).await;
        assert!(not_passed(&report).is_empty(), "{habit:?}: {}", report.to_text());
    }
}

#[tokio::test]
async fn a_relay_that_trusts_another_issuer_is_told_how_to_trust_the_suites() {
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let relay = SmallRelay::start("http://127.0.0.1:1", &[]).await;
    let issuer = Issuer::start(anywhere, None).await.unwrap();
    let url = issuer.url().to_owned();
    let target = Target::relay(&relay.url.parse().unwrap()).unwrap();
    let selection = Selection::relay(&["SBRP-TOKEN-01".to_owned()]).unwrap();
    let mut suite = Suite::relay(target, issuer);
    suite.ready_within = Duration::from_millis(100);
    let problem = suite.run(&selection, |_| {}).await.unwrap_err();
    let expected = format!("the relay refuses the tokens of the suite's issuer {url}: status 401");
    assert_eq!(problem.to_string(), expected);
}
