//! Test fixture: the log of one test.
//!
//! Also used by the tests of the gateway.

use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// All that is logged by the thread of a test. What its tasks log belongs to it, as long as its runtime has no
/// other threads.
#[derive(Clone, Default)]
pub(crate) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(subscriber.finish()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The first line that says so.
    pub(crate) fn line(&self, what: &str) -> String {
        let text = self.text();
        let line = text.lines().find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("`{what}` is not logged: {text}")).to_owned()
    }
}

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
