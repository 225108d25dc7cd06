//! TLS, and HTTP/2 where both can.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_federation::{
    PeerClient, PeerFault, PeerRequest, ReadLimits, StaticPeer, SystemLookup, Target,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::id;

/// A server with that certificate that answers with the version of HTTP that it was asked in.
async fn server(tls: rustls::ServerConfig, connections: Arc<AtomicUsize>) -> u16 {
    let is_h2 = tls.alpn_protocols.contains(&b"h2".to_vec());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, connections) = (acceptor.clone(), Arc::clone(&connections));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                connections.fetch_add(1, Ordering::Relaxed);
                let answer = service_fn(|request: Request<Incoming>| async move {
                    let version = if request.version() == Version::HTTP_2 { "2" } else { "1.1" };
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(version))))
                });
                let stream = TokioIo::new(stream);
                if is_h2 {
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(stream, answer).await;
                } else {
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(stream, answer).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn sbp_l6_02_peers_are_asked_over_http_2_and_http_1_1_and_only_with_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, ca.pem()).unwrap();
    bowline_net::trust::add([&file]).unwrap();

    let made = |name: &str, alpn: &[u8]| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &ca).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        config
    };
    let client = PeerClient::new(Arc::new(SystemLookup)).unwrap();
    let ask = async |port: u16| -> Result<Bytes, PeerFault> {
        let url = format!("https://localhost:{port}").parse().unwrap();
        let target = Target::named(&StaticPeer { id: id("a"), url, key: None });
        let limits = ReadLimits::small(1 << 10);
        client.ask(&target, PeerRequest::get("/x"), limits).await?.ok()?.body.read().await
    };
    for (alpn, version) in [(&b"h2"[..], "2"), (b"http/1.1", "1.1")] {
        let connections = Arc::new(AtomicUsize::new(0));
        let port = server(made("localhost", alpn), Arc::clone(&connections)).await;
        for _ in 0..3 {
            assert_eq!(ask(port).await.unwrap(), version);
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1, "the connection is kept");
    }
    let port = server(made("other.example", b"h2"), Arc::default()).await;
    let refused = ask(port).await.unwrap_err();
    assert!(refused.to_string().contains("certificate is not trusted"), "{refused}");
}
