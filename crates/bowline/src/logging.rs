//! Logs go to stderr, as text or JSON, and never contain messages of a conversation.

use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, LogSettings};
use crate::terminal;

/// Libraries that log frames or headers at debug and trace level: limited to info.
const QUIET: [&str; 10] = [
    "mio",
    "tungstenite",
    "tokio_tungstenite",
    "hyper",
    "hyper_util",
    "reqwest",
    "h2",
    "rustls",
    "axum",
    "yamux",
];

/// Libraries that log message contents at some level, as the driver of PostgreSQL does with every value that
/// is stored, or that report as an error what is told to the user anyway: switched off.
const SILENT: [&str; 5] =
    ["rmcp", "process_wrap", "tokio_postgres", "deadpool", "rustls_platform_verifier"];

pub(crate) fn start(log: &LogSettings) -> Result<(), String> {
    let level = if terminal::is_quiet() { "error" } else { &log.level };
    let mut filter = EnvFilter::try_new(level).map_err(|_| {
        format!("`{}` is not a log level; try error, warn, info or debug", log.level)
    })?;
    let quiet = QUIET.iter().map(|target| format!("{target}=info"));
    for directive in quiet.chain(SILENT.iter().map(|target| format!("{target}=off"))) {
        let directive = directive.parse().map_err(|_| "log filter".to_owned())?;
        filter = filter.add_directive(directive);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| error.to_string())
}
