//! What an honest server may do in another way: nothing of it is a failure, and what the report says of it is
//! exactly this.

use bowline_conformance::{Problem, Report, Verdict};
use futures_util::{StreamExt, stream};

use crate::faults::{AT_ONCE, not_passed, report, report_of, run_of};
use crate::server::Fault;

/// Each habit, the checks that warn because of it, and those that are not run.
const HABITS: &[(Fault, &[&str], &[&str])] = &[
    // The names of either version of the wire are accepted.
    (Fault::OlderNames, &[], &[]),
    (
        Fault::OnlyRequired,
        &[
            "SBP-L1-02b",
            "SBP-L1-10",
            "SBP-L1-10b",
            "SBP-L3-10",
            "SBP-L3-10b",
            "SBP-L3-11",
            "SBP-L3-11b",
            "SBP-L3-12",
        ],
        &["SBP-L3-14b"],
    ),
    (Fault::StatusActive, &[], &[]),
    (Fault::TetherAfterDetach, &["SBP-L2-19"], &[]),
    (Fault::TetherByHook, &["SBP-L2-19"], &["SBP-L2-07b"]),
    (Fault::SessionsAlways, &[], &["SBP-L1-09"]),
    (Fault::TokensOnly, &[], &["SBP-L3-06d", "SBP-L3-08"]),
    (Fault::OtherTokenForm, &["SBP-L6-02"], &["SBP-L6-02d", "SBP-L6-02e", "SBP-L6-05e"]),
    (
        Fault::OtherKeyType,
        &[],
        &["SBP-L6-01b", "SBP-L6-02f", "SBP-L6-03", "SBP-L6-03c", "SBP-L6-05"],
    ),
    (Fault::RateLimited, &[], &[]),
    (Fault::MarkdownForAll, &[], &["SBP-L4-03"]),
];

/// Nothing, if the report says that and no more; else what is wrong.
fn compared(habit: Fault, warned: &[&str], not_run: &[&str], report: &Report) -> String {
    let of = |is: fn(&Verdict) -> bool| -> Vec<&str> {
        report.outcomes.iter().filter(|o| is(&o.verdict)).map(|o| o.check.id).collect()
    };
    let warnings = of(|verdict| matches!(verdict, Verdict::Warning(_)));
    let skipped = of(|verdict| matches!(verdict, Verdict::NotRun(_)));
    if warnings == warned && skipped == not_run && report.failures() == 0 {
        return String::new();
    }
    let unmet = not_passed(report);
    let said = report.outcomes.iter().filter(|o| unmet.contains(o.check.id));
    let said: String = said.map(|o| format!("  {} {:?}\n", o.check.id, o.verdict)).collect();
    format!("{habit:?}: expected {warned:?} and not run {not_run:?}, found\n{said}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_protocol_leaves_open_is_told_and_fails_nobody() {
    let reports = stream::iter(HABITS).map(|(habit, warned, not_run)| async move {
        compared(*habit, warned, not_run, &report(&[*habit]).await)
    });
    let all: Vec<String> = reports.buffer_unordered(AT_ONCE).collect().await;
    assert!(all.concat().is_empty(), "{}", all.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_offered_is_told_so() {
    let report = report(&[Fault::OnlyRequired]).await;
    for outcome in &report.outcomes {
        if let Some(finding) = outcome.verdict.finding() {
            assert!(finding.came.starts_with("not offered: "), "{:?}", outcome.verdict);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_a_key_is_not_checked_without_one() {
    let problem = run_of(&[Fault::WantsKey], |_| true).await.unwrap_err();
    assert!(matches!(problem, Problem::NoKey(401)), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_says_too_many_requests_is_not_judged() {
    let report = report_of(&[Fault::AlwaysLimited], |check| check.id == "SBP-L1-01").await;
    let Verdict::NotRun(why) = &report.outcomes[0].verdict else { panic!("{}", report.to_text()) };
    assert!(why.contains("429"), "{why}");
}
