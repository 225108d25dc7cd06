//! The server that forwards sealed frames between clients and daemons.
//!
//! The path of a frame: [`connection`] reads it, judges it by its header, and unmasks it into the
//! receiver's queue ([`line`]), whose own connection writes it out with all that has gathered. The
//! path of a connection: [`serve`] accepts it, [`http`] has its token judged ([`keys`]) and
//! upgrades it, [`welcome`] gives it a place at its daemon's [`dock`], until it leaves or
//! [`revocations`] has it sent away. Who is paired with whom is decided by the protocol crate; here
//! it is carried out.
//!
//! A relay holds no key that signs: of the token module it uses only what judges.

mod annex;
mod arrivals;
mod bound;
pub mod config;
mod connection;
mod dock;
pub mod fuzz;
mod harbour;
mod http;
mod issuer;
mod keys;
mod line;
mod meters;
mod revocations;
mod serve;
mod spare;
mod welcome;
mod ws;

use bound::Shared;

pub use bound::{Bound, Relay, StartError};
pub use config::Config;
pub use issuer::BadIssuer;

#[cfg(test)]
mod tests {
    /// A relay validates and never issues (SBRP-RELAY-01): nothing here may even name what could.
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
