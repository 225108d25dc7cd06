//! Who may announce what.

use bowline_sbp::federation::Announcement;
use serde_json::{Value, json};

use crate::world::{Gateway, Running, identity, now};

#[tokio::test]
async fn sbp_l6_03_a_gateway_announces_refreshes_and_withdraws_and_others_find_it() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (Gateway::start("a", 1).await, Gateway::start("b", 2).await);
    let tracker = Running::start(folder.path(), &[&a, &b], |_| ()).await;
    let (of_a, of_b) = (a.peers(), b.peers());
    for gateway in [(&a, &of_a), (&b, &of_b)] {
        let announcement = gateway.0.announcement(&[1, 2], &[]);
        gateway.1.announce(&tracker.target(), &announcement.cids, &[]).await.unwrap();
    }
    assert_eq!(tracker.holders(&of_b, 1).await, ["a", "b"]);
    assert_eq!(tracker.holders(&of_b, 3).await, [""; 0], "that nobody has it is signed, too");
    let again = a.announcement(&[1], &[]);
    of_a.announce(&tracker.target(), &again.cids, &[crate::world::cid(2)]).await.unwrap();
    assert_eq!(tracker.holders(&of_b, 1).await, ["a", "b"]);
    assert_eq!(tracker.holders(&of_b, 2).await, ["b"]);
    let found = of_b.look_up(&tracker.target(), crate::world::cid(1)).await.unwrap();
    assert_eq!(found.gateways[0].url, a.url);
    assert_eq!(*a.fetched.lock().unwrap(), 1, "its key was asked for once");

    // It is on disk.
    tracker.stop().await;
    let tracker = Running::start(folder.path(), &[&a, &b], |_| ()).await;
    assert_eq!(tracker.holders(&of_b, 1).await, ["a", "b"]);
}

#[tokio::test]
async fn sbp_l6_03_an_announcement_that_is_sent_again_brings_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let a = Gateway::start("a", 1).await;
    let tracker = Running::start(folder.path(), &[&a], |_| ()).await;
    let first = Announcement { issued_at: now() - 10, ..a.announcement(&[1], &[]) };
    let first = a.sign(&first);
    assert_eq!(tracker.post(first.clone()).await, (200, json!({"announced": 1, "withdrawn": 0})));
    let withdrawal = a.sign(&a.announcement(&[], &[1]));
    assert_eq!(tracker.post(withdrawal).await, (200, json!({"announced": 0, "withdrawn": 1})));
    assert_eq!(tracker.post(first).await, (200, json!({"announced": 0, "withdrawn": 0})));
    assert_eq!(tracker.holders(&a.peers(), 1).await, [""; 0]);
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn sbp_l6_03_only_the_key_at_the_announced_address_announces() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (Gateway::start("a", 1).await, Gateway::start("b", 2).await);
    let tracker = Running::start(folder.path(), &[&a], |_| ()).await;
    let good = a.announcement(&[1], &[]);
    let unauthorized = (401, "SBP_UNAUTHORIZED");
    let forbidden = (403, "SBP_FORBIDDEN");
    let other_key = tracker.post(good.sign(&identity(2))).await;
    assert_eq!(code(&other_key), unauthorized, "{other_key:?}");
    let changed = a.sign(&good).replace(&crate::world::cid(1).to_string(), &"0".repeat(64));
    assert_eq!(code(&tracker.post(changed).await), unauthorized);
    let old = Announcement { issued_at: now() - 301, ..good.clone() };
    assert_eq!(code(&tracker.post(a.sign(&old)).await), unauthorized);
    // A named peer is announced at its own address, or at the one that its manifest says.
    let elsewhere = Announcement { url: b.url.clone(), ..good.clone() };
    assert_eq!(code(&tracker.post(a.sign(&elsewhere)).await), forbidden);
    // A stranger on this machine is not asked for its key.
    let stranger = tracker.post(b.sign(&b.announcement(&[1], &[]))).await;
    assert_eq!(code(&stranger), forbidden, "{stranger:?}");
    for url in [
        "https://127.0.0.1:9",
        "https://169.254.169.254",
        "https://[::ffff:10.0.0.1]",
        "https://2130706433",
        "https://0x7f.1",
        "https://localhost",
    ] {
        let announcement = Announcement { url: url.parse().unwrap(), ..b.announcement(&[1], &[]) };
        assert_eq!(code(&tracker.post(b.sign(&announcement)).await), forbidden, "{url}");
    }
    assert_eq!(*b.fetched.lock().unwrap(), 0);
    assert_eq!(tracker.holders(&a.peers(), 1).await, [""; 0], "nothing was stored");
}

