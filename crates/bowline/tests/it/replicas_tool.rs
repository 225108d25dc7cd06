//! `make replicas`, with the binary of this test: what it prints can be done, and it leaves nothing behind.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bowline_servers::quiet_ports;

use crate::process::bowline;

const DEADLINE: Duration = Duration::from_secs(180);

/// Ended by Ctrl-C, as a person does.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn asked(url: &str, data: &Path) -> Output {
    let mut command = bowline();
    command.args(["chat", "--url", url, "--message", "echo at noon", "--data"]).arg(data);
    command.output().unwrap()
}

#[test]
fn g16_three_replicas_on_one_machine_are_started_talked_to_and_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    // PostgreSQL runs as another user, who has to get there.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (said, base) = (folder.path().join("said"), quiet_ports(6));
    let started = Command::new("tools/replicas")
        .args([env!("CARGO_BIN_EXE_bowline"), &folder.path().join("data").display().to_string()])
        .env("BASE_PORT", base.to_string())
        .env("TMPDIR", folder.path())
        .env("BOWLINE_OFFLINE_PACE", "0ms")
        .current_dir(&root)
        .stdin(Stdio::null())
        .stdout(File::create(&said).unwrap())
        .stderr(File::create(folder.path().join("failed")).unwrap())
        .spawn()
        .unwrap();
    let mut started = Started(started);
    let text = || std::fs::read_to_string(&said).unwrap();
    let failed = || std::fs::read_to_string(folder.path().join("failed")).unwrap();
    until("it is not ready", || {
        assert_eq!(started.0.try_wait().unwrap(), None, "it ended: {}{}", text(), failed());
        text().contains("Ctrl-C stops everything")
    });
    let url = format!("http://127.0.0.1:{base}");
    assert!(text().contains(&format!("Three replicas are ready behind {url}")), "{}", text());
    let answer = asked(&url, folder.path());
    assert!(String::from_utf8_lossy(&answer.stdout).contains("at noon"), "{answer:?}");
    // What it says about killing one is a command that works.
    let text_now = text();
    let kill = text_now.lines().find_map(|line| line.trim().strip_prefix("kill one")).unwrap();
    assert!(Command::new("sh").args(["-c", kill]).status().unwrap().success(), "{kill}");
    until("nobody answers after a kill", || asked(&url, folder.path()).status.success());
    assert_eq!(started.0.try_wait().unwrap(), None, "it ended: {}", failed());
    drop(started);
    until("something is left behind", || {
        (0..6).all(|n| std::net::TcpStream::connect(("127.0.0.1", base + n)).is_err())
    });
}
