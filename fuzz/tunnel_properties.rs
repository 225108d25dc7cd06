//! What must hold for any bytes that reach an end of a tunnel, and for two honest ends whatever is lost
//! between them. The fuzzer looks for bytes for which it does not; the crate's tests try some
//! thousands with the stable compiler. Each says whether its bytes were taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::LazyLock;
use std::time::Instant;

use bowline_sbrp::handshake::ChannelBinding;
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::pairing::{PairingCode, PairingText};
use bowline_sbrp::peer::{Claim, Identification, is_name};
use bowline_sbrp::tunnel::{
    Hello, HelloReply, MOST_STREAMS, ReadOutcome, StreamId, Tunnel, TunnelEvent, TunnelFault,
    TunnelSide, WriteOutcome,
};
use bytes::Bytes;
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

/// The first byte says which reader the others are for.
pub(super) fn tunnel(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    match which % 6 {
        0 => hello(bytes),
        1 => signed_hello(bytes),
        2 => reply(bytes),
        3 => pairing_text(bytes),
        4 => hostile_peer(bytes),
        _ => honest_ends(bytes),
    }
}

const BINDING: [u8; 32] = [7; 32];
const CODE: [u8; 16] = [3; 16];
const SEED: [u8; 32] = [1; 32];

/// Keys are made once: a fuzzer has no time to lose.
static DEVICE: LazyLock<(IdentitySecret, SigningKey)> =
    LazyLock::new(|| (IdentitySecret::from_seed(&SEED), SigningKey::from_bytes(&SEED)));

/// A hello is refused, or it can be written in this one way only, and for this channel only.
fn hello(message: &[u8]) -> bool {
    let binding = ChannelBinding::from_bytes(BINDING);
    let Ok(hello) = Hello::read(message, &binding) else { return false };
    let (device, _) = &*DEVICE;
    let code = PairingCode::from_random(CODE);
    let who = match &hello.claim {
        Claim::Plain => Identification::Plain,
        Claim::Device(claimed) if *claimed.key() == device.public() => {
            Identification::Device(device)
        }
        Claim::Pairing(claim) => {
            assert!(is_name(&claim.name));
            if *claim.device.key() != device.public() || !claim.knows(&CODE) {
                return true;
            }
            Identification::Pairing { device, code: &code, name: &claim.name }
        }
        Claim::Device(_) => return true,
    };
    // A client may speak other versions, too.
    if message[7..9] == [2, 2] {
        assert_eq!(Hello::message(hello.tunnel, hello.resume, &who, &binding), message);
    }
    if hello.claim != Claim::Plain {
        let other = ChannelBinding::from_bytes([8; 32]);
        assert!(Hello::read(message, &other).is_err(), "good in another channel");
    }
    true
}

/// The same behind the signature, which no fuzzer would find: the bytes are what is signed, without
/// the beginning and the key.
fn signed_hello(bytes: &[u8]) -> bool {
    let Some((head, rest)) = bytes.split_first_chunk::<26>() else { return false };
    let (device, key) = &*DEVICE;
    let mut message = [b"bowline\x02\x02", &head[..], device.public().as_bytes(), rest].concat();
    let digest =
        Sha256::new().chain_update("sbrp-peer-v1").chain_update(BINDING).chain_update(&message);
    let signature = key.sign(&digest.finalize()).to_bytes();
    message.extend_from_slice(&signature);
    if !hello(&message) {
        return false;
    }
    let binding = ChannelBinding::from_bytes(BINDING);
    let at = usize::from(rest.last().copied().unwrap_or(head[0])) % message.len();
    message[at] ^= 1;
    assert!(Hello::read(&message, &binding).is_err(), "byte {at} was changed");
    true
}

/// An answer is refused, or means the same when it is written again.
fn reply(message: &[u8]) -> bool {
    let Some(reply) = HelloReply::read(message) else { return false };
    let again = reply.message();
    match &reply {
        HelloReply::Welcome(welcome) if welcome.services.len() <= 64 => assert_eq!(again, message),
        HelloReply::Welcome(_) => {}
        _ => assert_eq!(HelloReply::read(&again), Some(reply)),
    }
    true
}

/// A pairing text is refused, or it can be written in this one way only, but for white space.
fn pairing_text(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(pairing) = text.parse::<PairingText>() else { return false };
    let plain: String = text.split_ascii_whitespace().collect();
    assert_eq!(pairing.to_string(), plain);
    assert!(!pairing.control.is_empty() && !pairing.daemon.as_str().is_empty());
    true
}

/// What to do next, read from the fuzzer's bytes.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn small(&mut self) -> usize {
        self.byte().unwrap_or_default().into()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (these, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        these.to_vec()
    }

    /// Sizes from nothing to more than a record holds.
    fn size(&mut self) -> usize {
        let byte = self.small();
        if byte < 128 { byte } else { (byte - 127) * 600 }
    }
}

fn record(kind: u8, number: u64, stream: u32, body: &[u8]) -> Bytes {
    [&[kind][..], &number.to_be_bytes(), &stream.to_be_bytes(), body].concat().into()
}

