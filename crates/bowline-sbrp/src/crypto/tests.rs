//! The same tests for both implementations, and each against the other.

use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{NONCE_LEN, NotAuthentic, TAG_LEN, aws_lc, rustcrypto};
use crate::vectors;

/// Runs the body twice: each implementation is once the one and once the other.
macro_rules! both {
    ($one:ident, $other:ident => $body:block) => {{
        use {aws_lc as $one, rustcrypto as $other};
        $body
    }
    {
        use {aws_lc as $other, rustcrypto as $one};
        $body
    }};
}

fn key(direction: &str) -> [u8; 32] {
    let row = vectors::row("handshake", "hs-ascii");
    vectors::key(&row, &format!("key_{direction}_hex"))
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (31 * i + 7) as u8).collect()
}

fn hash(bytes: &[u8]) -> Value {
    vectors::to_hex(&Sha256::digest(bytes)).into()
}

fn nonce(row: &Value) -> [u8; NONCE_LEN] {
    vectors::hex(row, "nonce_hex").try_into().unwrap()
}

#[test]
fn sbrp_crypto_01_each_backend_seals_the_vectors_and_opens_the_others_bytes() {
    both! { one, other => {
        for row in vectors::rows("data_frames", 56) {
            let key = key(vectors::text(&row, "direction"));
            let plaintext = pattern(row["plaintext_len"].as_u64().unwrap() as usize);
            let mut text = plaintext.clone();
            let tag = one::AeadKey::new(&key).seal(nonce(&row), &mut text);
            assert_eq!(hash(&text), row["ciphertext_sha256"], "{}", row["id"]);
            assert_eq!(vectors::to_hex(&tag), vectors::text(&row, "tag_hex"), "{}", row["id"]);
            let mut opened = vec![0; text.len()];
            assert_eq!(other::AeadKey::new(&key).open(nonce(&row), &text, &tag, &mut opened), Ok(()));
            assert_eq!(opened, plaintext);
        }
    }}
}

#[test]
fn sbrp_crypto_07_a_changed_bit_is_noticed_by_each_backend() {
    both! { one, other => {
        let key = [7; 32];
        let mut text = pattern(100);
        let tag = one::AeadKey::new(&key).seal([3; NONCE_LEN], &mut text);
        let open = |nonce, text: &[u8], tag: &[u8; TAG_LEN]| {
            other::AeadKey::new(&key).open(nonce, text, tag, &mut vec![0; text.len()])
        };
        assert_eq!(open([3; NONCE_LEN], &text, &tag), Ok(()));
        for bit in 0..100 * 8 {
            let mut changed = text.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open([3; NONCE_LEN], &changed, &tag), Err(NotAuthentic), "text, bit {bit}");
        }
        for bit in 0..TAG_LEN * 8 {
            let mut changed = tag;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open([3; NONCE_LEN], &text, &changed), Err(NotAuthentic), "tag, bit {bit}");
        }
        for bit in 0..NONCE_LEN * 8 {
            let mut changed = [3; NONCE_LEN];
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(changed, &text, &tag), Err(NotAuthentic), "nonce, bit {bit}");
        }
        assert_eq!(open([3; NONCE_LEN], &text[..99], &tag), Err(NotAuthentic));
    }}
}

#[test]
fn sbrp_crypto_01_each_backend_agrees_on_the_secrets_of_the_vectors() {
    both! { one, other => {
        for row in vectors::rows("handshake", 6) {
            let client = one::AgreementKey::new(&vectors::key(&row, "client_ephemeral_private_hex"));
            let daemon = other::AgreementKey::new(&vectors::key(&row, "daemon_ephemeral_private_hex"));
            let (client_public, daemon_public) = (client.public(), daemon.public());
            assert_eq!(client_public, vectors::key(&row, "client_ephemeral_public_hex"));
            assert_eq!(daemon_public, vectors::key(&row, "daemon_ephemeral_public_hex"));
            let shared = client.agree(&daemon_public).unwrap();
            assert_eq!(shared, daemon.agree(&client_public).unwrap());
            assert_eq!(*shared, vectors::key(&row, "shared_secret_hex"));
        }
    }}
}

#[test]
fn sbrp_crypto_04_a_peer_of_small_order_leads_to_zero_or_to_nothing() {
    for low in [0, 1] {
        let mut point = [0; 32];
        point[0] = low;
        assert_eq!(aws_lc::AgreementKey::new(&[9; 32]).agree(&point), None);
        let shared = rustcrypto::AgreementKey::new(&[9; 32]).agree(&point);
        assert_eq!(shared.map(|shared| *shared), Some([0; 32]));
    }
}

proptest! {
    #[test]
    fn sbrp_crypto_01_both_backends_give_the_same_bytes(
        key in any::<[u8; 32]>(),
        nonce in any::<[u8; NONCE_LEN]>(),
        length in prop_oneof![0..600usize, 65_000..65_509usize],
        secret in any::<[u8; 32]>(),
        peer in any::<[u8; 32]>(),
    ) {
        let (mut one, mut other) = (pattern(length), pattern(length));
        let tag = aws_lc::AeadKey::new(&key).seal(nonce, &mut one);
        prop_assert_eq!(tag, rustcrypto::AeadKey::new(&key).seal(nonce, &mut other));
        prop_assert_eq!(one, other);
        let ours = aws_lc::AgreementKey::new(&secret);
        let theirs = rustcrypto::AgreementKey::new(&secret);
        prop_assert_eq!(ours.public(), theirs.public());
        prop_assert_eq!(ours.agree(&peer), theirs.agree(&peer));
    }
}
