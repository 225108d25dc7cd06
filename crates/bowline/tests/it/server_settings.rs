//! `relay run`, `control run` and `daemon run` take their settings from file, environment and flags.

use serde_json::Value;

use crate::process::bowline;
use crate::sbrp::world::{Program, text};

#[test]
fn a_relay_a_control_plane_and_a_daemon_start_from_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (relay_port, control_port) = (bowline_servers::quiet_port(), bowline_servers::quiet_port());
    let config = folder.join("bowline.toml");
    let written = format!(
        "[relay_server]\nlisten = \"127.0.0.1:1\"\nissuer = \"http://127.0.0.1:{control_port}/\"\n\
         [control]\nlisten = \"127.0.0.1:{control_port}\"\ndata = {data:?}\n\
         relay_url = \"ws://127.0.0.1:{relay_port}/relay\"\n\
         [daemon]\ncontrol = \"http://127.0.0.1:{control_port}\"\nname = \"from-file\"\n\
         tcp = [\"ssh=127.0.0.1:22\"]\nkey_file = {key:?}\ndata = {daemon:?}\n",
        data = folder.join("control"),
        key = folder.join("key"),
        daemon = folder.join("daemon"),
    );
    std::fs::write(&config, written).unwrap();
    let command = |args: &[&str]| {
        let mut command = bowline();
        command.args(args).env("BOWLINE_CONFIG", &config);
        command
    };
    let control = Program::start(command(&["control", "run", "--json"]));
    assert_eq!(control.line()["url"], format!("http://127.0.0.1:{control_port}"));
    // The environment beats the file, and a flag beats both.
    let listen = format!("localhost:{relay_port}");
    let mut relay = command(&["relay", "run", "--json", "--listen", &listen]);
    relay.env("BOWLINE_RELAY_SERVER_LISTEN", "127.0.0.1:2");
    let relay = Program::start(relay);
    assert_eq!(relay.line()["url"], format!("ws://127.0.0.1:{relay_port}/relay"));
    // Administration finds the same folder.
    let added = command(&["control", "user", "add", "alice", "--json"]).output().unwrap();
    let added: Value = serde_json::from_slice(&added.stdout).unwrap();
    crate::sbrp::world::write_private(&folder.join("key"), added["api_key"].as_str().unwrap());
    let daemon = Program::start(command(&["daemon", "run", "--json"]));
    let registered = daemon.event("registered");
    assert_eq!(registered["name"], "from-file");
    assert_eq!(registered["tcp"]["ssh"], "127.0.0.1:22");
    daemon.event("online");
    assert!(folder.join("daemon/relay/identity").exists());
}

#[test]
fn what_a_server_needs_is_named_with_flag_and_key() {
    let fails = |args: &[&str], config: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bowline.toml");
        std::fs::write(&file, config).unwrap();
        let output = bowline().args(args).arg("--config").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr).replace(&folder.path().display().to_string(), "[FOLDER]")
    };
    insta::assert_snapshot!(fails(&["relay", "run"], ""), @r"
    error: the relay has no control plane whose tokens it accepts

    hint: run one with it (--with-control), or name one: --issuer https://control.example, or `issuer` in [relay_server]
    ");
    let both = "[relay_server]\nwith_control = true\nissuer = 'https://c.example'\n";
    insta::assert_snapshot!(fails(&["relay", "run"], both), @r"
    error: [relay_server] has both `with_control` and `issuer`

    hint: leave one of them out: tokens are accepted of one control plane
    ");
    insta::assert_snapshot!(fails(&["control", "run"], ""), @r"
    error: the control plane does not know its relay

    hint: name the address where daemons and clients connect: --relay-url wss://relay.example.org/relay, or `relay_url` in [control]
    ");
    insta::assert_snapshot!(fails(&["daemon", "run"], "[daemon]\ntcp = ['22']\n"), @r"
    error: `22` in daemon.tcp is not a target

    hint: write it like 127.0.0.1:22 or ssh=127.0.0.1:22
    ");
    insta::assert_snapshot!(fails(&["daemon", "run"], "[daemon]\ntpc = []\n"), @r#"
    error: [FOLDER]/bowline.toml, line 2: `daemon.tpc` is not a setting

    hint: did you mean `daemon.tcp`? for example:

      [daemon]
      tcp = ["ssh=127.0.0.1:22"]
    "#);
}

#[test]
fn config_show_shows_one_section_with_its_origins() {
    let show = |section: &str| {
        let mut command = bowline();
        command.args(["config", "show", section]).env("BOWLINE_CONTROL_LISTEN", ":7001");
        command.env("BOWLINE_CONTROL_RELAY_URL", "wss://u:hunter22@relay.example/relay");
        command.output().unwrap()
    };
    insta::assert_snapshot!(text(&show("control").stdout), @r#"
    control.behind_proxy = []                          # default
    control.insecure = false                           # default
    control.listen = ":7001"                           # environment BOWLINE_CONTROL_LISTEN
    control.presence_minutes = 60                      # default
    control.relay_url = "wss://u@relay.example/relay"  # environment BOWLINE_CONTROL_RELAY_URL
    "#);
    assert_eq!(show("contro").status.code(), Some(4));
}
