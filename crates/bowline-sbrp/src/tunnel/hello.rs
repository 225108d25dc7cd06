//! The first message of a sealed session in each direction.
//!
//! ```text
//! client: "bowline" | lowest u8 | highest u8 | tunnel 16 | resume u8 | received u64 | proof
//! daemon: "bowline" | version u8 | 00 | resumed u8 | received u64 | length u8, name
//!             | count u8, for each service: length u8, name
//!         "bowline" | version u8 | reason u8
//! ```
//!
//! The client names the versions that it speaks; the daemon answers with the highest that both do.
//! The proof is that of [`crate::peer`] and covers all of the client's message.

use super::TunnelId;
use crate::handshake::ChannelBinding;
use crate::peer::{self, Claim, Identification};

const MAGIC: &[u8; 7] = b"bowline";
/// The version that this build speaks. Version 1 had no proof and no positions.
pub const VERSION: u8 = 2;
/// Where the proof of the client's message begins.
const PROOF_AT: usize = MAGIC.len() + 2 + 16 + 1 + 8;

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The tunnel that begins or goes on.
    pub tunnel: TunnelId,
    /// The client knows this tunnel and has received so many records in it; `None`: it is new.
    pub resume: Option<u64>,
    /// Who the client has proved to be.
    pub claim: Claim,
}

/// Why a client's first message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloFault {
    /// It is no hello.
    #[error("it is no hello")]
    Malformed,
    /// The client speaks no version that is spoken here.
    #[error("the client speaks no version that is spoken here")]
    Version,
    /// The proof does not hold.
    #[error("the proof does not hold")]
    Proof,
}

impl Hello {
    /// The message, with a proof for this channel.
    pub fn message(
        tunnel: TunnelId,
        resume: Option<u64>,
        who: &Identification<'_>,
        binding: &ChannelBinding,
    ) -> Vec<u8> {
        let mut message = [MAGIC.as_slice(), &[VERSION, VERSION], &tunnel.0].concat();
        message.push(u8::from(resume.is_some()));
        message.extend_from_slice(&resume.unwrap_or(0).to_be_bytes());
        peer::append(&mut message, who, binding);
        message
    }

    /// Reads a client's message and verifies its proof for this channel.
    pub fn read(message: &[u8], binding: &ChannelBinding) -> Result<Self, HelloFault> {
        let rest = message.strip_prefix(MAGIC).ok_or(HelloFault::Malformed)?;
        match rest {
            // Version 1: one byte, then the name of a service.
            [1, ..] => return Err(HelloFault::Version),
            [lowest, highest, ..] if !(*lowest..=*highest).contains(&VERSION) => {
                return Err(HelloFault::Version);
            }
            _ => {}
        }
        let head = || {
            let (tunnel, rest) = rest.get(2..)?.split_first_chunk()?;
            let (resume, rest) = rest.split_first()?;
            let received = u64::from_be_bytes(*rest.first_chunk()?);
            let resume = match *resume {
                0 if received == 0 => None,
                1 => Some(received),
                _ => return None,
            };
            Some((TunnelId(*tunnel), resume))
        };
        let (tunnel, resume) = head().ok_or(HelloFault::Malformed)?;
        let claim = peer::read(message, PROOF_AT, binding).ok_or(HelloFault::Proof)?;
        Ok(Self { tunnel, resume, claim })
    }
}

/// The daemon's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloReply {
    /// The client is let in.
    Welcome(Welcome),
    /// The client's device is not paired, or was revoked; or it gave no proof and needs one.
    NotPaired,
    /// None of the client's versions is spoken here.
    Version,
    /// The pairing code is wrong, was used, or has expired.
    BadCode,
    /// There are as many tunnels, or attempts to pair, as there may be.
    Busy,
    /// The daemon cannot answer now.
    Failed,
}

/// The daemon lets the client in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The tunnel that the client asked to resume is there, and so many of its records were received.
    /// `None`: it begins anew, and streams of before are lost.
    pub resumed: Option<u64>,
    /// What the daemon is called.
    pub name: String,
    /// The services that this client may open.
    pub services: Vec<String>,
}

/// The most services that a welcome lists.
const MOST_SERVICES: usize = 64;

const NOT_PAIRED: u8 = 0x01;
const NO_VERSION: u8 = 0x02;
const BAD_CODE: u8 = 0x03;
const BUSY: u8 = 0x04;
const FAILED: u8 = 0x05;

impl HelloReply {
    /// The bytes to send.
    pub fn message(&self) -> Vec<u8> {
        let mut message = [MAGIC.as_slice(), &[VERSION]].concat();
        let welcome = match self {
            Self::Welcome(welcome) => welcome,
            Self::NotPaired => return [message, vec![NOT_PAIRED]].concat(),
            Self::Version => return [message, vec![NO_VERSION]].concat(),
            Self::BadCode => return [message, vec![BAD_CODE]].concat(),
            Self::Busy => return [message, vec![BUSY]].concat(),
            Self::Failed => return [message, vec![FAILED]].concat(),
        };
        message.extend_from_slice(&[0x00, u8::from(welcome.resumed.is_some())]);
        message.extend_from_slice(&welcome.resumed.unwrap_or(0).to_be_bytes());
        let name = Some(welcome.name.as_str()).filter(|name| peer::is_name(name));
        put_name(&mut message, name.unwrap_or_default());
        let services = welcome.services.iter().filter(|name| peer::is_name(name));
        let services: Vec<_> = services.take(MOST_SERVICES).collect();
        message.push(services.len() as u8);
        services.iter().for_each(|name| put_name(&mut message, name));
        message
    }

