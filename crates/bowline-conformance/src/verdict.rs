//! What became of a check.

/// What was seen instead of what the protocol asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub sent: String,
    pub expected: String,
    pub came: String,
}

impl Finding {
    pub(crate) fn new(
        sent: impl Into<String>,
        expected: impl Into<String>,
        came: impl Into<String>,
    ) -> Self {
        Self { sent: sent.into(), expected: expected.into(), came: came.into() }
    }
}

/// What became of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// A SHOULD of the protocol that is not met.
    Warning(Finding),
    /// A MUST of the protocol that is not met.
    Failed(Finding),
    /// Nothing is known, and why.
    NotRun(String),
}

impl Verdict {
    /// One word for reports in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Warning(_) => "warning",
            Verdict::Failed(_) => "failed",
            Verdict::NotRun(_) => "not_run",
        }
    }

    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Verdict::Warning(finding) | Verdict::Failed(finding) => Some(finding),
            Verdict::Passed | Verdict::NotRun(_) => None,
        }
    }
}

/// Why a check did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The server does something else.
    Broken(Finding),
    /// The server does not have that part, which it need not have. How much that counts is the check's kind.
    NotOffered(Finding),
    /// It may have that in another form than the suite, and the protocol names none: never a failure.
    OtherForm(Finding),
    /// It cannot be seen here.
    Unable(String),
}

impl Stop {
    pub(crate) fn broken(
        sent: impl Into<String>,
        expected: impl Into<String>,
        came: impl Into<String>,
    ) -> Self {
        Stop::Broken(Finding::new(sent, expected, came))
    }

    /// The same result, or none if the server does not have that part.
    pub(crate) fn if_offered<T>(made: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match made {
            Ok(made) => Ok(Some(made)),
            Err(Stop::NotOffered(_)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    pub(crate) fn unable(reason: impl Into<String>) -> Self {
        Stop::Unable(reason.into())
    }
}

/// How a check ends.
pub(crate) type Ended = Result<(), Stop>;
