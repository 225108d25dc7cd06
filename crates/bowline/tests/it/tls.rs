//! A gateway that serves TLS with its own certificate.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tokio_tungstenite::Connector;
use tokio_tungstenite::tungstenite::Message as Packet;

use crate::process::{Process, bowline};

#[tokio::test]
async fn sbp_l2_01_calls_and_surfaces_come_over_tls_and_nothing_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut command = bowline();
    command.args(["gateway", "--json", "--listen", "127.0.0.1:0", "--tls-cert"]).arg(&cert);
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
