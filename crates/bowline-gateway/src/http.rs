//! The HTTP front: parse, ask, render. What is asked is decided elsewhere.

mod body;
mod completions;
mod error;
mod guard;
mod openapi;
mod ops;
mod passthrough;
mod router;
mod sessions;

pub(crate) use self::body::credentials;
pub(crate) use self::error::ApiError;
pub(crate) use self::guard::Guard;
pub use self::openapi::document;
pub(crate) use self::router::router;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{SessionMode, WireVersion};
use crate::engine::Engine;

/// What every handler can reach.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) mode: SessionMode,
    pub(crate) default_model: String,
    pub(crate) wire_version: WireVersion,
    pub(crate) ready: AtomicBool,
    /// The gateway is stopping.
    pub(crate) stop: CancellationToken,
    /// Surfaces that are attached.
    pub(crate) surfaces: TaskTracker,
    pub(crate) metrics: PrometheusHandle,
}
