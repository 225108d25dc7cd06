//! The Sideband Relay Protocol without I/O.
//!
//! A client talks end-to-end encrypted with a daemon behind NAT, through a relay that cannot read. Everything
//! here is a value or a pure function: no sockets, no clock, no randomness. Relay, daemon, client and tests
//! share these types, so a wire detail is written down once. [`bowline-client`] and [`bowline-relay`] put
//! sockets around it; a program with a network of its own, such as a browser, can do the same.
//!
//! [`bowline-client`]: ../bowline_client/index.html
//! [`bowline-relay`]: ../bowline_relay/index.html
//!
//! | module | what |
//! |---|---|
//! | [`frame`], [`control`], [`id`] | the bytes on the wire |
//! | [`handshake`], [`sealed`], [`identity`] | the keys of a session, and its encryption |
//! | [`client`], [`daemon`], [`relay`] | the state machines of the three parties |
//! | [`peer`], [`pairing`], [`tunnel`] | ours, inside the sealed channel: who the client is, and streams |
//! | [`api`], [`device_auth`], [`token`], [`renewal`], [`revocation`] | the control plane: bodies, signatures, tokens |
//! | [`time`] | the clock that callers pass in |
//!
//! # A sealed session
//!
//! The client sends its half of the handshake, the daemon answers, and both have the same keys. Only then is
//! there something to encrypt with.
//!
//! ```
//! use bowline_sbrp::frame::Frame;
//! use bowline_sbrp::handshake::{AwaitAccept, Ephemeral, Trust, answer};
//! use bowline_sbrp::id::{DaemonId, SessionId};
//! use bowline_sbrp::identity::IdentitySecret;
//! use zeroize::Zeroizing;
//!
//! // Both from the control plane; the identity's seed and the ephemerals from a source of randomness.
//! let (session, id) = (SessionId::from_wire(7).unwrap(), DaemonId::new("workshop"));
//! let identity = IdentitySecret::from_seed(&[1; 32]);
//! let ephemeral = |byte| Ephemeral::from_random(Zeroizing::new([byte; 32]));
//!
//! let (waiting, init) = AwaitAccept::start(session, id.clone(), ephemeral(2));
//! let Frame::HandshakeInit { payload, .. } = init else { unreachable!() };
//! let mut daemon = answer(session, &payload, &id, &identity, ephemeral(3))?;
//!
//! // The daemon's key is not known yet. Once it has signed, it can be pinned, and not before.
//! let Frame::HandshakeAccept { payload, .. } = daemon.accept else { unreachable!() };
//! let mut client = waiting.accept(&payload, &Trust::FirstUse)?;
//! assert_eq!(*client.identity.key(), identity.public());
//!
//! let sealed = client.channel.sealer.seal(b"hello")?;
//! let Frame::Data { payload, .. } = Frame::decode(sealed)? else { unreachable!() };
//! let opened = daemon.channel.opener.open(&payload)?;
//! assert_eq!((opened.seq, &opened.plaintext[..]), (0, &b"hello"[..]));
//! // A second time it is refused.
//! assert!(daemon.channel.opener.open(&payload).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The state machines
//!
//! [`client::Client`], [`daemon::Daemon`] and [`relay::PairTable`] take an input and the time, and return what
//! is to be done, in order. What cannot be decrypted, a changed key, a pause, a lost connection: the machine
//! decides, and the program around it carries out.
//!
//! ```
//! use bowline_sbrp::client::{Client, ClientAction, ClientInput};
//! use bowline_sbrp::daemon::{Daemon, DaemonAction, DaemonInput, Progress};
//! use bowline_sbrp::frame::Frame;
//! use bowline_sbrp::handshake::{Ephemeral, Trust};
//! use bowline_sbrp::id::{DaemonId, SessionId};
//! use bowline_sbrp::identity::IdentitySecret;
//! use zeroize::Zeroizing;
//!
//! let now = std::time::Instant::now();
//! let ephemeral = |byte| Ephemeral::from_random(Zeroizing::new([byte; 32]));
//! let session = SessionId::from_wire(7).unwrap();
//! let id = DaemonId::new("workshop");
//! let mut client = Client::new(id.clone(), Trust::FirstUse);
//! let mut daemon = Daemon::new(id, IdentitySecret::from_seed(&[1; 32]), true, 64);
//! daemon.handle(DaemonInput::Connected, now)?;
//!
//! // Get a token and open a socket with it; then say so.
//! assert_eq!(client.handle(ClientInput::Connect, now)?, [ClientAction::Connect]);
//! let opened = ClientInput::Opened { session, ephemeral: ephemeral(2) };
//! let [ClientAction::Send(init)] = &client.handle(opened, now)?[..] else { panic!() };
//!
//! // What a relay would carry from one to the other.
//! daemon.handle(DaemonInput::Frame(Frame::decode(init.clone())?), now)?;
//! let answer = DaemonInput::Answer { session, ephemeral: ephemeral(3) };
//! let [DaemonAction::Send(accept), ..] = &daemon.handle(answer, now)?[..] else { panic!() };
//! let done = client.handle(ClientInput::Frame(Frame::decode(accept.clone())?), now)?;
//! assert!(matches!(done[..], [ClientAction::Pin(_), ClientAction::Established(_)]));
//!
//! let said = client.handle(ClientInput::Send(b"hello".to_vec().into()), now)?;
//! let [ClientAction::Send(data)] = &said[..] else { panic!() };
//! let heard = daemon.handle(DaemonInput::Frame(Frame::decode(data.clone())?), now)?;
//! let [DaemonAction::Session(_, Progress::Deliver(message))] = &heard[..] else { panic!() };
//! assert_eq!(&message.plaintext[..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Inputs and actions are complete on purpose: a program that does not handle one of them does not compile.
//! Errors and notices may grow (`#[non_exhaustive]`).
//!
//! # Features
//!
//! | feature | what | default |
//! |---|---|---|
//! | `aws-lc` | cryptography of `aws-lc-rs`, the fastest | yes |
//! | `rustcrypto` | cryptography in Rust alone, where there is no C; `aws-lc` wins if both are on | no |
//! | `token` | issuing and checking relay tokens; needs `aws-lc-rs` | yes |
//!
//! For a browser (`wasm32-unknown-unknown`): `--no-default-features --features rustcrypto`.

#![warn(missing_docs)]

pub mod api;
pub mod client;
pub mod control;
mod crypto;
pub mod daemon;
pub mod device_auth;
pub mod frame;
pub mod handshake;
pub mod id;
pub mod identity;
pub mod impossible;
pub mod pairing;
pub mod peer;
pub mod relay;
pub mod renewal;
pub mod revocation;
pub mod sealed;
pub mod time;
#[cfg(feature = "token")]
pub mod token;
pub mod tunnel;
#[cfg(test)]
mod vectors;
