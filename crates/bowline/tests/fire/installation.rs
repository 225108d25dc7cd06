//! Three replicas on one PostgreSQL and one Redis, behind a load balancer of the test's own.

use std::sync::Mutex;

use bowline_servers::{Flush, Postgres, Redis};
use tempfile::TempDir;

use crate::passage::Passage;
use crate::process::Process;
use crate::reach::Reach;
use crate::world::quiet_port;

pub(crate) const REPLICAS: usize = 3;
const DATABASE: &str = "fire";

pub(crate) struct Installation {
    replicas: Vec<Replica>,
    pub(crate) postgres: Mutex<Postgres>,
    pub(crate) redis: Mutex<Redis>,
    reach: Reach,
    _balancer: Passage,
    _folder: TempDir,
}

/// A gateway, and its own ways to the servers.
pub(crate) struct Replica {
    process: Mutex<Option<Process>>,
    listen: String,
    data: std::path::PathBuf,
    environment: Vec<(&'static str, String)>,
    pub(crate) to_postgres: Passage,
    pub(crate) to_redis: Passage,
}

/// Clients reach it by the load balancer.
impl std::ops::Deref for Installation {
    type Target = Reach;

    fn deref(&self) -> &Reach {
        &self.reach
    }
}

impl Installation {
    /// Replicas whose built-in agents pause that long between two words.
    pub(crate) async fn start(pace: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (postgres, redis) = tokio::task::block_in_place(|| {
            let postgres = Postgres::start(Flush::On).unwrap();
            postgres.make_database(DATABASE).unwrap();
            (postgres, Redis::start().unwrap())
        });
        // All replicas have the same master secret: the first one makes the file.
        let secrets = folder.path().join("master.key").display().to_string();
        let mut replicas = Vec::new();
        for number in 0..REPLICAS {
            let to_postgres = Passage::to(vec![postgres.address()]).await;
            let to_redis = Passage::to(vec![redis.address()]).await;
            let environment = vec![
                ("BOWLINE_OFFLINE_PACE", pace.to_owned()),
                ("BOWLINE_STORE_URL", postgres.url_at(&to_postgres.address, DATABASE)),
                ("BOWLINE_BUS_URL", format!("redis://{}", to_redis.address)),
                ("BOWLINE_SECRETS_FILE", secrets.clone()),
            ];
            let replica = Replica {
                process: Mutex::default(),
                listen: format!("127.0.0.1:{}", quiet_port()),
                data: folder.path().join(format!("replica-{number}")),
                environment,
                to_postgres,
                to_redis,
            };
            tokio::task::block_in_place(|| replica.start());
            replicas.push(replica);
        }
        let balancer =
            Passage::to(replicas.iter().map(|replica| replica.listen.clone()).collect()).await;
        let reach = Reach::new(&balancer.address);
        Self {
            replicas,
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            reach,
            _balancer: balancer,
            _folder: folder,
        }
    }

    pub(crate) fn replica(&self, number: usize) -> &Replica {
        &self.replicas[number]
    }
}

impl Replica {
    /// Starts it, after it has ended.
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
        let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.unwrap().success());
    }
}
