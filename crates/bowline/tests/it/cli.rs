//! Errors of the commands, word for word.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::process::{Process, bowline};

/// Exit code and stderr of a command, with the parts that differ from run to run replaced.
fn fails(args: &[&str], data: &Path, replace: &[(&str, &str)]) -> String {
    let output = bowline().args(args).arg("--data").arg(data).output().unwrap();
    assert!(!output.status.success(), "{args:?} should fail");
    let mut said = String::from_utf8(output.stderr).unwrap();
    said = said.replace(&data.display().to_string(), "[DATA]");
    for (from, to) in replace {
        said = said.replace(from, to);
    }
    format!("exit code {}\n{said}", output.status.code().unwrap())
}

#[test]
fn a_taken_port_is_named_with_another_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let next = (port + 1).to_string();
    let said = fails(
        &["up", "--listen", &listen],
        folder.path(),
        &[(&port.to_string(), "[PORT]"), (&next, "[NEXT]")],
    );
    insta::assert_snapshot!(said, @r"
    exit code 1
    error: the address 127.0.0.1:[PORT] is already in use

    hint: another program listens there; try --listen 127.0.0.1:[NEXT]
    ");
}

#[tokio::test]
async fn a_second_gateway_on_the_same_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _gateway = Process::start(folder.path());
    let said = fails(&["up", "--listen", "127.0.0.1:0"], folder.path(), &[]);
    insta::assert_snapshot!(said, @r"
    exit code 1
    error: another bowline is using [DATA]

    hint: stop the other one, or give this one its own folder with --data
    ");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let said = fails(&["up"], Path::new("/proc/no/such/place"), &[]);
    insta::assert_snapshot!(said, @r"
    exit code 1
    error: cannot use the data folder [DATA]: No such file or directory (os error 2)

    hint: check that the folder exists and is yours, or choose another with --data
    ");
}

#[test]
fn a_bad_configuration_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[limits]\ndrian = \"5s\"\n").unwrap();
    let path = config.display().to_string();
    let said = fails(
        &["gateway", "run", "--config", &path],
        &folder.path().join("data"),
        &[(&path, "[FILE]")],
    );
    insta::assert_snapshot!(said, @r#"
    exit code 2
    error: [FILE], line 2: `limits.drian` is not a setting

    hint: did you mean `limits.drain`? for example:

      [limits]
      drain = "25s"
    "#);
    let upstream = "[upstream.x]\nurl = \"nowhere\"\n";
    std::fs::write(&config, upstream).unwrap();
    let said = fails(
        &["gateway", "run", "--config", &path],
        &folder.path().join("data"),
        &[(&path, "[FILE]")],
    );
    insta::assert_snapshot!(said, @r"
    exit code 2
    error: [FILE], line 2: upstream `x`: `url` is not a URL; write it like https://host/v1

    hint: check it with `bowline config show`
    ");
}

#[test]
fn a_public_address_without_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = fails(&["up", "--listen", "0.0.0.0:0"], folder.path(), &[]);
    insta::assert_snapshot!(said, @r"
    exit code 2
    error: the flag --listen: 0.0.0.0:0 can be reached from other machines, and without TLS keys and conversations would be readable on the way

    hint: give it a certificate with --tls-cert and --tls-key; or name the proxy that ends TLS in front of it with --behind-proxy ADDRESS; or say --insecure if plain HTTP is meant. On 127.0.0.1 none of them is needed
    ");
    let behind_proxy = ["up", "--listen", "0.0.0.0:0", "--behind-proxy", "10.0.0.4"];
    insta::assert_snapshot!(fails(&behind_proxy, folder.path(), &[]), @r"
    exit code 2
    error: the flag --listen: 0.0.0.0:0 can be reached from other machines, and there is no API key

    hint: make a key with `bowline keys new` and set auth.api_keys, or add a user with `bowline users add`, or listen on 127.0.0.1, or say --insecure if nobody is to need a key
    ");
}

#[test]
fn no_command_talks_to_another_machine_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let said = fails(&["sessions", "list", "--url", "http://192.0.2.99:8080"], folder.path(), &[]);
    insta::assert_snapshot!(said, @r"
    exit code 2
    error: 192.0.2.99 is on another machine, and without TLS keys and conversations would be readable on the way

    hint: use https:// or wss://, or go through a tunnel to this machine, such as `ssh -L 8080:127.0.0.1:8080 HOST`
    ");
    for command in [
        &["chat", "-m", "hi"][..],
        &["export", "last"],
        &["fork", "last"],
        &["approvals", "list"],
        &["mcp", "serve"],
        &["users", "list"],
    ] {
        let named = [command, &["--url", "http://gateway.example:8080"]].concat();
        let said = fails(&named, folder.path(), &[]);
        assert!(said.contains("is on another machine"), "{command:?}: {said}");
    }
}

#[test]
fn a_key_for_this_machine_does_not_go_through_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start(folder.path());
    let mut command = bowline();
    command.args(["sessions", "list", "--json", "--url", &gateway.url]);
    command.env("BOWLINE_API_KEY", "a-key-that-no-proxy-may-see");
    // No proxy listens there.
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let output = command.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_chat_without_a_gateway_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let said = fails(&["chat", "-m", "hi", "--url", "http://127.0.0.1:1"], folder.path(), &[]);
    insta::assert_snapshot!(said, @r"
    exit code 5
    error: nothing listens at http://127.0.0.1:1/

    hint: start a gateway with `bowline up`, or name another with --url
    ");
}

#[test]
fn a_wrong_flag_is_explained() {
    let output = bowline().args(["up", "--listne", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--listen"));
}

#[test]
fn help_shows_commands_and_topics() {
    let help = |args: &[&str]| {
        let output = bowline().arg("help").args(args).env("COLUMNS", "80").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    };
    insta::assert_snapshot!(help(&["exit-codes"]).1, @r"
    Exit codes
    ----------

    Commands print an error on stderr and end with a code that says of which kind it
    is. bowline help exit-codes shows this table.

    code  kind         what happened
    0                  It is done.
    1     failed       An error of none of the kinds below. bowline doctor ends with
                       1 if a check fails.
    2     usage        The command line, a variable or the configuration file is
                       wrong. Nothing was done.
    3     refused      A server said no (a wrong key, a conflict, a limit, a token
                       that was used), or a file or folder is in the way and was not
                       replaced.
    4     not found    The named session, daemon, user or file does not exist.
    5     unreachable  A gateway, control plane, relay or daemon does not answer, or
                       its certificate is not trusted.
    6     key changed  A daemon shows another key than the pinned one. Nothing was
                       sent to it.
    74    data lost    The output, or the database, could not be written: the disk
                       is full or failed.
    130   stopped      Ctrl-C, where it did not wait for an orderly end.

    Only 5 is worth an automatic retry.
    ");
    insta::assert_snapshot!(help(&["daemons"]).1, @r"
    List, rename or revoke your daemons

    Usage: bowline daemons [OPTIONS] <COMMAND>

    Commands:
      list    List your daemons
      rename  Give a daemon another name
      revoke  Revoke a daemon permanently, for example a lost machine. It and its
              clients are disconnected

    Options:
      -q, --quiet
              Print no notes on stderr, only errors

          --ca-file <FILE>
              Also trust servers with a certificate of the authority in this PEM
              file; repeatable

      -h, --help
              Print help
    ");
    let (code, all) = help(&[]);
    assert_eq!(code, Some(0));
    for name in ["  chat ", "  configuration ", "  relay-guide "] {
        assert!(all.contains(&format!("\n{name}")), "{name}: {all}");
    }
    let (code, said) = help(&["daemons", "none"]);
    assert_eq!(code, Some(2));
    insta::assert_snapshot!(said, @r"
    error: there is no command and no topic `daemons none`

    hint: `bowline help` lists both
    ");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = bowline().args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("rename") && script.contains("key-file"), "{shell}");
        let path = folder.path().join(shell);
        std::fs::write(&path, script).unwrap();
        // Not every machine has the other two.
        if shell == "bash" {
            let read = std::process::Command::new(shell).arg("-n").arg(&path).status().unwrap();
            assert!(read.success());
        }
    }
    let man = folder.path().join("man");
    let output = bowline().args(["man", "--out"]).arg(&man).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(man.join("bowline-daemons-rename.1")).unwrap();
    assert!(page.contains("Give a daemon another name"), "{page}");
    let output = bowline().arg("man").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(".ie"), "the page of bowline");
}

#[test]
fn old_spellings_work_with_a_hint_that_quiet_leaves_out() {
    let said = |args: &[&str]| {
        let output = bowline().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    insta::assert_snapshot!(said(&["daemons"]), @r"
    hint: `bowline daemons` without a verb is an old spelling that goes away with the next release: write `bowline daemons list`
    error: no control plane was given

    hint: log in with `bowline login URL`, use --control URL, or set BOWLINE_CONTROL
    ");
    insta::assert_snapshot!(said(&["daemons", "--quiet"]), @r"
    error: no control plane was given

    hint: log in with `bowline login URL`, use --control URL, or set BOWLINE_CONTROL
    ");
    let given = said(&["daemons", "--revoke", "x", "--control", "http://127.0.0.1:1"]);
    assert!(given.contains("write `bowline daemons revoke`"), "{given}");
    assert!(given.contains("no key for the control plane"), "{given}");
}

#[test]
fn a_secret_on_the_command_line_works_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let key = "an-api-key-of-some-length";
    let gateway =
        Process::start_at(folder.path(), "127.0.0.1:0", &[("BOWLINE_AUTH_API_KEYS", key)]);
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let list = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = bowline();
        command.args(["sessions", "list", "--json", "--url", &gateway.url]).args(args);
        command.envs(environment.iter().copied());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let ok = (Some(0), String::new());
    assert_eq!(list(&["--key-file", file.to_str().unwrap()], &[]), ok);
    assert_eq!(list(&[], &[("BOWLINE_API_KEY", key)]), ok);
    assert_eq!(list(&["--key", key, "--quiet"], &[]), ok);
    let (code, said) = list(&["--key", key], &[]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(said, @"hint: other users of this machine can see the value of --key, which goes away with the next release: use --key-file FILE or BOWLINE_API_KEY");
    let (code, said) = list(&["--key-file", "/no/such/file"], &[]);
    assert!(code == Some(2) && said.contains("check --key-file"), "{said}");
}

#[tokio::test]
async fn the_doctor_tells_good_from_bad() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = |args: &[&str]| {
        let mut command = bowline();
        command.args(["doctor", "--json", "--listen", "127.0.0.1:0", "--data"]);
        let output = command.arg(folder.path()).args(args).output().unwrap();
        let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), findings)
    };
    let (well, findings) = doctor(&[]);
    assert!(well, "{findings}");
    let _gateway = Process::start(folder.path());
    let (well, findings) = doctor(&[]);
    assert!(well && findings.to_string().contains("which is ready"), "{findings}");
    let (well, findings) = doctor(&["--upstream", "http://127.0.0.1:1/v1"]);
    assert!(!well && findings.to_string().contains("cannot be reached"), "{findings}");
}

/// The findings of `bowline doctor`, by check: result and detail.
fn doctor(data: &Path, environment: &[(&str, &str)]) -> BTreeMap<String, (String, String)> {
    let mut command = bowline();
    command.args(["doctor", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let text = |finding: &serde_json::Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let one = |f: &serde_json::Value| (text(f, "check"), (text(f, "result"), text(f, "detail")));
    findings.iter().map(one).collect()
}

#[tokio::test]
async fn the_doctor_asks_the_gateway_that_runs_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gateway = Process::start_at(
        data,
        "127.0.0.1:0",
        &[
            ("BOWLINE_AUTH_API_KEYS", "an-api-key-of-some-length"),
            ("BOWLINE_UPSTREAM_URL", "http://127.0.0.1:1/v1"),
            ("BOWLINE_DEFAULT_MODEL", "m"),
        ],
    );
    let found = doctor(data, &[]);
    let (result, detail) = &found["gateway"];
    assert_eq!((result.as_str(), detail), ("ok", &format!("{}, which is ready", gateway.url)));
    assert_eq!(found["version"].1, env!("CARGO_PKG_VERSION"));
    assert_eq!(found["sessions"].1, "0", "the folder's key opens it");
    let (result, detail) = &found["upstream"];
    assert!(result == "fail" && detail.contains("default of the gateway"), "{detail}");
    assert_eq!(found["key files"].0, "ok");
    let key = data.join("local.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (result, detail) = &doctor(data, &[])["key files"];
    assert!(result == "warn" && detail.contains("chmod 600"), "{detail}");
}

#[test]
fn the_doctor_looks_at_what_daemons_clients_and_control_planes_keep() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let found = doctor(data, &[]);
    for check in ["daemon", "known daemons", "control data", "control plane"] {
        assert!(!found.contains_key(check), "there is nothing to look at: {found:?}");
    }
    let relay = data.join("relay");
    std::fs::create_dir_all(&relay).unwrap();
    for name in ["identity", "known.json"] {
        std::fs::write(relay.join(name), "nonsense").unwrap();
        std::fs::set_permissions(relay.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let mut user = bowline();
    user.args(["control", "user", "add", "alice", "--data"]).arg(data.join("control"));
    assert!(user.output().unwrap().status.success());
    let away = [("BOWLINE_CONTROL", "http://127.0.0.1:1"), ("BOWLINE_CONTROL_KEY", "secret-key")];
    let found = doctor(data, &away);
    assert!(found["daemon"].0 == "fail" && found["daemon"].1.contains("no identity"), "{found:?}");
    assert_eq!(found["known daemons"].0, "fail", "{found:?}");
    assert_eq!(found["control plane"].0, "fail", "{found:?}");
    assert!(found["control plane"].1.contains("cannot be reached"), "{found:?}");
    assert!(found["control data"].1.ends_with("opens; users: 1"), "{found:?}");
    assert!(!format!("{found:?}").contains("secret-key"));
    let (result, detail) = &doctor(data, &away[..1])["control plane"];
    assert_eq!((result.as_str(), detail.as_str()), ("warn", "no key for the control plane"));
}

#[test]
fn an_upstream_on_this_machine_is_not_looked_for_behind_a_proxy() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let upstream = Process::start(theirs.path());
    let mut command = bowline();
    command.args(["doctor", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(ours.path());
    command.args(["--upstream", &format!("{}/v1", upstream.url)]);
    // No proxy listens there.
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let output = command.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let findings = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && findings.contains("answers"), "{findings}");
}

#[test]
fn config_show_names_origins_and_masks_secrets() {
    let output = bowline()
        .args(["config", "show", "--listen", "127.0.0.1:9999"])
        .env("BOWLINE_AUTH_API_KEYS", "a-secret-key-of-mine")
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("# flag --listen"), "{shown}");
    assert!(shown.contains("# environment BOWLINE_AUTH_API_KEYS"), "{shown}");
    assert!(!shown.contains("a-secret-key"), "{shown}");
}

#[test]
fn a_made_key_opens_a_gateway_that_knows_its_hash() {
    let made = bowline().args(["keys", "new", "--json"]).output().unwrap();
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Process::start_at(
        folder.path(),
        "127.0.0.1:0",
        &[("BOWLINE_AUTH_API_KEYS", made["config"].as_str().unwrap())],
    );
    let list = |key: &str| {
        let mut command = bowline();
        command.args(["sessions", "list", "--url", &gateway.url, "--key", key]);
        command.output().unwrap().status.success()
    };
    assert!(list(made["key"].as_str().unwrap()));
    assert!(!list("not-the-key"));
    // The owner of the data folder needs no --key.
    let mut own = bowline();
    own.args(["sessions", "list", "--data"]).arg(folder.path());
    assert!(own.output().unwrap().status.success());
}

#[test]
fn the_example_configuration_is_valid_and_says_the_defaults() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bowline.example.toml");
    let show = |args: &[&str]| {
        let output = bowline().args(["config", "show", "--json"]).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (defaults, shown) = (show(&[]), show(&["--config", example]));
    for (key, default) in defaults.as_object().unwrap() {
        let in_example = shown[key]["from"].as_str().unwrap().starts_with("file ");
        assert!(in_example || key == "data", "{key} is missing in the example");
        assert!(key == "data" || shown[key]["value"] == default["value"], "{key}: {}", shown[key]);
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for command in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["doctor", "--data", data],
        &["doctor", "--data", data, "--json"],
        &["keys", "new"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bowline().args(command).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains("panicked"), "{command:?}: {said}");
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = bowline().args(["keys", "new"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("not all of the output") && said.contains("hint:"), "{said}");
}
