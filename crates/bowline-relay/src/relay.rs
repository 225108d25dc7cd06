//! The server that forwards sealed frames between clients and daemons.
//!
//! The path of a frame: [`connection`] reads it, checks its header, and unmasks it into the
//! receiver's queue ([`outbound_queue`]), which the receiver's own task writes to its socket. The
//! path of a connection: [`serve`] accepts it, [`http`] verifies its token ([`keys`]) and upgrades
//! it, and [`membership`] adds it to its daemon's [`daemon_slot`], until it disconnects or
//! [`revocations`], [`session_age`] or [`handover`] close it.
//!
//! Pairing, routing and refusals are decided by [`bowline_sbrp::relay`]; this module carries the
//! decisions out.
//!
//! A relay holds no signing key: of the token module it uses only the verifying half.

mod buffer_pool;
pub mod config;
mod connection;
mod connection_rate;
mod daemon_slot;
mod daemon_table;
mod epochs;
pub mod fuzz;
mod handover;
mod http;
mod issuer;
mod keys;
mod local_control;
mod membership;
mod meters;
mod outbound_queue;
mod refusals;
mod revocations;
mod serve;
mod server;
mod session_age;
mod ws;

use server::Shared;

pub use config::RelayConfig;
pub use issuer::BadIssuer;
pub use server::{BoundRelay, Relay, RelayStartError};

#[cfg(test)]
mod tests {
    /// A relay validates tokens and never issues them (SBRP-RELAY-01): no source file may even name
    /// a type that can sign.
    #[test]
    fn sbrp_relay_01_nothing_in_a_relay_can_sign() {
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/relay");
        let mut folders = vec![here];
        let mut read = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["TokenSigner", "IdentitySecret", "EncodingKey", "SigningKey"] {
                    assert!(!text.contains(word), "{word} in {}", path.display());
                }
                read += 1;
            }
        }
        assert!(read > 20, "the source was looked at: {read} files");
    }
}
