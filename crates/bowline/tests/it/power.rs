//! Power cuts: a file system that loses everything that was not flushed.
//!
//! An ext4 image on a loop device is shut down without flushing its journal, as a power cut would
//! leave it, while turns are being answered. This needs root and a kernel with loop devices;
//! elsewhere the test says so and does nothing.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::not_run::not_run;
use crate::process::{Process, session_of, turn};

/// Drops what is not on disk: EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH.
const CUT: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// Checks the integrity of a database.
const WHOLE: &str = "import sqlite3, sys\n\
    found = sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchall()\n\
    sys.exit(found != [('ok',)])";

fn sh(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).status().is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout == b"0\n")
}

/// An ext4 image on a loop device.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { folder };
        std::fs::create_dir(disk.mount_point()).unwrap();
        let image = disk.image();
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        assert!(sh("mkfs.ext4", &["-q", "-F", &image]), "mkfs.ext4 failed");
        disk
    }

    fn image(&self) -> String {
        self.folder.path().join("image").display().to_string()
    }

    fn mount_point(&self) -> String {
        self.folder.path().join("disk").display().to_string()
    }

    /// A file that is written just before a cut.
    fn unflushed(&self, round: usize) -> String {
        format!("{}/unflushed-{round}", self.mount_point())
    }

    fn on(&self) {
        assert!(sh("mount", &["-o", "loop", &self.image(), &self.mount_point()]), "mount failed");
    }

    fn cut(&self) {
        assert!(sh("python3", &["-c", CUT, &self.mount_point()]), "the cut failed");
    }

    fn off(&self) {
        assert!(sh("umount", &[&self.mount_point()]), "umount failed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A failed test may leave it mounted; a mounted folder cannot be removed.
        let _ = Command::new("umount").args(["-l", &self.mount_point()]).output();
    }
}

/// Turns that were answered with 200: session id and text.
type Told = Arc<Mutex<Vec<(String, String)>>>;

/// Sends turns in new and existing sessions from several tasks, until the gateway does not answer.
fn load(gateway: &Process, told: &Told, answered: &Arc<AtomicUsize>, round: usize) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let (told, answered) = (Arc::clone(told), Arc::clone(answered));
        let url = format!("{}/v1/chat/completions", gateway.url);
        callers.spawn(async move {
            let client = reqwest::Client::new();
            let mut session: Option<String> = None;
            for n in 0.. {
                let words = format!("{round}-{caller}-{n}");
                let body = turn(session.as_deref(), &format!("echo {words}"));
                let Ok(answer) = client.post(&url).json(&body).send().await else { return };
                if answer.status() != 200 {
                    continue;
                }
                let Ok(answer) = answer.json().await else { return };
                let id = session_of(&answer);
                told.lock().await.push((id.clone(), words));
                answered.fetch_add(1, Ordering::SeqCst);
                session = (n % 5 != 4).then_some(id);
            }
        });
    }
    callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_soak_power_cuts_lose_nothing_that_was_acknowledged() {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        not_run("power cuts: they need root and loop devices");
        return;
    }
    let cuts = if std::env::var_os("BOWLINE_SOAK").is_some() { 50 } else { 3 };
    let disk = Disk::new();
    let data = Path::new(&disk.mount_point()).join("data");
    let told = Told::default();
    for round in 0..cuts {
        disk.on();
        let mut gateway = Process::start(&data);
        let answered = Arc::new(AtomicUsize::new(0));
        let mut callers = load(&gateway, &told, &answered, round);
        // Each round cuts after a different number of answers.
        let enough = 20 + (round * 37) % 150;
        while answered.load(Ordering::SeqCst) < enough {
            tokio::task::yield_now().await;
        }
        std::fs::write(disk.unflushed(round), "nobody flushes this").unwrap();
        disk.cut();
        gateway.kill();
        while callers.join_next().await.is_some() {}
        disk.off();
    }
    disk.on();
    for round in 0..cuts {
        let left = std::fs::read(disk.unflushed(round)).unwrap_or_default();
        assert_eq!(left, b"", "a cut that forgets nothing shows nothing");
    }
    let mut gateway = Process::start(&data);
    let told = told.lock().await;
    let mut logs = std::collections::HashMap::new();
    for (session, words) in told.iter() {
        if !logs.contains_key(session) {
            logs.insert(session.clone(), gateway.log(session).await);
        }
        let found = logs[session].iter().filter(|entry| *entry == words).count();
        assert_eq!(found, 1, "acknowledged before a power cut: {words}");
    }
    eprintln!("{cuts} power cuts, {} acknowledged turns, all there once", told.len());
    gateway.kill();
    let file = data.join(bowline_store::sqlite::FILE).display().to_string();
    assert!(sh("python3", &["-c", WHOLE, &file]), "the database is damaged");
    disk.off();
}
