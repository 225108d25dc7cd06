//! Users at one address work while others flood the same gateway: connections that are never read,
//! bodies that do not end, and wrong keys ([`bowline_bench::flood`]).

use std::time::Duration;

use bowline_bench::flood::{Flood, FloodSize, turns_of_users};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::bounded::memory;
use crate::process::Process;

const OWNERS: &str = "the-owners-key-of-this-test";

/// How large it all is.
struct Size {
    flood: FloodSize,
    per_address: usize,
    users: usize,
    length: Duration,
}

impl Size {
    fn chosen() -> Self {
        let wrong_keys_per_second = 100;
        match std::env::var_os("BOWLINE_SOAK").is_some() {
            false => Self {
                flood: FloodSize {
                    unread_connections: 128,
                    slow_bodies: 20,
                    wrong_keys_per_second,
                },
                per_address: 64,
                users: 4,
                length: Duration::from_millis(1500),
            },
            true => Self {
                flood: FloodSize {
                    unread_connections: 2000,
                    slow_bodies: 200,
                    wrong_keys_per_second,
                },
                per_address: 1024,
                users: 8,
                length: Duration::from_secs(20),
            },
        }
    }
}

async fn made(gateway: &Process, path: &str, body: Value) -> Value {
    let request = reqwest::Client::new().post(format!("{}{path}", gateway.url));
    let response = request.bearer_auth(OWNERS).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED, "{path}");
    response.json().await.unwrap()
}

async fn key_of(gateway: &Process, user: &str) -> String {
    made(gateway, "/v1/users", json!({ "name": user })).await;
    let key = made(gateway, "/v1/keys", json!({ "user": user, "name": "laptop" })).await;
    key["key"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_users_work_while_another_address_floods_the_gateway() {
    bowline_net::descriptors::raise();
    let size = Size::chosen();
    let folder = tempfile::tempdir().unwrap();
    let per_address = size.per_address.to_string();
    let settings = [
        ("BOWLINE_AUTH_API_KEYS", OWNERS),
        ("BOWLINE_LIMITS_CONNECTIONS_PER_ADDRESS", per_address.as_str()),
    ];
    let gateway = Process::start_at(folder.path(), "127.0.0.1:0", &settings);
    let (ada, mallory) = (key_of(&gateway, "ada").await, key_of(&gateway, "mallory").await);
    let at = gateway.address().parse().unwrap();
    let turns = async || turns_of_users(at, &ada, size.users, size.length).await.unwrap();
    let quiet = turns().await;
    let (before, _) = memory(&gateway);

    let mut flood = Flood::start(at, size.flood, &mallory);
    flood.risen().await.unwrap();
    let flooded = turns().await;
    let files = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    let wrong_keys = flood.wrong_keys().unwrap();
    let grown = memory(&gateway).1.saturating_sub(before);
    let FloodSize { unread_connections, slow_bodies, .. } = size.flood;
    eprintln!(
        "{unread_connections} connections never read, {slow_bodies} slow bodies, {wrong_keys} wrong \
         keys: {quiet:.0} turns/s quiet, {flooded:.0} flooded ({:.2}), {} MiB more",
        flooded / quiet,
        grown >> 20
    );
    let most = size.per_address + slow_bodies + size.users + 60;
    let held = size.per_address / 2..most;
    assert!(held.contains(&files), "{files} open files, where {most} are allowed");
    // Far below what is usual: a busy machine alone does not get there.
    assert!(flooded > quiet / 20.0, "{flooded:.0} turns/s where there were {quiet:.0}");
    let allowed = (48 << 20) + (size.per_address + slow_bodies) * (64 << 10);
    assert!(grown < allowed, "{} MiB, where {} are allowed", grown >> 20, allowed >> 20);
}
