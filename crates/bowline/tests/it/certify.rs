//! `bowline conformance` against the built gateway, what it says when it cannot run, and its signed reports.

mod public;
mod relay;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_servers::{Flush, Postgres, Redis, quiet_port};
use serde_json::Value;

use crate::process::{Process, bowline};

/// An address of this machine on which nothing listens, and which the system gives to nobody else.
fn free() -> String {
    format!("127.0.0.1:{}", quiet_port())
}

/// Where the suite's model and its gateways listen.
struct Suite {
    upstream: String,
    peer: String,
}

impl Suite {
    fn here() -> Self {
        Self { upstream: free(), peer: free() }
    }

    /// How the suite says that a gateway is told of it.
    fn flags(&self) -> Vec<String> {
        let mut flags = vec!["--upstream".to_owned(), format!("http://{}/v1", self.upstream)];
        flags.extend(["--federation", "--gateway-id", "tested"].map(str::to_owned));
        for (id, path) in [
            ("suite", ""),
            ("suite-bytes", "/suite-bytes"),
            ("suite-endless", "/suite-endless"),
            ("suite-redirects", "/suite-redirects"),
        ] {
            flags.extend(["--peer".to_owned(), format!("{id}=http://{}{path}", self.peer)]);
        }
        flags.extend(["--tracker".to_owned(), format!("suite=http://{}", self.peer)]);
        flags
    }
}

/// A gateway that the suite's command restarts through a file.
struct Restartable {
    gateway: Option<Process>,
    flags: Vec<String>,
    asks: PathBuf,
}

impl Restartable {
    fn start(folder: &Path, suite: &Suite, store: &[String]) -> Self {
        // A device that asks its user by itself is given longer than the protocol's default.
        let config = folder.join("certified.toml");
        std::fs::write(&config, "[tools.policy]\ncamera = \"allow\"\n").unwrap();
        let config = ["--config".to_owned(), config.display().to_string()];
        let flags = [suite.flags(), store.to_vec(), config.to_vec()].concat();
        let mut this = Self { gateway: None, flags, asks: folder.join("restart") };
        this.gateway = Some(this.started(&folder.join("data"), "127.0.0.1:0"));
        this
    }

    fn started(&self, data: &Path, listen: &str) -> Process {
        let mut command = bowline();
        command.args(["gateway", "run", "--json", "--listen", listen, "--data"]).arg(data);
        command.args(&self.flags);
        Process::spawned(command, data)
    }

    fn url(&self) -> String {
        self.gateway.as_ref().unwrap().url.clone()
    }

    /// What asks for a restart, and waits until it is done.
    fn command(&self) -> String {
        let file = self.asks.display();
        format!(
            "echo $RESTART > {file}.new && mv {file}.new {file}; while [ -e {file} ]; do sleep 0.05; done"
        )
    }

    /// Restarts as it is asked to, until the suite has ended.
    fn serve(&mut self, ended: &AtomicBool) {
        while !ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            let Ok(how) = std::fs::read_to_string(&self.asks) else { continue };
            let mut gateway = self.gateway.take().unwrap();
            match how.trim() {
                "kill" => gateway.kill(),
                _ => {
                    gateway.terminate();
                    assert!(gateway.ended().success());
                }
            }
            let (data, listen) = (gateway.data.clone(), gateway.address().to_owned());
            self.gateway = Some(self.started(&data, &listen));
            std::fs::remove_file(&self.asks).unwrap();
        }
    }
}

fn conformance() -> Command {
    let mut command = bowline();
    command.arg("conformance");
    command
}

