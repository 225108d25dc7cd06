use serde_json::Value;
use zeroize::Zeroizing;

use super::transcript::Transcript;
use super::*;
use crate::frame::Frame;
use crate::id::{DaemonId, SessionId};
use crate::identity::{IdentityKey, IdentitySecret};
use crate::sealed::Direction;
use crate::vectors;

fn ephemeral(row: &Value, whose: &str) -> Ephemeral {
    let field = format!("{whose}_ephemeral_private_hex");
    Ephemeral::from_random(Zeroizing::new(vectors::key(row, &field)))
}

fn session(row: &Value) -> SessionId {
    SessionId::from_wire(vectors::number(row, "session_id")).unwrap()
}

fn daemon(row: &Value) -> DaemonId {
    DaemonId::new(vectors::text(row, "daemon_id"))
}

fn identity(row: &Value) -> IdentitySecret {
    IdentitySecret::from_seed(&vectors::key(row, "identity_seed_hex"))
}

fn started(row: &Value) -> AwaitAccept {
    AwaitAccept::start(session(row), daemon(row), ephemeral(row, "client")).0
}

fn payload(frame: &Frame) -> &[u8] {
    match frame {
        Frame::HandshakeInit { payload, .. } | Frame::HandshakeAccept { payload, .. } => payload,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sbrp_crypto_02_03_04_every_hash_and_key_is_the_vectors() {
    for row in vectors::rows("handshake", 6) {
        let daemon = daemon(&row);
        assert_eq!(vectors::to_hex(daemon.as_str().as_bytes()), row["daemon_id_utf8_hex"]);
        let transcript = Transcript {
            daemon: &daemon,
            client_ephemeral: vectors::key(&row, "client_ephemeral_public_hex"),
            daemon_ephemeral: vectors::key(&row, "daemon_ephemeral_public_hex"),
        };
        assert_eq!(vectors::to_hex(&transcript.signed()), row["signature_payload_sha256_hex"]);
        let signature: [u8; 64] = vectors::hex(&row, "signature_hex").try_into().unwrap();
        assert_eq!(identity(&row).sign(&transcript.signed()), signature);
        assert_eq!(vectors::to_hex(&transcript.salt(&signature)), row["transcript_sha256_hex"]);

        let client = ephemeral(&row, "client");
        assert_eq!(client.public(), transcript.client_ephemeral);
        let shared = client.agree(&transcript.daemon_ephemeral).unwrap();
        assert_eq!(vectors::to_hex(shared.as_ref()), row["shared_secret_hex"]);
        let keys = transcript.keys(&shared, &signature);
        for (direction, field) in [
            (Direction::ClientToDaemon, "key_client_to_daemon_hex"),
            (Direction::DaemonToClient, "key_daemon_to_client_hex"),
        ] {
            assert_eq!(keys.of(direction), &vectors::key(&row, field), "{}", row["id"]);
        }
    }
}

#[test]
fn sbrp_crypto_01_both_frames_have_the_vectors_bytes_and_both_ends_agree() {
    for row in vectors::rows("handshake", 6) {
        let (waiting, init) =
            AwaitAccept::start(session(&row), daemon(&row), ephemeral(&row, "client"));
        assert_eq!(init.encode(), vectors::hex(&row, "handshake_init_frame_hex"));
        let answer = answer(
            session(&row),
            payload(&init),
            &daemon(&row),
            &identity(&row),
            ephemeral(&row, "daemon"),
        );
        let HandshakeAnswer { accept, channel: mut at_daemon, .. } = answer.unwrap();
        assert_eq!(accept.encode(), vectors::hex(&row, "handshake_accept_frame_hex"));
        assert_eq!(payload(&accept), vectors::hex(&row, "handshake_accept_payload_hex"));

        let done = waiting.accept(payload(&accept), &Trust::FirstUse).unwrap();
        assert_eq!(done.identity.key(), &identity(&row).public());
        let mut at_client = done.channel;
        let there = at_client.sealer.seal(b"ping").unwrap();
        assert_eq!(at_daemon.opener.open_frame(&there).unwrap().plaintext[..], *b"ping");
        let back = at_daemon.sealer.seal(b"pong").unwrap();
        assert_eq!(at_client.opener.open_frame(&back).unwrap().plaintext[..], *b"pong");
    }
}

#[test]
fn sbrp_crypto_03_client_03_every_bad_handshake_of_the_vectors_is_refused_by_its_name() {
    for row in vectors::rows("handshake_negative", 18) {
        let base = vectors::row("handshake", vectors::text(&row, "base"));
        let refused = if row["role"] == "daemon" {
            init_refused(&row, &base)
        } else {
            accept_refused(&row, &base)
        };
        let name = refused.name();
        match row["settled"].as_str().unwrap_or(vectors::text(&row, "expect")) {
            "reject" => assert_eq!(refused, HandshakeError::WeakEphemeral, "{}", row["id"]),
            expected => assert_eq!(name, expected, "{}", row["id"]),
        }
    }
}

fn init_refused(row: &Value, base: &Value) -> HandshakeError {
    let frame = Frame::decode(vectors::hex(row, "init_frame_hex").into()).unwrap();
    let (id, key) = (daemon(base), identity(base));
    answer(session(base), payload(&frame), &id, &key, ephemeral(base, "daemon")).unwrap_err()
}

fn accept_refused(row: &Value, base: &Value) -> HandshakeError {
    let frame = Frame::decode(vectors::hex(row, "accept_frame_hex").into()).unwrap();
    let waiting = || {
        let id = DaemonId::new(vectors::text(row, "client_daemon_id"));
        AwaitAccept::start(session(base), id, ephemeral(base, "client")).0
    };
    // A weak key cannot be loaded as a pin, and is not accepted on first use either.
    let trust = IdentityKey::from_bytes(&vectors::key(row, "pinned_identity_public_hex"))
        .map_or(Trust::FirstUse, Trust::Key);
    waiting().accept(payload(&frame), &trust).unwrap_err()
}

#[test]
fn sbrp_client_02_a_changed_key_shows_both_fingerprints_and_needs_approval_and_proof() {
    let row = vectors::row("handshake", "hs-ascii");
    let (old, new) = (identity(&row), IdentitySecret::from_seed(&[9; 32]));
    let waiting = started(&row);
    let init = vectors::hex(&row, "handshake_init_payload_hex");
    let answered = |key: &IdentitySecret| {
        answer(session(&row), &init, &daemon(&row), key, ephemeral(&row, "daemon")).unwrap().accept
    };
    let refused = waiting.accept(payload(&answered(&new)), &Trust::Key(old.public())).unwrap_err();
    assert_eq!(refused.name(), "identity_key_changed");
    let HandshakeError::KeyChanged(change) = refused else { panic!("{refused:?}") };
    assert_eq!(change.pinned, old.public().fingerprint());
    assert_eq!(change.offered, new.public().fingerprint());

    let approved = Trust::Fingerprint(change.offered);
    let done = started(&row).accept(payload(&answered(&new)), &approved).unwrap();
    assert_eq!(done.identity.key(), &new.public());
    // The approval covers the new key only, not any key, the old one included.
    let back = started(&row).accept(payload(&answered(&old)), &approved).unwrap_err();
    let (pinned, offered) = (new.public().fingerprint(), old.public().fingerprint());
    assert_eq!(back, HandshakeError::KeyChanged(KeyChange { pinned, offered }));
}

#[test]
fn sbrp_client_02_an_unfit_key_cannot_be_approved() {
    let row = vectors::row("handshake_negative", "small-order-identity");
    let base = vectors::row("handshake", "hs-ascii");
    let accept = vectors::hex(&row, "accept_payload_hex");
    let trust = Trust::Key(identity(&base).public());
    let refused = started(&base).accept(&accept, &trust).unwrap_err();
    let HandshakeError::KeyChanged(change) = refused else { panic!("{refused:?}") };
    let approved = Trust::Fingerprint(change.offered);
    let refused = started(&base).accept(&accept, &approved).unwrap_err();
    assert_eq!(refused, HandshakeError::UnfitIdentity);
}

#[test]
fn sbrp_crypto_04_no_point_of_low_order_leads_to_a_key() {
    let low_order = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    let row = vectors::row("handshake", "hs-ascii");
    for point in low_order {
        let init = vectors::unhex(point);
        let answered =
            answer(session(&row), &init, &daemon(&row), &identity(&row), ephemeral(&row, "daemon"));
        assert_eq!(answered.unwrap_err(), HandshakeError::WeakEphemeral, "{point}");
    }
}

#[test]
fn sbrp_crypto_10_nothing_of_a_handshake_shows_a_secret() {
    let row = vectors::row("handshake", "hs-ascii");
    let init = vectors::hex(&row, "handshake_init_payload_hex");
    let answer =
        answer(session(&row), &init, &daemon(&row), &identity(&row), ephemeral(&row, "daemon"));
    let answer = answer.unwrap();
    let done = started(&row).accept(payload(&answer.accept), &Trust::FirstUse).unwrap();
    let shown = format!(
        "{:?} {:?} {:?} {:?} {answer:?} {done:?}",
        started(&row),
        identity(&row),
        ephemeral(&row, "client"),
        answer.channel,
    );
    for field in [
        "identity_seed_hex",
        "client_ephemeral_private_hex",
        "daemon_ephemeral_private_hex",
        "shared_secret_hex",
        "okm_hex",
        "key_client_to_daemon_hex",
        "key_daemon_to_client_hex",
    ] {
        let secret = vectors::hex(&row, field);
        // As hex, as a list of numbers and as an escaped string: the forms a Debug output could
        // use.
        let part = &secret[..8];
        let list = format!("{part:?}");
        let spellings = [
            vectors::to_hex(part),
            vectors::to_hex(part).to_uppercase(),
            list.trim_matches(['[', ']']).to_owned(),
            part.escape_ascii().to_string(),
        ];
        for spelling in spellings {
            assert!(!shown.contains(&spelling), "{field} in {shown}");
        }
    }
}
