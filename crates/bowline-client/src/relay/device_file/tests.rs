use std::os::unix::fs::PermissionsExt as _;

use bowline_sbrp::handshake::ChannelBinding;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::peer::{Claim, Identification};
use bowline_sbrp::tunnel::{Hello, TunnelId};

use super::*;

fn claim(seed: u8, code: &PairingCode) -> PairingClaim {
    let device = IdentitySecret::from_seed(&[seed; 32]);
    let who = Identification::Pairing { device: &device, code, name: "phone" };
    let binding = ChannelBinding::from_bytes([0; 32]);
    let hello = Hello::message(TunnelId::from_random([0; 16]), None, &who, &binding);
    match Hello::read(&hello, &binding).unwrap().claim {
        Claim::Pairing(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lock_that_is_never_released_fails_the_pairing_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut book = DeviceFile::new(folder.path().join("devices.json"));
    book.lock_patience = Duration::from_millis(50);
    let code = book.offer(vec![]).unwrap();
    let stuck = File::open(folder.path().join("devices.lock")).unwrap();
    stuck.lock().unwrap();
    let claim = claim(1, &code);
    let refused = tokio::time::timeout(Duration::from_secs(10), book.pair(&claim)).await;
    assert!(matches!(refused, Ok(Err(PairError::Book(_)))), "{refused:?}");
    assert!(book.all().await.unwrap().is_empty(), "it can be read meanwhile");
    drop(stuck);
    book.pair(&claim).await.unwrap();
}

#[tokio::test]
async fn more_devices_than_the_control_plane_takes_are_not_paired() {
    let folder = tempfile::tempdir().unwrap();
    let book = DeviceFile::new(folder.path().join("devices.json"));
    let most = 240;
    let first = claim(1, &book.offer(vec![]).unwrap());
    book.pair(&first).await.unwrap();
    book.change(|contents| {
        let listed = contents.devices[0].clone();
        let others = (1..most).map(|n| ListedDevice { id: n.to_string(), ..listed.clone() });
        contents.devices.extend(others);
        Ok(Some(()))
    })
    .unwrap();
    let code = book.offer(vec![]).unwrap();
    let refused = book.pair(&claim(2, &code)).await.unwrap_err();
    assert_eq!(refused, PairError::Full { most });
    let sentence = "240 devices are paired, and there may be no more; revoke one that is not used";
    assert_eq!(refused.to_string(), sentence);
    // One of them may pair again, and the code still holds when there is room.
    book.pair(&claim(1, &book.offer(vec![]).unwrap())).await.unwrap();
    book.revoke("7").unwrap().unwrap();
    book.pair(&claim(2, &code)).await.unwrap();
    assert_eq!(book.list().unwrap().len(), most);
}

#[tokio::test]
async fn a_file_that_becomes_readable_by_others_counts_as_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("devices.json");
    DeviceFile::new(&path).offer(vec![]).unwrap();
    let book = DeviceFile::watched(&path);
    let mut changed = book.changed();
    changed.mark_unchanged();
    // Until the watching task has seen it as it is.
    tokio::task::yield_now().await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    tokio::time::timeout(Duration::from_secs(10), changed.changed())
        .await
        .expect("the change is noticed")
        .unwrap();
    assert!(book.all().await.is_err());
}
