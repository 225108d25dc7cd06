//! The files of `deploy/`: they fit the schemas of Compose and Kubernetes, and name settings that exist.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::clients::python;
use crate::process::{Process, bowline};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn check(folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/deploy.py");
    let mut command = Command::new(python());
    command.arg(program).arg(folder).env("PYTHONDONTWRITEBYTECODE", "1");
    command.output().unwrap()
}

#[test]
fn the_files_fit_their_schemas() {
    let output = check(&deploy());
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaint}");
    for file in ["compose.yaml", "kubernetes/deployment.yaml", "kubernetes/disruption-budget.yaml"]
    {
        assert!(said.contains(file), "{file} was not checked: {said}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_found() {
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("kubernetes")).unwrap();
    for (file, before, after) in [
        ("compose.yaml", "stop_grace_period: 40s", "stop_grace_period: [40]"),
        ("kubernetes/deployment.yaml", "maxSurge: 1", "maxSurges: 1"),
        ("kubernetes/service.yaml", "targetPort: http", "targetPort: https"),
        ("kubernetes/disruption-budget.yaml", "app: bowline", "app: bowlines"),
    ] {
        for name in std::fs::read_dir(deploy().join("kubernetes")).unwrap() {
            let name = name.unwrap();
            std::fs::copy(name.path(), copy.path().join("kubernetes").join(name.file_name()))
                .unwrap();
        }
        std::fs::copy(deploy().join("compose.yaml"), copy.path().join("compose.yaml")).unwrap();
        let whole = std::fs::read_to_string(copy.path().join(file)).unwrap();
        assert!(whole.contains(before), "{file}");
        std::fs::write(copy.path().join(file), whole.replace(before, after)).unwrap();
        let output = check(copy.path());
        assert!(!output.status.success(), "{file} with {after}");
    }
}

/// What the containers are started with is understood by the binary: settings and flags that are misspelt are
/// refused before anything is connected.
#[test]
fn the_containers_are_started_with_flags_and_variables_that_exist() {
    let help = bowline().args(["gateway", "run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (mut flags, mut variables) = (0, Vec::new());
    for file in ["compose.yaml", "kubernetes/deployment.yaml"] {
        let text = std::fs::read_to_string(deploy().join(file)).unwrap();
        // The gateway's arguments, one a line.
        for flag in text.lines().filter_map(|line| line.trim().strip_prefix("- --")) {
            let (flag, _) = flag.split_once('=').unwrap();
            assert!(help.contains(&format!("--{flag}")), "{file}: {flag}");
            flags += 1;
        }
        variables.extend(names_in(&text));
    }
    assert!(flags >= 6, "{flags}");
    variables
        .extend(names_in(&std::fs::read_to_string(deploy().join("compose.env.example")).unwrap()));
    // Those of the load balancer.
    variables.retain(|name| name != "BOWLINE_LISTEN" && !name.starts_with("BOWLINE_REPLICA_"));
    let folder = tempfile::tempdir().unwrap();
    let mut show = bowline();
    show.args(["config", "show", "--data"]).arg(folder.path());
    for name in &variables {
        let value = match &**name {
            "BOWLINE_LOG_FORMAT" => "json".into(),
            "BOWLINE_STORE_URL" => "postgres://bowline@127.0.0.1/bowline".into(),
            "BOWLINE_BUS_URL" => "redis://127.0.0.1".into(),
            "BOWLINE_AUTH_API_KEYS" => format!("sha256:{}", "a".repeat(64)),
            _ => "/nonexistent".to_owned(),
        };
        show.env(name, value);
    }
    let output = show.output().unwrap();
    assert!(output.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn names_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with("BOWLINE_")).map(str::to_owned).collect()
}

/// The cluster mounts the master secret for the pod's group, and a key file that a group can read is refused.
#[test]
fn a_pod_reads_its_master_secret_as_the_cluster_mounts_it() {
    let deployment = std::fs::read_to_string(deploy().join("kubernetes/deployment.yaml")).unwrap();
    assert!(deployment.contains("defaultMode: 0440"));
    let mut lines = deployment.lines().map(str::trim);
    lines.find(|line| *line == "- name: BOWLINE_SECRETS_COMMAND").unwrap();
    let command = lines.next().unwrap().strip_prefix("value: ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("master.key");
    std::fs::write(&secret, "A".repeat(43)).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o440)).unwrap();
    let command = command.replace("/run/bowline/master.key", &secret.display().to_string());
    let variables = [("BOWLINE_SECRETS_COMMAND", command.as_str())];
    let data = folder.path().join("data");
    let gateway = Process::start_at(&data, "127.0.0.1:0", &variables);
    assert!(!data.join("secrets.key").exists(), "it made a secret of its own");
    drop(gateway);
}
