//! The code against `tests/vectors/tunnel.json`, and the document's examples against both.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::path_window::{LEAST_WINDOW, MOST_WINDOW};
use super::positions::{ACK_AFTER, ACK_SOON, LEAST_WEIGHT};
use super::record::{MOST_DATA, Message};
use super::stream::{FIRST_CREDIT, LARGEST_WINDOW};
use super::*;
use crate::handshake::{AwaitAccept, ChannelBinding, Ephemeral, Trust, answer};
use crate::id::{DaemonId, SessionId};
use crate::identity::{Fingerprint, IdentitySecret};
use crate::pairing::{BadPairingText, CODE_LEN, PairingCode, PairingText};
use crate::peer::{Claim, Identification, LONGEST_NAME};
use crate::sealed::Channel;
use crate::time::Instant;
use crate::vectors::{hex, key, number, text, to_hex, tunnel, tunnel_rows};

fn secret(row: &Value, field: &str) -> IdentitySecret {
    IdentitySecret::from_seed(&key(row, field))
}

fn code(row: &Value) -> PairingCode {
    let bytes: [u8; CODE_LEN] = hex(row, "code_hex").try_into().unwrap();
    PairingCode::from_random(bytes)
}

fn position(row: &Value, field: &str) -> Option<u64> {
    (!row[field].is_null()).then(|| number(row, field))
}

fn channel_row(id: &Value) -> Value {
    tunnel_rows("channel", 2).into_iter().find(|row| row["id"] == *id).unwrap()
}

fn binding(row: &Value) -> ChannelBinding {
    ChannelBinding::from_bytes(key(&channel_row(&row["channel"]), "binding_hex"))
}

/// Both ends of a channel, after the handshake that its row describes.
fn shake_hands(row: &Value) -> (Channel, Channel) {
    let ephemeral = |field| Ephemeral::from_random(Zeroizing::new(key(row, field)));
    let session = SessionId::from_wire(number(row, "session_id")).unwrap();
    let daemon = DaemonId::new(text(row, "daemon_id"));
    let identity = secret(row, "identity_seed_hex");
    assert_eq!(to_hex(identity.public().as_bytes()), row["identity_public_hex"]);
    let client = ephemeral("client_ephemeral_private_hex");
    let (waiting, _) = AwaitAccept::start(session, daemon.clone(), client);
    let init = hex(row, "client_ephemeral_public_hex");
    let ephemeral = ephemeral("daemon_ephemeral_private_hex");
    let answer = answer(session, &init, &daemon, &identity, ephemeral).unwrap();
    let accept = [
        hex(row, "identity_public_hex"),
        hex(row, "daemon_ephemeral_public_hex"),
        hex(row, "handshake_signature_hex"),
    ];
    let done = waiting.accept(&accept.concat(), &Trust::Key(identity.public())).unwrap();
    assert_eq!(
        (to_hex(&done.binding.0), done.binding),
        (text(row, "binding_hex").into(), answer.binding)
    );
    (done.channel, answer.channel)
}

#[test]
fn the_constants_of_the_document_are_the_codes() {
    let constants = tunnel()["constants"].take();
    for (name, value) in [
        ("version", usize::from(VERSION)),
        ("least_window", LEAST_WINDOW),
        ("most_window", MOST_WINDOW),
        ("ack_after", ACK_AFTER),
        ("ack_soon", ACK_SOON),
        ("least_weight", LEAST_WEIGHT),
        ("first_credit", FIRST_CREDIT),
        ("largest_window", LARGEST_WINDOW),
        ("shared_window", machine::SHARED_WINDOW),
        ("most_streams", MOST_STREAMS),
        ("most_data", MOST_DATA),
        ("longest_service", LONGEST_SERVICE),
        ("longest_name", LONGEST_NAME),
    ] {
        assert_eq!(constants[name], value, "{name}");
    }
}