/// Held by a whole run of the suite: two at once on a small machine are slower than some checks wait.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the suite up to L6 against the built gateway, and expects that nothing fails.
fn certified(store: &[String]) {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::here();
    let mut gateway = Restartable::start(folder.path(), &suite, store);
    let junit = folder.path().join("sbp.xml");
    let mut run = conformance();
    run.args(["--level", "L6", "--json", "--url", &gateway.url()])
        .args(["--upstream-listen", &suite.upstream, "--peer-listen", &suite.peer])
        .args(["--restart-command", &gateway.command(), "--junit"])
        .arg(&junit);
    let ended = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        let output = scope.spawn(|| {
            let output = run.output();
            ended.store(true, Ordering::Relaxed);
            output
        });
        gateway.serve(&ended);
        output.join().unwrap().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    for flag in ["--peer", "--tracker"] {
        assert!(said.contains(&format!("{flag} suite=http://{}", suite.peer)), "{said}");
    }
    // Each check is told when it has ended.
    assert!(said.lines().any(|line| line.starts_with("ok       SBP-L1-01 ")), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let checks = report["checks"].as_array().unwrap();
    // Our own additions are there, too; the gateway is no tracker.
    let unmet = checks.iter().filter(|check| check["verdict"] != "passed");
    let unmet: Vec<_> = unmet
        .filter(|check| check["verdict"] != "not_run" || !is_of_trackers(&check["id"]))
        .collect();
    assert!(unmet.is_empty(), "{unmet:#?}");
    assert!(output.status.success(), "{said}");
    assert_eq!(report["passed"], "L6");
    assert!(checks.len() > 80, "{} checks were run", checks.len());
    println!("{} checks in {} s", checks.len(), report["seconds"]);
    let xml = std::fs::read_to_string(&junit).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), checks.len());
    assert!(!xml.contains("<failure"), "{xml}");
}

fn is_of_trackers(id: &Value) -> bool {
    ["SBP-L6-03", "SBP-L6-03b"].iter().any(|one| id == one)
}

#[test]
fn sbp_cert_01_the_gateway_passes_all_levels_that_the_suite_checks() {
    certified(&[]);
}

#[test]
fn sbp_cert_01_the_gateway_passes_them_on_postgres_with_redis() {
    let (postgres, redis) = (Postgres::start(Flush::Off).unwrap(), Redis::start().unwrap());
    postgres.make_database("certified").unwrap();
    let store = ["--store".into(), postgres.url("certified"), "--bus".into(), redis.url()];
    certified(&store);
}

/// A tracker that knows the suite's gateway.
#[test]
fn sbp_l6_03_the_tracker_passes_the_checks_of_a_tracker() {
    passes_the_checks_of_a_tracker(&["tracker", "run"]);
}

/// A gateway is one, too, if it is told so.
#[test]
fn sbp_l6_03_a_gateway_that_is_a_tracker_passes_the_checks_of_a_tracker() {
    let both = ["gateway", "run", "--federation", "--gateway-id", "both", "--also-tracker"];
    passes_the_checks_of_a_tracker(&both);
}

fn passes_the_checks_of_a_tracker(words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let peer = free();
    let mut command = bowline();
    command.args(words).args(["--json", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(folder.path()).args(["--peer", &format!("suite=http://{peer}")]);
    let tracker = Process::spawned(command, folder.path());
    let output = conformance()
        .args(["--level", "L6", "--only", "SBP-L6-01,SBP-L6-03", "--model", "none", "--json"])
        .args(["--url", &tracker.url, "--peer-listen", &peer])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let verdicts: Vec<_> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["id"].as_str().unwrap(), check["verdict"].as_str().unwrap()))
        .collect();
    // What a gateway announces is not a tracker's to show.
    let expected = [
        ("SBP-L6-01", "passed"),
        ("SBP-L6-01b", "passed"),
        ("SBP-L6-03", "passed"),
        ("SBP-L6-03b", "passed"),
        ("SBP-L6-03c", "not_run"),
    ];
    assert_eq!(verdicts, expected, "{report:#}");
}

#[test]
fn a_server_with_another_model_is_told_how_it_is_pointed_at_the_suites() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let listen = free();
    let run = |args: &[&str]| conformance().args(["--url", &gateway.url]).args(args).output();
    let output = run(&["--only", "SBP-L1-01", "--upstream-listen", &listen]).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("without asking the suite's model") && said.contains("--model"),
        "{said}"
    );
    // With a model of its own, what needs the suite's is not run, and says so.
    let only = "SBP-L1-01,SBP-L1-06b,SBP-L1-04";
    let output = run(&["--only", only, "--model", "bowline/offline", "--json"]).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success());
    let verdicts: Vec<_> =
        report["checks"].as_array().unwrap().iter().map(|check| &check["verdict"]).collect();
    // SBP-L1-01 names two checks, and so does SBP-L1-04.
    assert_eq!(verdicts, ["passed", "passed", "not_run", "not_run", "not_run"]);
}

