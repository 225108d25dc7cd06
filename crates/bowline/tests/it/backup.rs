//! `bowline backup` with the built binary: under load, killed, damaged, restored (G23).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bowline_store::sqlite::{FILE, RESTORING, backup};
use serde_json::{Value, json};

use crate::not_run::not_run;
use crate::process::{DEADLINE, Process, bowline, session_of};

/// `bowline backup WORD FILE --data DATA`.
fn command(word: &str, file: &Path, data: Option<&Path>) -> Command {
    let mut command = bowline();
    command.args(["backup", word]).arg(file);
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    command
}

fn succeeds(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn create(file: &Path, data: &Path) {
    succeeds(command("create", file, Some(data)));
}

fn restore(file: &Path, data: &Path) {
    succeeds(command("restore", file, Some(data)));
}

/// Exit code and stderr, with the folder's name replaced.
fn fails(mut command: Command, folder: &Path) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "it should fail");
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.replace(&folder.display().to_string(), "[DIR]");
    format!("exit code {}\n{said}", output.status.code().unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether the text occurs in one of the folder's files.
fn occurs(folder: &Path, text: &str) -> bool {
    names(folder).iter().any(|name| {
        let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// Several megabytes, so that a copy takes a while.
async fn fill(gateway: &Process, turns: usize) -> String {
    let session = session_of(&gateway.say(None, "echo large").await);
    for n in 0..turns {
        let words = format!("{n} words ").repeat(60_000);
        gateway.say(Some(&session), &format!("echo {words}")).await;
    }
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g23_a_backup_of_a_gateway_under_load_restores_to_one_instant() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gateway = Arc::new(Process::start(&data));
    fill(&gateway, 12).await;
    let mut sessions = Vec::new();
    for n in 0..3 {
        sessions.push(session_of(&gateway.say(None, &format!("echo session {n}")).await));
    }
    // One caller after another: the turns have one order over all sessions.
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let caller = tokio::spawn({
        let (gateway, sessions) = (Arc::clone(&gateway), sessions.clone());
        let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let n = acknowledged.load(Ordering::Relaxed);
                gateway.say(Some(&sessions[n % sessions.len()]), &format!("echo {n}")).await;
                acknowledged.store(n + 1, Ordering::Release);
            }
        }
    });
    // Others make noise meanwhile.
    let noise = tokio::spawn({
        let (gateway, stop) = (Arc::clone(&gateway), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                gateway.say(None, "echo noise").await;
            }
        }
    });
    let mut backups = Vec::new();
    let mut meanwhile = 0;
    for n in 0..4 {
        let file = folder.path().join(format!("{n}.tar"));
        let before = acknowledged.load(Ordering::Acquire);
        let (at, data) = (file.clone(), data.clone());
        tokio::task::spawn_blocking(move || create(&at, &data)).await.unwrap();
        meanwhile += acknowledged.load(Ordering::Acquire) - before;
        backups.push((file, before));
    }
    stop.store(true, Ordering::Relaxed);
    caller.await.unwrap();
    noise.await.unwrap();
    assert!(meanwhile > 0, "turns go on while a backup is made");

    for (file, before) in backups {
        succeeds(command("verify", &file, None));
        let restored = file.with_extension("data");
        restore(&file, &restored);
        let restored = Process::start(&restored);
        let mut turns = Vec::new();
        for session in &sessions {
            // A turn that was running at that instant is run again.
            until_nothing_runs(&restored, session).await;
            let log = restored.log(session).await;
            assert!(gateway.log(session).await.starts_with(&log), "a prefix, word for word");
            turns.extend(log[2..].chunks(2).map(|turn| turn[1].parse::<usize>().unwrap()));
        }
        turns.sort_unstable();
        assert_eq!(turns, (0..turns.len()).collect::<Vec<_>>(), "one instant of all sessions");
        assert!(turns.len() >= before, "what was acknowledged before is inside");
        let next = restored.say(Some(&sessions[0]), "echo and on it goes").await;
        assert_eq!(next["choices"][0]["message"]["content"], "and on it goes");
    }
}

async fn until_nothing_runs(gateway: &Process, session: &str) {
    let begun = Instant::now();
    loop {
        let seen = gateway.get(&format!("/v1/sessions/{session}/turns")).await;
        if seen["turns"].as_array().unwrap().is_empty() {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "it never ends: {seen}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Kills the command at this moment of its run, unless it has ended.
fn killed_after(command: Command, moment: Duration) {
    let begun = Instant::now();
    killed_when(command, || begun.elapsed() >= moment);
}

/// Kills the command as soon as this holds, unless it has ended.
fn killed_when(mut command: Command, holds: impl Fn() -> bool) {
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !holds() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = child.kill();
    child.wait().unwrap();
}

/// Moments all over a run that takes this long, and a little beyond. Runs differ, so that none of them
/// need be in the middle: a test that wants one there has it killed by what is on disk.
fn moments(whole: Duration) -> impl Iterator<Item = Duration> {
    (1..=24).map(move |part| whole * part / 22)
}

#[tokio::test]
async fn g23_a_backup_that_is_killed_leaves_a_whole_file_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gateway = Process::start(&data);
    let session = fill(&gateway, 6).await;
    let target = folder.path().join("out/b.tar");
    std::fs::create_dir(target.parent().unwrap()).unwrap();
    let begun = Instant::now();
    create(&target, &data);
    let whole = begun.elapsed();
    let looked_at = async || {
        let whole = target.exists();
        if whole {
            succeeds(command("verify", &target, None));
        }
        let left = names(target.parent().unwrap());
        assert!(left.iter().all(|name| name == "b.tar" || name == "b.tar.partial"), "{left:?}");
        gateway.say(Some(&session), "echo unharmed").await;
        whole
    };
    for moment in moments(whole) {
        let _ = std::fs::remove_file(&target);
        killed_after(command("create", &target, Some(&data)), moment);
        looked_at().await;
    }
    let partial = target.with_file_name("b.tar.partial");
    let begun = Instant::now();
    loop {
        let _ = std::fs::remove_file(&target);
        let _ = std::fs::remove_dir_all(&partial);
        killed_when(command("create", &target, Some(&data)), || partial.exists());
        if !looked_at().await && partial.exists() {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "none is killed in the middle");
    }
    let mut last = command("create", &target, Some(&data));
    last.arg("--force");
    succeeds(last);
    assert_eq!(names(target.parent().unwrap()), ["b.tar"], "what was left is removed");
    succeeds(command("verify", &target, None));
}

#[tokio::test]
async fn g23_a_restore_that_is_killed_leaves_nothing_that_looks_complete() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gateway = Process::start(&data);
    let session = fill(&gateway, 6).await;
    let (file, target) = (folder.path().join("b.tar"), folder.path().join("restored"));
    create(&file, &data);
    let begun = Instant::now();
    restore(&file, &folder.path().join("first"));
    let whole = begun.elapsed();
    // Whether it was killed in the middle.
    let looked_at = || {
        let unfinished = target.join(RESTORING).exists();
        if unfinished {
            let said = fails(gateway_command(&target), folder.path());
            assert!(said.contains("error: a restore into [DIR]/restored did not finish"), "{said}");
            assert!(said.contains("hint: run `bowline backup restore`"), "{said}");
        } else if target.join(FILE).exists() {
            assert_eq!(backup::contents(&target.join(FILE)).unwrap().sessions, 1);
            assert!(target.join("local.key").exists());
            std::fs::remove_dir_all(&target).unwrap();
        }
        unfinished
    };
    for moment in moments(whole) {
        killed_after(command("restore", &file, Some(&target)), moment);
        looked_at();
    }
    let _ = std::fs::remove_dir_all(&target);
    let begun = Instant::now();
    loop {
        killed_when(command("restore", &file, Some(&target)), || target.join(RESTORING).exists());
        if looked_at() {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "none is killed in the middle");
    }
    // A restore begins anew on what a killed one left.
    restore(&file, &target);
    let restored = Process::start(&target);
    assert_eq!(restored.log(&session).await, gateway.log(&session).await);
}

fn gateway_command(data: &Path) -> Command {
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command
}

/// A gateway's folder with one turn, stopped, and a backup of it.
async fn backed_up() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    let mut gateway = Process::start(&data);
    gateway.say(None, "echo hello").await;
    gateway.terminate();
    assert!(gateway.ended().success());
    create(&file, &data);
    (folder, data, file)
}

#[tokio::test]
async fn a_backup_that_cannot_be_used_is_refused_with_its_reason() {
    let (folder, data, file) = backed_up().await;
    let bytes = std::fs::read(&file).unwrap();
    let other = folder.path().join("other");
    for word in ["verify", "restore"] {
        let refused = |bytes: &[u8]| {
            let bad = folder.path().join("bad.tar");
            std::fs::write(&bad, bytes).unwrap();
            let data = (word == "restore").then_some(other.as_path());
            let said = fails(command(word, &bad, data), folder.path());
            assert!(!other.exists(), "nothing is left of it");
            said
        };
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused(&flipped), @r"
            exit code 1
            error: the backup was changed after it was made: its checksums do not match

            hint: copy it again from where it was made, or use another backup
            ");
            insta::assert_snapshot!(refused(b"hello"), @r"
            exit code 1
            error: this is not a backup of bowline

            hint: name a file that `bowline backup create` has made
            ");
        }
        let cut = refused(&bytes[..bytes.len() - 512]);
        let expected = format!("cut off: it has {} of {} bytes", bytes.len() - 512, bytes.len());
        assert!(cut.contains(&expected), "{cut}");
    }
    let said = fails(command("restore", &file, Some(&data)), folder.path());
    insta::assert_snapshot!(said, @r"
    exit code 3
    error: [DIR]/data is not empty: it has bowline.db in it

    hint: name a new or empty folder with --data, or move the old one away
    ");
    let running = Process::start(&data);
    let said = fails(command("restore", &file, Some(&data)), folder.path());
    insta::assert_snapshot!(said, @r"
    exit code 3
    error: another bowline is using [DIR]/data

    hint: stop it, and name a new or empty folder with --data
    ");
    drop(running);
    let said = fails(command("create", &file, Some(&data)), folder.path());
    insta::assert_snapshot!(said, @r"
    exit code 3
    error: [DIR]/b.tar exists already

    hint: choose another name, or replace it with --force
    ");
    let said =
        fails(command("create", &folder.path().join("no/b.tar"), Some(&data)), folder.path());
    insta::assert_snapshot!(said, @r"
    exit code 4
    error: there is no folder [DIR]/no

    hint: make it first, or choose another place
    ");
    let empty = folder.path().join("empty");
    let said = fails(command("create", &empty.with_extension("tar"), Some(&empty)), folder.path());
    insta::assert_snapshot!(said, @r"
    exit code 4
    error: there is no database in [DIR]/empty

    hint: name the data folder with --data; `bowline config show` says where it is
    ");
    assert_eq!(names(folder.path()), ["b.tar", "bad.tar", "data"], "and nothing is left behind");
}

#[tokio::test]
async fn g13_a_database_of_a_newer_version_is_not_backed_up() {
    let (folder, data, _) = backed_up().await;
    let conn = rusqlite::Connection::open(data.join(FILE)).unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    let said = fails(command("create", &folder.path().join("new.tar"), Some(&data)), folder.path());
    assert!(said.contains("schema version 999"), "{said}");
}

#[tokio::test]
async fn a_backup_says_what_is_inside_and_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, data, file) = backed_up().await;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut verify = command("verify", &file, None);
    verify.arg("--json");
    let said: Value = serde_json::from_slice(&succeeds(verify).stdout).unwrap();
    let manifest = &said["manifest"];
    assert_eq!((&manifest["sessions"], &manifest["format"]), (&json!(1), &json!(1)));
    let members = manifest["members"].as_array().unwrap();
    let members: Vec<_> = members.iter().map(|member| member["name"].as_str().unwrap()).collect();
    assert_eq!(members, [FILE, "local.key", "secrets.key", "identity.key"]);
    let tar = Command::new("tar").arg("tf").arg(&file).output().unwrap();
    let listed = String::from_utf8(tar.stdout).unwrap();
    assert_eq!(listed, "manifest.json\nbowline.db\nlocal.key\nsecrets.key\nidentity.key\nSHA256\n");

    let mut quiet = command("create", &file, Some(&data));
    quiet.args(["--force", "--quiet"]);
    let output = succeeds(quiet);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let restored = folder.path().join("restored");
    restore(&file, &restored);
    let mode = |name: &str| std::fs::metadata(restored.join(name)).unwrap().permissions().mode();
    assert_eq!(
        [mode("."), mode(FILE), mode("local.key"), mode("identity.key")].map(|m| m & 0o777),
        [0o700, 0o600, 0o600, 0o600]
    );
    for name in ["local.key", "secrets.key", "identity.key"] {
        let key = |folder: &Path| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(key(&restored), key(&data));
    }
}

#[tokio::test]
async fn a_control_plane_and_the_relays_keys_are_in_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("b.tar"));
    let mut add = bowline();
    add.args(["control", "user", "add", "alice", "--data"]).arg(data.join("control"));
    succeeds(add);
    std::fs::create_dir(data.join("relay")).unwrap();
    let kept = [
        "daemon.json",
        "devices.json",
        "gateway-identity",
        "identity",
        "known.json",
        "login.json",
        "pins.json",
    ];
    let others = ["known.json.lock", "devices.lock"];
    for (name, text) in kept.into_iter().chain(others).map(|name| (name, "{}")) {
        std::fs::write(data.join("relay").join(name), text).unwrap();
    }
    create(&file, &data);
    let restored = folder.path().join("restored");
    restore(&file, &restored);
    assert_eq!(names(&restored), ["bowline.lock", "control", "relay"]);
    assert_eq!(names(&restored.join("relay")), kept);
    let mut list = bowline();
    list.args(["control", "user", "list", "--data"]).arg(restored.join("control"));
    let listed = String::from_utf8(succeeds(list).stdout).unwrap();
    assert!(listed.contains("alice"), "{listed}");
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_is_left_on_it() {
    if std::env::var_os("BOWLINE_NO_MOUNT").is_some() {
        not_run("a backup to a full disk: BOWLINE_NO_MOUNT says that nothing can be mounted");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gateway = Process::start(&data);
    fill(&gateway, 3).await;
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let (file, other) = (folder.path().join("b.tar"), folder.path().join("small/data"));
    create(&file, &data);
    let script = r#"mount -t tmpfs -o size=1m none "$1" || exit 99
        "$2" backup create "$1/b.tar" --data "$3" --quiet; echo "code $?" >&2
        "$2" backup restore "$4" --data "$5" --quiet; echo "code $?" >&2
        TMPDIR="$1" "$2" backup verify "$4" --quiet; echo "code $?" >&2
        ls -A "$1""#;
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&small).arg(bowline().get_program());
    command.arg(&data).arg(&file).arg(&other).env("XDG_CONFIG_HOME", "/nonexistent");
    // A variable of the tests would be named in a warning.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BOWLINE_")) {
        command.env_remove(name);
    }
    let output = succeeds(command);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "nothing is left");
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.replace(&folder.path().display().to_string(), "[DIR]");
    insta::assert_snapshot!(said, @r"
    error: there is not enough room on the disk of [DIR]/small/b.tar.partial/members/bowline.db

    hint: make room there or choose another disk; making a backup takes twice the size of the data for a while, restoring it once
    code 74
    error: there is not enough room on the disk of [DIR]/small/data/restore.partial/bowline.db

    hint: make room there or choose another disk; making a backup takes twice the size of the data for a while, restoring it once
    code 74
    error: there is not enough room to unpack the backup

    hint: set TMPDIR to a folder with room for the database
    code 74
    ");
}

#[tokio::test]
async fn g23_what_was_erased_is_in_no_file_and_no_later_backup() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut gateway = Process::start(&data);
    let session = session_of(&gateway.say(None, "echo xylophone").await);
    gateway.say(Some(&session), &format!("echo {}", "xylophone ".repeat(5000))).await;
    let kept = session_of(&gateway.say(None, "echo marimba").await);
    assert!(occurs(&data, "xylophone"));
    let mut rm = bowline();
    rm.args(["sessions", "rm", &session, "--data"]).arg(&data);
    succeeds(rm);
    // A reader may have been in the way; the next write tries again.
    let begun = Instant::now();
    while occurs(&data, "xylophone") {
        assert!(begun.elapsed() < DEADLINE, "it never goes");
        gateway.get("/readyz").await;
    }
    let file = folder.path().join("b.tar");
    create(&file, &data);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(9).any(|window| window == b"xylophone"));
    gateway.kill();
    let restored = folder.path().join("restored");
    restore(&file, &restored);
    assert_eq!(Process::start(&restored).log(&kept).await, ["echo marimba", "marimba"]);
}

