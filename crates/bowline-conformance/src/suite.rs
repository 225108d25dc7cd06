//! Runs checks against a server or a relay.
//!
//! Checks run several at a time, because each makes its own sessions and most of the time goes into
//! waiting. Those that restart the server run afterwards, one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::json;
use tokio::time::timeout;

use crate::check::{Check, Kind, Need};
use crate::federation::Peer;
use crate::group::{About, Group};
use crate::issuer::Issuer;
use crate::level::Level;
use crate::model::{Act, Model};
use crate::problem::Problem;
use crate::report::{Outcome, Report, Unseen};
use crate::restart::{self, Restart};
use crate::sbp;
use crate::sbrp;
use crate::target::Target;
use crate::trial::{As, COMPLETIONS, Trial};
use crate::verdict::{Ended, Finding, Stop, Verdict};

/// Which checks are run.
#[derive(Debug)]
pub struct Selection {
    about: About,
    checks: Vec<&'static Check>,
    is_whole: bool,
}

/// `--only` names no check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no check `{name}`{among}")]
pub struct UnknownCheck {
    name: String,
    among: &'static str,
}

impl Selection {
    /// The checks of a level and of those before it; if `only` is not empty, those that it names.
    pub fn new(level: Level, only: &[String]) -> Result<Self, UnknownCheck> {
        let up_to = |check: &&'static Check| check.group() <= Group::Level(level);
        let checks = sbp::checks().filter(up_to).collect();
        Self::of(About::Server(level), checks, only, " up to this level")
    }

    /// The checks of a relay; if `only` is not empty, those that it names.
    pub fn relay(only: &[String]) -> Result<Self, UnknownCheck> {
        Self::of(About::Relay, sbrp::checks().collect(), only, " of a relay")
    }

    fn of(
        about: About,
        mut checks: Vec<&'static Check>,
        only: &[String],
        among: &'static str,
    ) -> Result<Self, UnknownCheck> {
        if let Some(unknown) =
            only.iter().find(|name| !checks.iter().any(|check| check.is_named(name)))
        {
            return Err(UnknownCheck { name: unknown.clone(), among });
        }
        if !only.is_empty() {
            checks.retain(|check| only.iter().any(|name| check.is_named(name)));
        }
        Ok(Self { about, checks, is_whole: only.is_empty() })
    }

    /// Leaves out the other checks.
    pub fn keep(&mut self, is: impl Fn(&Check) -> bool) {
        self.checks.retain(|check| is(check));
        self.is_whole = false;
    }

    pub fn checks(&self) -> &[&'static Check] {
        &self.checks
    }

    /// Whether any of the checks is of a server with sessions: trackers have L6 alone.
    fn has_sessions(&self) -> bool {
        self.checks.iter().any(|check| check.group() < Group::Level(Level::L6))
    }

    /// Whether any of the checks needs it.
    pub fn needs(&self, need: Need) -> bool {
        self.checks.iter().any(|check| check.needs(need))
    }
}

/// The server and what the checks may use.
#[derive(Debug)]
pub struct Suite {
    pub target: Arc<Target>,
    /// The suite's own model; none, if the server's own is to answer.
    pub model: Option<Arc<Model>>,
    /// The model that is named in requests.
    pub model_name: String,
    pub restart: Option<Restart>,
    /// The suite's own control plane, for a relay.
    pub issuer: Option<Arc<Issuer>>,
    /// How long a relay may take to fetch the issuer's keys before its tokens count as refused.
    pub ready_within: Duration,
    /// The suite's own gateway, for checks of a federation.
    pub peer: Option<Arc<Peer>>,
}

impl Suite {
    /// A relay, and the control plane whose tokens it accepts.
    pub fn relay(target: Target, issuer: Issuer) -> Self {
        let (target, issuer) = (Arc::new(target), Some(Arc::new(issuer)));
        let ready_within = Duration::from_secs(30);
        let model_name = String::new();
        Self { target, model: None, model_name, restart: None, issuer, ready_within, peer: None }
    }

