//! Requirements that nobody can check from outside, and why. They are named in each report, so that nobody
//! takes its silence for a check.

use crate::report::Unseen;

const fn unseen(id: &'static str, why: &'static str) -> Unseen {
    Unseen { id, why }
}

pub(super) const UNSEEN: &[Unseen] = &[
    unseen(
        "SBRP-TOKEN",
        "in which order a token's rules are looked at: one is enough for a refusal",
    ),
    unseen("SBRP-TOKEN", "that keys are forgotten after five minutes takes longer than a run"),
    unseen("SBRP-TOKEN", "that tokens are in no log: the log is the operator's"),
    unseen(
        "SBRP-RELAY-07",
        "the limit on new connections: reaching it would lock the other checks out",
    ),
    unseen("SBRP-RELAY-17", "what an internal failure does: it would have to be caused inside"),
    unseen("SBRP-CRYPTO", "is kept by clients and daemons"),
    unseen("SBRP-CLIENT", "is kept by clients"),
    unseen("SBRP-DAEMON", "is kept by daemons"),
    unseen("SBRP-SDK", "is kept by clients and daemons"),
    unseen("SBRP-PEER", "is kept by clients and daemons (ours)"),
];
