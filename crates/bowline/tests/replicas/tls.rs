//! PostgreSQL and Redis over TLS, with certificates of a private authority.

use bowline_servers::{Certificate, Flush, Postgres, Redis};
use serde_json::json;

use crate::client::{Client, eventually};
use crate::installation::{Addresses, Installation, KEY, gateway, log_of, refusal};
use crate::phone::LiveText;
use crate::process::Process;

/// An authority, and what it signed for `localhost`.
struct Authority {
    certificate: String,
    server: (String, String),
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, key);
        let server = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let signed = server.signed_by(&key, &issuer).unwrap();
        Self { certificate, server: (signed.pem(), key.serialize_pem()) }
    }

    fn for_server(&self) -> Certificate<'_> {
        Certificate { certificate: &self.server.0, key: &self.server.1 }
    }
}

/// Ports differ from run to run.
fn without_ports(text: &str) -> String {
    let pieces = text.split_inclusive([':', '/']);
    let without = pieces.map(|piece| match piece.strip_suffix('/') {
        Some(port) if port.parse::<u16>().is_ok() => "[PORT]/",
        _ => piece,
    });
    without.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_reach_postgresql_and_redis_by_tls_and_trust_only_whom_they_are_told_to() {
    let (ours, other) = (Authority::new(), Authority::new());
    let postgres = Postgres::start_with_tls(Flush::Off, ours.for_server()).unwrap();
    postgres.make_database("tls").unwrap();
    let redis = Redis::start_with_tls(ours.for_server()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (our_file, other_file) =
        (file("ours.pem", &ours.certificate), file("other.pem", &other.certificate));
    let port = postgres.address().rsplit_once(':').unwrap().1.to_owned();
    let at = |host: &str| format!("postgres://bowline@{host}:{port}/tls?sslmode=verify-full");
    let addresses = |host: &str| Addresses { store: at(host), bus: redis.tls_url().unwrap() };

    let refused = |name: &str, addresses: Addresses, ca_file: Option<&str>| {
        let data = folder.path().join(name);
        let mut command = gateway(&data, &addresses);
        command.args(ca_file.iter().flat_map(|file| ["--ca-file", file]));
        without_ports(&refusal(command, &data))
    };
    insta::assert_snapshot!(refused("none", addresses("localhost"), None), @r"
    exit code 5
    error: postgres://localhost:[PORT]/tls: the certificate of the server is not trusted: it is self-signed, or signed by an issuer that this machine does not know

    hint: name the file of the authority that signed the server's certificate, in PEM: &sslrootcert=FILE in store.url, or --ca-file FILE; with sslmode=verify-full the host in store.url has to be one in the certificate
    ");
    insta::assert_snapshot!(refused("other", addresses("localhost"), Some(&other_file)), @r"
    exit code 5
    error: postgres://localhost:[PORT]/tls: the certificate of the server is not trusted: it was not signed by the authority that is trusted here, but by another one of the same name

    hint: name the file of the authority that signed the server's certificate, in PEM: &sslrootcert=FILE in store.url, or --ca-file FILE; with sslmode=verify-full the host in store.url has to be one in the certificate
    ");
    insta::assert_snapshot!(refused("name", addresses("127.0.0.1"), Some(&our_file)), @r"
    exit code 5
    error: postgres://127.0.0.1:[PORT]/tls: the certificate of the server is not trusted: it is for another name than the one in the address

    hint: name the file of the authority that signed the server's certificate, in PEM: &sslrootcert=FILE in store.url, or --ca-file FILE; with sslmode=verify-full the host in store.url has to be one in the certificate
    ");
    // A Redis that is not trusted is as one that is not there: the gateway serves, and says what is wrong. It has
    // a database of its own, because it has other secrets than the replicas below.
    postgres.make_database("half").unwrap();
    let store = at("localhost").replace("/tls?", "/half?");
    let half = Addresses {
        store: format!("{store}&sslrootcert={our_file}"),
        bus: redis.tls_url().unwrap(),
    };
    let data = folder.path().join("half");
    let mut process = Process::spawned(gateway(&data, &half), &data);
    let client = Client::new(process.address(), KEY);
    eventually("it is degraded", async || {
        let ready = client.get("/readyz").await;
        ready.status == 200 && ready.body["degraded"].to_string().contains("bus:")
    })
    .await;
    let words = "TLS: its certificate is not trusted: it is self-signed, or signed by an issuer that this \
                 machine does not know; name the file of its authority with --ca-file";
    eventually("the log says why", async || log_of(&data).contains(words)).await;
    // In good order: beside one that may run, nobody replaces the master secret that it has.
    process.terminate();
    assert!(process.ended().success());

    let environment = [("BOWLINE_CA_FILE", our_file), ("BOWLINE_OFFLINE_PACE", "5ms".to_owned())];
    let world = Installation::at(addresses("localhost"), "", &environment);
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'bowline'";
    assert_eq!(postgres.sql("tls", encrypted).unwrap(), "t");
    let [a, b, c] = world.clients();
    let session = a.session().await;
    // The turn runs at one replica, and its text goes to another one by Redis.
    let mut phone = a.attach(&session, json!({ "surface_id": "phone" })).await;
    let mut elsewhere = c.attach(&session, json!({ "surface_id": "laptop" })).await;
    let text: String = (0..100).map(|n| format!("word {n} ")).collect();
    let said = b.say(&session, &format!("echo {text}")).await;
    for phone in [&mut phone, &mut elsewhere] {
        let mut live = LiveText::default();
        live.read_to_end(phone).await;
        assert_eq!(live.bytes, said.content().as_bytes());
    }
    for client in [a, b, c] {
        assert_eq!(client.get("/readyz").await.body["degraded"], json!([]));
    }
}
