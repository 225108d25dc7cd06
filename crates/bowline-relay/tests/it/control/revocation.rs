//! What is revoked counts from the next request on, whoever revoked it.

use bowline_sbrp::id::DaemonId;
use bowline_sbrp::revocation::{self, Revoked};
use bowline_sbrp::token::{Admission, ClientPass};
use serde_json::json;

use crate::control::bench::{Bench, eventually, identity, now};
use crate::control::sessions::unreachable_relay;

#[tokio::test]
async fn a_revoked_daemon_gets_no_more_tokens() {
    let bench = Bench::with(unreachable_relay).await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let other = bench.daemon(&key, 2).await;
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204);
    assert_eq!(bench.register(&key, &identity(1)).await.refusal(), (403, "forbidden"));
    assert_eq!(bench.renew(&key, &daemon).await.refusal(), (403, "forbidden"));
    assert_eq!(bench.open(&key, &daemon).await.refusal(), (403, "forbidden"));
    assert_eq!(bench.revoke(&key, &daemon).await.status, 204, "again changes nothing");
    let list = bench.get("/api/daemons", Some(&key)).await.body;
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["id"], json!(other), "the other one goes on");
    assert_eq!(bench.renew(&key, &other).await.status, 200);
}

#[tokio::test]
async fn the_operator_revokes_a_daemon_and_the_server_knows_at_once() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let until = bench.registry().revoke_daemon(&daemon, now()).unwrap();
    assert!((now() + 3500..=now() + 3600).contains(&until), "relays take its token so long");
    assert_eq!(bench.open(&key, &daemon).await.refusal(), (403, "forbidden"));
    let again = bench.registry().revoke_daemon(&daemon, now());
    assert_eq!(again.unwrap_err().to_string(), "the daemon was revoked");
    let none = bench.registry().revoke_daemon("none", now());
    assert_eq!(none.unwrap_err().to_string(), "there is no such daemon");
}

#[tokio::test]
async fn a_revoked_user_is_nobody_at_once_and_for_good() {
    let bench = Bench::start().await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let (hers, his) = (bench.daemon(&alice, 1).await, bench.daemon(&bob, 1).await);
    let revoked = bench.registry().revoke_user("alice", now()).unwrap();
    assert_eq!((revoked.keys, revoked.daemons), (1, 1));
    assert!(revoked.tokens_until.unwrap() > now() + 3500);
    for refused in [
        bench.register(&alice, &identity(1)).await,
        bench.register(&alice, &identity(9)).await,
        bench.renew(&alice, &hers).await,
        bench.open(&alice, &hers).await,
        bench.revoke(&alice, &hers).await,
        bench.get("/api/daemons", Some(&alice)).await,
    ] {
        assert_eq!(refused.refusal(), (401, "unauthorized"));
    }
    assert_eq!(bench.open(&bob, &his).await.status, 200);

    // The name is free again, for somebody else: neither key nor daemon come back.
    let namesake = bench.user("alice");
    assert_eq!(bench.open(&namesake, &hers).await.refusal(), (404, "not_found"));
    assert_eq!(bench.open(&alice, &hers).await.refusal(), (401, "unauthorized"));
    let users = bench.registry().users().unwrap();
    assert_ne!(users[0].id, users[2].id);
    assert!(users[0].revoked_at.is_some() && users[2].revoked_at.is_none());
}

#[tokio::test]
async fn a_users_keys_can_be_replaced() {
    let bench = Bench::start().await;
    let first = bench.user("alice");
    let daemon = bench.daemon(&first, 1).await;
    let second = bench.registry().add_key("alice", false, now()).unwrap();
    assert_eq!(bench.open(&first, &daemon).await.status, 200);
    assert_eq!(bench.open(second.reveal(), &daemon).await.status, 200);
    let third = bench.registry().add_key("alice", true, now()).unwrap();
    for old in [&first, second.reveal()] {
        assert_eq!(bench.open(old, &daemon).await.refusal(), (401, "unauthorized"));
    }
    assert_eq!(bench.open(third.reveal(), &daemon).await.status, 200);
}

#[tokio::test]
async fn names_of_users_are_plain_and_given_once() {
    let bench = Bench::start().await;
    bench.user("alice");
    let add = |name: &str| bench.registry().add_user(name, now()).map(drop);
    assert_eq!(add("alice").unwrap_err().to_string(), "there is a user of that name");
    for bad in ["", "two words", "a\nb", "ä", &"x".repeat(65)] {
        assert!(add(bad).unwrap_err().to_string().starts_with("a user's name has"), "{bad:?}");
    }
    let none = bench.registry().revoke_user("bob", now()).unwrap_err();
    assert_eq!(none.to_string(), "there is no such user");
    assert_eq!(bench.registry().add_key("bob", false, now()).unwrap_err(), none);
}

