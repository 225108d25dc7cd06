//! Copies between SQLite and PostgreSQL: everything arrives, an interrupted copy is resumed, and what is in use
//! is left alone.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bowline_sbp::access::OWNER;
use bowline_store::copy::{CopyError, CopyReport, Place, Progress, Step, check, copy};
use bowline_store::postgres::Postgres;
use bowline_store::sqlite::{FILE, Sqlite};
use bowline_store::{OpenError, Upkeep as _};
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use crate::fixture::S;
use crate::postgres_server::{config, connected, fresh_url};
use crate::schema_3::{copied, memories_are_there};

/// What an older version stored, and rows of everything that was added since.
async fn source() -> tempfile::TempDir {
    let folder = copied();
    let store = Sqlite::open(folder.path()).unwrap();
    store.close().await;
    drop(store);
    let conn = open(folder.path());
    let session: i64 =
        conn.query_row("SELECT max(key) FROM sessions", [], |row| row.get(0)).unwrap();
    let bytes = vec![7u8; 100_000];
    let cid = Sha256::digest(&bytes).to_vec();
    conn.execute("INSERT INTO blobs VALUES (?1, ?2)", params![cid, bytes]).unwrap();
    conn.execute("INSERT INTO blob_uses VALUES (?1, ?2)", params![cid, (session << 32) + 1])
        .unwrap();
    // PostgreSQL's text has no U+0000.
    conn.execute("UPDATE sessions SET title = ?1 WHERE key = ?2", params!["a\0b\u{1}0c", session])
        .unwrap();
    conn.execute(
        "INSERT INTO keys (scope, key, body_hash, session, created_at) VALUES (?1, ?2, x'00', ?3, 5)",
        params!["s\0", "k\0\u{1}", session],
    )
    .unwrap();
    let rows = format!(
        "INSERT INTO users (id, name, role, created_at)
             VALUES (x'00000000000000000000000000000007', 'Ada', 'member', 1);
         INSERT INTO user_keys (id, user, name, secret_hash, scopes, agents, models, created_at, device)
             VALUES ('k1', x'00000000000000000000000000000007', 'phone', x'0102', 'turns', '', '', 2, x'03');
         INSERT INTO shares VALUES ({session}, x'00000000000000000000000000000007', 'read');
         INSERT INTO grants VALUES ({session}, 'camera', 'phone', '{{}}', 3);
         INSERT INTO tool_pins VALUES ('t', '{{}}', 4);
         INSERT INTO instructions VALUES ({session}, '[]');
         INSERT INTO spending VALUES (20000, x'00000000000000000000000000000007', '', 1, 2, 3, 4, 5, 6);
         INSERT INTO audit (at, credential, action, object, result, address, times)
             VALUES (1, 'c', 'a', 'o', 'r', '127.0.0.1', 1);
         DELETE FROM audit;
         INSERT INTO peer_tokens VALUES ('a', x'00000000000000000000000000000008', 5);
         INSERT INTO reservations VALUES (x'00000000000000000000000000000009', 'b',
             x'0000000000000000000000000000000a', x'0000000000000000000000000000000b',
             x'0000000000000000000000000000000c', x'0102', 'ended', 6, 7, 8);
         INSERT INTO forwards VALUES (x'0000000000000000000000000000000a', 'b', 'https://b.example',
             x'0000000000000000000000000000000d', 9);
         INSERT INTO migrations VALUES (x'0000000000000000000000000000000e', 'c',
             x'0000000000000000000000000000000f', x'00000000000000000000000000000007', '{{}}',
             'staged', NULL, NULL, 10);
         INSERT INTO staged VALUES (x'0000000000000000000000000000000e', x'7b7d');
         INSERT INTO peers VALUES ('c', 'https://c.example', x'0304', 11, NULL);
         INSERT INTO trunks (key, agent_id) VALUES ({trunk}, 'gone');
         INSERT OR REPLACE INTO secrets VALUES ('gateway-identity', x'01020304'), ('probe', x'00');
         UPDATE sessions SET base_key = {trunk}, base_seq = 1,
                user = x'00000000000000000000000000000007' WHERE key = {session};",
        trunk = session + 1,
    );
    conn.execute_batch(&rows).unwrap();
    let mut entry = conn
        .prepare(
            "INSERT INTO entries (place, kind, turn_id, message, cost_usd, status, step, created_at, caller)
             VALUES (?1, 0, x'00000000000000000000000000000001', ?2, 0.1, 'complete', 0, 9, -1)",
        )
        .unwrap();
    for seq in 1..=1200 {
        let message = format!("{{\"role\":\"user\",\"content\":\"{seq}\"}}");
        entry.execute(params![((session + 1) << 32) + seq, message]).unwrap();
    }
    drop(entry);
    folder
}

