//! Clients that stay connected: for Rust programs and for the command line.
//!
//! | module | feature | what |
//! |---|---|---|
//! | [`surface`] | `surface` | a surface attached to one session of a gateway (SBP L2) |
//! | [`relay`] | `relay` | the two ends of a relay: daemon, client, and streams between them (SBRP) |
//!
//! Each of them is a handle with one background task behind it. The handle gives events; the task connects,
//! reconnects and resumes. Call them inside a Tokio runtime; dropping a handle ends its task.
//!
//! # A stream through a relay
//!
//! [`RelayDaemon`](relay::RelayDaemon) and [`TunnelServer`](relay::tunnel::TunnelServer) offer
//! [`Services`](relay::tunnel::Services); [`TunnelClient`](relay::tunnel::TunnelClient) opens
//! [`TunnelStream`](relay::tunnel::TunnelStream)s to them, which are `AsyncRead` and `AsyncWrite` and survive
//! lost connections. Where tokens come from and where pins are kept is up to the program:
//! [`SessionTokens`](relay::SessionTokens), [`PresenceTokens`](relay::PresenceTokens) and
//! [`PinStore`](relay::PinStore) are traits. With Bowline's own control plane and files it is
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bowline_client::relay::tunnel::{DeviceIdentity, TunnelClient};
//! use bowline_client::relay::{ClientConfig, ControlPlane, KnownDaemons};
//! use tokio::io::AsyncWriteExt as _;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // As a device that was paired with `bowline pair`.
//! let known = KnownDaemons::file("/home/me/.local/share/bowline/relay/known.json");
//! let daemon = known.look_up("home")?.ok_or("nothing is known as home")?;
//! let pairing = daemon.pairing.ok_or("this device is not paired with it")?;
//! let control = ControlPlane::for_device(pairing.control, Arc::clone(&pairing.device))?;
//!
//! let config = ClientConfig::new(control, daemon.daemon, "home", known);
//! let mut tunnel = TunnelClient::connect(config, DeviceIdentity::Device(pairing.device));
//! let connected = tunnel.connected().await?;
//! println!("it offers {:?}", connected.services);
//! let mut stream = tunnel.opener().open("http", Duration::from_secs(20)).await?;
//! stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: home\r\n\r\n").await?;
//! # Ok(())
//! # }
//! ```
//!
//! And with tokens and pins of a program's own, all of it in one process (`examples/own_tokens.rs`, which
//! is run as a test of this documentation):
//!
//! ```
#![doc = include_str!("../examples/own_tokens.rs")]
//! ```
//!
//! # A surface of a gateway
//!
//! ```no_run
//! use bowline_client::surface::{Event, Surface, SurfaceConfig};
//!
//! # async fn example(config: SurfaceConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let mut surface = Surface::connect(config)?;
//! surface.send("What did I miss?".into(), "turn-1".into(), None).await?;
//! while let Some(event) = surface.next().await {
//!     println!("{event:?}");
//!     if let Event::Closed(_) = event {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | what | default |
//! |---|---|---|
//! | `surface` | surfaces of a gateway | yes |
//! | `relay` | both ends of a relay, and the HTTP client of a control plane | yes |
//! | `files` | what the ends of a relay remember, in files: `KnownDaemons`, `DeviceFile`, `load_or_create` | yes |
//!
//! Events, errors and configurations may grow (`#[non_exhaustive]`): a configuration is made by its `new` or
//! `default` and then changed.

#![warn(missing_docs)]

#[cfg(feature = "relay")]
pub mod relay;
#[cfg(feature = "surface")]
pub mod surface;
