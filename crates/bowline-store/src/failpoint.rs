//! Places where a test can make the process die: between the steps of what must happen whole (G8).
//!
//! Only with the feature `failpoints`, which tests switch on and nobody else: without it every
//! function here is empty. `FAILPOINTS=fork-edge=return` dies at that place as kill -9 would: no
//! destructor runs, nothing is flushed.

#[cfg(feature = "failpoints")]
pub use self::armed::{PLACES, begin, committed, pass, pass_as};
#[cfg(not(feature = "failpoints"))]
pub use self::unarmed::{begin, committed, pass, pass_as};

#[cfg(feature = "failpoints")]
mod armed {
    use std::cell::Cell;
    use std::sync::Once;

    /// Every place there is, in the order in which they are passed. `begin` is before the first
    /// write, `commit` before the commit, `committed` after it; `answer` is the engine's, when the
    /// store has answered and the caller has not been told.
    pub const PLACES: [&str; 35] = [
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
        /// What the writer is doing, from its first step to its commit.
        static DOING: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// An operation begins on this thread.
    pub fn begin(operation: &'static str) {
        DOING.set(Some(operation));
        pass("begin");
    }

    /// A step of the operation that began on this thread, if one did, is done.
    pub fn pass(place: &str) {
        if let Some(operation) = DOING.get() {
            pass_as(operation, place);
        }
    }

    /// The transaction of this thread is on disk.
    pub fn committed() {
        pass("committed");
        DOING.set(None);
    }

    /// The same for an operation that is not this thread's.
    pub fn pass_as(operation: &str, place: &str) {
        static READ: Once = Once::new();
        // What the environment says stands for as long as the process.
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
