use std::net::SocketAddr;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::proxy;

/// A server or proxy on loopback that answers its first connection with `serve`.
async fn once<F: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    address
}

/// Reads the head of a request.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

/// A proxy that answers so, and the error of a connection through it.
async fn refused(answer: &'static str) -> String {
    let proxy = once(move |mut stream| async move {
        head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        // Until the client has read the answer.
        let _ = stream.read_u8().await;
    });
    let proxy = proxy.await;
    let url: Url = "wss://relay.test/relay".parse().unwrap();
    let named = proxy::named(&format!("http://{proxy}"), &url);
    let error = dial_by(&url, named.as_ref(), trust::client_config).await.unwrap_err();
    error.to_string().replace(&proxy.to_string(), "PROXY")
}

struct Authority {
    certificate: CertificateDer<'static>,
    acceptor: TlsAcceptor,
}

impl Authority {
    /// A certificate for this name, and a server's TLS with it.
    fn of(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![name.into()]).unwrap();
        let certificate = made.cert.der().clone();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        Self { certificate, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    fn trusted(&self) -> impl Fn() -> Result<Arc<ClientConfig>, rustls::Error> + use<> {
        let config = Arc::new(trust::trusting(vec![self.certificate.clone()]).unwrap());
        move || Ok(Arc::clone(&config))
    }
}

/// Greets and reads the same back.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
}

async fn echo(stream: impl AsyncRead + AsyncWrite) {
    let (mut reads, mut writes) = tokio::io::split(stream);
    let _ = tokio::io::copy(&mut reads, &mut writes).await;
}

#[tokio::test]
async fn a_tunnel_is_asked_for_with_host_port_and_credentials_and_nothing_else() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let proxy = once(|mut stream| async move {
        tell.send(head(&mut stream).await).unwrap();
        stream.write_all(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await.unwrap();
        echo(stream).await;
    });
    let proxy = proxy.await;
    let url: Url = "ws://relay.test/relay?token=secret".parse().unwrap();
    let named = proxy::named(&format!("http://user:word@{proxy}"), &url);
    let stream = dial_by(&url, named.as_ref(), trust::client_config).await.unwrap();
    assert_eq!(
        told.await.unwrap(),
        "CONNECT relay.test:80 HTTP/1.1\r\nHost: relay.test:80\r\n\
         Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n\r\n"
    );
    talk(stream).await;
}

#[tokio::test]
async fn tls_is_spoken_with_the_server_inside_the_tunnel() {
    let server = Authority::of("relay.test");
    let acceptor = server.acceptor.clone();
    let proxy = once(|mut stream| async move {
        let asked = head(&mut stream).await;
        assert!(asked.starts_with("CONNECT relay.test:8443 HTTP/1.1\r\n"), "{asked}");
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
        echo(acceptor.accept(stream).await.unwrap()).await;
    });
    let proxy = proxy.await;
    let url: Url = "wss://relay.test:8443/relay".parse().unwrap();
    let named = proxy::named(&format!("http://{proxy}"), &url);
    talk(dial_by(&url, named.as_ref(), server.trusted()).await.unwrap()).await;
}

#[tokio::test]
async fn a_proxy_may_speak_tls_itself() {
    // One certificate for both, to be trusted at once.
    let both = Authority::of("localhost");
    let acceptor = both.acceptor.clone();
    let proxy = once(|stream| async move {
        let mut stream = acceptor.accept(stream).await.unwrap();
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        echo(stream).await;
    });
    let proxy = proxy.await;
    let url: Url = "ws://relay.test/".parse().unwrap();
    let named = proxy::named(&format!("https://localhost:{}", proxy.port()), &url);
    talk(dial_by(&url, named.as_ref(), both.trusted()).await.unwrap()).await;
}

#[tokio::test]
async fn what_is_here_is_dialled_directly_with_and_without_tls() {
    let server = once(echo).await;
    talk(dial(&format!("ws://{server}/relay").parse().unwrap()).await.unwrap()).await;

    let own = Authority::of("127.0.0.1");
    let acceptor = own.acceptor.clone();
    let server = once(|stream| async move { echo(acceptor.accept(stream).await.unwrap()).await });
    let url: Url = format!("wss://{}/relay", server.await).parse().unwrap();
    talk(dial_by(&url, None, own.trusted()).await.unwrap()).await;
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_not_trusted() {
    let stranger = Authority::of("127.0.0.1");
    let acceptor = stranger.acceptor.clone();
    let server = once(|stream| async move {
        let _ = acceptor.accept(stream).await;
    });
    let url: Url = format!("wss://{}/relay", server.await).parse().unwrap();
    let error = dial_by(&url, None, trust::client_config).await.unwrap_err().to_string();
    assert!(error.starts_with("its certificate is not trusted: it is self-signed"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_does_not_do_it_is_named_with_what_to_do() {
    let asked = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(
        refused(asked).await,
        "the proxy PROXY refused (407): it wants a user and a password; write them as \
         HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
    );
    let said = refused("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    assert!(said.starts_with("the proxy PROXY refused (403): ") && said.contains("NO_PROXY"));
    let said = refused("HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    assert_eq!(said, "the proxy PROXY refused (502): it cannot reach the host itself");
    for garbled in ["SSH-2.0-x\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\ntoo early"] {
        let said = refused(garbled).await;
        assert_eq!(said, "the proxy PROXY does not answer as an HTTP proxy", "{garbled}");
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_there_or_of_another_kind_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let url: Url = "wss://relay.test/relay".parse().unwrap();
    for (proxy, expected) in [
        ("http", format!("the proxy {closed} cannot be reached: connection refused")),
        (
            "socks5",
            format!(
                "the proxy {closed} is a socks5 proxy; only http:// and https:// proxies are supported"
            ),
        ),
    ] {
        let named = proxy::named(&format!("{proxy}://{closed}"), &url);
        let error = dial_by(&url, named.as_ref(), trust::client_config).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_says_nothing_is_given_up() {
    let proxy = once(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let proxy = proxy.await;
    let url: Url = "wss://relay.test/relay".parse().unwrap();
    let named = proxy::named(&format!("http://{proxy}"), &url);
    let error = dial_by(&url, named.as_ref(), trust::client_config).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the proxy {proxy} did not answer in time"));
}
