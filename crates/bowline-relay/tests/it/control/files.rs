//! The data folder: private, durable, and nobody else's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bowline_net::exposure::PlainAddress;
use bowline_net::{DoorConfig, DoorError};
use bowline_relay::control::registry::{FILE, Registry, RegistryOpenError};
use bowline_relay::control::{Control, ControlConfig, ControlLimits, ControlStartError, open_door};
use reqwest::Method;
use rusqlite::Connection;
use serde_json::json;

use crate::control::bench::{Bench, ISSUER, RELAY, identity, kid, now};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn open(folder: &Path) -> Result<(), ControlStartError> {
    Control::open(ControlConfig::new(folder, ISSUER, RELAY.parse().unwrap())).map(drop)
}

#[tokio::test]
async fn folder_and_files_are_for_their_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("deeper/control");
    let mut registry = Registry::open(&folder).unwrap();
    registry.add_user("alice", now()).unwrap();
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() >= 2, "the database and its log: {files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn what_others_can_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap();
    let file = folder.path().join(FILE);
    for (path, loose, tight) in [
        (file.as_path(), 0o640, 0o600),
        (&file, 0o604, 0o600),
        (&file, 0o666, 0o600),
        (folder.path(), 0o775, 0o755),
        (folder.path(), 0o777, 0o700),
    ] {
        set_mode(path, loose);
        let exposed = RegistryOpenError::Exposed { path: path.display().to_string(), mode: loose };
        assert_eq!(open(folder.path()), Err(ControlStartError::Registry(exposed)));
        set_mode(path, tight);
        open(folder.path()).unwrap();
    }
}

#[tokio::test]
async fn g13_a_newer_or_foreign_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap();
    let path = folder.path().join(FILE);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = RegistryOpenError::NewerSchema { found: 99, known: 6 };
    assert_eq!(open(folder.path()), Err(ControlStartError::Registry(newer)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    set_mode(&path, 0o600);
    let refused = open(folder.path());
    assert!(
        matches!(refused, Err(ControlStartError::Registry(RegistryOpenError::Foreign { .. }))),
        "{refused:?}"
    );

    let nothing = Registry::open_existing(Path::new("/nowhere/control"));
    assert!(matches!(nothing, Err(RegistryOpenError::Missing { .. })));
}

#[tokio::test]
async fn g4_everything_is_there_after_a_restart() {
    let bench = Bench::start().await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let made = bench.register(&alice, &identity(1)).await;
    let daemon = made.text_of("daemonId");
    let gone = bench.daemon(&alice, 2).await;
    bench.revoke(&alice, &gone).await;
    bench.registry().revoke_user("bob", now()).unwrap();
    bench.registry().rotate(now()).unwrap();
    let keys = bench.registry().published(now()).unwrap();
    let log = bench.registry().audit(100).unwrap();
    let folder = bench.stop().await;

    let bench = Bench::on(folder, |_| {}).await;
    assert_eq!(bench.registry().published(now()).unwrap(), keys);
    assert_eq!(bench.registry().audit(100).unwrap(), log);
    let again = bench.register(&alice, &identity(1)).await;
    assert_eq!((again.status, again.text_of("daemonId")), (200, daemon));
    let token = again.text_of("presenceToken");
    assert_eq!(kid(&token), keys[1].0);
    bench.admit(&token).await.unwrap();
    bench.admit(&made.text_of("presenceToken")).await.unwrap();
    assert_eq!(bench.renew(&alice, &gone).await.refusal(), (403, "forbidden"));
    assert_eq!(bench.register(&bob, &identity(3)).await.refusal(), (401, "unauthorized"));
}

#[tokio::test]
async fn many_can_open_the_same_new_folder_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let opening: Vec<_> = (0..8)
        .map(|n| {
            let folder = folder.path().to_owned();
            std::thread::spawn(move || {
                Registry::open(&folder).unwrap().add_user(&format!("u{n}"), now()).unwrap();
            })
        })
        .collect();
    for thread in opening {
        thread.join().unwrap();
    }
    let mut registry = Registry::open(folder.path()).unwrap();
    assert_eq!(registry.users().unwrap().len(), 8);
    assert_eq!(registry.published(now()).unwrap().len(), 2, "the first keys are made once");
}

#[tokio::test]
async fn a_public_address_is_not_served_in_the_clear() {
    let limits = ControlLimits::default();
    let open = async |listen: DoorConfig| open_door(listen, &limits).await;
    let public = "0.0.0.0:0".parse().unwrap();
    let refused = open(DoorConfig::plain(public)).await.unwrap_err();
    let plain = DoorError::Plain(PlainAddress { address: public });
    assert_eq!(refused, ControlStartError::Door(plain));
    open(DoorConfig { insecure: true, ..DoorConfig::plain(public) }).await.unwrap();
    let taken = open(DoorConfig::plain("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = taken.address();
    let refused = open(DoorConfig::plain(address)).await.unwrap_err();
    assert_eq!(refused, ControlStartError::Door(DoorError::AddressInUse { address }));
}

#[test]
fn audit_rows_go_by_age_and_by_nothing_else() {
    const DAY: u64 = 24 * 3600;
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::open(folder.path()).unwrap();
    let begun = now();
    registry.add_user("first", begun).unwrap();
    registry.add_user("second", begun + DAY).unwrap();
    let database = Connection::open(folder.path().join(FILE)).unwrap();
    // As if a hundred thousand deeds had passed since.
    database.execute_batch("UPDATE sqlite_sequence SET seq = 100001 WHERE name = 'audit'").unwrap();
    let subjects = |registry: &mut Registry| -> Vec<String> {
        registry.audit(100).unwrap().into_iter().map(|row| row.subject).collect()
    };
    registry.add_user("third", begun + 400 * DAY).unwrap();
    assert_eq!(subjects(&mut registry), ["third", "second", "first"]);
    registry.add_user("fourth", begun + 400 * DAY + 1).unwrap();
    assert_eq!(subjects(&mut registry), ["fourth", "third", "second"]);
    for change in [
        "UPDATE audit SET actor = 'nobody'",
        "UPDATE audit SET count = 0",
        "UPDATE audit SET at = at - 1",
        "DELETE FROM audit",
    ] {
        let refused = database.execute_batch(change).unwrap_err().to_string();
        assert!(refused.contains("the audit log is"), "{change}: {refused}");
    }
}

#[tokio::test]
async fn what_users_do_all_day_has_one_row_in_the_audit_log() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    for turn in 0..20 {
        assert_eq!(bench.open(&key, &daemon).await.status, 200);
        assert_eq!(bench.renew(&key, &daemon).await.status, 200);
        let name = json!({ "name": format!("n{turn}") });
        let path = format!("/api/daemons/{daemon}");
        assert_eq!(bench.call(Method::PATCH, &path, Some(&key), Some(name)).await.status, 204);
    }
    let log = bench.registry().audit(100).unwrap();
    let log: Vec<_> = log.iter().rev().map(|row| (row.event.as_str(), row.count)).collect();
    let expected = [
        ("user_added", 1),
        ("daemon_registered", 1),
        ("session_issued", 20),
        ("presence_renewed", 20),
        ("daemon_renamed", 20),
    ];
    assert_eq!(log, expected);
}
