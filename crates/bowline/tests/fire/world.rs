//! One gateway that is ended and started again at the same address.

use std::path::Path;
use std::time::{Duration, Instant};

use bowline_servers::quiet_port;
use tempfile::TempDir;

use crate::process::Process;
use crate::reach::Reach;

pub(crate) struct World {
    process: Process,
    folder: TempDir,
    /// The address that the gateway listens at.
    listen: String,
    environment: Vec<(&'static str, String)>,
    reach: Reach,
    /// Turns that were taken up after restarts.
    pub(crate) recovered: u64,
}

/// Clients reach it.
impl std::ops::Deref for World {
    type Target = Reach;

    fn deref(&self) -> &Reach {
        &self.reach
    }
}

impl World {
    /// A gateway whose built-in agent pauses that long between two words.
    pub(crate) fn start(pace: &'static str) -> Self {
        Self::started(tempfile::tempdir().unwrap(), pace, vec![])
    }

    /// The same with more settings, in a folder.
    pub(crate) fn started(
        folder: TempDir,
        pace: &'static str,
        mut environment: Vec<(&'static str, String)>,
    ) -> Self {
        environment.push(("BOWLINE_OFFLINE_PACE", pace.to_owned()));
        let listen = format!("127.0.0.1:{}", quiet_port());
        let process = begin(folder.path(), &listen, &environment);
        Self { reach: Reach::new(&listen), process, folder, listen, environment, recovered: 0 }
    }

    /// From now on surfaces and callers take these ways to the gateway: `HOST:PORT`.
    pub(crate) fn reached_by(&mut self, surfaces: &str, callers: &str) {
        self.reach.address = surfaces.to_owned();
        self.reach.caller_url = format!("http://{callers}");
        self.reach.replica_urls = vec![self.reach.caller_url.clone()];
    }

    /// From now on they connect to the gateway itself.
    pub(crate) fn reached_directly(&mut self) {
        self.reached_by(&self.listen.clone(), &self.listen.clone());
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// kill -9, then whatever happens to the data meanwhile, then the next one.
    pub(crate) fn crash(&mut self, meanwhile: impl FnOnce(&Path)) {
        tokio::task::block_in_place(|| self.process.kill());
        self.restart(meanwhile);
    }

    /// SIGTERM; gives how long the end took.
    pub(crate) fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        self.process.terminate();
        let status = tokio::task::block_in_place(|| self.process.ended());
        assert!(status.success(), "{status}");
        begun.elapsed()
    }

    /// Starts the next one, after the last has ended.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.record.restarted();
        tokio::task::block_in_place(|| {
            meanwhile(self.folder.path());
            self.process = begin(self.folder.path(), &self.listen, &self.environment);
        });
        self.recovered += self.process.recovered;
    }
}

fn begin(data: &Path, address: &str, environment: &[(&'static str, String)]) -> Process {
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, &**value)).collect();
    Process::start_at(data, address, &environment)
}
