//! SBP-L6-03 and SBP-L6-04: what a gateway announces to a real tracker, and how it looks for others.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_gateway::config::{Config, TrackerPeerConfig};
use bowline_sbp::federation::BaseUrl;
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_tracker::{Tracker, TrackerConfig};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::bench::{Bench, LOCAL_KEY, Session, eventually};
use crate::federation_move::free;
use crate::name_server::NameServer;
use crate::people;
use crate::roaming::text;

/// A tracker `t` on loopback, which knows `home`.
struct Running {
    url: BaseUrl,
    _stop: oneshot::Sender<()>,
    _running: AbortOnDropHandle<()>,
    _data: tempfile::TempDir,
}

impl Running {
    async fn start(at: SocketAddr, home: SocketAddr) -> Self {
        let home_url = format!("http://{home}").parse().unwrap();
        let config = TrackerConfig {
            listen: at,
            id: "t".parse().unwrap(),
            peers: [("home".parse().unwrap(), home_url)].into(),
            ..TrackerConfig::default()
        };
        let data = tempfile::tempdir().unwrap();
        let identity = GatewayIdentity::from_seed(&[9; 32]);
        let bound = Tracker::bind(config, data.path(), identity, Vec::new()).await.unwrap();
        let url = bound.url().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = AbortOnDropHandle::new(tokio::spawn(bound.run(stopped)));
        Self { url, _stop: stop, _running: running, _data: data }
    }

    /// Who has that bundle, and until when, as it says.
    async fn holders(&self, cid: &str) -> Vec<(String, i64)> {
        let url = self.url.join(&format!("/v1/sbp/registry/{cid}"));
        let answer: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        let holder =
            |holder: &Value| (text(&holder["gateway_id"]), holder["expires_at"].as_i64().unwrap());
        answer["gateways"].as_array().unwrap().iter().map(holder).collect()
    }

    async fn has(&self, cid: &str) -> bool {
        self.holders(cid).await.iter().any(|(id, _)| id == "home")
    }
}

fn is(config: &mut Config, id: &str, at: SocketAddr, tracker: SocketAddr) {
    config.listen = at;
    config.federation.enabled = true;
    config.federation.gateway_id = Some(id.parse().unwrap());
    let url = Some(format!("http://{tracker}").parse().unwrap());
    config.federation.trackers.insert("t".into(), TrackerPeerConfig { url, key: None });
}

/// The content id and the token of an export.
async fn exported(bench: &Bench, session: &Session, asked: Value) -> (String, String) {
    let made = bench.export(session, asked).await;
    assert_eq!(made.status, 201, "{}", made.text);
    (text(&made.body["bundle_cid"]), text(&made.body["roaming_token"]))
}

#[tokio::test]
async fn sbp_l6_03_only_marked_exports_are_announced_and_withdrawn_when_used_or_deleted() {
    let (home, at) = (free(), free());
    let tracker = Running::start(at, home).await;
    let bench = Bench::with(|config| is(config, "home", home, at)).await;
    let (one, two) = (bench.session_with(1).await, bench.session_with(1).await);
    let (silent, _) = exported(&bench, &one, json!({})).await;
    let (used, token) = exported(&bench, &one, json!({ "announce": true })).await;
    let (deleted, _) = exported(&bench, &two, json!({ "announce": true })).await;
    for cid in [&used, &deleted] {
        eventually("announced", async || tracker.has(cid).await).await;
    }
    assert!(!tracker.has(&silent).await, "nobody asked for it");
    assert_eq!(bench.import_token(&token).await.status, 201);
    eventually("withdrawn", async || !tracker.has(&used).await).await;
    assert!(tracker.has(&deleted).await);
    let gone = bench.http.delete(bench.url(&format!("/v1/sessions/{}", two.id)));
    assert_eq!(gone.send().await.unwrap().status(), 204);
    eventually("withdrawn", async || !tracker.has(&deleted).await).await;
}

#[tokio::test]
async fn sbp_l6_03_a_tracker_that_was_down_is_told_later_and_announcements_are_renewed() {
    let (home, at) = (free(), free());
    let bench = Bench::with(|config| {
        is(config, "home", home, at);
        config.federation.announce_every = Duration::from_secs(1);
    })
    .await;
    let session = bench.session_with(1).await;
    let (cid, _) = exported(&bench, &session, json!({ "announce": true })).await;
    let tracker = Running::start(at, home).await;
    eventually("announced", async || tracker.has(&cid).await).await;
    let until = tracker.holders(&cid).await[0].1;
    let later = async || tracker.holders(&cid).await.iter().any(|(_, later)| *later > until);
    eventually("renewed", later).await;
}

#[tokio::test]
async fn sbp_l6_03_without_a_tracker_nothing_can_be_announced() {
    let bench = Bench::start().await;
    let session = bench.session_with(1).await;
    let refused = bench.export(&session, json!({ "announce": true })).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(refused.text.contains("federation.trackers"), "{}", refused.text);
}

#[tokio::test]
async fn sbp_l6_04_trackers_then_dns_are_asked_and_no_private_address_of_theirs_is_dialled() {
    let (home, away, at) = (free(), free(), free());
    let tracker = Running::start(at, home).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let names = NameServer::on(socket, &[(1, 1, 443, "localhost")]);
    let at_home = Bench::with(|config| is(config, "home", home, at)).await;
    let at_away = Bench::with(|config| {
        is(config, "away", away, at);
        config.federation.domains = vec!["example.test".into()];
        config.federation.name_servers = vec![names.address];
    })
    .await;
    let session = at_home.session_with(1).await;
    let (cid, token) = exported(&at_home, &session, json!({ "announce": true })).await;
    eventually("announced", async || tracker.has(&cid).await).await;
    let refused = at_away.import_token(&token).await;
    assert_eq!(refused.status, 502, "{}", refused.text);
    assert!(refused.text.contains("a loopback address"), "{}", refused.text);
    assert_eq!(names.asked.lock().unwrap()[..1], ["_sbp._tcp.example.test"]);
    assert!(at_away.sessions().await.is_empty());
    let seen = people::get(&at_away, LOCAL_KEY, "/v1/peers").await;
    let ids: Vec<_> =
        seen.body["peers"].as_array().unwrap().iter().map(|peer| &peer["id"]).collect();
    assert_eq!(ids, ["t"], "it was asked, and nobody else is remembered");
    assert_eq!(seen.body["peers"][0]["pin"], "remembered");
    assert_eq!(at_home.say(&session, "echo 2").await.status, 200);
}