    /// `None` if it is no answer to a hello.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (version, rest) = message.strip_prefix(MAGIC)?.split_first()?;
        if *version != VERSION {
            return Some(Self::Version);
        }
        match rest {
            [NOT_PAIRED] => Some(Self::NotPaired),
            [NO_VERSION] => Some(Self::Version),
            [BAD_CODE] => Some(Self::BadCode),
            [BUSY] => Some(Self::Busy),
            [0x00, resumed, rest @ ..] => {
                let (received, rest) = rest.split_first_chunk()?;
                let received = u64::from_be_bytes(*received);
                let (name, rest) = take_name(rest)?;
                let (count, mut rest) = rest.split_first()?;
                let mut services = Vec::new();
                for _ in 0..*count {
                    let (service, after) = take_name(rest).filter(|(name, _)| !name.is_empty())?;
                    services.push(service.to_owned());
                    rest = after;
                }
                let resumed = match *resumed {
                    0 if received == 0 => None,
                    1 => Some(received),
                    _ => return None,
                };
                let name = name.to_owned();
                rest.is_empty().then_some(Self::Welcome(Welcome { resumed, name, services }))
            }
            [0x00] | [] => None,
            // `FAILED`, and every reason of a later version.
            [_, ..] => Some(Self::Failed),
        }
    }
}

/// `name` has at most [`peer::LONGEST_NAME`] bytes.
fn put_name(message: &mut Vec<u8>, name: &str) {
    message.push(name.len() as u8);
    message.extend_from_slice(name.as_bytes());
}

/// A name, which may be empty, and what follows it.
fn take_name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok()?;
    (name.is_empty() || peer::is_name(name)).then_some((name, rest))
}

/// What a client of version 1 understands as "no such version".
pub fn refusal_for_version_1() -> Vec<u8> {
    [MAGIC.as_slice(), &[0x01, 0x02]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::IdentitySecret;

    fn binding(byte: u8) -> ChannelBinding {
        ChannelBinding([byte; 32])
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_hello_is_read_with_its_positions() {
        let device = IdentitySecret::from_seed(&[1; 32]);
        for resume in [None, Some(0), Some(u64::MAX)] {
            let tunnel = TunnelId([5; 16]);
            let who = Identification::Device(&device);
            let message = Hello::message(tunnel, resume, &who, &binding(7));
            let hello = Hello::read(&message, &binding(7)).unwrap();
            assert_eq!((hello.tunnel, hello.resume), (tunnel, resume));
            assert!(matches!(hello.claim, Claim::Device(_)));
            assert_eq!(Hello::read(&message, &binding(8)), Err(HelloFault::Proof));
        }
    }

    #[test]
    fn hellos_have_the_documented_bytes() {
        let tunnel = TunnelId([0xaa; 16]);
        let plain = Hello::message(tunnel, Some(3), &Identification::Plain, &binding(0));
        assert_eq!(
            hex(&plain),
            "626f776c696e650202aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa01000000000000000300"
        );
        let services = vec!["http".to_owned(), "api".to_owned()];
        let welcome = Welcome { resumed: Some(2), name: "home".into(), services };
        assert_eq!(
            hex(&HelloReply::Welcome(welcome).message()),
            "626f776c696e650200010000000000000002 04686f6d65 02 0468747470 03617069"
                .replace(' ', "")
        );
        assert_eq!(hex(&HelloReply::NotPaired.message()), "626f776c696e650201");
    }

    #[test]
    fn other_versions_are_told_from_nonsense() {
        let read = |message: &[u8]| Hello::read(message, &binding(7)).unwrap_err();
        assert_eq!(read(b"bowline\x01ping"), HelloFault::Version);
        assert_eq!(read(b"bowline\x03\x05rest"), HelloFault::Version);
        assert_eq!(read(b"bowline\x02"), HelloFault::Malformed);
        assert_eq!(read(b"bowlines"), HelloFault::Malformed);
        assert_eq!(read(b""), HelloFault::Malformed);
        assert_eq!(HelloReply::read(b"bowline\x01\x02"), Some(HelloReply::Version));
    }

    #[test]
    fn replies_are_read_as_they_were_written() {
        for reply in [
            HelloReply::Welcome(Welcome::default()),
            HelloReply::Welcome(Welcome {
                resumed: Some(0),
                name: "home".into(),
                services: vec!["ssh".into()],
            }),
            HelloReply::NotPaired,
            HelloReply::Version,
            HelloReply::BadCode,
            HelloReply::Busy,
            HelloReply::Failed,
        ] {
            assert_eq!(HelloReply::read(&reply.message()), Some(reply));
        }
        for bad in [
            &b"bowline\x02"[..],
            b"bowline\x02\x00",
            b"other\x02\x00",
            b"bowline\x02\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            b"bowline\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
            b"bowline\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00",
            b"bowline\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00",
            b"bowline\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        ] {
            assert_eq!(HelloReply::read(bad), None, "{bad:?}");
        }
        assert_eq!(
            HelloReply::read(b"bowline\x02\x77"),
            Some(HelloReply::Failed),
            "of a later version"
        );
    }
}
