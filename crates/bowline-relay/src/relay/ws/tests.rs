use bowline_sbrp::frame::{HEADER_LEN, MAX_FRAME, Violation};
use proptest::prelude::*;

use super::close;
use super::decode::{Decoded, Decoder, Item};
use super::encode;
use super::fault::Fault;
use super::head::{FrameHead, Opcode};
use super::mask::{Masked, unmask};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it, with the shortest encoding of its length.
fn client(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(KEY);
    let masked = payload.iter().zip(KEY.iter().cycle());
    frame.extend(masked.map(|(byte, key)| byte ^ key));
    frame
}

/// A decoded item, as the tests compare it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Message(Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    Close(Option<u16>),
}

/// Decodes all whole frames; the undecoded rest stays in `input`.
fn read(decoder: &mut Decoder, input: &mut Vec<u8>) -> Result<Vec<Seen>, Fault> {
    let open = |masked: Masked<'_>| {
        let mut bytes = Vec::new();
        masked.append_to(&mut bytes);
        bytes
    };
    let mut seen = Vec::new();
    loop {
        let used = match decoder.look(input)? {
            Decoded::Needs(needs) => {
                assert!(needs > input.len(), "it waits for what it has");
                return Ok(seen);
            }
            Decoded::Message { message, used } => {
                seen.push(Seen::Message(open(message)));
                used
            }
            Decoded::Other { head, used } => {
                match decoder.take(head, input)? {
                    Item::Part => {}
                    Item::Gathered(whole) => seen.push(Seen::Message(whole)),
                    Item::Ping(payload) => seen.push(Seen::Ping(open(payload))),
                    Item::Pong => seen.push(Seen::Pong),
                    Item::Close(code) => seen.push(Seen::Close(code)),
                }
                used
            }
        };
        input.drain(..used);
    }
}

fn read_all(frames: &[Vec<u8>]) -> Result<Vec<Seen>, Fault> {
    let mut input = frames.concat();
    let seen = read(&mut Decoder::default(), &mut input)?;
    assert_eq!(input, b"", "nothing is left");
    Ok(seen)
}

#[test]
fn the_masked_example_of_the_rfc_opens() {
    let mut hello = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
    unmask(&mut hello, KEY);
    assert_eq!(&hello, b"Hello");
    // The example of section 5.7, with the opcode of binary messages.
    let frame = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read_all(&[frame.to_vec()]), Ok(vec![Seen::Message(b"Hello".to_vec())]));
}

#[test]
fn every_length_is_read_and_written_in_its_one_spelling() {
    for length in [0, 1, 12, 13, 125, 126, 127, 0xffff, 0x1_0000, MAX_FRAME] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let seen = read_all(&[client(0x82, &payload)]);
        assert_eq!(seen, Ok(vec![Seen::Message(payload.clone())]), "{length}");
        let mut out = Vec::new();
        encode::binary(&payload, &mut out);
        assert_eq!(out.len(), encode::head_len(length) + length);
        let mut forwarded = Vec::new();
        encode::forward(Masked::plain(&payload), &mut forwarded);
        assert_eq!(out, forwarded);
        assert_eq!(read_all(&[encode::as_from_client(&payload)]), seen);
    }
    for (frame, length) in [
        (vec![0x82, 0xfe, 0, 125], 125),
        (vec![0x82, 0xfe, 0, 0], 0),
        (vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 125], 125),
        (vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], 0xffff),
        (vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff], 1_u64 << 63),
    ] {
        assert_eq!(FrameHead::read(&frame), Err(Fault::Length), "{length}");
    }
}

#[test]
fn sbrp_relay_02_a_message_goes_on_with_the_head_that_a_server_writes() {
    for length in [0, 1, 12, 13, 125, 126, 127, 0xffff, 0x1_0000, MAX_FRAME] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let frame = client(0x82, &payload);
        let Ok(Decoded::Message { message, used }) = Decoder::default().look(&frame) else {
            panic!("{length}: no message")
        };
        let (mut forwarded, mut expected) = (b"before".to_vec(), b"before".to_vec());
        encode::forward(message, &mut forwarded);
        encode::binary(&payload, &mut expected);
        assert!(forwarded == expected && used == frame.len(), "{length}");
        let (start, known) = message.start();
        assert_eq!(start[..known], payload[..length.min(HEADER_LEN)]);
    }
}