fn open(folder: &Path) -> Connection {
    Connection::open(folder.join(FILE)).unwrap()
}

/// All rows of the tables that are copied, without what belongs to a process.
fn contents(folder: &Path) -> Vec<String> {
    let conn = open(folder);
    conn.execute_batch("UPDATE sessions SET owner = NULL").unwrap();
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '%\\_words%' ESCAPE '\\'
                 AND name NOT IN ('replicas', 'usage', 'indexed', 'purge', 'access_revision',
                                  'replica_counts', 'upkeep', 'pairing_codes',
                                  'pairing_tries') ORDER BY name";
    let mut names = conn.prepare(names).unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let mut all = Vec::new();
    for table in names {
        let only = if table == "secrets" { "WHERE name <> 'probe'" } else { "" };
        let mut statement = conn.prepare(&format!("SELECT * FROM {table} {only}")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
            all.push(format!("{table}: {values:?}"));
        }
    }
    all.sort();
    all
}

fn sqlite(folder: &tempfile::TempDir) -> Place {
    Place::Sqlite(folder.path().to_owned())
}

fn postgres(url: &str) -> Place {
    Place::Postgres(Box::new(config(url)))
}

async fn copied_to(from: &Place, to: &Place) -> Result<CopyReport, CopyError> {
    copy(from, to, &|_| {}).await
}

/// Copies until some rows of that table are stored, and is then cut off as by a crash.
async fn interrupted(from: &Place, to: &Place, table: &str) {
    let seen = Notify::new();
    let progress = |progress: Progress| {
        if progress.table == table && progress.step == Step::Copying {
            seen.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = seen.notified() => {}
        done = copy(from, to, &progress) => panic!("it was not cut off: {done:?}"),
    }
}

#[tokio::test]
async fn g2_everything_arrives_in_postgresql_and_comes_back() {
    let (folder, back) = (source().await, tempfile::tempdir().unwrap());
    let url = fresh_url().await;
    let tables = Mutex::new(Vec::new());
    let progress = |progress: Progress| {
        assert!(progress.rows <= progress.of, "{progress:?}");
        tables.lock().unwrap().push((progress.step, progress.table));
    };
    let report = copy(&sqlite(&folder), &postgres(&url), &progress).await.unwrap();
    assert!(!report.resumed && report.rows_of("entries") > 1200 && report.logs > 2, "{report:?}");
    assert!(tables.lock().unwrap().contains(&(Step::Comparing, "entries")));
    let report = copied_to(&postgres(&url), &sqlite(&back)).await.unwrap();
    assert_eq!(report.rows_of("blobs"), 1);
    assert_eq!(contents(back.path()), contents(folder.path()));
    // Gateways open both.
    Sqlite::open(back.path()).unwrap();
    let store: S = Arc::new(Postgres::open(&config(&url)).await.unwrap());
    memories_are_there(&store).await;
    let client = connected(&url).await;
    // A trunk belongs to the user of its fork.
    let sql = "SELECT bool_and(s.user_id = t.user_id) AND bool_or(t.user_id <> $1)
               FROM trunks t JOIN sessions s ON s.base = t.id";
    assert!(client.query_one(sql, &[&OWNER.0]).await.unwrap().get::<_, bool>(0));
    // What is new gets a number above all that were given.
    let sql = "SELECT nextval(pg_get_serial_sequence('audit', 'number'))";
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 2);
    let sql = "SELECT nextval(pg_get_serial_sequence('sessions', 'number'))
                   > (SELECT max(number) FROM trunks)";
    assert!(client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0));
    for place in [sqlite(&back), postgres(&url)] {
        let report = check(&place, true).await.unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.blobs_read, 1);
    }
}

