//! What must hold for any bytes that reach a relay: on a connection, and as a token. The fuzzer
//! looks for bytes for which it does not; the crate's tests try some thousands with the stable
//! compiler. Each says whether its bytes were taken.

use std::sync::LazyLock;

use bowline_relay::relay::fuzz::{FuzzReader, Seen};
use bowline_sbrp::control::Role;
use bowline_sbrp::frame::{Frame, HEADER_LEN, Inbound, MAX_FRAME};
use bowline_sbrp::token::{Admission, KeySet, Relay, TokenError, TokenSigner};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Map, Value, json};

/// A connection's bytes mean the same in one piece and in many; what is passed on is what was
/// said, and what is refused has a reason. The first byte says who sends, and how it is cut.
pub(super) fn sbrp_frame(bytes: &[u8]) -> bool {
    let Some((&how, bytes)) = bytes.split_first() else { return false };
    let role = if how & 1 == 0 { Role::Client } else { Role::Daemon };
    let seen = FuzzReader::new(role).read(bytes);
    let mut reader = FuzzReader::new(role);
    let piece = usize::from(how >> 1) + 1;
    let pieces: Vec<Seen> = bytes.chunks(piece).flat_map(|piece| reader.read(piece)).collect();
    assert_eq!(pieces, seen, "in pieces of {piece}");
    let mut taken = false;
    for one in seen {
        match one {
            Seen::Forward { session, message, written } => {
                assert!(written.ends_with(&message) && written[0] == 0x82);
                let head = written.len() - message.len();
                assert!(matches!(head, 2 | 4 | 10) && written[1] & 0x80 == 0, "unmasked");
                let same = Inbound::Forward { session, message: message.clone().into() };
                assert_eq!(Inbound::read(role, message.clone().into()), Ok(same));
                reads_again(&message);
                taken = true;
            }
            Seen::Relay { message } => {
                // The words of a signal are read after the header.
                let read = Inbound::read(role, message.clone().into());
                assert!(!matches!(read, Ok(Inbound::Forward { .. })), "{read:?}");
                reads_again(&message);
                taken |= read.is_ok();
            }
            Seen::Refused { code, session, message } => {
                assert!(code.is_terminal(), "{code:?}");
                if let Some(message) = message {
                    let judged = Inbound::read(role, message.into()).map_err(|v| v.answer());
                    assert_eq!(judged, Err((code, session)));
                }
            }
            Seen::Ping { written } => {
                assert!(written.len() <= 127 && written[0] == 0x8a);
                taken = true;
            }
            Seen::Pong => taken = true,
            Seen::Closed(code) => assert!(code.is_none_or(|code| (1000..5000).contains(&code))),
        }
    }
    taken
}

/// An endpoint that takes a message understands it the same when it is said again.
fn reads_again(message: &[u8]) {
    assert!((HEADER_LEN..=MAX_FRAME).contains(&message.len()));
    let Ok(frame) = Frame::decode(message.to_vec().into()) else { return };
    assert_eq!(Frame::decode(frame.encode()), Ok(frame));
}

const ISSUER: &str = "https://control.example";
const NOW: u64 = 1_700_000_000;
const SEED: [u8; 32] = [1; 32];

/// Keys are made once: a fuzzer has no time to lose.
struct World {
    relay: Relay,
    keys: KeySet,
    /// Another's key, by the same name.
    stranger: KeySet,
    signer: EncodingKey,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let keys = |seed: &[u8; 32]| {
        let set = json!({ "keys": [TokenSigner::from_seed(ISSUER, "a", seed).jwk()] });
        KeySet::from_jwks(set.to_string().as_bytes()).expect("a good key")
    };
    let der = [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", &SEED[..]];
    World {
        relay: Relay { issuer: ISSUER.into(), region: Some("eu".into()) },
        keys: keys(&SEED),
        stranger: keys(&[2; 32]),
        signer: EncodingKey::from_ed_der(&der.concat()),
    }
});

