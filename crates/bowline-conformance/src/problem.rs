//! Why a run did not begin.

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("the server does not answer: {0}")]
    Unreachable(String),
    #[error("the server answered a turn without asking the suite's model at {0}")]
    OtherModel(String),
    #[error("the relay refuses the tokens of the suite's issuer {0}: {1}")]
    OtherIssuer(String, String),
}
