//! TLS: served, renewed, and never replaced by something unfit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_net::DoorError;
use bowline_net::tls::{BadCertificate, Tls};
use bowline_relay::relay::{Relay, RelayConfig, RelayStartError};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::Connector;

use super::peer::{Peer, data};
use super::server::{Server, start_with, until};

/// Writes a new certificate for `localhost` and gives it.
fn write(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().clone()
}

fn trusting(certificate: &CertificateDer<'static>) -> Connector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Connector::Rustls(Arc::new(config))
}

fn files(folder: &Path) -> Tls {
    let mut tls = Tls::new(folder.join("cert.pem"), folder.join("key.pem"));
    tls.reload_every = Duration::from_millis(20);
    tls
}

/// Whether a daemon that trusts this certificate alone gets in.
async fn serves(server: &Server, certificate: &CertificateDer<'static>) -> bool {
    let request = format!(
        "wss://localhost:{}/relay?token={}",
        server.address.port(),
        server.issuer.daemon("probe")
    );
    let connecting = tokio_tungstenite::connect_async_tls_with_config(
        request,
        None,
        true,
        Some(trusting(certificate)),
    );
    connecting.await.is_ok()
}

#[tokio::test]
async fn frames_pass_through_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write(folder.path());
    let server = start_with(|config| config.tls = Some(files(folder.path()))).await;
    let connect = |token: String| {
        let url = format!("wss://localhost:{}/relay?token={token}", server.address.port());
        let connector = trusting(&certificate);
        async move { Peer::connect_as(&url, None, Some(connector)).await.unwrap() }
    };
    let mut daemon = connect(server.issuer.daemon("d")).await;
    let mut client = connect(server.issuer.client("d", 1)).await;
    for size in [0, 1, 100, 20_000, 65_536] {
        client.send(&data(1, vec![7; size])).await;
        daemon.expect(&data(1, vec![7; size])).await;
        daemon.send(&data(1, vec![8; size])).await;
        client.expect(&data(1, vec![8; size])).await;
    }
    client.close().await;
    daemon.expect_code(bowline_sbrp::control::ControlCode::SessionEnded, 1).await;
}

#[tokio::test]
async fn a_new_certificate_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(folder.path());
    let server = start_with(|config| config.tls = Some(files(folder.path()))).await;
    assert!(serves(&server, &first).await);
    let second = write(folder.path());
    // The clock may not have moved since the first was written.
    let file = std::fs::File::options().write(true).open(folder.path().join("cert.pem")).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(9)).unwrap();
    until("renewed", || serves(&server, &second)).await;
    assert!(!serves(&server, &first).await);
}

#[tokio::test]
async fn start_errors_say_what_is_wrong_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let start = |change: &dyn Fn(&mut RelayConfig)| {
        let mut config =
            RelayConfig { listen: "127.0.0.1:0".parse().unwrap(), ..RelayConfig::default() };
        change(&mut config);
        Relay::bind(config)
    };
    let tls = |config: &mut RelayConfig| config.tls = Some(files(folder.path()));
    let error = start(&tls).await.unwrap_err();
    assert!(
        matches!(&error, RelayStartError::Door(DoorError::Tls(BadCertificate::File { path, .. })) if path.ends_with("cert.pem"))
    );
    assert!(error.hint().contains("--tls-cert"));
    write(folder.path());
    std::fs::write(folder.path().join("cert.pem"), "hello").unwrap();
    let error = start(&tls).await.unwrap_err();
    assert!(
        matches!(
            error,
            RelayStartError::Door(DoorError::Tls(BadCertificate::NoCertificate { .. }))
        ),
        "{error}"
    );
    write(folder.path());
    std::fs::write(folder.path().join("key.pem"), "hello").unwrap();
    let error = start(&tls).await.unwrap_err();
    assert!(
        matches!(error, RelayStartError::Door(DoorError::Tls(BadCertificate::NoKey { .. }))),
        "{error}"
    );
    // A key of another certificate.
    let other = tempfile::tempdir().unwrap();
    write(folder.path());
    write(other.path());
    std::fs::copy(other.path().join("key.pem"), folder.path().join("key.pem")).unwrap();
    let error = start(&tls).await.unwrap_err();
    assert!(
        matches!(error, RelayStartError::Door(DoorError::Tls(BadCertificate::Unfit { .. }))),
        "{error}"
    );

    let public = "0.0.0.0:0".parse().unwrap();
    let error = start(&|config| config.listen = public).await.unwrap_err();
    assert!(
        matches!(error, RelayStartError::Door(DoorError::Plain(_)))
            && error.hint().contains("--behind-proxy")
    );
    start(&|config| (config.listen, config.insecure) = (public, true)).await.unwrap();

    let taken = start(&|_| {}).await.unwrap();
    let error = start(&|config| config.listen = taken.local_addr()).await.unwrap_err();
    let address = taken.local_addr();
    assert_eq!(error, RelayStartError::Door(DoorError::AddressInUse { address }));
    assert!(error.hint().contains("--listen"));

    let error = start(&|config| config.issuer = "http://id.example".into()).await.unwrap_err();
    assert!(
        matches!(error, RelayStartError::Issuer(_)) && error.hint().contains("--issuer"),
        "{error}"
    );
}