#[test]
fn what_cannot_run_says_why_by_its_exit_code() {
    let nowhere = format!("http://{}", free());
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "key-of-a-test").unwrap();
    let with_key = ["--model", "m", "--key-file", key.path().to_str().unwrap()];
    let plain = [&["--url", "http://198.51.100.1"][..], &with_key].concat();
    let gone = ["--url", &nowhere, "--model", "m", "--junit", "/no/such/folder/sbp.xml"];
    let all = ["--url", &nowhere, "--upstream-listen", "0.0.0.0:0"];
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--url", &nowhere, "--model", "m"], 5, "does not answer"),
        (&["--url", &nowhere, "--only", "SBP-L9-01"], 2, "there is no check `SBP-L9-01`"),
        (&["--url", &nowhere, "--level", "L7"], 2, "levels are L1 to L6"),
        (&plain, 2, "--insecure"),
        (&all, 2, "--upstream-url"),
        (&gone, 2, "check --junit"),
    ];
    for (args, code, words) in cases {
        let output = conformance().args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// A signed report of a server, made with this key, and the name of its file.
fn signed_report(folder: &Path, key: &str) -> (String, String) {
    let file = |name: &str| folder.join(name).display().to_string();
    let gateway = Process::start(&folder.join(format!("data of {key}")));
    let (report, key) = (file("report.json"), file(key));
    let output = conformance()
        .args(["--url", &gateway.url, "--model", "bowline/offline", "--only", "SBP-L1-01"])
        .args(["--report", &report, "--identity", &key])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let fingerprint = said.lines().find_map(|line| line.strip_prefix("signed by ")).unwrap();
    (report, fingerprint.to_owned())
}

#[test]
fn a_signed_report_says_what_it_proves_and_any_change_of_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (report, fingerprint) = signed_report(folder.path(), "signer.key");
    let verify = |args: &[&str]| conformance().arg("verify").args(args).output().unwrap();
    let output = verify(&[&report]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let shown: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("date ") && !line.starts_with("target "))
        .collect();
    let shown = shown.join("\n").replace(&fingerprint, "SHA256:…");
    insta::assert_snapshot!(shown.replace(env!("CARGO_PKG_VERSION"), "1.2.3"), @r"
    the signature is good
    signed by  SHA256:…
    suite      bowline 1.2.3
    checked    SBP, level L5, some checks only
    verdicts   2 passed, 0 warnings, 0 failed, 0 not run
    passed     not said: that takes all checks

    What this proves: whoever has this key wrote the report, and nobody changed it since.
    Whose key it is, the report cannot prove: compare the fingerprint, or give --key.
    What it does not prove: that the checks were run, that the target was what its address says, or that it is
    the same today. Whoever has a key can sign anything with it. To know, run the checks yourself.
    ");
    assert!(verify(&[&report, "--key", &fingerprint]).status.success());

    let whole = std::fs::read_to_string(&report).unwrap();
    let (other, _) = signed_report(folder.path(), "other.key");
    let other = std::fs::read_to_string(other).unwrap();
    let changed = folder.path().join("changed.json");
    for (text, args, code, words) in [
        (whole.replace("\"passed\"", "\"failed\""), None, 1, "was changed after it was signed"),
        (whole.replace("bowline-conformance-report", "x"), None, 2, "no signed report"),
        (String::new(), None, 2, "no signed report"),
        (other, Some(fingerprint.as_str()), 6, "another key signed it"),
        (whole.clone(), Some("SHA256:00"), 2, "neither a key nor a fingerprint"),
    ] {
        std::fs::write(&changed, text).unwrap();
        let mut run = vec![changed.to_str().unwrap()];
        run.extend(args.iter().flat_map(|key| ["--key", key]));
        let output = verify(&run);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(verify(&[&format!("{report}.gone")]).status.code(), Some(4));
    // Another layout of the same report is the same report.
    let parsed: Value = serde_json::from_str(&whole).unwrap();
    std::fs::write(&changed, serde_json::to_string_pretty(&parsed).unwrap()).unwrap();
    assert!(verify(&[changed.to_str().unwrap()]).status.success());
}

#[test]
fn the_checks_are_listed_without_a_server() {
    let list = |args: &[&str]| conformance().arg("--list").args(args).output().unwrap();
    let output = list(&["--level", "L1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("SBP-L1-01 "), "{text}");
    assert!(text.contains("(must; needs restart)") && !text.contains("SBP-L2-01"), "{text}");
    let output = list(&["--level", "L5", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() > 60 && checks.iter().all(|check| check["clause"].is_string()));
    let only = list(&["--only", "SBP-L2-06"]);
    assert_eq!(String::from_utf8(only.stdout).unwrap().lines().count(), 2);
}