    /// Runs the checks, and reports each when it has ended.
    pub async fn run(
        &self,
        selection: &Selection,
        mut progress: impl FnMut(&Outcome),
    ) -> Result<Report, Problem> {
        let begun = Instant::now();
        match selection.about {
            About::Server(_) => {
                restart::answers(&self.target, READY).await.map_err(Problem::Unreachable)?;
                if selection.has_sessions() {
                    self.lets_us_in().await?;
                }
                self.asks_our_model().await?;
            }
            About::Relay => sbrp::is_ready(&self.trial(), self.ready_within).await?,
        }
        let (last, mut first): (Vec<&Check>, Vec<&Check>) =
            selection.checks.iter().partition(|check| check.needs(Need::Restart));
        first.sort_by_key(|check| !check.is_slow);
        let mut outcomes = Vec::new();
        for (checks, at_once) in [(first, AT_ONCE), (last, 1)] {
            let mut running =
                stream::iter(checks).map(|check| self.outcome(check)).buffer_unordered(at_once);
            while let Some(outcome) = running.next().await {
                progress(&outcome);
                outcomes.push(outcome);
            }
        }
        outcomes.sort_by_key(|outcome| outcome.check.id);
        Ok(Report {
            url: match selection.about {
                About::Server(_) => self.target.shown(),
                About::Relay => self.target.shown().replacen("http", "ws", 1),
            },
            about: selection.about,
            took: begun.elapsed(),
            outcomes,
            unseen: if selection.is_whole { unseen(selection.about) } else { Vec::new() },
            whole: selection.is_whole,
        })
    }

    /// Without a key nothing could be checked, and all would fail.
    async fn lets_us_in(&self) -> Result<(), Problem> {
        match self.trial().post("/v1/sessions", As::Caller, json!({})).await {
            Ok(answer) if matches!(answer.status, 401 | 403) => Err(Problem::NoKey(answer.status)),
            // What else is wrong, the checks find out.
            _ => Ok(()),
        }
    }

    /// A server that answers, but not with our model, was started in another way than it should be.
    async fn asks_our_model(&self) -> Result<(), Problem> {
        let Some(model) = &self.model else { return Ok(()) };
        let trial = self.trial();
        let Ok(script) = trial.script(vec![Act::say("pointed")]) else { return Ok(()) };
        let body = trial.asking(None, &script.prompt());
        match trial.post(COMPLETIONS, As::Caller, body).await {
            Ok(answer) if answer.status == 200 && script.times() == 0 => {
                Err(Problem::OtherModel(model.url()))
            }
            // What else is wrong, the checks find out.
            _ => Ok(()),
        }
    }

    fn trial(&self) -> Trial {
        let model = self.model.clone();
        let (name, restart) = (self.model_name.clone(), self.restart.clone());
        let (issuer, peer) = (self.issuer.clone(), self.peer.clone());
        Trial::new(Arc::clone(&self.target), model, name, restart, issuer, peer)
    }

    async fn outcome(&self, check: &'static Check) -> Outcome {
        let begun = Instant::now();
        let trial = self.trial();
        let patience = if check.needs(Need::Restart) { RESTARTED } else { PATIENCE };
        let patience = self.target.patience(patience);
        let ended = match self.lacks(check) {
            Some(reason) => Err(Stop::unable(reason)),
            None => match timeout(patience, (check.run)(&trial)).await {
                Ok(ended) => ended,
                Err(_) => {
                    let late = format!("it is not done after {} s", patience.as_secs());
                    Err(Stop::broken("see the transcript", "an end of the check", late))
                }
            },
        };
        let mask = &self.target.mask;
        let verdict = match verdict(check.kind, ended) {
            Verdict::Passed => Verdict::Passed,
            Verdict::NotRun(why) => Verdict::NotRun(mask.clean(&why)),
            Verdict::Warning(finding) => Verdict::Warning(cleaned(mask, &finding)),
            Verdict::Failed(finding) => Verdict::Failed(cleaned(mask, &finding)),
        };
        let transcript = match verdict {
            Verdict::Passed => Vec::new(),
            _ => trial.wire.transcript.lines().iter().map(|line| mask.clean(line)).collect(),
        };
        Outcome { check, verdict, took: begun.elapsed(), transcript }
    }

    /// What the check needs and does not have.
    fn lacks(&self, check: &Check) -> Option<&'static str> {
        if check.needs(Need::Model) && self.model.is_none() {
            return Some("the server's own model answers, which says what it wants (--model)");
        }
        if check.needs(Need::Restart) && self.restart.is_none() {
            return Some("nothing restarts the server (--restart-command)");
        }
        if check.needs(Need::Peer) && self.peer.is_none() {
            return Some("the suite's gateway does not run (--peer-listen)");
        }
        None
    }
}