#[tokio::test]
async fn sbp_l6_03_a_gateway_with_a_new_key_is_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let a = Gateway::start("a", 1).await;
    let tracker = Running::start(folder.path(), &[&a], |_| ()).await;
    assert_eq!(tracker.post(a.sign(&a.announcement(&[1], &[]))).await.0, 200);
    a.rotate(3);
    assert_eq!(tracker.post(a.sign(&a.announcement(&[2], &[]))).await.0, 200);
    assert_eq!(*a.fetched.lock().unwrap(), 2);
    let old = a.announcement(&[3], &[]).sign(&identity(1));
    assert_eq!(tracker.post(old).await.0, 401, "the old key does not count any more");
    // Signatures that fit no key do not make it ask without end.
    let wrong = || a.announcement(&[3], &[]).sign(&identity(9));
    for _ in 0..10 {
        assert!(matches!(tracker.post(wrong()).await.0, 401 | 429));
    }
    assert!(*a.fetched.lock().unwrap() <= 4);
}

#[tokio::test]
async fn sbp_l6_03_content_like_members_and_nonsense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let a = Gateway::start("a", 1).await;
    let tracker = Running::start(folder.path(), &[&a], |_| ()).await;
    let good = a.sign(&a.announcement(&[1], &[]));
    for name in ["bundle", "messages", "content"] {
        let mut value: Value = serde_json::from_str(&good).unwrap();
        value[name] = json!("canary-zq");
        let refused = tracker.post(value.to_string()).await;
        assert_eq!(code(&refused), (422, "SBP_INVALID_REQUEST"));
        assert!(!refused.1.to_string().contains("canary"), "it is not repeated");
    }
    assert_eq!(tracker.post("{").await.0, 400);
    assert_eq!(tracker.post("").await.0, 400);
    let many: Vec<_> = (0..1_001).collect();
    assert_eq!(tracker.post(a.sign(&a.announcement(&many, &[]))).await.0, 422);
    assert_eq!(tracker.post(vec![b' '; (256 << 10) + 1]).await.0, 413);
    assert_eq!(tracker.get("/v1/sbp/registry/xyz").await.0, 422);
    let upper = crate::world::cid(1).to_string().to_uppercase();
    assert_eq!(tracker.get(&format!("/v1/sbp/registry/{upper}")).await.0, 422);
    assert_eq!(tracker.holders(&a.peers(), 1).await, [""; 0]);
}

#[tokio::test]
async fn sbp_l6_03_records_are_bounded_and_a_closed_tracker_takes_its_peers_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (Gateway::start("a", 1).await, Gateway::start("b", 2).await);
    let tracker = Running::start(folder.path(), &[&a], |config| {
        config.only_peers = true;
        config.limits.records_per_gateway = 3;
    })
    .await;
    let public = "https://b.example".parse().unwrap();
    let stranger = Announcement { url: public, ..b.announcement(&[1], &[]) };
    assert_eq!(tracker.post(b.sign(&stranger)).await.0, 403);
    assert_eq!(tracker.post(a.sign(&a.announcement(&[1, 2, 3], &[]))).await.0, 200);
    assert_eq!(tracker.post(a.sign(&a.announcement(&[4], &[]))).await.0, 403);
    assert_eq!(tracker.holders(&a.peers(), 4).await, [""; 0]);
    assert_eq!(tracker.holders(&a.peers(), 3).await, ["a"]);
}
