//! Three gateways on a database of their own. The servers are shared by all scenes that run at the same time.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bowline_servers::{Flush, Postgres, Redis};
use tempfile::TempDir;

use crate::client::{Client, Session};
use crate::process::{DEADLINE, bowline};
use crate::replica::Replica;

pub(crate) const REPLICAS: usize = 3;
/// The owner's key, in the configuration of every replica.
pub(crate) const KEY: &str = "bk_of_the_owner_in_every_configuration";

/// PostgreSQL and Redis.
pub(crate) struct Servers {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
}

impl Servers {
    /// Those that run, or new ones. They end with the last scene that has them.
    pub(crate) fn shared() -> Arc<Self> {
        static RUNNING: Mutex<Weak<Servers>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap();
        running.upgrade().unwrap_or_else(|| {
            let postgres = Postgres::start(Flush::Off).unwrap();
            let servers = Arc::new(Self { postgres, redis: Redis::start().unwrap() });
            *running = Arc::downgrade(&servers);
            servers
        })
    }

    /// The name of a new, empty database.
    pub(crate) fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("scene_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.postgres.make_database(&name).unwrap();
        name
    }
}

/// The addresses of a database and of a Redis.
pub(crate) struct Addresses {
    pub(crate) store: String,
    pub(crate) bus: String,
}

impl Addresses {
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("BOWLINE_STORE_URL", self.store.clone()),
            ("BOWLINE_BUS_URL", self.bus.clone()),
            ("BOWLINE_AUTH_API_KEYS", KEY.to_owned()),
        ]
    }
}

/// A gateway by itself, with a new data folder; what it logs goes to the file `log` in there.
pub(crate) fn gateway(data: &Path, addresses: &Addresses) -> Command {
    std::fs::create_dir(data).unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.envs(addresses.environment());
    command.stderr(File::create(data.join("log")).unwrap());
    command
}

pub(crate) fn log_of(data: &Path) -> String {
    std::fs::read_to_string(data.join("log")).unwrap()
}

/// The exit code and the words of such a gateway that does not start.
pub(crate) fn refusal(mut command: Command, data: &Path) -> String {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("it runs: {}", log_of(data));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let log = log_of(data);
    // Lines of the log may come before its own words.
    let said = &log[log.find("error: ").unwrap_or_else(|| panic!("{status}: {log}"))..];
    format!("exit code {}\n{said}", status.code().unwrap())
}

/// Ends in the order of its fields: gateways before their servers.
pub(crate) struct Installation {
    replicas: Vec<Replica>,
    clients: Vec<Client>,
    pub(crate) addresses: Addresses,
    shared: Option<(Arc<Servers>, String)>,
    pub(crate) folder: TempDir,
}

impl Installation {
    /// With these settings, as a configuration file has them.
    pub(crate) fn start(settings: &str) -> Self {
        Self::made(settings, &[])
    }

    /// With built-in agents that pause that long between two words.
    pub(crate) fn paced(pace: &str) -> Self {
        Self::made("", &[("BOWLINE_OFFLINE_PACE", pace.to_owned())])
    }

    /// With PostgreSQL alone, which carries the messages, too.
    pub(crate) fn without_redis(settings: &str, pace: &str) -> Self {
        Self::with_bus(
            |_| "postgres".to_owned(),
            settings,
            &[("BOWLINE_OFFLINE_PACE", pace.to_owned())],
        )
    }

    fn made(settings: &str, environment: &[(&'static str, String)]) -> Self {
        Self::with_bus(|servers| servers.redis.url(), settings, environment)
    }

    fn with_bus(
        bus: impl Fn(&Servers) -> String,
        settings: &str,
        environment: &[(&'static str, String)],
    ) -> Self {
        let servers = Servers::shared();
        let database = servers.database();
        let addresses = Addresses { store: servers.postgres.url(&database), bus: bus(&servers) };
        let mut installation = Self::at(addresses, settings, environment);
        installation.shared = Some((servers, database));
        installation
    }

    /// With servers of the scene's own, and more of the environment.
    pub(crate) fn at(
        addresses: Addresses,
        settings: &str,
        environment: &[(&'static str, String)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(file("bowline.toml"), settings).unwrap();
        let mut variables = addresses.environment();
        // The first one makes it.
        variables.push(("BOWLINE_SECRETS_FILE", file("master.key")));
        variables.push(("BOWLINE_CONFIG", file("bowline.toml")));
        variables.extend_from_slice(environment);
        let replicas: Vec<_> = (0..REPLICAS)
            .map(|number| Replica::new(folder.path(), number, variables.clone()))
            .collect();
        replicas.iter().for_each(Replica::start);
        let clients = replicas.iter().map(|replica| Client::new(&replica.listen, KEY)).collect();
        Self { replicas, clients, addresses, shared: None, folder }
    }

    pub(crate) fn replica(&self, number: usize) -> &Replica {
        &self.replicas[number]
    }

    /// A client of each, which shows the owner's key.
    pub(crate) fn clients(&self) -> [&Client; REPLICAS] {
        std::array::from_fn(|number| &self.clients[number])
    }

    /// Runs a query in its database.
    pub(crate) fn sql(&self, query: &str) -> String {
        let (servers, database) = self.shared.as_ref().expect("it has shared servers");
        servers.postgres.sql(database, query).unwrap()
    }

    /// Whether that replica owns a session.
    pub(crate) async fn owns(&self, number: usize, session: &Session) -> bool {
        let owner = self.sql(&format!("SELECT owner FROM sessions WHERE id = '{}'", session.id));
        let replica = &self.clients[number].get("/readyz").await.body["replica"];
        owner == replica.as_str().unwrap()
    }
}
