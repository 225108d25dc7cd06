use super::*;

fn binding(byte: u8) -> ChannelBinding {
    ChannelBinding([byte; 32])
}

fn secret(byte: u8) -> IdentitySecret {
    IdentitySecret::from_seed(&[byte; 32])
}

fn proof(who: &Identification<'_>, of: &ChannelBinding) -> Vec<u8> {
    let mut message = b"hello".to_vec();
    append(&mut message, who, of);
    message
}

const AT: usize = 5;

#[test]
fn sbrp_peer_01_a_device_is_proven_by_its_signature_over_this_channel() {
    let device = secret(1);
    let message = proof(&Identification::Device(&device), &binding(7));
    let claim = read(&message, AT, &binding(7)).unwrap();
    assert_eq!(claim, Claim::Device(ProvenDevice(device.public())));
    assert_eq!(read(&message, AT, &binding(8)), None, "replayed in another channel");
}

#[test]
fn sbrp_peer_01_every_changed_or_missing_byte_is_noticed() {
    let (device, code) = (secret(1), PairingCode::from_random([3; CODE_LEN]));
    let pairing = Identification::Pairing { device: &device, code: &code, name: "phone" };
    for who in [Identification::Device(&device), pairing] {
        let message = proof(&who, &binding(7));
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed, AT, &binding(7)), None, "{at}");
            let cut = read(&message[..at], AT, &binding(7));
            assert_eq!(cut, None, "cut at {at}");
        }
        let longer = [message.as_slice(), &[0]].concat();
        assert_eq!(read(&longer, AT, &binding(7)), None);
    }
    let plain = proof(&Identification::Plain, &binding(7));
    assert_eq!(read(&plain, AT, &binding(7)), Some(Claim::Plain));
    assert_eq!(read(&[plain.as_slice(), &[0]].concat(), AT, &binding(7)), None);
}

#[test]
fn sbrp_peer_01_a_pairing_code_is_known_only_for_its_channel_and_device() {
    let (device, code) = (secret(1), PairingCode::from_random([3; CODE_LEN]));
    let who = Identification::Pairing { device: &device, code: &code, name: "my phone" };
    let message = proof(&who, &binding(7));
    let Some(Claim::Pairing(claim)) = read(&message, AT, &binding(7)) else { panic!() };
    assert_eq!((claim.name.as_str(), claim.device.key()), ("my phone", &device.public()));
    assert!(claim.knows(&[3; CODE_LEN]) && !claim.knows(&[4; CODE_LEN]));
    // Someone who saw the MAC cannot use it with a key of their own.
    let other = secret(2);
    let mac = &message[AT + 1 + 32..][..MAC_LEN];
    let mut forged = b"hello".to_vec();
    forged.push(PAIRING);
    forged.extend_from_slice(other.public().as_bytes());
    forged.extend_from_slice(mac);
    forged.extend_from_slice(b"\x01x");
    let signature = other.sign(&signed(&binding(7), &forged));
    forged.extend_from_slice(&signature);
    let Some(Claim::Pairing(claim)) = read(&forged, AT, &binding(7)) else { panic!() };
    assert!(!claim.knows(&[3; CODE_LEN]));
    assert!(!message.windows(CODE_LEN).any(|bytes| bytes == [3; CODE_LEN]), "never sent");
}

#[test]
fn names_are_short_and_printable() {
    let (device, code) = (secret(1), PairingCode::from_random([3; CODE_LEN]));
    for (name, fits) in [
        ("a", true),
        ("", false),
        (" ", false),
        ("a\u{1b}", false),
        ("phone\u{200b}", false),
        ("\u{202e}enohp", false),
        (&*"é".repeat(33), false),
        ("日本", true),
    ] {
        let who = Identification::Pairing { device: &device, code: &code, name };
        let read = read(&proof(&who, &binding(7)), AT, &binding(7));
        assert_eq!(read.is_some(), fits, "{name:?}");
    }
}
