//! Both ends of a relay over real sockets, with a relay between them that a test can make
//! misbehave.

mod control;
mod daemon;
mod device_tokens;
mod finishing;
mod forwarding;
mod identity;
mod interference;
mod pauses;
mod peers;
mod quiet;
mod relays;
mod sessions;
mod wire;
mod world;
