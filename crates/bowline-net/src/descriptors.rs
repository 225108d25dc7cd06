//! The limit of open file descriptors. A server needs one per connection, and the usual soft limit
//! of 1,024 is meant for programs that use `select`; any process may raise it to the hard limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any server needs.
const WANTED: u64 = 1 << 20;

/// The limit before and after it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    pub before: u64,
    pub now: u64,
}

/// Raises the limit as far as the system allows; otherwise it stays as it is.
pub fn raise() -> Descriptors {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let before = current.unwrap_or(u64::MAX);
    let wanted = maximum.unwrap_or(u64::MAX).min(WANTED);
    let raised = Rlimit { current: Some(wanted), maximum };
    match wanted > before && setrlimit(Resource::Nofile, raised).is_ok() {
        true => Descriptors { before, now: wanted },
        false => Descriptors { before, now: before },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_never_lowered() {
        let first = raise();
        assert!(first.now >= first.before);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), first.now);
        assert_eq!(raise(), Descriptors { before: first.now, now: first.now });
    }
}
