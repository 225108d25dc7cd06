//! Runs all commands of the README, in order.

use std::process::{Command, Stdio};

/// The environment of the commands: a temporary home directory, the built binary in `PATH`, and a
/// `make` that only starts the gateway, since everything is built.
const BEFORE: &str = r#"
set -euo pipefail
export HOME="$1" XDG_DATA_HOME="$1/data" XDG_CONFIG_HOME="$1/config" PATH="$2:$PATH"
export BOWLINE_LISTEN=127.0.0.1:8080 # the test puts a free port here, as in the commands
make() {
    [ "$*" = run ] || { echo "the README says make $*" >&2; exit 1; }
    bowline up > "$HOME/up.log" &
    for _ in $(seq 200); do
        # As a person does: wait until it says what to do next. Its address is in the folder by then.
        grep -q 'Ctrl-C stops it' "$HOME/up.log" && return
        sleep 0.05
    done
    echo "the gateway did not get ready" >&2; exit 1
}
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"#;

#[test]
fn the_readmes_commands_work() {
    let readme = include_str!("../../../../README.md");
    let blocks: Vec<_> =
        readme.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 3, "the README shows how to use it");
    let home = tempfile::tempdir().unwrap();
    let mut script = format!("{BEFORE}\n{}", blocks.join("\n"));
    // The README's ports may be taken on this machine.
    let ports = ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"];
    let free = ports.map(|_| format!("127.0.0.1:{}", bowline_servers::quiet_port()));
    for (port, free) in ports.iter().zip(&free) {
        script = script.replace(port, free);
    }
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_bowline")).parent().unwrap();
    let output = Command::new("bash")
        .args(["-c", &script, "readme"])
        .arg(home.path())
        .arg(bin)
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, notes) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}\n{said}");
    assert!(said.contains("\"step_count\":2"), "the session went on: {said}");
    assert!(
        said.contains("at home") && said.contains("moved as"),
        "and at another gateway: {said}"
    );
}