#[test]
fn servers_frames_are_whole_and_unmasked() {
    let mut out = Vec::new();
    encode::ping(&mut out);
    encode::pong(Masked::new(&[0x37], KEY), &mut out);
    encode::close(Some(1012), &mut out);
    encode::close(None, &mut out);
    encode::binary(b"x", &mut out);
    let expected =
        [&[0x89, 0][..], &[0x8a, 1, 0], &[0x88, 2, 0x03, 0xf4], &[0x88, 0], &[0x82, 1, b'x']];
    assert_eq!(out, expected.concat());
}

#[test]
fn what_no_client_may_send_is_refused_by_its_first_bytes() {
    for (start, fault) in [
        (vec![0xc2, 0x80], Fault::ReservedBits),
        (vec![0xa2, 0x80], Fault::ReservedBits),
        (vec![0x92, 0x80], Fault::ReservedBits),
        (vec![0x83, 0x80], Fault::Opcode),
        (vec![0x87, 0x80], Fault::Opcode),
        (vec![0x8b, 0x80], Fault::Opcode),
        (vec![0x8f, 0x80], Fault::Opcode),
        (vec![0x82, 0x00], Fault::Unmasked),
        (vec![0x89, 0xfe], Fault::LongControl),
        (vec![0x8a, 0xff], Fault::LongControl),
        (vec![0x88, 0xfe], Fault::LongControl),
        (vec![0x09, 0x80], Fault::PartedControl),
        (vec![0x08, 0x80], Fault::PartedControl),
        (client(0x81, b"text"), Fault::Text),
        (client(0x01, b"te"), Fault::Text),
        (client(0x80, b""), Fault::Continuation),
        (client(0x00, b"x"), Fault::Continuation),
        ([client(0x02, b"a"), client(0x82, b"b")].concat(), Fault::Interleaved),
        ([client(0x02, b"a"), client(0x02, b"b")].concat(), Fault::Interleaved),
        ([client(0x02, b"a"), client(0x81, b"b")].concat(), Fault::Text),
    ] {
        let read = read(&mut Decoder::default(), &mut start.clone());
        assert_eq!(read, Err(fault), "{start:02x?}");
    }
}

#[test]
fn parts_make_a_message_and_control_frames_come_between() {
    let seen = read_all(&[
        client(0x02, b"on"),
        client(0x89, b"there?"),
        client(0x00, b""),
        client(0x8a, b""),
        client(0x00, b"e me"),
        client(0x80, b"ssage"),
        client(0x82, b"another"),
    ]);
    assert_eq!(
        seen,
        Ok(vec![
            Seen::Ping(b"there?".to_vec()),
            Seen::Pong,
            Seen::Message(b"one message".to_vec()),
            Seen::Message(b"another".to_vec()),
        ])
    );
}

#[test]
fn nothing_is_gathered_beyond_the_longest_message() {
    let long = vec![7; MAX_FRAME];
    let start = [7; HEADER_LEN];
    let whole = [client(0x02, &long), client(0x80, b"")];
    assert_eq!(read_all(&whole), Ok(vec![Seen::Message(long.clone())]));
    let more = [client(0x02, &long), client(0x80, b"x")];
    assert_eq!(read_all(&more), Err(Fault::TooLong { start }));
    // Refused by its length, long before the whole frame has arrived.
    let mut endless = client(0x82, &vec![7; MAX_FRAME + 1]);
    endless.truncate(14 + HEADER_LEN - 1);
    assert_eq!(read(&mut Decoder::default(), &mut endless.clone()), Ok(vec![]));
    endless.extend(client(0x82, &vec![7; MAX_FRAME + 1]).get(endless.len()));
    assert_eq!(read(&mut Decoder::default(), &mut endless), Err(Fault::TooLong { start }));
    // The header bytes may also be gathered from fragments.
    let parted = [client(0x02, &[7; 5]), client(0x80, &long)];
    assert_eq!(read_all(&parted), Err(Fault::TooLong { start }));
}

#[test]
fn sbrp_relay_05_too_long_is_the_rule_that_the_header_breaks() {
    let says = |length: u32| {
        let mut start = [0; HEADER_LEN];
        start[0] = 0x03;
        start[1..5].copy_from_slice(&length.to_be_bytes());
        Fault::TooLong { start }.violation()
    };
    assert_eq!(says(65_537), Violation::PayloadTooLarge);
    assert_eq!(says(u32::MAX), Violation::PayloadTooLarge);
    assert_eq!(says(65_536), Violation::MalformedFrame, "trailing bytes");
    assert_eq!(Fault::Text.violation(), Violation::MalformedFrame);
}

