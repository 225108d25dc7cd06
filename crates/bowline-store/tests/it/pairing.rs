//! Contract of every backend: codes that wait for a device, whichever replica made them (G7, G11).

use std::time::Duration;

use bowline_sbp::access::{CredentialId, OWNER, Scope, Scopes};
use bowline_sbp::budget::OwnLimits;
use bowline_store::{OfferUsed, PairingOffer, PairingRate, TokenHash, UserKey};
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;

backends! {
    g7_an_offer_is_used_by_one_of_many_racing_devices
    g7_an_offer_waits_until_it_expires
    g7_an_offer_waits_on_if_the_key_was_not_stored
    g11_only_so_many_offers_wait_and_expired_ones_make_room
    g11_codes_are_tried_some_times_at_once_and_then_now_and_then
}

fn offer(n: u128, seconds: i64) -> PairingOffer {
    PairingOffer {
        id: Uuid::from_u128(n),
        user: OWNER,
        scopes: Scopes::of(&[Scope::Read]),
        expires_at: later(seconds),
    }
}

fn key_of_device(n: u8) -> UserKey {
    UserKey {
        id: CredentialId::from_bytes([n; 8]),
        user: OWNER,
        name: "phone".into(),
        secret: TokenHash([n; 32]),
        device: Some([n; 32]),
        scopes: Scopes::of(&[Scope::Read]),
        agents: Vec::new(),
        models: Vec::new(),
        limits: OwnLimits::default(),
        created_at: at(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

async fn g7_an_offer_is_used_by_one_of_many_racing_devices(store: S) {
    let before = store.access_revision().await.unwrap();
    assert!(store.offer_pairing(offer(1, 300), 16, at()).await.unwrap());
    assert!(store.access_revision().await.unwrap() > before, "other replicas are told");
    let racing = (1..=8).map(|n| {
        let store = S::clone(&store);
        tokio::spawn(async move {
            store.use_offer(Uuid::from_u128(1), key_of_device(n), at()).await.unwrap()
        })
    });
    let mut paired = 0;
    for racer in racing.collect::<Vec<_>>() {
        paired += usize::from(racer.await.unwrap() != OfferUsed::Gone);
    }
    assert_eq!((paired, store.keys(None).await.unwrap().len()), (1, 1));
    assert!(store.pairing_offers(at()).await.unwrap().is_empty());
    // The device is paired again by another code.
    let device = store.keys(None).await.unwrap().remove(0);
    store.offer_pairing(offer(2, 300), 16, at()).await.unwrap();
    let again = UserKey { device: device.device, ..key_of_device(99) };
    let used = store.use_offer(Uuid::from_u128(2), again, at()).await.unwrap();
    assert_eq!(used, OfferUsed::Paired { replaced: Some(device.id) });
}

async fn g7_an_offer_waits_until_it_expires(store: S) {
    for (n, seconds) in [(2, 300), (1, 310)] {
        store.offer_pairing(offer(n, seconds), 16, at()).await.unwrap();
    }
    assert_eq!(store.pairing_offers(later(299)).await.unwrap(), [offer(2, 300), offer(1, 310)]);
    assert_eq!(store.pairing_offers(later(300)).await.unwrap(), [offer(1, 310)]);
    for (n, seconds) in [(2, 300), (3, 0)] {
        let used = store.use_offer(Uuid::from_u128(n), key_of_device(1), later(seconds)).await;
        assert_eq!(used, Ok(OfferUsed::Gone));
    }
    assert!(store.keys(None).await.unwrap().is_empty());
}

async fn g7_an_offer_waits_on_if_the_key_was_not_stored(store: S) {
    store.add_key(key_of_device(1)).await.unwrap();
    store.offer_pairing(offer(1, 300), 16, at()).await.unwrap();
    // A key of that id is there already.
    let twice = UserKey { device: Some([2; 32]), ..key_of_device(1) };
    store.use_offer(Uuid::from_u128(1), twice, at()).await.unwrap_err();
    assert_eq!(store.pairing_offers(at()).await.unwrap(), [offer(1, 300)]);
    let used = store.use_offer(Uuid::from_u128(1), key_of_device(2), at()).await.unwrap();
    assert_eq!(used, OfferUsed::Paired { replaced: None });
}

async fn g11_only_so_many_offers_wait_and_expired_ones_make_room(store: S) {
    let racing = (1..=8).map(|n| {
        let store = S::clone(&store);
        tokio::spawn(async move { store.offer_pairing(offer(n, 300), 3, at()).await.unwrap() })
    });
    let mut waiting = 0;
    for racer in racing.collect::<Vec<_>>() {
        waiting += usize::from(racer.await.unwrap());
    }
    assert_eq!(waiting, 3);
    assert!(!store.offer_pairing(offer(9, 600), 3, later(299)).await.unwrap());
    assert!(store.offer_pairing(offer(9, 600), 3, later(300)).await.unwrap());
    assert_eq!(store.pairing_offers(later(300)).await.unwrap(), [offer(9, 600)]);
}

async fn g11_codes_are_tried_some_times_at_once_and_then_now_and_then(store: S) {
    let rate = PairingRate { burst: 10, every: Duration::from_secs(10) };
    let may = async |seconds| store.may_try_pairing(rate, later(seconds)).await.unwrap();
    let racing = (0..50).map(|_| {
        let store = S::clone(&store);
        tokio::spawn(async move { store.may_try_pairing(rate, at()).await.unwrap() })
    });
    let mut tried = 0;
    for racer in racing.collect::<Vec<_>>() {
        tried += usize::from(racer.await.unwrap());
    }
    assert_eq!(tried, 10);
    assert_eq!(
        (may(9).await, may(10).await, may(10).await, may(19).await),
        (false, true, false, false)
    );
    // Another replica's clock is behind, and one was set back by an hour.
    assert_eq!((may(-60).await, may(-3600).await), (false, true));
    assert!(may(-3600).await, "the others of a burst");
}
