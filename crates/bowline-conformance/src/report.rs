//! What a run has shown, as text and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::check::{Check, Kind};
use crate::group::{About, Group};
use crate::level::Level;
use crate::verdict::{Finding, Verdict};

/// What became of one check.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub check: &'static Check,
    pub verdict: Verdict,
    pub took: Duration,
    /// What was sent and received, unless it passed.
    pub transcript: Vec<String>,
}

/// A requirement that nobody can check from outside.
#[derive(Debug, Clone, Copy)]
pub struct Unseen {
    pub id: &'static str,
    pub why: &'static str,
}

impl Unseen {
    pub fn group(&self) -> Group {
        Group::of(self.id)
    }
}

/// What a run has shown.
#[derive(Debug)]
pub struct Report {
    pub url: String,
    /// What was asked for.
    pub about: About,
    pub took: Duration,
    pub outcomes: Vec<Outcome>,
    pub unseen: Vec<Unseen>,
    /// Whether all checks were chosen.
    pub whole: bool,
}

impl Report {
    pub fn failures(&self) -> usize {
        self.count("failed")
    }

    /// How many checks of the protocol were not run.
    pub fn not_run(&self) -> usize {
        self.count("not_run")
    }

    fn count(&self, word: &str) -> usize {
        self.protocols().filter(|outcome| outcome.verdict.word() == word).count()
    }

    /// What counts: without what is left to the server, and without our additions.
    fn protocols(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.check.kind.counts())
    }

    /// The highest level such that no check of it, or of a level before it, failed, and each level
    /// has a check that passed. What was not run is named beside it.
    pub fn level(&self) -> Option<Level> {
        let passed = |level: &Level| self.is_good(Group::Level(*level));
        Level::ALL.into_iter().take_while(passed).last()
    }

    /// What is passed, in a word: the level of a server, or `SBRP` for a relay.
    pub fn passed(&self) -> Option<String> {
        match self.about {
            About::Server(_) => self.level().map(|level| level.to_string()),
            About::Relay => {
                let groups = self.about.groups();
                let good = groups.into_iter().all(|group| self.is_good(group));
                good.then(|| self.about.protocol().to_owned())
            }
        }
    }

    /// Whether a check of the group passed, and none failed.
    fn is_good(&self, group: Group) -> bool {
        let of = || self.protocols().filter(|outcome| outcome.check.group() == group);
        of().any(|o| o.verdict == Verdict::Passed)
            && !of().any(|o| matches!(o.verdict, Verdict::Failed(_)))
    }

    pub fn to_json(&self) -> Value {
        let outcomes: Vec<_> = self.outcomes.iter().map(outcome_json).collect();
        let unseen: Vec<_> =
            self.unseen.iter().map(|one| json!({ "id": one.id, "why": one.why })).collect();
        let mut json = json!({
            "url": self.url,
            "protocol": self.about.protocol(),
            "passed": self.passed(),
            "seconds": (self.took.as_secs_f64() * 10.0).round() / 10.0,
            "counts": {
                "checks": self.protocols().count(),
                "passed": self.count("passed"),
                "warnings": self.count("warning"),
                "failed": self.count("failed"),
                "not_run": self.count("not_run"),
            },
            "checks": outcomes,
            "unseen": unseen,
        });
        if let About::Server(level) = self.about {
            json["level"] = level.to_string().into();
        }
        json
    }

    pub fn to_text(&self) -> String {
        let mut text = format!("{} conformance of {}", self.about.protocol(), self.url);
        if let About::Server(level) = self.about {
            let _ = write!(text, ", level {level}");
        }
        text.push('\n');
        for group in self.about.groups() {
            let of: Vec<_> = self.protocols().filter(|o| o.check.group() == group).collect();
            section(&mut text, &format!("{group} {}", group.title()), &of);
        }
        for (kind, title) in [
            (Kind::May, "Left to the server by the protocol"),
            (Kind::Ours, "Additions of Bowline"),
        ] {
            let of: Vec<_> = self.outcomes.iter().filter(|o| o.check.kind == kind).collect();
            section(&mut text, &format!("{title}, which nobody fails"), &of);
        }
        if !self.unseen.is_empty() {
            text += "\nNot seen from outside, and not counted\n";
        }
        for one in &self.unseen {
            let width = one.group().id_width();
            let _ = writeln!(text, "  {:<9} {:<width$} {}", "", one.id, one.why);
        }
        text += &self.sum();
        text
    }

    /// The last lines: how many, and which level is passed.
    fn sum(&self) -> String {
        let [passed, warnings, failed, not_run] =
            ["passed", "warning", "failed", "not_run"].map(|word| self.count(word));
        let all = self.protocols().count();
        let seconds = self.took.as_secs();
        let mut sum = format!(
            "\n{all} checks: {passed} passed, {warnings} warnings, {failed} failed, {not_run} not \
             run; {seconds} s\n"
        );
        sum += &format!("passed: {}", self.passed().as_deref().unwrap_or("none"));
        if not_run > 0 {
            sum += &format!(", with {not_run} checks not run");
        }
        sum + "\n"
    }
}

fn section(text: &mut String, title: &str, outcomes: &[&Outcome]) {
    if outcomes.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for outcome in outcomes {
        let (check, word) = (outcome.check, shown(&outcome.verdict));
        let width = check.group().id_width();
        let _ = writeln!(text, "  {word:<9} {:<width$} {}", check.id, check.what);
        match &outcome.verdict {
            Verdict::Passed => {}
            Verdict::NotRun(why) => {
                let _ = writeln!(text, "                        {why}");
            }
            Verdict::Warning(finding) | Verdict::Failed(finding) => {
                for (name, said) in parts(check, finding) {
                    let _ = writeln!(text, "            {name:<9} {said}");
                }
            }
        }
    }
}

