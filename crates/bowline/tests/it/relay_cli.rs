//! `bowline relay`: errors, start and graceful shutdown.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::process::{DEADLINE, bowline};

fn fails(args: &[&str]) -> String {
    let output = bowline().args(["relay", "run"]).args(args).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"", "stdout is data");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_relay_says_why_it_does_not_start_and_what_to_do() {
    insta::assert_snapshot!(
        fails(&["--issuer", "https://control.example", "--listen", "0.0.0.0:8090"]), @r"
    error: 0.0.0.0:8090 can be reached from other machines, and without TLS keys and conversations would be readable on the way

    hint: give it a certificate with --tls-cert and --tls-key; or name the proxy that ends TLS in front of it with --behind-proxy ADDRESS; or say --insecure if plain HTTP is meant. On 127.0.0.1 none of them is needed
    ");
    insta::assert_snapshot!(fails(&["--issuer", "http://control.example"]), @r"
    error: the issuer's URL has to begin with https://, or http:// on this machine

    hint: give the control plane's address, such as --issuer https://control.example
    ");
    let issuer = ["--issuer", "https://control.example"];
    let tls = ["--tls-cert", "/nonexistent/cert.pem", "--tls-key", "/nonexistent/key.pem"];
    insta::assert_snapshot!(fails(&[&issuer[..], &tls].concat()), @r"
    error: cannot read /nonexistent/cert.pem: No such file or directory (os error 2)

    hint: check --tls-cert and --tls-key
    ");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let said = fails(&[&issuer[..], &["--listen", &address.to_string()]].concat());
    assert!(said.starts_with(&format!("error: the address {address} is already in use\n")));
    assert!(said.contains(&format!("--listen 127.0.0.1:{}", address.port() + 1)), "{said}");
    assert!(fails(&[&issuer[..], &["--grace", "soon"]].concat()).contains("250ms"));
}

#[test]
fn g16_sigterm_ends_a_relay_well_and_soon() {
    let mut child = bowline()
        .args([
            "relay",
            "run",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--issuer",
            "http://127.0.0.1:1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let url = ready["url"].as_str().unwrap();
    assert!(url.starts_with("ws://127.0.0.1:") && url.ends_with("/relay"), "{url}");
    let start = Instant::now();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(start.elapsed() < DEADLINE / 2);
}