/// What no run of all these checks shows.
fn unseen(about: About) -> Vec<Unseen> {
    match about {
        About::Server(level) => {
            sbp::unseen().filter(|one| one.group() <= Group::Level(level)).collect()
        }
        About::Relay => sbrp::unseen().collect(),
    }
}

fn cleaned(mask: &crate::mask::Mask, finding: &Finding) -> Finding {
    let Finding { sent, expected, came } = finding;
    Finding::new(mask.clean(sent), mask.clean(expected), mask.clean(came))
}

/// What the end of a check means, by how much its requirement counts.
fn verdict(kind: Kind, ended: Ended) -> Verdict {
    match (ended, kind) {
        (Ok(()), _) => Verdict::Passed,
        (Err(Stop::Unable(why)), _) => Verdict::NotRun(why),
        (Err(Stop::OtherForm(finding)), Kind::Must) => Verdict::Warning(finding),
        (
            Err(Stop::Broken(finding) | Stop::NotOffered(finding) | Stop::OtherForm(finding)),
            kind,
        ) => match kind {
            Kind::Must => Verdict::Failed(finding),
            Kind::Should => Verdict::Warning(finding),
            Kind::May | Kind::Ours => {
                let Finding { sent, expected, came } = finding;
                Verdict::NotRun(format!("not offered: {sent}: expected {expected}; came {came}"))
            }
        },
    }
}

/// How many checks run at the same time.
const AT_ONCE: usize = 8;
/// How long a check may take: a token's shortest life is a minute (SBP-L3-06), and a slow server needs its time for
/// all the rest.
const PATIENCE: Duration = Duration::from_secs(150);
/// The same for a check that restarts the server: its command and the server's start may take long.
const RESTARTED: Duration = Duration::from_secs(180);
/// How long a server may take to answer at all.
const READY: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_requirements_count_by_their_kind() {
        let broken = || Err(Stop::broken("sent", "this", "that"));
        assert!(matches!(verdict(Kind::Must, broken()), Verdict::Failed(_)));
        assert!(matches!(verdict(Kind::Should, broken()), Verdict::Warning(_)));
        for nobody_fails in [Kind::May, Kind::Ours] {
            assert!(matches!(verdict(nobody_fails, broken()), Verdict::NotRun(_)));
        }
        let other_form = || Err(Stop::OtherForm(Finding::new("sent", "this", "that")));
        for at_most_warned in [Kind::Must, Kind::Should] {
            assert!(matches!(verdict(at_most_warned, other_form()), Verdict::Warning(_)));
        }
        let unable = Err(Stop::unable("no model"));
        assert_eq!(verdict(Kind::Must, unable), Verdict::NotRun("no model".into()));
        assert_eq!(verdict(Kind::Ours, Ok(())), Verdict::Passed);
    }

    #[test]
    fn levels_are_cumulative_and_only_names_requirements_checks_or_levels() {
        let ids = |level, only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|id| id.to_string()).collect();
            let selection = Selection::new(level, &only).unwrap();
            selection.checks().iter().map(|check| check.id).collect()
        };
        let all = ids(Level::L2, &[]);
        assert!(all.contains(&"SBP-L1-01") && all.contains(&"SBP-L2-01"));
        assert!(!all.iter().any(|id| id.starts_with("SBP-L3")));
        assert_eq!(ids(Level::L2, &["sbp-l2-06"]), ["SBP-L2-06", "SBP-L2-06b"]);
        assert_eq!(ids(Level::L2, &["SBP-L2-06b"]), ["SBP-L2-06b"]);
        assert!(ids(Level::L2, &["SBP-L1"]).iter().all(|id| id.starts_with("SBP-L1")));
        let unknown = Selection::new(Level::L2, &["SBP-L3-01".into()]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no check `SBP-L3-01` up to this level");
        let of_relay = |only: &str| Selection::relay(&[only.to_owned()]);
        let tokens = of_relay("sbrp-token").unwrap();
        assert!(tokens.checks().iter().all(|check| check.id.starts_with("SBRP-TOKEN-")));
        let unknown = of_relay("SBP-L1-01").unwrap_err();
        assert_eq!(unknown.to_string(), "there is no check `SBP-L1-01` of a relay");
    }

    #[test]
    fn ids_are_unique_and_every_check_says_what_it_looks_at() {
        let all: Vec<_> = sbp::checks().chain(sbrp::checks()).collect();
        let ids: std::collections::BTreeSet<_> = all.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), all.len());
        for check in all {
            assert!(!check.what.is_empty() && !check.clause.is_empty(), "{check:?}");
        }
    }
}
