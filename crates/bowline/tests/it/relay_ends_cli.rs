//! Errors of `bowline daemon`, `connect` and `daemons`, word for word.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::process::bowline;

/// A control plane that gives the same response to every request.
fn control(status: u16, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).unwrap();
                assert_ne!(count, 0);
                request.extend_from_slice(&piece[..count]);
            }
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n");
            let _ = write!(stream, "{head}connection: close\r\n\r\n{body}");
        }
    });
    url
}

fn run(args: &[&str], url: Option<&str>) -> Output {
    let mut command = bowline();
    if let Some(url) = url {
        command.env("BOWLINE_CONTROL", url).env("BOWLINE_CONTROL_KEY", "a-key");
    }
    command.args(args).output().unwrap()
}

fn fails(args: &[&str], url: Option<&str>) -> String {
    let output = run(args, url);
    assert!(!output.status.success(), "{args:?} should fail");
    String::from_utf8(output.stderr).unwrap()
}

const TWO: &str = r#"[
    {"id":"d_1","identityPublicKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","status":"online","name":"home"},
    {"id":"d_22","identityPublicKey":"?","status":"resting"},
    {"id":"d_3","identityPublicKey":"?","status":"offline","name":"twin"},
    {"id":"d_4","identityPublicKey":"?","status":"offline","name":"twin"}]"#;

#[test]
fn what_is_missing_is_named() {
    insta::assert_snapshot!(fails(&["daemons", "list"], None), @r"
    error: no control plane was given

    hint: log in with `bowline login URL`, use --control URL, or set BOWLINE_CONTROL
    ");
    insta::assert_snapshot!(fails(&["daemons", "list", "--control", "https://control.example"], None), @r"
    error: no key for the control plane

    hint: log in with `bowline login URL`, set BOWLINE_CONTROL_KEY, or name a file that holds it with --key-file
    ");
    insta::assert_snapshot!(fails(&["daemons", "list"], Some("http://control.example")), @r"
    error: the control plane's address must begin with https://, or be on this machine

    hint: write it like https://control.example.org
    ");
    insta::assert_snapshot!(fails(&["daemons", "list"], Some("http://127.0.0.1:1")), @r"
    error: the control plane at 127.0.0.1:1 cannot be reached

    hint: check that it runs, and its address
    ");
}

#[test]
fn daemons_are_listed_with_their_state() {
    let empty = run(&["daemons", "list"], Some(&control(200, "[]")));
    assert!(empty.status.success() && empty.stdout.is_empty());
    insta::assert_snapshot!(String::from_utf8(empty.stderr).unwrap(), @"no daemons yet; start one with `bowline daemon run --tcp 127.0.0.1:22 --name home`");
    let listed = run(&["daemons", "list"], Some(&control(200, TWO)));
    let lines = String::from_utf8(listed.stdout).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines[0], "DAEMON  NAME  STATUS   FINGERPRINT");
    assert!(lines[1].starts_with("d_1     home  online   SHA256:66:68:7A:AD:"), "{}", lines[1]);
    assert_eq!(lines[2], "d_22    -     unknown  -");
    let json = run(&["daemons", "list", "--json"], Some(&control(200, TWO)));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json[0]["id"], &json[0]["status"]), (&"d_1".into(), &"online".into()));
}

#[test]
fn a_daemon_that_is_not_there_or_there_twice_is_not_guessed() {
    let url = control(200, TWO);
    insta::assert_snapshot!(fails(&["connect", "none", "--ping"], Some(&url)), @r"
    error: you have no daemon none

    hint: `bowline daemons list` lists your daemons
    ");
    insta::assert_snapshot!(fails(&["connect", "twin", "--ping"], Some(&url)), @r"
    error: 2 daemons are called twin

    hint: use an id; `bowline daemons list` shows them
    ");
}

#[test]
fn a_refused_key_is_said_and_never_shown() {
    let refusal = r#"{"error":{"code":"unauthorized","message":"no such key\u001b[2J"}}"#;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let said = fails(&["daemon", "run", "--data", data], Some(&control(401, refusal)));
    insta::assert_snapshot!(said, @r"
    error: the control plane refused: no such key[2J

    hint: check the key: that of --key-file, BOWLINE_CONTROL_KEY or `bowline login`
    ");
}

#[cfg(unix)]
#[test]
fn sbrp_daemon_01_an_identity_that_others_can_read_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("relay/identity");
    std::fs::create_dir_all(identity.parent().unwrap()).unwrap();
    std::fs::write(&identity, "A".repeat(43)).unwrap();
    std::fs::set_permissions(&identity, PermissionsExt::from_mode(0o644)).unwrap();
    let data = folder.path().to_str().unwrap();
    let said = fails(&["daemon", "run", "--data", data], Some("http://127.0.0.1:1"));
    insta::assert_snapshot!(said.replace(data, "[DATA]"), @r"
    error: others can read [DATA]/relay/identity (mode 644)

    hint: run `chmod 600 [DATA]/relay/identity`
    ");
}

#[test]
fn a_key_file_is_read_and_one_that_is_missing_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "a-key\n").unwrap();
    let url = control(200, "[]");
    let with = |file: &Path| {
        let file = file.to_str().unwrap();
        run(&["daemons", "list", "--control", &url, "--key-file", file], None)
    };
    assert!(with(&file).status.success());
    let missing = with(&folder.path().join("none"));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("cannot read") && said.contains("check --key-file"), "{said}");
}

#[test]
fn the_commands_say_what_is_needed() {
    let said = fails(&["connect", "home"], None);
    assert!(said.contains("--listen") && said.contains("--ping"), "{said}");
    let said = fails(&["daemon", "run", "--tcp", "22"], None);
    assert!(said.contains("write it like 127.0.0.1:22"), "{said}");
}
