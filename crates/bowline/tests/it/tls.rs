//! A gateway that serves TLS with its own certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tokio_tungstenite::Connector;
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::process::{Process, bowline};

/// A gateway with a self-signed certificate for localhost, and the certificate's file.
fn self_signed(folder: &Path) -> (Process, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--tls-cert"]).arg(&cert);
    command.arg("--tls-key").arg(&key).arg("--data").arg(folder);
    (Process::spawned(command, folder), cert)
}

#[test]
fn a_certificate_that_is_not_trusted_is_called_that_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, cert) = self_signed(folder.path());
    let port = gateway.url.rsplit_once(':').unwrap().1.to_owned();
    let url = format!("https://localhost:{port}");
    let list = |url: &str| {
        let mut command = bowline();
        command.args(["sessions", "list", "--url", url]);
        command
    };
    let said = |output: &std::process::Output| {
        let said = String::from_utf8(output.stderr.clone()).unwrap().replace(&port, "[PORT]");
        format!("exit code {}\n{said}", output.status.code().unwrap())
    };
    insta::assert_snapshot!(said(&list(&url).output().unwrap()), @r"
    exit code 5
    error: the certificate of https://localhost:[PORT]/ is not trusted: it is self-signed, or signed by an issuer that this machine does not know

    hint: certificates of this system's store are trusted, and those of a private authority that --ca-file FILE names, in PEM
    ");
    let other_name = list(&gateway.url).env("SSL_CERT_FILE", &cert).output().unwrap();
    insta::assert_snapshot!(said(&other_name), @r"
    exit code 5
    error: the certificate of https://127.0.0.1:[PORT]/ is not trusted: it is for another name than the one in the address

    hint: certificates of this system's store are trusted, and those of a private authority that --ca-file FILE names, in PEM
    ");
    let mut daemons = bowline();
    daemons.args(["daemons", "list", "--control", &url]).env("BOWLINE_CONTROL_KEY", "a key");
    insta::assert_snapshot!(said(&daemons.output().unwrap()), @r"
    exit code 5
    error: the certificate of the control plane at localhost:[PORT] is not trusted: it is self-signed, or signed by an issuer that this machine does not know

    hint: certificates of this system's store are trusted, and those of a private authority that --ca-file FILE names, in PEM
    ");
    let trusted = list(&url).env("SSL_CERT_FILE", &cert).output().unwrap();
    assert!(trusted.status.success(), "{}", said(&trusted));
    let mut doctor = bowline();
    doctor.args([
        "doctor",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &format!("{url}/v1"),
        "--data",
    ]);
    let output = doctor.arg(folder.path().join("other")).output().unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    let why = "cannot be reached: its certificate is not trusted: it is self-signed, or signed by";
    assert!(found.contains(why), "{found}");
}

#[tokio::test]
async fn sbp_l2_01_calls_and_surfaces_come_over_tls_and_nothing_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut command = bowline();
    command.args(["gateway", "run", "--json", "--listen", "127.0.0.1:0", "--tls-cert"]).arg(&cert);
    command.arg("--tls-key").arg(&key).arg("--data").arg(folder.path());
    let gateway = Process::spawned(command, folder.path());
    assert!(gateway.url.starts_with("https://127.0.0.1:"), "{}", gateway.url);

    let ours = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let http = reqwest::Client::builder().tls_certs_only([ours]).no_proxy().build().unwrap();
    let url = gateway.url.replace("127.0.0.1", "localhost");
    let session = http.post(format!("{url}/v1/sessions")).json(&json!({})).send().await.unwrap();
    let session: Value = session.json().await.unwrap();
    let plain = url.replace("https", "http");
    assert!(http.get(format!("{plain}/readyz")).send().await.is_err(), "nothing in the clear");

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = format!(
        "{}/v1/sbp/ws/{}",
        url.replace("https", "wss"),
        session["session_id"].as_str().unwrap()
    );
    let connector = Some(Connector::Rustls(Arc::new(config)));
    let (mut socket, _) =
        tokio_tungstenite::connect_async_tls_with_config(address, None, true, connector)
            .await
            .unwrap();
    let hello = json!({ "type": "ATTACH_SESSION", "session_id": session["session_id"],
                        "session_token": session["session_token"] });
    socket.send(Packet::text(hello.to_string())).await.unwrap();
    let welcome = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(welcome.contains("SESSION_ATTACHED"), "{welcome}");
}
