//! Why a run did not begin.

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("the server does not answer: {0}")]
    Unreachable(String),
    #[error("the server answered a turn without asking the suite's model at {0}")]
    OtherModel(String),
    #[error("the server answers {0} to POST /v1/sessions: it wants an API key, or another one")]
    NoKey(u16),
    #[error("the relay refuses the tokens of the suite's issuer {0}: {1}")]
    OtherIssuer(String, String),
}
