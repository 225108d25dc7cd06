//! Failpoints: a test can abort the process between the steps of an atomic operation (G8).
//!
//! Only with the feature `failpoints`, which only tests enable: without it every function here is
//! empty. `FAILPOINTS=fork-edge=return` aborts there like kill -9: no destructor runs, nothing is
//! flushed.

#[cfg(feature = "failpoints")]
pub use self::armed::{PLACES, begin, committed, pass, pass_as};
#[cfg(not(feature = "failpoints"))]
pub use self::unarmed::{begin, committed, pass, pass_as};

#[cfg(feature = "failpoints")]
mod armed {
    use std::cell::Cell;
    use std::sync::Once;

    /// All failpoints, in the order in which they are passed. `begin` is before the first write,
    /// `commit` before the commit, `committed` after it; `answer` is in the engine, between the
    /// store's answer and the reply to the caller.
    pub const PLACES: [&str; 37] = [
        "import-begin",
        "import-session",
        "import-entries",
        "import-delivered",
        "import-carried",
        "import-memories",
        "import-used-up",
        "import-edge",
        "import-key",
        "import-commit",
        "import-committed",
        "import-answer",
        "fork-begin",
        "fork-session",
        "fork-base",
        "fork-carried",
        "fork-instruction",
        "fork-log",
        "fork-edge",
        "fork-key",
        "fork-commit",
        "fork-committed",
        "fork-answer",
        "handoff-begin",
        "handoff-retired",
        "handoff-session",
        "handoff-base",
        "handoff-carried",
        "handoff-instruction",
        "handoff-log",
        "handoff-export",
        "handoff-used-up",
        "handoff-edge",
        "handoff-key",
        "handoff-commit",
        "handoff-committed",
        "handoff-answer",
    ];

    thread_local! {
        /// The operation of this thread, from its first step to its commit.
        static DOING: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// An operation begins on this thread.
    pub fn begin(operation: &'static str) {
        DOING.set(Some(operation));
        pass("begin");
    }

    /// A failpoint of the operation that began on this thread, if any.
    pub fn pass(place: &str) {
        if let Some(operation) = DOING.get() {
            pass_as(operation, place);
        }
    }

    /// The transaction of this thread is committed.
    pub fn committed() {
        pass("committed");
        DOING.set(None);
    }

    /// A failpoint of an operation that runs on another thread.
    pub fn pass_as(operation: &str, place: &str) {
        static READ: Once = Once::new();
        // Never torn down: the environment applies to the whole process.
        READ.call_once(|| std::mem::forget(fail::FailScenario::setup()));
        let name = format!("{operation}-{place}");
        assert!(PLACES.contains(&name.as_str()), "{name} is missing in the list");
        fail::fail_point!(&name, |_| std::process::abort());
    }
}

#[cfg(not(feature = "failpoints"))]
mod unarmed {
    pub fn begin(_: &str) {}
    pub fn pass(_: &str) {}
    pub fn committed() {}
    pub fn pass_as(_: &str, _: &str) {}
}