#[test]
fn close_frames_say_what_may_be_said() {
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1011, 1012, 1014, 3000, 4009, 4999] {
        let seen = read_all(&[client(0x88, &u16::to_be_bytes(code))]);
        assert_eq!(seen, Ok(vec![Seen::Close(Some(code))]));
    }
    assert_eq!(read_all(&[client(0x88, b"")]), Ok(vec![Seen::Close(None)]));
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2999, 5000, 65535] {
        assert_eq!(close::read(&u16::to_be_bytes(code)), Err(Fault::CloseCode), "{code}");
    }
    assert_eq!(close::read(b"\x03"), Err(Fault::CloseCode));
    assert_eq!(close::read(b"\x03\xe8bye"), Ok(Some(1000)));
    assert_eq!(close::read(b"\x03\xe8\xff"), Err(Fault::CloseReason));
}

#[test]
fn close_codes_name_the_kind_of_fault() {
    for (fault, code) in [
        (Fault::Text, 1003),
        (Fault::CloseReason, 1007),
        (Fault::TooLong { start: [0; HEADER_LEN] }, 1009),
        (Fault::Unmasked, 1002),
        (Fault::ReservedBits, 1002),
    ] {
        assert_eq!(fault.close_code(), code);
    }
}

proptest! {
    #[test]
    fn unmasking_is_xor_with_the_key_wherever_it_begins(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        key: [u8; 4],
        before in 0_usize..9,
    ) {
        let expected: Vec<u8> =
            payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        let mut out = vec![9; before];
        Masked::new(&payload, key).append_to(&mut out);
        prop_assert_eq!(&out[before..], &expected[..]);
        prop_assert!(out[..before].iter().all(|byte| *byte == 9));
        let (start, known) = Masked::new(&payload, key).start();
        prop_assert_eq!(&start[..known], &expected[..expected.len().min(HEADER_LEN)]);
    }

    /// Fragmentation of messages and splitting of reads do not change the result.
    #[test]
    fn cutting_changes_nothing(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 6),
        reads in prop::collection::vec(1_usize..90, 1..200),
    ) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (message, (cut, ping)) in messages.iter().zip(&cuts) {
            let cut = cut.index(message.len() + 1);
            if cut == message.len() {
                bytes.extend(client(0x82, message));
            } else {
                bytes.extend(client(0x02, &message[..cut]));
                if *ping {
                    bytes.extend(client(0x89, b"?"));
                    expected.push(Seen::Ping(b"?".to_vec()));
                }
                bytes.extend(client(0x80, &message[cut..]));
            }
            expected.push(Seen::Message(message.clone()));
        }
        let mut decoder = Decoder::default();
        let (mut input, mut seen) = (Vec::new(), Vec::new());
        let mut reads = reads.into_iter().cycle();
        while !bytes.is_empty() {
            let count = reads.next().unwrap_or(1).min(bytes.len());
            input.extend(bytes.drain(..count));
            seen.extend(read(&mut decoder, &mut input).unwrap());
        }
        prop_assert_eq!(input, b"");
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = read(&mut Decoder::default(), &mut bytes.clone());
    }

    /// Random bytes rarely pass the first two bytes: damage valid frames instead.
    #[test]
    fn a_damaged_frame_is_read_or_refused_without_panic(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        first in prop::sample::select(vec![0x82_u8, 0x02, 0x80, 0x88, 0x89, 0x8a]),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = [client(0x02, b"x"), client(first, &payload)].concat();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = read(&mut Decoder::default(), &mut bytes);
    }

    #[test]
    fn a_head_says_how_much_of_it_is_missing(
        first in prop::sample::select(vec![0x82_u8, 0x02, 0x88, 0x89, 0x8a]),
        length in 0_usize..126,
        more in 0_usize..70_000,
    ) {
        let length = if first & 0x08 == 0 { more } else { length };
        let frame = client(first, &vec![0; length]);
        let Ok(Ok(head)) = FrameHead::read(&frame) else { panic!("{first:x} {length}") };
        prop_assert_eq!(head.length, length as u64);
        prop_assert_eq!(head.size + length, frame.len());
        prop_assert_eq!(head.key, KEY);
        prop_assert_eq!(head.opcode.is_control(), first & 0x08 != 0);
        prop_assert_ne!(head.opcode, Opcode::Text);
        for known in 0..head.size {
            match FrameHead::read(&frame[..known]) {
                Ok(Err(needs)) => prop_assert!(needs > known && needs <= head.size),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
