//! A second server that follows the first one, and takes its place.

use anyhow::{Result, ensure};

use super::{Postgres, USER, as_somebody, empty_folder, run};
use crate::port::quiet_port;
use crate::server::until;

impl Postgres {
    /// Starts a server with a copy of this one's data that follows it. From then on a commit is
    /// acknowledged when both have it.
    pub fn standby(&self, name: &str) -> Result<Self> {
        let (programs, folder, port) = (self.programs.clone(), empty_folder()?, quiet_port());
        let primary =
            format!("host=127.0.0.1 port={} user={USER} application_name={name}", self.port);
        let copied = as_somebody(&programs.join("pg_basebackup"))
            .args([
                "--checkpoint=fast",
                "--wal-method=stream",
                "--no-sync",
                "--write-recovery-conf",
            ])
            .args(["--dbname", &primary, "--pgdata"])
            .arg(folder.path().join("data"))
            .current_dir("/")
            .output()?;
        ensure!(
            copied.status.success(),
            "pg_basebackup: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
        let settings = self.settings.clone();
        let server = run(&programs, folder.path(), port, &settings)?;
        let standby = Self { server, folder, programs, port, settings };
        // In two calls: ALTER SYSTEM stands alone.
        self.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))?;
        self.sql("postgres", "SELECT pg_reload_conf()")?;
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("the standby", || {
            self.sql("postgres", follows).is_ok_and(|synchronous| synchronous == "1")
        })?;
        Ok(standby)
    }

    /// Makes a standby the primary; returns when it can be written.
    pub fn promote(&self) -> Result<()> {
        let promoted = self.sql("postgres", "SELECT pg_promote(true, 60)")?;
        ensure!(promoted == "t", "the standby was not promoted in time");
        Ok(())
    }
}
