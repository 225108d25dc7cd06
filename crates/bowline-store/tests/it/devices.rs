//! Contract of every backend: devices with their own tokens.

use bowline_sbp::session::{Attach, Command, DeviceChange, Refusal, Reply};
use bowline_store::TokenHash;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    sbp_l4_05_a_device_attaches_by_its_token_as_itself
    sbp_l4_05_a_token_that_is_forgotten_or_over_opens_nothing
    sbp_l4_05_devices_with_tokens_are_kept_and_bounded
    sbp_l4_05_devices_are_known_after_a_restart_of_their_owner
}

fn hash(byte: u8) -> TokenHash {
    TokenHash([byte; 32])
}

/// An attach with this device token and the surface id `claims`.
fn with_token(byte: u8, claims: &str) -> Attach {
    Attach { device: Some(hash(byte)), ..surface(Some(claims)) }
}

async fn sbp_l4_05_a_device_attaches_by_its_token_as_itself(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    live.give_token("watch", 1, later(60)).await;
    let known = store.devices(id).await.unwrap();
    assert_eq!((known[0].last_seen, known[0].token), (None, Some((hash(1), later(60)))));
    let watch = store.device_of(id, hash(1), at()).await.unwrap();
    assert_eq!(watch.as_deref(), Some("watch"));
    let attached = live.attached(with_token(1, "someone else")).await;
    let surface = live.stored().await.surface.unwrap();
    assert_eq!(surface.surface_id.as_deref(), Some("watch"), "whatever it says");
    assert_eq!(attached.until, Some(later(60)), "no longer than its token");
    live.give_token("watch", 2, later(90)).await;
    assert!(store.attached(id).await.unwrap().is_empty(), "the earlier token is over");
    let known = store.devices(id).await.unwrap();
    assert_eq!((known.len(), known[0].last_seen), (1, Some(at())));
    assert_eq!(known[0].token, Some((hash(2), later(90))));
    assert_eq!(store.device_of(id, hash(1), at()).await.unwrap(), None);
}

async fn sbp_l4_05_a_token_that_is_forgotten_or_over_opens_nothing(store: S) {
    let (mut live, other) = (Live::new(&store).await, made(&store).await.id);
    let id = live.id();
    live.give_token("watch", 1, later(60)).await;
    assert_eq!(store.device_of(other, hash(1), at()).await.unwrap(), None);
    assert_eq!(store.device_of(id, hash(1), later(60)).await.unwrap(), None);
    let revoked = Some(Reply::Refused(Refusal::Revoked));
    live.at = later(61);
    assert_eq!(live.ask(Command::Attach(with_token(1, "watch"))).await, revoked);

    live.at = at();
    let epoch = live.attached(with_token(1, "watch")).await.epoch;
    assert_eq!(live.forget_device("watch").await, Some(Reply::Done));
    let after = live.stored().await;
    assert_eq!((after.surface, after.attach_epoch), (None, epoch));
    assert!(store.devices(id).await.unwrap().is_empty());
    assert_eq!(store.device_of(id, hash(1), at()).await.unwrap(), None);
    assert_eq!(live.ask(Command::Attach(with_token(1, "watch"))).await, revoked);
    let unknown = Some(Reply::Refused(Refusal::NoDevice));
    assert_eq!(live.forget_device("watch").await, unknown);

    // A device that attached with the session's token is forgotten, but stays attached.
    live.attach(Some("phone")).await;
    assert_eq!(live.forget_device("phone").await, Some(Reply::Done));
    assert!(live.stored().await.surface.is_some());
    assert!(store.devices(id).await.unwrap().is_empty());
}

async fn sbp_l4_05_devices_with_tokens_are_kept_and_bounded(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    for n in 0..64 {
        live.give_token(&format!("t{n}"), n, later(60)).await;
    }
    let token = |name: &str, byte| {
        let (surface_id, hash) = (name.into(), hash(byte));
        Command::Device(DeviceChange::Token { surface_id, hash, expires_at: later(60) })
    };
    let too_many = Some(Reply::Refused(Refusal::TooManyDevices(64)));
    assert_eq!(live.ask(token("t64", 64)).await, too_many);
    assert_eq!(live.ask(token("t3", 99)).await, Some(Reply::Done));
    for n in 0..70 {
        live.attach(Some(&format!("p{n}"))).await;
    }
    let known = store.devices(id).await.unwrap();
    assert_eq!(known.len(), 128);
    assert_eq!(known.iter().filter(|device| device.token.is_some()).count(), 64);
    let kept = store.device_of(id, hash(99), at()).await.unwrap();
    assert_eq!(kept.as_deref(), Some("t3"));
}

async fn sbp_l4_05_devices_are_known_after_a_restart_of_their_owner(store: S) {
    let mut live = Live::new(&store).await;
    let id = live.id();
    let mut said = surface(Some("phone"));
    said.surface.device_type = "mobile".into();
    said.surface.locale = Some("de-CH".into());
    live.attached(said).await;
    live.give_token("watch", 1, later(60)).await;
    let before = store.devices(id).await.unwrap();
    let mut heir = Live::of(&store, id).await;
    heir.at = later(10);
    let attached = heir.attach(Some("phone")).await;
    assert_eq!(attached.context.locale.as_deref(), Some("de-CH"), "as it said before");
    let after = store.devices(id).await.unwrap();
    assert_eq!(after[0].context, before[0].context);
    assert_eq!((after[0].first_seen, after[0].last_seen), (at(), Some(later(10))));
    assert_eq!(after[1], before[1]);
    let watch = heir.attached(with_token(1, "x")).await;
    assert_eq!(watch.context.surface_id.as_deref(), Some("watch"));
}
