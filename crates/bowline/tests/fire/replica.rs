//! One of several gateways on one database, which a test starts, kills, stops and puts to sleep.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use bowline_servers::quiet_port;

use crate::process::Process;

pub(crate) struct Replica {
    process: Mutex<Option<Process>>,
    /// `HOST:PORT`, the same after each start.
    pub(crate) listen: String,
    data: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Replica {
    /// The one of that number in an installation's folder, not started yet.
    pub(crate) fn new(
        folder: &Path,
        number: usize,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        Self {
            process: Mutex::default(),
            listen: format!("127.0.0.1:{}", quiet_port()),
            data: folder.join(format!("replica-{number}")),
            environment,
        }
    }

    /// Starts it, also after it has ended.
    pub(crate) fn start(&self) {
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (*name, &**value)).collect();
        let process = Process::start_at(&self.data, &self.listen, &environment);
        *self.process.lock().unwrap() = Some(process);
    }

    /// kill -9.
    pub(crate) fn kill(&self) {
        self.process.lock().unwrap().take().unwrap().kill();
    }

    /// SIGTERM, and its end.
    pub(crate) fn stop(&self) {
        let mut process = self.process.lock().unwrap().take().unwrap();
        process.terminate();
        let status = process.ended();
        assert!(status.success(), "{status}");
    }

    /// SIGSTOP, or SIGCONT.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.lock().unwrap().as_ref().unwrap().pid().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.unwrap().success());
    }
}
