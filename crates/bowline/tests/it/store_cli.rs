//! `bowline store`, and a gateway whose store is PostgreSQL, as somebody at the command line meets them.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

use bowline_servers::{Flush, Postgres};
use serde_json::Value;

use crate::process::{Process, bowline, session_of};

/// One server for all tests of this process.
static SERVER: LazyLock<Mutex<Postgres>> =
    LazyLock::new(|| Mutex::new(Postgres::start(Flush::Off).expect("PostgreSQL starts")));
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A new, empty database: its name, and its URL.
fn database() -> (String, String) {
    let name = format!("cli_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    let server = SERVER.lock().unwrap();
    server.make_database(&name).unwrap();
    let url = server.url(&name);
    (name, url)
}

fn sql(database: &str, statements: &str) -> String {
    SERVER.lock().unwrap().sql(database, statements).unwrap()
}

fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    bowline().args(args).envs(environment.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn json_of(args: &[&str], environment: &[(&str, &str)]) -> Value {
    let output = run(args, environment);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

/// The exit code of a command that fails, and what it says.
fn fails(args: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let output = run(args, environment);
    assert!(!output.status.success(), "{args:?}: {}", said(&output));
    (output.status.code().unwrap(), said(&output))
}

fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.display())
}

#[test]
fn a_database_is_migrated_once_and_checked() {
    let (name, url) = database();
    let store = [("BOWLINE_STORE_URL", url.as_str())];
    let first = json_of(&["store", "migrate", "--json"], &store);
    assert_eq!(first["from"], 0);
    assert_ne!(first["to"], 0);
    let again = run(&["store", "migrate"], &store);
    assert!(said(&again).contains("nothing to do"), "{}", said(&again));
    let report = json_of(&["store", "check", "--json", "--all"], &store);
    assert_eq!(report["schema_version"], first["to"]);
    assert_eq!((&report["rows"]["sessions"], &report["replicas"]), (&0.into(), &0.into()));
    sql(&name, "UPDATE bowline SET version = 99");
    let (code, text) = fails(&["store", "migrate"], &store);
    assert!(
        code == 1 && text.contains("schema version 99") && text.contains("newer bowline"),
        "{text}"
    );
}

#[test]
fn every_problem_with_a_database_says_what_happened_and_what_to_do() {
    let (name, url) = database();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let gateway = |url: &str| {
        let environment = [("BOWLINE_STORE_URL", url)];
        fails(&["gateway", "run", "--listen", "127.0.0.1:0", "--data", data], &environment)
    };
    let closed = "postgres://me:hunter22@127.0.0.1:1/b";
    let missing = url.replace(&name, "no_such_database");
    sql(&name, "CREATE TABLE somebody_elses (x int)");
    for (url, code, says, hint) in [
        (closed, 5, "refused", "check that the server runs"),
        (missing.as_str(), 4, "does not exist", "createdb"),
        (url.as_str(), 1, "is not a bowline database", "?schema=NAME"),
        ("postgres://me:hunter22@h:port/b", 2, "`store.url` is wrong", "postgres://USER@HOST"),
        ("postgre://me:hunter22@h/b", 2, "did you mean postgres://", "BOWLINE_STORE_URL="),
    ] {
        let (found, text) = gateway(url);
        assert!(found == code && text.contains(says) && text.contains(hint), "{found}: {text}");
        assert!(!text.contains("hunter22"), "{text}");
    }
    let doctor = run(&["doctor", "--data", data, "--json"], &[("BOWLINE_STORE_URL", closed)]);
    assert!(said(&doctor).contains("check that the server runs"), "{}", said(&doctor));
    assert!(!said(&doctor).contains("hunter22"));
    let shown = run(&["config", "show", "store", "--store", closed], &[]);
    assert!(said(&shown).contains("postgres://me@127.0.0.1:1/b"), "{}", said(&shown));
    assert!(said(&shown).contains("can see the password in --store"), "{}", said(&shown));
    assert!(!said(&shown).contains("hunter22"));
    let (code, text) = fails(&["up", "--data", data, "--bus", "redis://:hunter22@h"], &[]);
    assert!(code == 2 && text.contains("a SQLite database has one process"), "{text}");
    assert!(!text.contains("hunter22"));
    let (code, text) =
        fails(&["backup", "create", "x.tar", "--data", data], &[("BOWLINE_STORE_URL", closed)]);
    assert!(code == 3 && text.contains("pg_dump"), "{text}");
}

#[tokio::test]
async fn g2_a_gateways_sessions_are_copied_to_postgresql_and_back() {
    let (folder, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, url) = database();
    let mut gateway = Process::start(folder.path());
    let session = session_of(&gateway.say(None, "echo one").await);
    gateway.say(Some(&session), "echo two").await;
    let log = gateway.log(&session).await;
    let from = sqlite(folder.path());
    let file = folder.path().join("store.url");
    std::fs::write(&file, &url).unwrap();
    let to = format!("@{}", file.display());
    let copy = ["store", "copy", "--from", &from, "--to", &to];
    let (code, text) = fails(&copy, &[]);
    assert!(text.contains("another bowline is using"), "{code} {text}");
    gateway.terminate();
    gateway.ended();
    let copied = run(&copy, &[]);
    assert!(copied.status.success(), "{}", said(&copied));
    assert!(said(&copied).contains("1 sessions, 4 messages"), "{}", said(&copied));
    let (code, text) = fails(&copy, &[]);
    assert!(code == 3 && text.contains("is not empty"), "{text}");
    let (code, text) =
        fails(&["store", "copy", "--from", &from, "--to", "mysql://x:hunter22@h"], &[]);
    assert!(code == 2 && text.contains("--to") && !text.contains("hunter22"), "{text}");
    let report = json_of(&["store", "check", "--json"], &[("BOWLINE_STORE_URL", &url)]);
    assert_eq!((&report["rows"]["sessions"], &report["rows"]["entries"]), (&1.into(), &4.into()));
    let report =
        json_of(&["store", "copy", "--from", &to, "--to", &sqlite(back.path()), "--json"], &[]);
    assert_eq!((&report["resumed"], &report["logs_compared"]), (&false.into(), &1.into()));
    // The sealed secrets open with the same master secret.
    std::fs::copy(folder.path().join("secrets.key"), back.path().join("secrets.key")).unwrap();
    let gateway = Process::start(back.path());
    assert_eq!(gateway.log(&session).await, log);
}
