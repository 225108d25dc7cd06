//! Signing keys: published ahead of their turn, and until all that they signed has expired.

use std::collections::HashSet;

use bowline_relay::control::registry::FILE;
use bowline_sbrp::token::{KeySet, Relay, TokenError};
use rusqlite::Connection;

use crate::control::bench::{Bench, ISSUER, identity, kid, now};

fn kids(bench: &Bench, at: u64) -> Vec<String> {
    bench.registry().published(at).unwrap().into_iter().map(|(kid, _)| kid).collect()
}

/// The database beside the server's back.
fn database(bench: &Bench) -> Connection {
    Connection::open(bench.folder.path().join(FILE)).unwrap()
}

#[tokio::test]
async fn the_key_set_has_two_keys_from_the_start_and_may_be_kept_five_minutes() {
    let bench = Bench::start().await;
    let published = bench.get("/.well-known/jwks.json", None).await;
    assert_eq!(published.status, 200);
    let age = published.header("cache-control").split("max-age=").nth(1).unwrap();
    assert!(age.parse::<u32>().unwrap() <= 300);
    let keys = published.body["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        assert_eq!((key["kty"].as_str(), key["crv"].as_str()), (Some("OKP"), Some("Ed25519")));
        assert_eq!((key["alg"].as_str(), key["use"].as_str()), (Some("EdDSA"), Some("sig")));
        assert!(key.get("d").is_none(), "only the public half");
    }
    assert_eq!(KeySet::from_jwks(published.text.as_bytes()).unwrap().len(), 2);
}

#[tokio::test]
async fn tokens_from_before_a_rotation_stay_good_and_new_ones_are_known_already() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let before = bench.register(&key, &identity(1)).await;
    let daemon = before.text_of("daemonId");
    let kept_by_a_relay = bench.keys().await;
    let rotated = bench.registry().rotate(now()).unwrap();
    let after = bench.renew(&key, &daemon).await.text_of("presenceToken");
    let before = before.text_of("presenceToken");
    assert_eq!((kid(&before), kid(&after)), (rotated.retired.clone(), rotated.current.clone()));
    assert_eq!(kids(&bench, now()), [rotated.retired, rotated.current, rotated.next]);
    bench.admit(&before).await.unwrap();
    bench.admit(&after).await.unwrap();
    let relay = Relay { issuer: ISSUER.into(), region: None };
    relay.admit(&after, &kept_by_a_relay, now()).unwrap();

    bench.registry().rotate(now()).unwrap();
    bench.admit(&before).await.unwrap();
    bench.admit(&after).await.unwrap();
    assert_eq!(bench.keys().await.len(), 4);
}

#[tokio::test]
async fn a_retired_key_is_published_until_the_last_token_it_signed_has_expired() {
    let bench = Bench::with(|config| {
        config.presence_ttl = std::time::Duration::from_secs(20 * 3600);
    })
    .await;
    let key = bench.user("alice");
    let made = bench.register(&key, &identity(1)).await;
    let expires = made.body["expiresAt"].as_u64().unwrap();
    let rotated = bench.registry().rotate(now()).unwrap();
    assert!(rotated.published_until > expires + 30, "and what relays allow for clocks");
    assert!(rotated.published_until < expires + 3600, "and not for ever");
    assert!(kids(&bench, expires + 30).contains(&rotated.retired));
    assert!(!kids(&bench, rotated.published_until).contains(&rotated.retired));
    assert_eq!(kids(&bench, rotated.published_until).len(), 2);

    // The one that took over has signed nothing: it need not stay.
    let rotated = bench.registry().rotate(now()).unwrap();
    assert!(rotated.published_until <= now() + 60);
}