#[tokio::test]
async fn relays_learn_who_was_revoked_and_nobody_learns_an_id() {
    let bench = Bench::start().await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let list = async || {
        let published = bench.get(revocation::PATH, None).await;
        assert_eq!(published.status, 200, "{}", published.text);
        assert_eq!(published.header("cache-control"), "no-store");
        published.text
    };
    let read = |text: &str| Revoked::from_json(text.as_bytes()).unwrap();
    let (lost, kept) = (bench.daemon(&alice, 1).await, bench.daemon(&alice, 2).await);
    let his = bench.daemon(&bob, 1).await;
    assert!(read(&list().await).is_empty());
    assert_eq!(bench.revoke(&alice, &lost).await.status, 204);
    bench.registry().revoke_user("bob", now()).unwrap();
    let text = list().await;
    let named = |id: &str| read(&text).contains(&DaemonId::new(id));
    assert!(named(&lost) && named(&his) && !named(&kept));
    assert!(!text.contains(&lost) && !text.contains(&his), "{text}");
}

#[tokio::test]
async fn the_list_of_the_revoked_is_of_late_and_bounded() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let mut ids = Vec::new();
    for seed in 1..=4 {
        ids.push(DaemonId::new(bench.daemon(&key, seed).await));
    }
    let mut registry = bench.registry();
    for (id, at) in ids.iter().zip([10, 20, 30, 40]) {
        registry.revoke_daemon(id.as_str(), at).unwrap();
    }
    assert_eq!(registry.revoked_since(20, 9).unwrap(), [3, 2, 1].map(|at| ids[at].clone()));
    assert_eq!(registry.revoked_since(0, 2).unwrap(), [3, 2].map(|at| ids[at].clone()));
    assert!(registry.revoked_since(41, 9).unwrap().is_empty());
}

#[tokio::test]
async fn relays_learn_whose_keys_were_replaced_and_up_to_when_tokens_end() {
    let bench = Bench::start().await;
    let (alice, bob) = (bench.user("alice"), bench.user("bob"));
    let (hers, his) = (bench.daemon(&alice, 1).await, bench.daemon(&bob, 1).await);
    let token = bench.open(&alice, &hers).await.text_of("token");
    let Ok(Admission::Client(hers_before)) = bench.admit(&token).await else { panic!() };
    let presence = bench.renew(&alice, &hers).await.text_of("presenceToken");
    let Ok(Admission::Daemon(presence)) = bench.admit(&presence).await else { panic!() };
    assert_eq!(presence.owner.as_deref(), Some(hers_before.user.as_str()));
    let list = async || {
        let published = bench.get(revocation::PATH, None).await;
        Revoked::from_json(published.text.as_bytes()).unwrap()
    };
    let ends = |list: &Revoked, pass: &ClientPass| list.ends_token(&pass.user, pass.issued_at);
    bench.registry().add_key("alice", false, now()).unwrap();
    assert!(list().await.is_empty(), "another key ends nothing");
    let key = bench.registry().add_key("alice", true, now()).unwrap();
    let after = list().await;
    assert!(ends(&after, &hers_before) && after.ends_token(&presence.owner.unwrap(), now() - 1));
    // Everybody else, and what is issued later, is not meant.
    let token = bench.open(&bob, &his).await.text_of("token");
    let Ok(Admission::Client(his)) = bench.admit(&token).await else { panic!() };
    assert!(!ends(&after, &his) && !after.contains(&DaemonId::new(hers.as_str())));
    eventually("a later second", async || {
        let token = bench.open(key.reveal(), &hers).await.text_of("token");
        let Ok(Admission::Client(again)) = bench.admit(&token).await else { panic!() };
        !ends(&after, &again)
    })
    .await;
    bench.registry().revoke_user("bob", now()).unwrap();
    assert!(ends(&list().await, &his));
}

#[tokio::test]
async fn g11_new_daemons_are_limited_in_a_day() {
    let bench = Bench::with(|config| config.limits.new_daemons_per_day = 2).await;
    let key = bench.user("alice");
    for seed in 1..=2 {
        let daemon = bench.daemon(&key, seed).await;
        assert_eq!(bench.revoke(&key, &daemon).await.status, 204);
    }
    let refused = bench.register(&key, &identity(3)).await;
    assert_eq!(refused.refusal(), (429, "rate_limited"));
    assert_eq!(refused.header("retry-after"), "3600");
}