#[test]
fn pairing_texts_are_the_vectors() {
    for row in tunnel_rows("pairing_text", 3) {
        let pairing = PairingText {
            code: code(&row),
            fingerprint: Fingerprint::from_bytes(key(&row, "fingerprint_hex")),
            daemon: DaemonId::new(text(&row, "daemon_id")),
            control: text(&row, "control").to_owned(),
        };
        assert_eq!(pairing.to_string(), row["text"]);
        assert_eq!(text(&row, "text").parse(), Ok(pairing));
        let encoded = text(&row, "text").split_once(':').unwrap().1;
        assert_eq!(URL_SAFE_NO_PAD.decode(encoded).unwrap(), hex(&row, "bytes_hex"));
    }
    for row in tunnel_rows("pairing_text_negative", 18) {
        let expected = match text(&row, "expect") {
            "not_one" => BadPairingText::NotOne,
            "damaged" => BadPairingText::Damaged,
            "newer" => BadPairingText::Newer,
            other => panic!("{other}"),
        };
        assert_eq!(text(&row, "text").parse::<PairingText>(), Err(expected), "{}", row["id"]);
    }
}

#[test]
fn token_keys_and_requests_for_sessions_are_the_vectors() {
    for row in tunnel_rows("token_key", 1) {
        let made = code(&row).token_key();
        assert_eq!(made.public(), secret(&row, "seed_hex").public());
        assert_eq!(to_hex(made.public().as_bytes()), row["public_hex"]);
    }
    for row in tunnel_rows("device_session", 3) {
        let device = secret(&row, "key_seed_hex");
        let daemon = text(&row, "daemon_id");
        let signed_at = number(&row, "signed_at");
        let parts = [b"sbrp-device-session-v1", daemon.as_bytes(), &[0], &signed_at.to_be_bytes()];
        assert_eq!(to_hex(&parts.concat()), row["preimage_hex"]);
        let digest = Sha256::digest(parts.concat());
        assert_eq!(to_hex(&digest), row["digest_hex"]);
        let signature = device.sign(&digest);
        assert_eq!(to_hex(&signature), row["signature_hex"]);
        let body: Value = serde_json::from_str(text(&row, "body")).unwrap();
        let spelled = |bytes: &[u8]| Value::from(URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(body["daemonId"], daemon);
        assert_eq!(body["device"]["publicKey"], spelled(device.public().as_bytes()));
        assert_eq!(body["device"]["signature"], spelled(&signature));
        assert_eq!(body["device"]["signedAt"], signed_at);
    }
}

#[test]
fn sbrp_peer_01_hellos_are_the_vectors() {
    for row in tunnel_rows("hello", 8) {
        let id = TunnelId(hex(&row, "tunnel_hex").try_into().unwrap());
        let (resume, message) = (position(&row, "resume"), hex(&row, "message_hex"));
        let kind = text(&row, "kind");
        let device = (kind != "plain").then(|| secret(&row, "device_seed_hex"));
        let code = (kind == "pairing").then(|| code(&row));
        let who = match (&device, &code) {
            (Some(device), Some(code)) => {
                Identification::Pairing { device, code, name: text(&row, "name") }
            }
            (Some(device), None) => Identification::Device(device),
            (None, _) => Identification::Plain,
        };
        assert_eq!(Hello::message(id, resume, &who, &binding(&row)), message, "{}", row["id"]);
        let hello = Hello::read(&message, &binding(&row)).unwrap();
        assert_eq!((hello.tunnel, hello.resume), (id, resume));
        match (hello.claim, who) {
            (Claim::Plain, Identification::Plain) => {}
            (Claim::Device(claimed), Identification::Device(device)) => {
                assert_eq!(claimed.key(), &device.public());
            }
            (Claim::Pairing(claim), Identification::Pairing { device, code, name }) => {
                assert_eq!((claim.device.key(), claim.name.as_str()), (&device.public(), name));
                assert!(claim.knows(code.as_bytes()) && !claim.knows(&[0xaa; CODE_LEN]));
            }
            (claim, _) => panic!("{claim:?}"),
        }
    }
}

#[test]
fn sbrp_peer_01_every_bad_hello_of_the_vectors_is_refused_by_its_name() {
    for row in tunnel_rows("hello_negative", 37) {
        let message = hex(&row, "message_hex");
        let (expected, reply) = match text(&row, "expect") {
            "malformed" => (HelloFault::Malformed, HelloReply::NotPaired.message()),
            "proof" => (HelloFault::Proof, HelloReply::NotPaired.message()),
            "version" if message[7] == 1 => (HelloFault::Version, refusal_for_version_1()),
            "version" => (HelloFault::Version, HelloReply::Version.message()),
            other => panic!("{other}"),
        };
        assert_eq!(Hello::read(&message, &binding(&row)), Err(expected), "{}", row["id"]);
        assert_eq!(to_hex(&reply), row["reply_hex"], "{}", row["id"]);
    }
}

fn reply(row: &Value) -> HelloReply {
    match text(row, "reply") {
        "welcome" => HelloReply::Welcome(Welcome {
            resumed: position(row, "resumed"),
            name: text(row, "name").to_owned(),
            services: serde_json::from_value(row["services"].clone()).unwrap(),
        }),
        "not_paired" => HelloReply::NotPaired,
        "version" => HelloReply::Version,
        "bad_code" => HelloReply::BadCode,
        "busy" => HelloReply::Busy,
        "failed" => HelloReply::Failed,
        other => panic!("{other}"),
    }
}

#[test]
fn replies_are_the_vectors() {
    for row in tunnel_rows("reply", 8) {
        assert_eq!(to_hex(&reply(&row).message()), row["message_hex"], "{}", row["id"]);
        assert_eq!(HelloReply::read(&hex(&row, "message_hex")), Some(reply(&row)), "{}", row["id"]);
    }
    for row in tunnel_rows("reply_read_only", 4) {
        assert_eq!(HelloReply::read(&hex(&row, "message_hex")), Some(reply(&row)), "{}", row["id"]);
    }
    for row in tunnel_rows("reply_negative", 9) {
        assert_eq!(HelloReply::read(&hex(&row, "message_hex")), None, "{}", row["id"]);
    }
}

fn message(row: &Value) -> Message {
    if row["kind"] == "ack" {
        return Message::Ack { received: number(row, "received"), sent: number(row, "sent") };
    }
    if row["kind"] == "close" {
        return Message::Close;
    }
    let small = |field: &str| u32::try_from(row[field].as_u64().unwrap()).unwrap();
    let stream = StreamId(small("stream"));
    let record = match text(row, "kind") {
        "open" => Record::Open { stream, service: text(row, "service").to_owned() },
        "data" => Record::Data { stream, bytes: hex(row, "bytes_hex").into() },
        "credit" => Record::Credit { stream, bytes: small("credit") },
        "end" => Record::End { stream },
        "reset" => Record::Reset {
            stream,
            reason: match text(row, "reason") {
                "cancelled" => ResetReason::Cancelled,
                "not_offered" => ResetReason::NotOffered,
                "not_permitted" => ResetReason::NotPermitted,
                "unreachable" => ResetReason::Unreachable,
                "too_many" => ResetReason::TooMany,
                other => panic!("{other}"),
            },
        },
        other => panic!("{other}"),
    };
    Message::Numbered(number(row, "number"), record)
}

#[test]
fn records_are_the_vectors() {
    let bytes = |row: &Value| Bytes::from(hex(row, "message_hex"));
    for row in tunnel_rows("record", 13) {
        let made = match message(&row) {
            Message::Numbered(number, record) => record.message(number),
            Message::Ack { received, sent } => Message::ack(received, sent),
            Message::Close => Message::close(),
        };
        assert_eq!(made, bytes(&row), "{}", row["id"]);
        assert_eq!(Message::read(&bytes(&row)), Ok(message(&row)), "{}", row["id"]);
    }
    for row in tunnel_rows("record_read_only", 1) {
        assert_eq!(Message::read(&bytes(&row)), Ok(message(&row)), "{}", row["id"]);
    }
    for row in tunnel_rows("record_negative", 16) {
        assert_eq!(Message::read(&bytes(&row)), Err(TunnelFault::Malformed), "{}", row["id"]);
    }
}

#[test]
fn every_broken_rule_of_the_vectors_is_a_fault_by_its_name() {
    for row in tunnel_rows("fault", 10) {
        let messages = row["messages_hex"].as_array().unwrap();
        let messages = messages.iter().map(|one| crate::vectors::unhex(one.as_str().unwrap()));
        let messages: Vec<Bytes> = messages.map(Bytes::from).collect();
        let (last, before) = messages.split_last().unwrap();
        let mut daemon = Tunnel::new(TunnelSide::Daemon);
        before.iter().for_each(|message| drop(daemon.receive(message, Instant::now()).unwrap()));
        let expected = match text(&row, "expect") {
            "malformed" => TunnelFault::Malformed,
            "gap" => TunnelFault::Gap,
            "positions" => TunnelFault::Positions,
            "overrun" => TunnelFault::Overrun,
            "unknown_stream" => TunnelFault::UnknownStream,
            "opened" => TunnelFault::Opened,
            other => panic!("{other}"),
        };
        assert_eq!(daemon.receive(last, Instant::now()), Err(expected), "{}", row["id"]);
    }
}

/// The document's worked example: two machines say what it says, and seal it so.
#[test]
fn the_worked_example_is_what_two_ends_say() {
    let example = tunnel()["example"].take();
    let say = |field: &str| example[field].as_str().unwrap().as_bytes().to_vec();
    let (mut client, mut daemon) =
        (Tunnel::new(TunnelSide::Client), Tunnel::new(TunnelSide::Daemon));
    let stream = StreamId(1);
    let mut channels = shake_hands(&channel_row(&"first".into()));
    let steps = example["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 16);
    for row in steps {
        let plaintext = Bytes::from(hex(row, "plaintext_hex"));
        let id = text(row, "id");
        if id == "hello-again" {
            channels = shake_hands(&channel_row(&"second".into()));
        }
        let (from_client, made) = match id {
            "hello" | "hello-again" => (true, plaintext.clone()),
            "welcome" => {
                let hello = Hello::read(&hex(&steps[0], "plaintext_hex"), &binding(&steps[0]));
                assert!(matches!(hello.unwrap().claim, Claim::Pairing(_)));
                (false, plaintext.clone())
            }
            "welcome-again" => {
                let hello = Hello::read(&hex(&steps[8], "plaintext_hex"), &binding(&steps[8]));
                let received = hello.unwrap().resume.unwrap();
                assert_eq!(received, client.received());
                let resumed = Some(daemon.received());
                daemon.resume(received).unwrap();
                client.resume(daemon.received()).unwrap();
                let services = vec!["http".to_owned(), "api".to_owned()];
                let welcome = Welcome { resumed, name: "home".into(), services };
                (false, HelloReply::Welcome(welcome).message().into())
            }
            "open" => {
                assert_eq!(client.open("http"), Some(stream));
                (true, client.next_message(Instant::now()).unwrap())
            }
            "request" | "request-that-is-lost" => {
                let request = say(if id == "request" { "request_1" } else { "request_2" });
                assert_eq!(client.write(stream, &request), WriteOutcome::Wrote(request.len()));
                (true, client.next_message(Instant::now()).unwrap())
            }
            "request-again" => (true, client.next_message(Instant::now()).unwrap()),
            "answer" | "answer-again" => {
                let answer = say("answer");
                assert_eq!(daemon.write(stream, &answer), WriteOutcome::Wrote(answer.len()));
                (false, daemon.next_message(Instant::now()).unwrap())
            }
            "daemon-acks" => {
                daemon.acknowledge();
                (false, daemon.next_message(Instant::now()).unwrap())
            }
            "client-acks" => {
                client.acknowledge();
                (true, client.next_message(Instant::now()).unwrap())
            }
            // At once, without being told to.
            "daemon-acks-the-end" => (false, daemon.next_message(Instant::now()).unwrap()),
            "client-acks-the-end" => (true, client.next_message(Instant::now()).unwrap()),
            "end" => {
                client.end(stream);
                (true, client.next_message(Instant::now()).unwrap())
            }
            "end-of-the-answer" => {
                daemon.end(stream);
                (false, daemon.next_message(Instant::now()).unwrap())
            }
            other => panic!("{other}"),
        };
        assert_eq!(made, plaintext, "{id}");
        assert_eq!(row["from"], if from_client { "client" } else { "daemon" });
        let sealer = if from_client { &mut channels.0.sealer } else { &mut channels.1.sealer };
        assert_eq!(to_hex(&sealer.seal(&made).unwrap()), row["frame_hex"], "{id}");
        let is_record = !(id.starts_with("hello") || id.starts_with("welcome"));
        if is_record && row["lost"] == false {
            let receiver = if from_client { &mut daemon } else { &mut client };
            receiver.receive(&made, Instant::now()).unwrap();
        }
    }
    let read = |tunnel: &mut Tunnel| {
        let mut all = Vec::new();
        loop {
            match tunnel.read(stream, usize::MAX) {
                ReadOutcome::Bytes(bytes) => all.extend_from_slice(&bytes),
                ReadOutcome::End => return all,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(read(&mut daemon), [say("request_1"), say("request_2")].concat());
    assert_eq!(read(&mut client), say("answer").repeat(2));
}

const DOCUMENT: &str = include_str!("../../../../docs/sbp-over-sbrp.md");

/// All texts of the vectors.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|one| texts(one, into)),
        Value::Object(all) => all.values().for_each(|one| texts(one, into)),
        _ => {}
    }
}

/// The blocks that are marked `hex`: bytes in any grouping, and after `#` what they are.
fn hex_blocks(document: &str) -> Vec<String> {
    let blocks = document.split("```hex\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let bytes = |line: &str| line.split('#').next().unwrap().replace(' ', "");
    blocks.map(|block| block.lines().map(bytes).collect()).collect()
}

/// Every example of the document is a vector, and the vectors are what the code makes.
#[test]
fn every_example_of_the_document_is_in_the_vectors() {
    let mut known = Vec::new();
    texts(&tunnel(), &mut known);
    let blocks = hex_blocks(DOCUMENT);
    assert!(blocks.len() >= 12, "{} examples", blocks.len());
    for block in &blocks {
        assert!(block.chars().all(|c| c.is_ascii_hexdigit()), "not hex: {block}");
        assert!(known.contains(block), "not in the vectors: {block}");
    }
    // Outside of these blocks: whatever is too long to be a word.
    let outside = DOCUMENT.split("```hex\n").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once("```").unwrap().1,
    });
    let mut looked_at = 0;
    for part in outside {
        let words = part.split(|c: char| !(c.is_ascii_alphanumeric() || "-_:".contains(c)));
        let is_hex = |word: &str| word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
        for word in words.filter(|word| word.len() >= 40 || is_hex(word)) {
            looked_at += 1;
            let is_known =
                known.iter().any(|text| text == word || text.contains(&format!("\"{word}\"")));
            assert!(is_known, "not in the vectors: {word}");
        }
    }
    assert!(looked_at >= 10, "{looked_at} long words");
}

#[test]
fn an_example_that_is_not_true_is_seen() {
    let blocks = hex_blocks("a\n```hex\n01 02  # first\n0304\n```\nb\n```hex\nff\n```\n");
    assert_eq!(blocks, ["01020304", "ff"]);
}