/// The most that a tunnel may hold of what its peer sent: each stream's first credit, and the growth
/// that all share.
const MOST_UNREAD: usize = MOST_STREAMS * (64 << 10) + (16 << 20);
/// More messages than an end ever has waiting: 8 MiB by weight, and what its streams still say.
const MOST_WAITING: usize = 8192 + 8 * MOST_STREAMS;

/// An end that a hostile peer talks to stays within bounds, and after a broken rule listens no more.
fn hostile_peer(bytes: &[u8]) -> bool {
    let mut script = Script(bytes);
    let side = if script.small() % 2 == 0 { TunnelSide::Daemon } else { TunnelSide::Client };
    let mut tunnel = Tunnel::new(side);
    // Bytes that were taken and not read, by stream.
    let mut unread: BTreeMap<u32, usize> = BTreeMap::new();
    let mut taken = false;
    while let Some(op) = script.byte() {
        let stream = StreamId(script.small() as u32 % 9);
        let number = tunnel.received();
        let message = match op % 16 {
            0 => Bytes::from(script.bytes(30)),
            1 => record(0x10, number, stream.0, b"http"),
            2 => record(0x11, number, stream.0, &vec![op; script.size()]),
            3 => record(0x12, number, stream.0, &script.bytes(4)),
            4 => record(0x13, number, stream.0, b""),
            5 => record(0x14, number, stream.0, &[op >> 4]),
            6 => {
                let (received, sent) = (script.small() as u64, script.small() as u64);
                let sent = if op >= 0x80 { number } else { sent };
                [&[0x20][..], &received.to_be_bytes(), &sent.to_be_bytes()].concat().into()
            }
            7 => record(0x10 + (op >> 4) % 5, script.small() as u64, stream.0, b"\0\0\0\x01"),
            local => {
                match local {
                    8 => drop(tunnel.open("http")),
                    9 => drop(tunnel.write(stream, &vec![op; script.size()])),
                    10 | 11 => {
                        if let ReadOutcome::Bytes(bytes) = tunnel.read(stream, script.size().max(1))
                        {
                            let left = unread.get_mut(&stream.0).expect("something was taken");
                            *left = left.checked_sub(bytes.len()).expect("no more than was taken");
                        }
                    }
                    12 => tunnel.end(stream),
                    13 => {
                        tunnel.forget(stream);
                        unread.remove(&stream.0);
                    }
                    14 => tunnel.acknowledge(),
                    _ => {
                        let messages = std::iter::from_fn(|| tunnel.next_message(Instant::now()));
                        assert!(messages.count() <= MOST_WAITING);
                    }
                }
                continue;
            }
        };
        match tunnel.receive(&message, Instant::now()) {
            Ok(events) => {
                taken = true;
                assert!(events.len() <= 2);
                let new = tunnel.received() > number;
                if new && message[0] == 0x11 && !events.is_empty() {
                    *unread.entry(stream.0).or_default() += message.len() - 13;
                }
            }
            Err(fault) if fault.may_resume() => {
                assert_eq!(tunnel.received(), number, "what was refused does not count");
            }
            Err(fault) => {
                assert_eq!(tunnel.receive(&message, Instant::now()), Err(fault));
                assert_eq!(tunnel.resume(0), Err(fault));
                (tunnel, unread) = (Tunnel::new(side), BTreeMap::new());
            }
        }
        assert!(tunnel.streams() <= MOST_STREAMS);
        assert!(unread.values().sum::<usize>() <= MOST_UNREAD);
    }
    taken
}

/// One of two honest ends.
struct End {
    tunnel: Tunnel,
    /// All messages that it put into any session.
    sent: Vec<Bytes>,
    /// Those of the present session that are on their way.
    on_the_way: VecDeque<Bytes>,
    /// How many bytes were written and read, by stream; which it has ended, and read to the end.
    wrote: BTreeMap<StreamId, usize>,
    read: BTreeMap<StreamId, usize>,
    ended: BTreeSet<StreamId>,
    complete: BTreeSet<StreamId>,
}

impl End {
    fn new(side: TunnelSide) -> Self {
        Self {
            tunnel: Tunnel::new(side),
            sent: Vec::new(),
            on_the_way: VecDeque::new(),
            wrote: BTreeMap::new(),
            read: BTreeMap::new(),
            ended: BTreeSet::new(),
            complete: BTreeSet::new(),
        }
    }

    fn send(&mut self) {
        while let Some(message) = self.tunnel.next_message(Instant::now()) {
            self.sent.push(message.clone());
            self.on_the_way.push_back(message);
        }
    }

    fn write(&mut self, id: StreamId, salt: u8, size: usize) {
        let at = self.wrote.get(&id).copied().unwrap_or_default();
        let bytes: Vec<u8> = (at..at + size).map(|at| pattern(id, salt, at)).collect();
        if let WriteOutcome::Wrote(count) = self.tunnel.write(id, &bytes) {
            *self.wrote.entry(id).or_default() += count;
        }
    }

