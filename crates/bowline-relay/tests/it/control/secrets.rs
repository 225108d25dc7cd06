//! Nothing secret is written anywhere but where it has to be.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bowline_relay::control::registry::FILE;
use bowline_sbrp::api::OpenDeviceSession;
use bowline_sbrp::device_auth::DeviceRequest;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use reqwest::Method;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::control::bench::{Bench, identity, now};

/// Keeps all that is logged.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Vec<u8>>>);

impl Write for Watch {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Watch {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn sbrp_crypto_10_no_key_or_token_is_ever_logged() {
    let watch = Watch::default();
    // All that runs here runs on this thread, so a log of its own is enough. With a single one, the
    // library lets whichever thread comes first decide that nobody wants to hear of something:
    // hence a second.
    let log = || {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
        tracing::Dispatch::new(log.with_ansi(false).with_writer(watch.clone()).finish())
    };
    let (log, _second) = (log(), log());
    let _log = tracing::dispatcher::set_default(&log);
    let bench = Bench::with(crate::control::sessions::unreachable_relay).await;
    let key = bench.user("alice");
    let made = bench.register(&key, &identity(1)).await;
    let daemon = made.text_of("daemonId");
    let renewed = bench.renew(&key, &daemon).await;
    let opened = bench.open(&key, &daemon).await;
    bench.get("/api/daemons", Some(&key)).await;
    bench.set_devices(&key, &daemon, json!([{ "publicKey": identity(101) }])).await;
    let device = IdentitySecret::from_seed(&[101; 32]);
    let asked = DeviceRequest::sign(&device, &DaemonId::new(daemon.as_str()), now());
    let asked = serde_json::to_value(OpenDeviceSession::from(&asked)).unwrap();
    let by_device =
        bench.call(Method::POST, "/api/sessions", None, Some(asked.clone())).await.text_of("token");
    let signature = asked["device"]["signature"].as_str().unwrap().to_owned();
    let wrong = "bck_canary-of-a-wrong-key";
    assert_eq!(bench.open(wrong, &daemon).await.status, 401);
    let broken = json!({ "apiKey": wrong, "identityPublicKey": "canary-of-a-wrong-key" });
    bench.register_as(broken).await;
    bench.get("/api/daemons?key=canary-of-a-wrong-key", Some(wrong)).await;
    bench.call(Method::POST, "/canary-of-a-wrong-key", Some(wrong), None).await;
    let database = rusqlite::Connection::open(bench.folder.path().join(FILE)).unwrap();
    let seed = "SELECT seed FROM signing_keys WHERE role = 'current'";
    let seed: Vec<u8> = database.query_row(seed, [], |row| row.get(0)).unwrap();
    database.execute_batch("ALTER TABLE daemons RENAME TO lost").unwrap();
    assert_eq!(bench.open(&key, &daemon).await.status, 500);
    bench.stop().await;

    let log = String::from_utf8_lossy(&watch.0.lock().unwrap()).into_owned();
    assert!(log.contains("route=\"/api/sessions\""), "the control plane's log was watched");
    assert!(log.contains("the registry failed"), "its mistakes, too");
    let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let tokens =
        [made.text_of("presenceToken"), renewed.text_of("presenceToken"), opened.text_of("token")];
    let of_device = [&by_device, &signature, &identity(101)];
    for secret in tokens.iter().chain([&key, &hex]).chain(of_device).map(String::as_str) {
        assert!(!log.contains(secret) && !log.contains(&secret[4..]), "{secret}");
    }
    let own: String = log.lines().filter(|line| line.contains("bowline_relay")).collect();
    assert!(!own.contains("canary-of-a-wrong-key"), "{own}");
}

#[tokio::test]
async fn no_api_key_is_in_the_data_folder() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let more = bench.registry().add_key("alice", false, now()).unwrap();
    let made = bench.register(&key, &identity(1)).await;
    bench.open(&key, &made.text_of("daemonId")).await;
    // While it runs, so that the write-ahead log is there to be looked at, too.
    let mut looked = 0;
    for entry in std::fs::read_dir(bench.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        looked += bytes.len();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(!has(&key[4..]) && !has(&more.reveal()[4..]), "an API key");
        assert!(!has(&made.text_of("presenceToken")[..100]), "a token");
    }
    assert!(looked > 10_000, "{looked}");
}