/// A finding with its names, as text and in other formats.
pub(crate) fn parts<'a>(check: &'a Check, finding: &'a Finding) -> [(&'static str, &'a str); 4] {
    [
        ("clause", check.clause),
        ("sent", &finding.sent),
        ("expected", &finding.expected),
        ("came", &finding.came),
    ]
}

fn shown(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "ok",
        Verdict::Warning(_) => "warning",
        Verdict::Failed(_) => "FAILED",
        Verdict::NotRun(_) => "not run",
    }
}

fn outcome_json(outcome: &Outcome) -> Value {
    let check = outcome.check;
    let mut json = json!({
        "id": check.id,
        "level": check.group().to_string(),
        "kind": check.kind.word(),
        "what": check.what,
        "clause": check.clause,
        "verdict": outcome.verdict.word(),
        "seconds": (outcome.took.as_secs_f64() * 100.0).round() / 100.0,
    });
    match &outcome.verdict {
        Verdict::Passed => {}
        Verdict::NotRun(why) => json["reason"] = why.as_str().into(),
        Verdict::Warning(finding) | Verdict::Failed(finding) => {
            json["sent"] = finding.sent.as_str().into();
            json["expected"] = finding.expected.as_str().into();
            json["came"] = finding.came.as_str().into();
            json["transcript"] = json!(outcome.transcript);
        }
    }
    json
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::check::{must, ours, run, should};
    use crate::trial::Trial;
    use crate::verdict::Ended;

    async fn nothing(_: &Trial) -> Ended {
        Ok(())
    }

    const CHECKS: [Check; 5] = [
        must("SBP-L1-01", "makes a session", "makes one", run!(nothing)),
        must("SBP-L1-02", "takes a turn", "takes one", run!(nothing)),
        must("SBP-L2-06", "keeps <turns> & more", "keeps \"them\"", run!(nothing)),
        should("SBP-L2-14", "has snapshots", "has them", run!(nothing)),
        ours("SBP-L2-20", "lets surfaces join", "lets them", run!(nothing)),
    ];

    pub(crate) fn report() -> Report {
        let finding = Finding::new("POST <x>", "status 200", "500 {\"a\":\u{1}1}");
        let verdicts = [
            Verdict::Passed,
            Verdict::NotRun("no model".into()),
            Verdict::Failed(finding.clone()),
            Verdict::Warning(finding),
            Verdict::NotRun("not offered".into()),
        ];
        let outcomes = CHECKS.iter().zip(verdicts).map(|(check, verdict)| Outcome {
            check,
            verdict,
            took: Duration::from_millis(1500),
            transcript: vec!["> POST <x>".into()],
        });
        Report {
            url: "http://127.0.0.1:8080".into(),
            about: About::Server(Level::L2),
            took: Duration::from_secs(7),
            outcomes: outcomes.collect(),
            unseen: vec![Unseen { id: "SBP-L2-12", why: "the disk is not seen" }],
            whole: true,
        }
    }

    #[test]
    fn the_text_says_what_was_sent_expected_and_came_and_by_which_clause() {
        let expected = "\
SBP conformance of http://127.0.0.1:8080, level L2

L1 stateful proxy
  ok        SBP-L1-01   makes a session
  not run   SBP-L1-02   takes a turn
                        no model

L2 Tether and resume
  FAILED    SBP-L2-06   keeps <turns> & more
            clause    keeps \"them\"
            sent      POST <x>
            expected  status 200
            came      500 {\"a\":\u{1}1}
  warning   SBP-L2-14   has snapshots
            clause    has them
            sent      POST <x>
            expected  status 200
            came      500 {\"a\":\u{1}1}

Additions of Bowline, which nobody fails
  not run   SBP-L2-20   lets surfaces join
                        not offered

Not seen from outside, and not counted
            SBP-L2-12   the disk is not seen

4 checks: 1 passed, 1 warnings, 1 failed, 1 not run; 7 s
passed: L1, with 1 checks not run
";
        assert_eq!(report().to_text(), expected);
    }

    #[test]
    fn the_json_has_the_same_and_the_transcript_of_what_failed() {
        let json = report().to_json();
        assert_eq!(json["counts"]["failed"], 1);
        assert_eq!(json["counts"]["checks"], 4, "what is ours does not count");
        assert_eq!((&json["level"], &json["passed"]), (&json!("L2"), &json!("L1")));
        let checks = json["checks"].as_array().unwrap();
        assert_eq!(checks.len(), 5);
        assert_eq!(checks[2]["expected"], "status 200");
        assert_eq!(checks[2]["transcript"], json!(["> POST <x>"]));
        assert_eq!(checks[0].get("transcript"), None);
        assert_eq!(
            (&checks[4]["kind"], &checks[4]["reason"]),
            (&json!("ours"), &json!("not offered"))
        );
        assert_eq!(json["unseen"][0]["id"], "SBP-L2-12");
    }

    #[test]
    fn a_level_needs_a_check_that_passed_and_none_that_failed() {
        let mut report = report();
        assert_eq!(report.level(), Some(Level::L1));
        report.outcomes[2].verdict = Verdict::Passed;
        assert_eq!(report.level(), Some(Level::L2), "a warning is no failure");
        report.outcomes[0].verdict = Verdict::NotRun("no key".into());
        assert_eq!(report.level(), None, "nothing of L1 was shown");
    }
}
