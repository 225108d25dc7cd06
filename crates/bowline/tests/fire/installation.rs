//! Three replicas on one PostgreSQL and one Redis, behind a load balancer of the test's own.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bowline_checker::Anomaly;
use bowline_servers::{Flush, Postgres, Redis};
use futures_util::future::join_all;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::owners;
use crate::passage::Passage;
use crate::process::DEADLINE;
use crate::reach::{Reach, Session};
use crate::replica::Replica;
use crate::seed::scale;
use crate::surface::Taste;

pub(crate) const REPLICAS: usize = 3;
/// How long an installation may take to recover by itself from anything. The promise is 15 s; where all
/// other tests run beside it, a machine that is busy is no fault.
fn healed_within() -> Duration {
    Duration::from_secs(scale(60, 15) as u64)
}

/// How long one look at a replica may wait for an answer before it looks again.
fn answered_within() -> Duration {
    Duration::from_secs(scale(15, 5) as u64)
}

pub(crate) const DATABASE: &str = "fire";

pub(crate) struct Installation {
    members: Vec<Member>,
    pub(crate) postgres: Mutex<Postgres>,
    pub(crate) redis: Mutex<Redis>,
    reach: Reach,
    /// Sessions that were made to see whether a replica is well.
    probes: Mutex<Vec<Session>>,
    _balancer: Passage,
    _folder: TempDir,
}

/// A replica, and its own ways to the servers.
pub(crate) struct Member {
    replica: Replica,
    pub(crate) to_postgres: Passage,
    pub(crate) to_redis: Passage,
}

impl std::ops::Deref for Member {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.replica
    }
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
        let mut members = Vec::new();
        for number in 0..REPLICAS {
            let to_postgres = Passage::to(vec![postgres.address()]).await;
            let to_redis = Passage::to(vec![redis.address()]).await;
            let mut environment = vec![
                ("BOWLINE_OFFLINE_PACE", pace.to_owned()),
                ("BOWLINE_STORE_URL", postgres.url_at(&to_postgres.address, DATABASE)),
                ("BOWLINE_BUS_URL", format!("redis://{}", to_redis.address)),
                ("BOWLINE_SECRETS_FILE", secrets.clone()),
                // A device that says nothing is soon given up.
                ("BOWLINE_TOOLS_TIMEOUT", "2s".to_owned()),
                ("BOWLINE_TOOLS_APPROVAL_TIMEOUT", "1s".to_owned()),
            ];
            // To see more of a run that failed.
            if let Ok(level) = std::env::var("FIRE_LOG") {
                environment.push(("BOWLINE_LOG_LEVEL", level));
            }
            let replica = Replica::new(folder.path(), number, environment);
            tokio::task::block_in_place(|| replica.start());
            if number == 0 {
                // The first one has made the tables.
                tokio::task::block_in_place(|| owners::watch(&postgres));
            }
            members.push(Member { replica, to_postgres, to_redis });
        }
        let balancer =
            Passage::to(members.iter().map(|member| member.listen.clone()).collect()).await;
        let mut reach = Reach::new(&balancer.address);
        reach.replica_urls = members.iter().map(Member::url).collect();
        Self {
            members,
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            reach,
            probes: Mutex::default(),
            _balancer: balancer,
            _folder: folder,
        }
    }

    pub(crate) fn replica(&self, number: usize) -> &Member {
        &self.members[number]
    }

    /// Waits until each replica is as good as new: ready, with nothing degraded, and answers callers and
    /// surfaces itself. Fails if that takes longer than an installation may need.
    pub(crate) async fn healed(&self) {
        let troubles = [const { Mutex::new(String::new()) }; REPLICAS];
        let all = join_all(troubles.iter().enumerate().map(async |(number, trouble)| {
            while let Err(why) = self.is_well(number).await {
                *trouble.lock().unwrap() = why;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            trouble.lock().unwrap().clear();
        }));
        let healed = timeout(healed_within(), all).await;
        assert!(healed.is_ok(), "not well after {:?}: {troubles:?}", healed_within());
    }

    /// Whether a replica is ready, and serves a caller and a surface.
    async fn is_well(&self, number: usize) -> Result<(), String> {
        self.replica(number).id().await?;
        let at = self.reach_at(number);
        let caller = at.caller();
        let opened = timeout(answered_within(), caller.open("are you well")).await;
        let session = opened.ok().flatten().ok_or("it answers no caller")?;
        self.probes.lock().unwrap().push(session.clone());
        let attached = timeout(answered_within(), at.attach(&session, Taste::Whole)).await;
        let mut surface = attached.ok().and_then(Result::ok).ok_or("it attaches no surface")?;
        let turn = timeout(answered_within(), surface.turn()).await;
        turn.ok().and_then(Result::ok).ok_or("a surface gets no turn")?;
        Ok(())
    }

    /// The way to one replica alone.
    pub(crate) fn reach_at(&self, number: usize) -> Reach {
        let (replica, all) = (self.replica(number), self.reach.clone());
        let url = replica.url();
        let (caller_url, own_url, replica_urls) = (url.clone(), url.clone(), vec![url]);
        Reach { address: replica.listen.clone(), caller_url, own_url, replica_urls, ..all }
    }

    /// How much that replica has written to sessions that it owned.
    pub(crate) fn writes_of(&self, replica: &str) -> u64 {
        let postgres = self.postgres.lock().unwrap();
        tokio::task::block_in_place(|| owners::writes_of(&postgres, replica))
    }

    /// Compares what everybody was told with what is there, and looks who wrote it.
    pub(crate) async fn verdict(&self, sessions: &[Session]) -> Vec<Anomaly> {
        {
            let postgres = self.postgres.lock().unwrap();
            tokio::task::block_in_place(|| owners::tell(&postgres, &self.record));
        }
        let mut sessions = sessions.to_vec();
        sessions.append(&mut self.probes.lock().unwrap());
        self.reach.verdict(&sessions).await
    }
}

impl Member {
    fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// What it calls itself. It may have to answer more than once until it is ready.
    pub(crate) async fn id_when_ready(&self) -> String {
        let begun = Instant::now();
        loop {
            match self.id().await {
                Ok(id) => return id,
                Err(why) => assert!(begun.elapsed() < DEADLINE, "not ready: {why}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What it calls itself, if it is ready.
    pub(crate) async fn id(&self) -> Result<String, String> {
        let said = reqwest::Client::new().get(format!("{}/readyz", self.url()));
        let said =
            said.timeout(answered_within()).send().await.map_err(|error| error.to_string())?;
        let said: Value = said.json().await.map_err(|error| error.to_string())?;
        match (said["status"].as_str(), said["degraded"].as_array()) {
            (Some("ready"), Some(degraded)) if degraded.is_empty() => {
                Ok(said["replica"].as_str().unwrap().to_owned())
            }
            _ => Err(said.to_string()),
        }
    }
}