#[tokio::test]
async fn g2_a_copy_that_was_cut_off_is_resumed_and_nothing_opens_it_before() {
    let folder = source().await;
    let url = fresh_url().await;
    let (from, to) = (sqlite(&folder), postgres(&url));
    interrupted(&from, &to, "entries").await;
    let refused = Postgres::open(&config(&url)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Copying { .. }), "{refused}");
    let problems = check(&to, false).await.unwrap().problems;
    assert!(problems[0].contains("did not finish"), "{problems:?}");
    let other = source().await;
    let refused = eventually_copied(&sqlite(&other), &to).await.unwrap_err();
    assert!(matches!(refused, CopyError::OtherSource { .. }), "{refused}");
    let report = eventually_copied(&from, &to).await.unwrap();
    assert!(report.resumed && report.rows_of("entries") > 1200, "{report:?}");
    let back = tempfile::tempdir().unwrap();
    let refused = copied_to(&to, &from).await.unwrap_err();
    assert!(matches!(refused, CopyError::NotEmpty { table: "sessions", .. }), "{refused}");
    interrupted(&to, &sqlite(&back), "memories").await;
    let refused = Sqlite::open(back.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Copying { .. }), "{refused}");
    assert!(copied_to(&to, &sqlite(&back)).await.unwrap().resumed);
    assert_eq!(contents(back.path()), contents(folder.path()));
}

/// The server may notice later than we do that the connection of a copy is gone.
async fn eventually_copied(from: &Place, to: &Place) -> Result<CopyReport, CopyError> {
    loop {
        match copied_to(from, to).await {
            Err(CopyError::Running(_)) => tokio::task::yield_now().await,
            outcome => return outcome,
        }
    }
}

#[tokio::test]
async fn g2_a_source_that_was_written_between_two_tries_is_noticed() {
    let folder = source().await;
    let url = fresh_url().await;
    let (from, to) = (sqlite(&folder), postgres(&url));
    interrupted(&from, &to, "entries").await;
    open(folder.path())
        .execute_batch(
            "UPDATE entries SET message = '{}' WHERE place = (SELECT min(place) FROM entries)",
        )
        .unwrap();
    let refused = eventually_copied(&from, &to).await.unwrap_err();
    assert!(matches!(refused, CopyError::LogDiffers(_)), "{refused}");
    assert!(Postgres::open(&config(&url)).await.is_err(), "it is not taken for complete");
}

#[tokio::test]
async fn g2_what_is_in_use_or_not_there_is_not_copied() {
    let folder = source().await;
    let url = fresh_url().await;
    let nothing = tempfile::tempdir().unwrap();
    let missing = copied_to(&sqlite(&nothing), &postgres(&url)).await.unwrap_err();
    assert!(matches!(missing, CopyError::Missing(_)), "{missing}");
    assert!(!nothing.path().join(FILE).exists());
    let same = copied_to(&sqlite(&folder), &sqlite(&folder)).await.unwrap_err();
    assert!(matches!(same, CopyError::Same), "{same}");
    let store = Sqlite::open(folder.path()).unwrap();
    let in_use = copied_to(&sqlite(&folder), &postgres(&url)).await.unwrap_err();
    let is_lock =
        |error: &CopyError| matches!(error, CopyError::Open { error: OpenError::InUse { .. }, .. });
    assert!(is_lock(&in_use), "{in_use}");
    // A check does not mind.
    assert_eq!(check(&sqlite(&folder), false).await.unwrap().problems, [""; 0]);
    store.close().await;
    drop(store);
    let client = connected(&url).await;
    let replica = "INSERT INTO replicas (id, expires_at)
                   VALUES (gen_random_uuid(), clock_timestamp() + interval '1 hour')";
    client.batch_execute(replica).await.unwrap();
    for (from, to) in [
        (sqlite(&folder), postgres(&url)),
        (postgres(&url), Place::Sqlite(nothing.path().to_owned())),
    ] {
        let alive = copied_to(&from, &to).await.unwrap_err();
        assert!(matches!(alive, CopyError::Alive { replicas: 1, .. }), "{alive}");
    }
    assert_eq!(check(&postgres(&url), false).await.unwrap().replicas, Some(1));
    client.batch_execute("UPDATE replicas SET dead = true").await.unwrap();
    copied_to(&sqlite(&folder), &postgres(&url)).await.unwrap();
    let full = copied_to(&sqlite(&folder), &postgres(&url)).await.unwrap_err();
    assert!(matches!(full, CopyError::NotEmpty { .. }), "{full}");
}

#[tokio::test]
async fn g2_a_blob_with_other_bytes_is_found() {
    let folder = source().await;
    open(folder.path()).execute_batch("UPDATE blobs SET bytes = x'00'").unwrap();
    let problems = check(&sqlite(&folder), false).await.unwrap().problems;
    assert!(problems[0].contains("do not have that hash"), "{problems:?}");
    let url = fresh_url().await;
    let refused = copied_to(&sqlite(&folder), &postgres(&url)).await.unwrap_err();
    assert!(matches!(refused, CopyError::BlobDiffers), "{refused}");
}
