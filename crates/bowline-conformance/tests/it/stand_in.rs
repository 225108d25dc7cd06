//! A stand-in of the public reference server, as it is known to behave: turns are in memory, the
//! queue of a surface is cleared when it is sent, and live output goes to every open socket, also
//! before `SESSION_ATTACHED`; a turn that a restart interrupts is gone; the names are those of wire version
//! 0.9, also of a session's status, which is active before its first turn; and turns wait for a surface only after
//! one has left. It is told exactly that.

use bowline_conformance::{About, Level, Verdict};

use crate::faults::{not_passed, report};
use crate::server::Fault;

#[tokio::test(flavor = "multi_thread")]
async fn the_public_servers_known_behaviour_is_told_exactly() {
    let known = [
        Fault::InMemory,
        Fault::TetherInMemory,
        Fault::InterruptedForgotten,
        Fault::ClearedOnSend,
        Fault::LiveBeforeAttached,
        Fault::OlderNames,
        Fault::StatusActive,
        Fault::TetherAfterDetach,
    ];
    let report = report(&known).await;
    let told = [
        "SBP-L1-04",
        "SBP-L1-04b",
        "SBP-L2-05b",
        "SBP-L2-06",
        "SBP-L2-12",
        "SBP-L2-13b",
        "SBP-L2-16",
        "SBP-L2-19",
        "SBP-L2-21",
    ];
    let told = told.into_iter().collect();
    assert_eq!(not_passed(&report), told, "{}", report.to_text());
    assert_eq!(report.passed(), None, "L1 asks that messages survive a restart");
    // What is ours and not offered is no failure, and what is recommended is a warning.
    assert_eq!(report.failures(), 7, "{}", report.to_text());
    let said = |id: &str| {
        let outcome = report.outcomes.iter().find(|outcome| outcome.check.id == id).unwrap();
        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{:?}", outcome.verdict);
        outcome.verdict.finding().unwrap().clone()
    };
    assert!(said("SBP-L2-06").expected.contains("the socket died before any sign"));
    assert!(said("SBP-L2-05b").came.contains("TURN_CHUNK"));
    assert!(said("SBP-L2-12").expected.contains("as before kill -9"));
    assert!(said("SBP-L1-04").expected.contains("from before the restart"));
    assert_eq!(report.about, About::Server(Level::L6));
}
