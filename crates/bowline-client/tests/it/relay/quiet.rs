//! Nothing secret is in a log, at any level (SBRP-CRYPTO-10).

use std::io;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_client::relay::load_or_create;
use bowline_sbrp::control::Role;
use tracing_subscriber::fmt::MakeWriter;

use super::control::KEY;
use super::world::{World, established, heard, lost};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[tokio::test]
async fn sbrp_crypto_10_no_key_token_or_message_is_logged_at_any_level() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    // For all threads: one for this thread alone would miss what another one met first. What the
    // other tests say meanwhile is looked through, too.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let world = World::start().await;
    let path = world.folder.path().join("identity");
    let mut config = world.daemon_config();
    config.identity = load_or_create(&path).unwrap();
    let mut daemon = world.daemon_with(config).await;
    let mut client = world.client();
    let mut there = established(&mut client).await;
    let mut here = super::world::opened(&mut daemon).await;
    there.send(b"canary-there".to_vec()).await.unwrap();
    here.send(b"canary-here".to_vec()).await.unwrap();
    heard(&mut here).await;
    heard(&mut there).await;
    let shown = format!("{daemon:?} {client:?} {here:?} {there:?} {:?}", world.client_config());
    world.relay.inject(Role::Client, b"canary-frame".to_vec().into());
    lost(&mut client).await;
    world.relay.restart();
    lost(&mut client).await;
    established(&mut client).await;

    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("relay lost") && said.contains("session lost"), "{said}");
    let seed = std::fs::read_to_string(&path).unwrap();
    let key = load_or_create(&path).unwrap().public();
    let mut secrets = world.control.tokens.lock().unwrap().clone();
    secrets.extend([KEY.to_owned(), "canary".to_owned(), seed.trim().to_owned()]);
    secrets.push(URL_SAFE_NO_PAD.encode(key.as_bytes()));
    for secret in secrets {
        assert!(!said.contains(&secret), "{secret} is in the log");
        assert!(!shown.contains(&secret), "{secret} is shown");
    }
}
