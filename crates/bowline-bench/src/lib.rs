//! The measurements of `bowline bench`.
//!
//! Absolute figures say more about the machine than about the program. So each is measured together
//! with a minimal server that does the same work without a gateway or a relay, in the same run, and
//! the ratio is what counts. Servers run in processes of their own: this program again, started
//! with `bowline bench mock` and similar commands.

pub mod access;
mod adapt;
mod align;
mod audit;
mod bare;
mod chunk;
pub mod compare;
mod disk;
pub mod echo;
pub mod federation;
pub mod flood;
mod followers;
pub mod gateway;
mod gateway_process;
mod idle_sessions;
mod large;
mod latency;
mod legs;
mod load;
pub mod mock;
mod pace;
pub mod relay;
pub mod replicas;
mod report;
pub mod roaming;
mod rounds;
mod seed;
mod surfaces;
mod tls;
pub mod tools;

pub use pace::Pace;
pub use report::Report;
