use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::frame::{Frame, HEADER_LEN};
use crate::id::SessionId;
use crate::vectors;

fn direction(name: &str) -> Direction {
    match name {
        "client_to_daemon" => Direction::ClientToDaemon,
        "daemon_to_client" => Direction::DaemonToClient,
        other => panic!("direction {other}"),
    }
}

/// Sealer and opener of one direction, with the keys of the test vectors.
fn ends(direction: Direction) -> (Sealer, Opener) {
    let row = vectors::row("handshake", "hs-ascii");
    let session = SessionId::from_wire(vectors::number(&row, "session_id")).unwrap();
    let key = match direction {
        Direction::ClientToDaemon => vectors::key(&row, "key_client_to_daemon_hex"),
        Direction::DaemonToClient => vectors::key(&row, "key_daemon_to_client_hex"),
    };
    (Sealer::new(session, direction, &key), Opener::new(direction, &key))
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (31 * i + 7) as u8).collect()
}

fn hash(bytes: &[u8]) -> Value {
    vectors::to_hex(&Sha256::digest(bytes)).into()
}

#[test]
fn sbrp_crypto_05_06_every_data_frame_of_the_vectors_byte_for_byte() {
    for row in vectors::rows("data_frames", 56) {
        let (mut sealer, mut opener) = ends(direction(vectors::text(&row, "direction")));
        let seq = vectors::number(&row, "seq");
        let plaintext = pattern(row["plaintext_len"].as_u64().unwrap() as usize);
        assert_eq!(hash(&plaintext), row["plaintext_sha256"]);

        sealer.skip_to(seq);
        let frame = sealer.seal(&plaintext).unwrap();
        assert_eq!(hash(&frame), row["frame_sha256"], "{}", row["id"]);
        assert_eq!(frame.len() as u64, row["frame_len"].as_u64().unwrap());
        assert_eq!(vectors::to_hex(&frame[..32]), vectors::text(&row, "frame_head_hex"));
        if row["frame_hex"].is_string() {
            assert_eq!(frame, vectors::frame(&row));
        }
        let payload = &frame[HEADER_LEN..];
        assert_eq!(hash(payload), row["payload_sha256"]);
        let (nonce, sealed) = payload.split_at(NONCE_LEN);
        let (text, tag) = sealed.split_at(sealed.len() - TAG_LEN);
        assert_eq!(vectors::to_hex(nonce), vectors::text(&row, "nonce_hex"));
        assert_eq!(vectors::to_hex(tag), vectors::text(&row, "tag_hex"));
        assert_eq!(hash(text), row["ciphertext_sha256"]);

        assert_eq!(opener.open(payload), Ok(Opened { seq, plaintext: plaintext.into() }));
        assert_eq!(opener.open(payload), Err(UnsealError::Replayed));
    }
}

#[test]
fn sbrp_crypto_07_08_every_bad_data_frame_of_the_vectors_is_refused_and_moves_nothing() {
    for row in vectors::rows("data_negative", 10) {
        let (_, mut opener) = ends(direction(vectors::text(&row, "receive_as")));
        let Ok(Frame::Data { payload, .. }) = Frame::decode(vectors::frame(&row).into()) else {
            panic!("{}", row["id"])
        };
        let before = opener.window().clone();
        let refused = opener.open(&payload).unwrap_err();
        assert_eq!(opener.window(), &before, "{}", row["id"]);
        match (vectors::text(&row, "expect"), vectors::text(&row, "id")) {
            ("implementation_choice", "seq-max") => assert_eq!(refused, UnsealError::Unsendable),
            ("implementation_choice", _) => assert_eq!(refused, UnsealError::WrongDirection),
            (expected, _) => assert_eq!(refused.name(), expected, "{}", row["id"]),
        }
    }
}

#[test]
fn sbrp_crypto_06_the_last_number_is_never_sent() {
    let (mut sealer, mut opener) = ends(Direction::ClientToDaemon);
    sealer.skip_to(u64::MAX - 1);
    assert_eq!(opener.open_frame(&sealer.seal(b"last").unwrap()).unwrap().seq, u64::MAX - 1);
    assert!(sealer.is_exhausted());
    assert_eq!(sealer.seal(b"one more"), Err(SealError::Exhausted));
    assert_eq!(sealer.seal(b"and again"), Err(SealError::Exhausted));
}

#[test]
fn a_message_that_does_not_fit_spends_no_number() {
    let (mut sealer, mut opener) = ends(Direction::ClientToDaemon);
    let long = vec![0; MAX_PLAINTEXT + 1];
    assert_eq!(sealer.seal(&long), Err(SealError::TooLong(65_509)));
    assert_eq!(opener.open_frame(&sealer.seal(&long[1..]).unwrap()).unwrap().seq, 0);
}

#[test]
fn sbrp_daemon_05_an_exhausted_channel_cannot_resume() {
    let (sealer, opener) = ends(Direction::ClientToDaemon);
    let mut channel = Channel { sealer, opener };
    assert!(channel.can_resume());
    channel.sealer.skip_to(u64::MAX);
    assert!(!channel.can_resume());
}

#[test]
fn sbrp_crypto_10_opened_text_is_not_shown() {
    let (mut sealer, mut opener) = ends(Direction::ClientToDaemon);
    let opened = opener.open_frame(&sealer.seal(b"attack at dawn").unwrap()).unwrap();
    assert_eq!(format!("{opened:?}"), "Opened { seq: 0, plaintext: Plaintext(14 bytes) }");
}

proptest! {
    #[test]
    fn sbrp_crypto_07_any_change_of_any_byte_is_refused_and_the_true_message_still_opens(
        text in prop::collection::vec(any::<u8>(), 0..100),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut sealer, mut opener) = ends(Direction::DaemonToClient);
        let frame = sealer.seal(&text).unwrap();
        let payload = &frame[HEADER_LEN..];
        let mut changed = payload.to_vec();
        let at = at.index(changed.len());
        changed[at] ^= flip;
        prop_assert!(opener.open(&changed).is_err());
        prop_assert!(opener.open(&payload[..cut.index(payload.len())]).is_err());
        prop_assert_eq!(opener.open(payload), Ok(Opened { seq: 0, plaintext: text.into() }));
    }

    #[test]
    fn any_bytes_open_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let (_, mut opener) = ends(Direction::ClientToDaemon);
        prop_assert!(opener.open(&bytes).is_err());
    }
}
