//! Default paths, by the XDG base directory specification.

use std::path::PathBuf;

/// The default data folder.
pub(crate) fn data() -> PathBuf {
    under("XDG_DATA_HOME", ".local/share")
}

/// The folder of what a program remembers between runs, such as the history of a chat.
pub(crate) fn state() -> PathBuf {
    under("XDG_STATE_HOME", ".local/state")
}

/// The default configuration file.
pub(crate) fn config() -> PathBuf {
    under("XDG_CONFIG_HOME", ".config").join("config.toml")
}

fn under(variable: &str, fallback: &str) -> PathBuf {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    set.unwrap_or_else(|| home().join(fallback)).join("bowline")
}

/// The name of this machine, without its domain.
pub(crate) fn machine() -> Option<String> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

/// A path with `~` for the home directory.
pub(crate) fn short(path: &std::path::Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match home.and_then(|home| path.strip_prefix(home).ok().map(PathBuf::from)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