#[tokio::test]
async fn g23_a_database_without_its_log_is_noticed_by_the_start_and_by_doctor() {
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let gateway = Process::start(&data);
    gateway.say(None, "echo lost").await;
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(data.join("secrets.key"), copy.join("secrets.key")).unwrap();
    // The file says that it is open soon after the start.
    let begun = Instant::now();
    let marked = || {
        std::fs::copy(data.join(FILE), copy.join(FILE)).unwrap();
        let conn = rusqlite::Connection::open(copy.join(FILE)).unwrap();
        let opened = conn.query_row("SELECT opened_at FROM usage", [], |row| row.get(0));
        opened.is_ok_and(|at: Option<i64>| at.is_some())
    };
    while !marked() {
        assert!(begun.elapsed() < DEADLINE, "it is never marked");
    }
    let doctor = |data: &Path| {
        let output = bowline().arg("doctor").arg("--data").arg(data).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let notices = |said: &str| said.contains("write-ahead log") && said.contains("missing");
    assert!(!notices(&doctor(&data)), "of a running gateway");
    assert!(notices(&doctor(&copy)), "{}", doctor(&copy));

    let mut command = gateway_command(&copy);
    command.stderr(std::fs::File::create(folder.path().join("log")).unwrap());
    let mut started = Process::spawned(command, &copy);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("WARN") && notices(&log), "{log}");
    assert!(notices(&doctor(&copy)), "while it runs");
    started.terminate();
    assert!(started.ended().success());
    assert!(!notices(&doctor(&copy)), "it goes on from here");

    // A gateway that was killed has its log: no alarm.
    let gateway = gateway.crash_and_restart();
    assert!(!notices(&doctor(&gateway.data)));
}

#[tokio::test]
async fn g16_every_end_but_a_crash_folds_the_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join(format!("{FILE}-wal"));
    let unfolded = || std::fs::metadata(&log).map_or(0, |log| log.len());
    for signal in ["-TERM", "-INT"] {
        let mut gateway = Process::start(folder.path());
        gateway.say(None, "echo hello").await;
        assert!(unfolded() > 0);
        let pid = gateway.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(gateway.ended().success());
        assert_eq!(unfolded(), 0, "{signal}");
    }
    let mut gateway = Process::start(folder.path());
    gateway.kill();
    assert!(unfolded() > 0);
    // A start that fails, because the port is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let mut up = bowline();
    up.args(["up", "--listen", &listen, "--data"]).arg(folder.path());
    assert!(!up.output().unwrap().status.success());
    assert_eq!(unfolded(), 0, "a failed start");
    Process::start(folder.path()).kill();
    assert!(unfolded() > 0);
    bowline().arg("doctor").arg("--data").arg(folder.path()).output().unwrap();
    assert_eq!(unfolded(), 0, "doctor");
}