    /// Reads, and compares with what the other end writes at this place.
    fn read(&mut self, id: StreamId, salt: u8, most: usize) -> bool {
        match self.tunnel.read(id, most.max(1)) {
            ReadOutcome::Bytes(bytes) => {
                let at = self.read.entry(id).or_default();
                for byte in &bytes {
                    assert_eq!(*byte, pattern(id, salt, *at), "byte {at} of {id:?}");
                    *at += 1;
                }
                true
            }
            ReadOutcome::End => {
                self.complete.insert(id);
                false
            }
            ReadOutcome::Blocked | ReadOutcome::Reset(_) => false,
        }
    }
}

/// The byte at a place of a stream; each place of each stream and direction has its own.
fn pattern(id: StreamId, salt: u8, at: usize) -> u8 {
    let word = (at as u64 ^ u64::from(id.0) << 40 ^ u64::from(salt) << 56)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> 32) as u8
}

/// Two honest ends, between which messages are lost, repeated, swapped, brought late from an earlier
/// session, and cut off with their session. Every stream has the right bytes, always, and in the end all.
fn honest_ends(bytes: &[u8]) -> bool {
    let mut script = Script(bytes);
    let mut ends = [End::new(TunnelSide::Client), End::new(TunnelSide::Daemon)];
    let mut was_reset = BTreeSet::new();
    while let Some(op) = script.byte() {
        let here = usize::from(op >> 7);
        let id = StreamId(script.small() as u32 % 5 + 1);
        match op % 16 {
            0 => drop(ends[0].tunnel.open("tcp")),
            1 | 2 => {
                let size = script.size();
                ends[here].write(id, here as u8, size);
            }
            3 | 4 => {
                let most = script.size();
                ends[here].read(id, 1 - here as u8, most);
            }
            5 => {
                if ends[here].wrote.contains_key(&id) {
                    ends[here].tunnel.end(id);
                    ends[here].ended.insert(id);
                }
            }
            6 => {
                was_reset.insert(id);
                ends[here].tunnel.forget(id);
            }
            7 => ends[here].tunnel.acknowledge(),
            8 | 9 => ends[here].send(),
            10 | 11 => {
                for _ in 0..script.small() % 8 {
                    if let Some(message) = ends[here].on_the_way.pop_front() {
                        deliver(&mut ends, 1 - here, &message);
                    }
                }
            }
            12 => drop(ends[here].on_the_way.pop_front()),
            13 => ends[here].on_the_way.make_contiguous().reverse(),
            14 => {
                let sent = &ends[here].sent;
                if let Some(message) = sent.get(script.small() % sent.len().max(1)).cloned() {
                    deliver(&mut ends, 1 - here, &message);
                }
            }
            _ => reconnect(&mut ends),
        }
    }
    // Whatever happened: with a connection that holds, everything arrives.
    reconnect(&mut ends);
    let ids: Vec<StreamId> = ends[0].wrote.keys().copied().collect();
    for id in &ids {
        ends[0].tunnel.end(*id);
    }
    for _ in 0..64 {
        for here in 0..2 {
            ends[here].send();
            while let Some(message) = ends[here].on_the_way.pop_front() {
                deliver(&mut ends, 1 - here, &message);
            }
            for id in &ids {
                while ends[here].read(*id, 1 - here as u8, usize::MAX) {}
            }
            ends[here].tunnel.acknowledge();
        }
    }
    for id in ids.iter().filter(|id| !was_reset.contains(id)) {
        assert_eq!(ends[1].read.get(id).unwrap_or(&0), &ends[0].wrote[id], "{id:?}");
        assert!(ends[1].complete.contains(id), "{id:?} did not end");
        let back = ends[1].wrote.get(id).unwrap_or(&0);
        assert_eq!(ends[0].read.get(id).unwrap_or(&0), back, "{id:?}");
        assert_eq!(ends[0].complete.contains(id), ends[1].ended.contains(id), "{id:?}");
    }
    for (here, end) in ends.iter().enumerate() {
        for id in &end.complete {
            let wrote = ends[1 - here].wrote.get(id).unwrap_or(&0);
            assert_eq!(
                end.read.get(id).unwrap_or(&0),
                wrote,
                "{id:?} was cut off and looked complete"
            );
        }
    }
    !ids.is_empty()
}

fn deliver(ends: &mut [End; 2], to: usize, message: &Bytes) {
    match ends[to].tunnel.receive(message, Instant::now()) {
        Ok(events) => {
            for event in events {
                if let TunnelEvent::Opened(_, service) = event {
                    assert_eq!(service, "tcp");
                }
            }
        }
        Err(TunnelFault::Gap) => reconnect(ends),
        Err(fault) => panic!("honest ends disagree: {fault}"),
    }
}

/// The session is lost with all that was on its way; the next one begins.
fn reconnect(ends: &mut [End; 2]) {
    for here in 0..2 {
        ends[here].on_the_way.clear();
        let received = ends[1 - here].tunnel.received();
        ends[here].tunnel.resume(received).expect("honest positions fit");
    }
}
