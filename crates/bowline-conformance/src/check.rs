//! A check: what is looked at, by which requirement, and how much it counts.

use std::fmt;
use std::pin::Pin;

use crate::group::Group;
use crate::trial::Trial;
use crate::verdict::Ended;

/// How much a requirement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Unmet, it is a failure.
    Must,
    /// Unmet, it is a warning.
    Should,
    /// Left to the server. Nobody fails it.
    May,
    /// An addition of Bowline's, which the protocol does not have. Nobody fails it.
    Ours,
}

impl Kind {
    /// One word for reports in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Must => "must",
            Kind::Should => "should",
            Kind::May => "may",
            Kind::Ours => "ours",
        }
    }

    /// Whether a server is asked for it at all: what is not, is no part of a level.
    pub fn counts(self) -> bool {
        matches!(self, Kind::Must | Kind::Should)
    }
}

/// What a check needs besides the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The suite's own model as the server's upstream.
    Model,
    /// A command that restarts the server.
    Restart,
    /// The suite's own gateway among the peers of the server.
    Peer,
}

/// The code of a check.
pub(crate) type Run = for<'a> fn(&'a Trial) -> Pin<Box<dyn Future<Output = Ended> + Send + 'a>>;

/// Makes a [`Run`] of an `async fn(&Trial) -> Ended`.
macro_rules! run {
    ($check:path) => {
        |trial| Box::pin($check(trial))
    };
}
pub(crate) use run;

/// One check of one requirement.
#[derive(Clone, Copy)]
pub struct Check {
    /// The requirement, such as `SBP-L2-06`, with a letter if it has several checks.
    pub id: &'static str,
    pub kind: Kind,
    /// What the server does if the check passes.
    pub what: &'static str,
    /// The words of the protocol that ask for it.
    pub clause: &'static str,
    pub needs: &'static [Need],
    /// Takes half a minute or more, because the protocol's own timers do; begun first.
    pub(crate) is_slow: bool,
    pub(crate) run: Run,
}

const fn check(
    id: &'static str,
    kind: Kind,
    what: &'static str,
    clause: &'static str,
    run: Run,
) -> Check {
    Check { id, kind, what, clause, needs: &[], is_slow: false, run }
}

pub(crate) const fn must(
    id: &'static str,
    what: &'static str,
    clause: &'static str,
    run: Run,
) -> Check {
    check(id, Kind::Must, what, clause, run)
}

pub(crate) const fn should(
    id: &'static str,
    what: &'static str,
    clause: &'static str,
    run: Run,
) -> Check {
    check(id, Kind::Should, what, clause, run)
}

pub(crate) const fn may(
    id: &'static str,
    what: &'static str,
    clause: &'static str,
    run: Run,
) -> Check {
    check(id, Kind::May, what, clause, run)
}

pub(crate) const fn ours(
    id: &'static str,
    what: &'static str,
    clause: &'static str,
    run: Run,
) -> Check {
    check(id, Kind::Ours, what, clause, run)
}

impl Check {
    pub(crate) const fn needing(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn slow(mut self) -> Self {
        self.is_slow = true;
        self
    }

    pub fn group(&self) -> Group {
        Group::of(self.id)
    }

    /// The requirement's id, without the letter of the check.
    pub fn requirement(&self) -> &'static str {
        self.id.trim_end_matches(|c: char| c.is_ascii_lowercase())
    }

    /// Takes half a minute or more, because the protocol's own timers do.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    pub fn needs(&self, need: Need) -> bool {
        self.needs.contains(&need)
    }

    /// Whether `--only` with this text means the check: its id, its requirement, or its group.
    pub fn is_named(&self, text: &str) -> bool {
        let group = format!("{}-{}", self.group().protocol(), self.group());
        [self.id, self.requirement(), &group].iter().any(|name| text.eq_ignore_ascii_case(name))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({})", self.id)
    }
}
