//! Nothing of what people say, and nothing that opens a door, ever reaches a log.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bowline_sbrp::frame::{Frame, Reason, Signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::issuer::{Mood, sid};
use super::peer::data;
use super::server::{start_with, until};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

/// On one thread, so that a log of this thread sees all that the relay says.
#[tokio::test]
async fn sbrp_relay_15_no_token_id_or_payload_is_logged_at_any_level() {
    let log = Log::default();
    // The clients of the test are in the same process; what they log is theirs.
    let filter = "trace,tungstenite=off,tokio_tungstenite=off,reqwest=off,hyper_util=off";
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let server = start_with(|config| {
        config.keys.retry_every = std::time::Duration::from_millis(10);
        config.grace = std::time::Duration::from_millis(20);
    })
    .await;
    let name = "daemon-canary-zq";
    let session = 0x1122_3344_5566_7788;
    let issuer = &server.issuer;
    let (daemon_token, client_token) = (issuer.daemon(name), issuer.client(name, session));
    let mut daemon = server.connect(&daemon_token).await;
    let mut client = server.connect(&client_token).await;
    client.send(&data(session, "payload-canary-zq")).await;
    daemon.expect(&data(session, "payload-canary-zq")).await;
    // Everything that can go wrong.
    let bad = format!("{client_token}x");
    assert_eq!(server.refusal(&bad).await.0, 401);
    server.get(&format!("/status?token={daemon_token}"), Some(&client_token)).await;
    server.get(&format!("/nowhere?token={daemon_token}"), Some(&bad)).await;
    server.connect(&client_token).await.next().await.unwrap();
    daemon.signal(session, Signal::READY).await;
    daemon.send(&data(99, "payload-canary-zq")).await;
    daemon.next().await.unwrap();
    let mut replacing = server.connect(&daemon_token).await;
    daemon.expect_close(4009).await;
    replacing.signal(session, Signal::close(Reason::Error)).await;
    while client.next().await.is_ok() {}
    let mut client = server.connect(&client_token).await;
    client.send(&Frame::Signal { session: sid(session), signal: Signal::READY }).await;
    while client.next().await.is_ok() {}
    replacing.send_bytes("payload-canary-zq, which is no frame").await;
    while replacing.next().await.is_ok() {}
    let asked = issuer.fetches();
    issuer.set(Mood::Failing);
    let unknown = issuer.signer("key-canary-zq").presence(&issuer.presence(name));
    until("asked", || async {
        assert_eq!(server.refusal(&unknown).await.0, 401);
        server.issuer.fetches() > asked
    })
    .await;
    let tokens = [daemon_token, client_token, unknown];
    tokio::time::timeout(super::server::PATIENCE, server.stop()).await.unwrap().unwrap();

    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("could not be fetched"), "the log was watched: {log}");
    let id = sid(session);
    let mut secrets = vec![
        name.to_owned(),
        "payload-canary-zq".into(),
        "key-canary-zq".into(),
        "token=".into(),
        id.to_string(),
        id.to_wire().to_string(),
        format!("{:x}", id.to_wire()),
        format!("{:?}", b"payload-canary-zq"),
        format!("user-{session}"),
    ];
    for token in tokens {
        secrets.extend(token.split('.').map(str::to_owned));
    }
    for secret in secrets {
        let line = log.lines().find(|line| line.contains(&secret));
        assert_eq!(line, None, "{secret} was logged");
    }
}

#[tokio::test]
async fn refused_tokens_are_logged_by_reason_and_not_by_what_is_in_them() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("bowline_relay=info"))
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let server = start_with(|_| {}).await;
    until("ready", || async { server.get("/readyz", None).await.0 == 200 }).await;
    let mut claims = server.issuer.claims();
    claims["iss"] = "https://issuer-canary-zq.example".into();
    let token = server.issuer.signed(&server.issuer.header(), &claims);
    for _ in 0..3 {
        assert_eq!(server.refusal(&token).await.0, 401);
    }
    assert_eq!(server.refusal("a.b.c").await.0, 401);
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("tokens are refused")).collect();
    assert_eq!(lines.len(), 2, "one line for each reason: {said}");
    assert!(lines[0].contains("WARN") && lines[0].contains("reason=\"issuer\" count=1"), "{said}");
    assert!(lines[0].contains("the token is from another issuer; --issuer has to be"), "{said}");
    assert!(lines[1].contains("reason=\"malformed\""), "{said}");
    assert!(!said.contains("canary-zq") && !said.contains(&token), "{said}");
}
