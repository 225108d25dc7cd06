//! The machine: data folder, address, clock, open files.

use bowline_net::descriptors;

use super::{Finding, shown};
use crate::local::Running;
use crate::settings::Settings;

/// Is the data folder writable?
pub(super) fn folder(settings: &Settings) -> Finding {
    let (check, path) = ("data folder", &settings.data);
    if !path.exists() {
        return Finding::ok(check, format!("{} will be created at the first start", shown(path)));
    }
    let probe = path.join(".doctor");
    let written = std::fs::write(&probe, [0; 1 << 16]).and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) => Finding::ok(check, shown(path)),
        Err(error) => {
            let path = path.display();
            let detail = format!("{path} cannot be written: {error}; fix its owner or use --data");
            Finding::fail(check, detail)
        }
    }
}

/// Is the address free, or used by the gateway of this data folder?
pub(super) async fn address(settings: &Settings, running: Option<&Running>) -> Finding {
    let (check, listen) = ("address", settings.gateway.listen);
    match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => Finding::ok(check, format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            match running.is_some_and(|running| running.listen == Some(listen)) {
                true => Finding::ok(check, format!("{listen} is used by this gateway")),
                false => Finding::warn(
                    check,
                    format!("{listen} is used by another program; choose another with --listen"),
                ),
            }
        }
        Err(error) => Finding::fail(check, format!("{listen}: {error}")),
    }
}

/// Tokens expire by the wall clock, so it must not be far off.
pub(super) fn clock() -> Finding {
    let now = jiff::Timestamp::now();
    let built = jiff::Timestamp::from_second(1_760_000_000).unwrap_or_default();
    if now < built {
        let detail = format!(
            "{now} is in the past; set the clock, or tokens will not expire when they should"
        );
        return Finding::fail("clock", detail);
    }
    Finding::ok("clock", now.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Each surface needs a file descriptor.
pub(super) fn open_files() -> Finding {
    let check = "open files";
    // A gateway raises its limit at the start: this is what it would get.
    let limit = descriptors::raise().now;
    if limit < 4096 {
        let detail = format!(
            "at most {limit}, and no more is allowed; raise the hard limit with `ulimit -Hn 65536` \
             or LimitNOFILE to serve many surfaces"
        );
        return Finding::warn(check, detail);
    }
    Finding::ok(check, format!("at most {limit}, raised as far as allowed"))
}