#[tokio::test]
async fn a_key_that_signs_no_more_has_no_secret_half_any_more() {
    let bench = Bench::start().await;
    let seeds = || {
        let all = "SELECT seed FROM signing_keys WHERE role = 'current'";
        database(&bench).query_row(all, [], |row| row.get::<_, Vec<u8>>(0)).unwrap()
    };
    let old = seeds();
    bench.registry().rotate(now()).unwrap();
    let left = "SELECT role, count(seed) FROM signing_keys GROUP BY role ORDER BY role";
    let database = database(&bench);
    let mut left = database.prepare(left).unwrap();
    let left = left.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let left: Vec<(String, u32)> = left.map(Result::unwrap).collect();
    assert_eq!(left, [("current".into(), 1), ("next".into(), 1), ("retired".into(), 0)]);
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let file = std::fs::read(bench.folder.path().join(FILE)).unwrap();
    assert!(!file.windows(32).any(|bytes| bytes == old), "it is not in a free page either");
}

#[tokio::test]
async fn a_rotation_that_breaks_off_did_not_happen() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let before = kids(&bench, now());
    // Its last step but one fails, after the old key was retired and the next one promoted.
    database(&bench)
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON signing_keys
             BEGIN SELECT raise(ABORT, 'the disk is full'); END",
        )
        .unwrap();
    let failed = bench.registry().rotate(now()).unwrap_err();
    assert!(failed.to_string().contains("the disk is full"), "{failed}");
    assert_eq!(kids(&bench, now()), before);
    let token = bench.renew(&key, &daemon).await.text_of("presenceToken");
    assert_eq!(kid(&token), before[0], "the old key signs on");
    bench.admit(&token).await.unwrap();

    database(&bench).execute_batch("DROP TRIGGER broken").unwrap();
    let rotated = bench.registry().rotate(now()).unwrap();
    assert_eq!([rotated.retired, rotated.current], before[..]);
}

#[tokio::test]
async fn tokens_made_while_keys_rotate_are_all_good() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let mut tokens = vec![bench.open(&key, &daemon).await.text_of("token")];
    let mut registry = bench.registry();
    let rotating = tokio::task::spawn_blocking(move || {
        for _ in 0..10 {
            registry.rotate(now()).unwrap();
        }
    });
    while !rotating.is_finished() || tokens.len() < 20 {
        let opened = bench.open(&key, &daemon).await;
        assert_eq!(opened.status, 200, "{}", opened.text);
        tokens.push(opened.text_of("token"));
        if tokens.len() > 250 {
            break;
        }
    }
    rotating.await.unwrap();
    let keys = bench.keys().await;
    let relay = Relay { issuer: ISSUER.into(), region: None };
    for token in &tokens {
        relay.admit(token, &keys, now()).unwrap();
    }
    let signers: HashSet<_> = tokens.iter().map(|token| kid(token)).collect();
    assert!(signers.len() > 1, "the server noticed");
    assert_eq!(keys.len(), 2 + 10, "keys that signed nothing are kept for a minute, too");
}

#[tokio::test]
async fn keys_that_others_may_have_are_given_up_with_all_they_signed() {
    let bench = Bench::start().await;
    let key = bench.user("alice");
    let daemon = bench.daemon(&key, 1).await;
    let first = bench.renew(&key, &daemon).await.text_of("presenceToken");
    bench.registry().rotate(now()).unwrap();
    let second = bench.renew(&key, &daemon).await.text_of("presenceToken");
    let replaced = bench.registry().replace_keys(now()).unwrap();
    assert_eq!(kids(&bench, now()), [replaced.current.clone(), replaced.next]);
    for token in [first, second] {
        assert_eq!(bench.admit(&token).await, Err(TokenError::UnknownKey));
    }
    let third = bench.renew(&key, &daemon).await.text_of("presenceToken");
    assert_eq!(kid(&third), replaced.current);
    bench.admit(&third).await.unwrap();
    let seeds = "SELECT count(seed) FROM signing_keys";
    let seeds: u32 = database(&bench).query_row(seeds, [], |row| row.get(0)).unwrap();
    assert_eq!(seeds, 2);
}