/// A token is refused, or it says what its admission says. What begins with a brace is taken for
/// claims and signed: no fuzzer would find a signature.
pub(super) fn sbrp_token(bytes: &[u8]) -> bool {
    let World { relay, keys, stranger, .. } = &*WORLD;
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let signed = text.starts_with('{');
    let token = if signed { sign(text) } else { text.to_owned() };
    let judged = relay.admit(&token, keys, NOW);
    if signed && token.len() <= 4096 {
        let before = [TokenError::Malformed, TokenError::Type, TokenError::UnknownKey];
        assert!(!judged.as_ref().is_err_and(|error| before.contains(error)), "{judged:?}");
    }
    let Ok(admission) = judged else { return false };
    // The same token under another's key is worth nothing, and neither is one that was cut.
    assert_eq!(relay.admit(&token, stranger, NOW), Err(TokenError::Signature));
    assert!(relay.admit(&token[..token.len() - 1], keys, NOW).is_err());
    let payload = token.split('.').nth(1).expect("three parts");
    let claims: Map<String, Value> =
        serde_json::from_slice(&unbase64url(payload)).expect("claims were read");
    holds(&claims, &admission);
    true
}

/// The protocol's rules, said another way than the checker says them.
fn holds(claims: &Map<String, Value>, admission: &Admission) {
    let number = |name: &str| claims[name].as_f64().expect("a number");
    assert_eq!(claims["iss"], ISSUER);
    assert!(claims["aud"] == "sideband-relay" || claims["aud"].is_array());
    assert!(number("exp") + 30.0 >= NOW as f64);
    assert!(claims.get("ver").is_none_or(|version| version == 1));
    assert!(claims.get("region").is_none_or(|region| region == "eu"));
    let (daemon, limit, role) = match admission {
        Admission::Daemon(pass) => {
            let scopes = claims.get("scp").and_then(Value::as_array);
            let resumes = scopes.is_some_and(|all| all.iter().any(|one| one == "session:resume"));
            assert_eq!(pass.resumable, resumes);
            (&pass.daemon, pass.concurrent_sessions, "daemon")
        }
        Admission::Client(pass) => {
            assert!(number("exp") - number("iat") <= 300.0);
            assert_eq!(claims["sub"], pass.user.as_str());
            assert_eq!(claims["sid"], pass.session.to_string());
            (&pass.daemon, pass.concurrent_sessions, "client")
        }
    };
    assert_eq!((&claims["role"], &claims["did"]), (&role.into(), &daemon.as_str().into()));
    assert!(!daemon.as_str().is_empty());
    let said = claims.get("lim").and_then(|limits| limits.get("concurrent_sessions"));
    assert_eq!(said.and_then(Value::as_u64), limit.map(Into::into));
}

fn sign(claims: &str) -> String {
    let header = r#"{"alg":"EdDSA","typ":"sbrp-relay+jwt","kid":"a"}"#;
    let message = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &WORLD.signer, Algorithm::EdDSA);
    format!("{message}.{}", signature.expect("a good key signs"))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// By hand, so that the property does not lean on the library that it tries.
fn base64url(bytes: &[u8]) -> String {
    let group = |three: &[u8]| {
        let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - three.len()));
        let digits = (0..=three.len()).map(move |n| DIGITS[(word >> (18 - 6 * n)) as usize & 63]);
        digits.map(char::from).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn unbase64url(text: &str) -> Vec<u8> {
    let value = |digit: &u8| DIGITS.iter().position(|known| known == digit).expect("a digit");
    let group = |four: &[u8]| {
        let word = four.iter().fold(0u32, |word, digit| word << 6 | value(digit) as u32);
        let word = word << (6 * (4 - four.len()));
        word.to_be_bytes()[1..four.len()].to_vec()
    };
    text.as_bytes().chunks(4).flat_map(group).collect()
}
