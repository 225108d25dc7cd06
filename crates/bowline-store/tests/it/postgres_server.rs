//! Test fixture: a real PostgreSQL for this process, with a fresh database for each test.
//!
//! It runs in a temporary folder on a random port of 127.0.0.1 and ends with this process, however that ends:
//! a shell that reads from a pipe of ours kills it when the pipe closes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bowline_servers::quiet_port;
use bowline_store::postgres::{Postgres, PostgresConfig};

/// What a test uses of a server.
#[derive(Debug)]
pub(crate) struct Server {
    binaries: PathBuf,
    /// The data, the socket and the log.
    folder: PathBuf,
    port: u16,
    /// As whom the server runs, if this is root: PostgreSQL refuses to.
    user: Option<String>,
    durable: bool,
    /// Its folder is removed when it ends.
    is_disposable: bool,
    running: Option<Running>,
}

/// A started server. When the pipe closes, it is killed.
#[derive(Debug)]
struct Running {
    watchdog: Child,
    pipe: Option<ChildStdin>,
    postmaster: u32,
}

/// The server of all contract tests of this process, and a database with the schema.
static SHARED: OnceLock<Server> = OnceLock::new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A store on a fresh database.
pub(crate) async fn fresh() -> Postgres {
    Postgres::open(&config(&fresh_url().await)).await.unwrap()
}

/// The URL of a fresh database that has the schema already.
pub(crate) async fn fresh_url() -> String {
    let server = tokio::task::spawn_blocking(shared).await.unwrap();
    server.new_database("made").await
}

/// A configuration with few connections: many tests run at once.
pub(crate) fn config(url: &str) -> PostgresConfig {
    let mut config = PostgresConfig::new(url).unwrap();
    config.connections = 3;
    config
}

/// The server that the contract tests share.
pub(crate) fn shared() -> &'static Server {
    SHARED.get_or_init(|| {
        // Nothing drops it at the end: the watchdog removes it.
        let mut server = Server::start(&tempfile::tempdir().unwrap().keep(), false);
        server.kill();
        server.is_disposable = true;
        server.up();
        // On a thread of its own: this one may be within a runtime.
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    server.run("postgres", "CREATE DATABASE made").await;
                    drop(Postgres::open(&config(&server.url("made"))).await.unwrap());
                    server.until_unused("made").await;
                });
            });
            made.join().unwrap();
        });
        server
    })
}

impl Server {
    /// Starts a server in an empty folder. `durable`: with `fsync`, which tests seldom need.
    pub(crate) fn start(folder: &Path, durable: bool) -> Self {
        let mut server = Self {
            binaries: binaries(),
            folder: folder.to_owned(),
            port: quiet_port(),
            user: unprivileged(),
            durable,
            is_disposable: false,
            running: None,
        };
        if let Some(user) = &server.user {
            let (uid, gid) = ids_of(user);
            chown(folder, Some(uid), Some(gid)).unwrap();
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        let data = server.folder.join("data");
        let made = server
            .command("initdb")
            .arg("--pgdata")
            .arg(&data)
            .args(["--username=bowline", "--auth=trust", "--encoding=UTF8", "--no-locale"])
            .args(["--no-sync", "--no-instructions"])
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.up();
        server
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://bowline@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// A new database, as a copy of that one; returns its URL.
    pub(crate) async fn new_database(&self, template: &str) -> String {
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        self.url(&name)
    }

    /// A plain connection to a database, beside the store.
    pub(crate) async fn client(&self, database: &str) -> tokio_postgres::Client {
        connected(&self.url(database)).await
    }

    /// Runs statements in a database.
    pub(crate) async fn run(&self, database: &str, sql: &str) {
        self.client(database).await.batch_execute(sql).await.unwrap();
    }

    async fn until_unused(&self, database: &str) {
        let client = self.client("postgres").await;
        let sql = "SELECT 1 FROM pg_stat_activity WHERE datname = $1";
        until(async || client.query_opt(sql, &[&database]).await.unwrap().is_none()).await;
    }

    /// Kills the server as a crash would: nothing is flushed.
    pub(crate) fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        drop(running.pipe.take());
        let _ = running.watchdog.wait();
        let path = format!("/proc/{}", running.postmaster);
        wait_for("the server to be gone", || !Path::new(&path).exists());
    }

    /// Starts the server on its data.
    pub(crate) fn up(&mut self) {
        let fsync = if self.durable { "on" } else { "off" };
        let sql_binary = self.binaries.join("postgres");
        // The server is in a process group of its own: SIGKILL to the group is a crash of the machine, but for
        // the page cache. Children of a killed postmaster end by themselves soon, but not at once.
        let script = format!(
            "set -m; \"$@\" >>{log} 2>&1 & echo $!; cat >/dev/null; \
             kill -KILL $(cat /proc/$!/task/$!/children 2>/dev/null) $! 2>/dev/null; wait $! 2>/dev/null; {remove}",
            log = self.folder.join("log").display(),
            remove = match self.is_disposable {
                true => format!("rm -rf {}", self.folder.display()),
                false => String::new(),
            },
        );
        let mut command = self.as_user("sh");
        command.args(["-c", &script, "sh"]).arg(sql_binary).arg("-D").arg(self.folder.join("data"));
        for setting in [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", self.folder.display()),
            format!("fsync={fsync}"),
            "max_connections=500".to_owned(),
            "shared_buffers=64MB".to_owned(),
            "max_wal_size=256MB".to_owned(),
            "autovacuum=off".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        let mut watchdog = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir(&self.folder)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(watchdog.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pipe = watchdog.stdin.take();
        let postmaster = line.trim().parse().unwrap();
        self.running = Some(Running { watchdog, pipe, postmaster });
        wait_for("the server to be ready", || {
            let port = self.port.to_string();
            let ready =
                self.command("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            ready.unwrap().success()
        });
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.as_user(self.binaries.join(name));
        command.current_dir(&self.folder);
        command
    }

    fn as_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.user {
            None => Command::new(program),
            Some(user) => {
                let (uid, gid) = ids_of(user);
                let mut command = Command::new("setpriv");
                command
                    .args([format!("--reuid={uid}"), format!("--regid={gid}")])
                    .arg("--clear-groups")
                    .arg(program);
                command
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A plain connection.
pub(crate) async fn connected(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Polls until it is so.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where the programs of PostgreSQL are: those of the newest version.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            Some((number, version.path().join("bin")))
        })
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, folder)| folder);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = newest.into_iter().chain(std::env::split_paths(&path));
    all.into_iter().find(|folder| folder.join("initdb").exists()).unwrap_or_else(|| {
        panic!(
            "error: these tests need PostgreSQL, and there is no initdb\n\
             hint: tools/servers installs it (or: apt-get install postgresql)"
        )
    })
}

/// A user without rights, if this is root.
fn unprivileged() -> Option<String> {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    is_root.then(|| {
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let is_there = known.lines().any(|line| line.starts_with("postgres:"));
        if is_there { "postgres".to_owned() } else { "nobody".to_owned() }
    })
}

fn ids_of(user: &str) -> (u32, u32) {
    let known = fs::read_to_string("/etc/passwd").unwrap();
    let line = known.lines().find(|line| line.split(':').next() == Some(user)).unwrap();
    let mut fields = line.split(':').skip(2);
    let mut next = || fields.next().unwrap().parse().unwrap();
    (next(), next())
}
