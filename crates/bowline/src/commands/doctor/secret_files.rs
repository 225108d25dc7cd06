//! Files with keys that the settings name: can others read them?

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Finding, shown};
use crate::local;
use crate::settings::Settings;

/// One finding for each file that others can read, or one for all that are well.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let config = &settings.gateway;
    let local = local::key_file(&settings.data);
    let named = [
        Some(local.as_path()),
        config.tls.as_ref().map(|tls| tls.key.as_path()),
        config.auth.api_keys_file.as_deref(),
        settings.store.url_file.as_deref(),
        settings.bus.url_file.as_deref(),
    ];
    let upstreams = config.upstream.values().filter_map(|upstream| upstream.key_file.as_deref());
    let files: Vec<_> = named.into_iter().flatten().chain(upstreams).collect();
    let exposed: Vec<_> = files.iter().filter_map(|file| exposed(file)).collect();
    match exposed.is_empty() {
        true if files.iter().any(|file| file.exists()) => {
            vec![Finding::ok("key files", "only their owner can read them")]
        }
        true => Vec::new(),
        false => exposed,
    }
}

fn exposed(file: &Path) -> Option<Finding> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let file = shown(file);
    let detail = format!("{file} can be read by others (mode {mode:o}); chmod 600 {file}");
    (mode & 0o077 != 0).then(|| Finding::warn("key files", detail))
}
