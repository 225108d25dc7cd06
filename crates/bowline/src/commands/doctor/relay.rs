//! What daemons, clients and a control plane keep on this machine, and the control plane that
//! `BOWLINE_CONTROL` or `daemon.control` names.

use std::path::Path;

use bowline_client::relay::load_or_create;
use bowline_relay::control::registry::Registry;

use super::{Finding, shown};
use crate::cli::relay_ends::ControlArgs;
use crate::owner;
use crate::settings::{DaemonSettings, Settings};

pub(super) async fn findings(settings: &Settings) -> Vec<Finding> {
    let data = settings.data.as_path();
    let mut findings = Vec::new();
    findings.extend(control_plane(data, &settings.daemon).await);
    findings.extend(identity(data));
    findings.extend(known(data));
    let folder = settings.control.data.clone().unwrap_or_else(|| data.join("control"));
    findings.extend(registry(&folder));
    findings
}

/// Does the control plane answer, and accept the key?
async fn control_plane(data: &Path, settings: &DaemonSettings) -> Option<Finding> {
    let check = "control plane";
    let address = std::env::var("BOWLINE_CONTROL").ok().filter(|address| !address.is_empty());
    let url = match address.map(|address| address.parse()) {
        Some(Ok(url)) => url,
        Some(Err(_)) => {
            let why = "BOWLINE_CONTROL is not an address like https://host";
            return Some(Finding::fail(check, why));
        }
        None => settings.control.clone()?,
    };
    let has_key = std::env::var_os("BOWLINE_CONTROL_KEY").is_some_and(|key| !key.is_empty());
    let key_file = settings.key_file.clone().filter(|_| !has_key);
    let args = ControlArgs { control: Some(url), key_file };
    let control = match owner::control_plane(&args, Some(data)) {
        Ok(control) => control,
        Err(failure) => return Some(Finding::warn(check, failure.what())),
    };
    Some(match control.daemons().await {
        Ok(daemons) => {
            let detail = format!("{} answers; your daemons: {}", control.host(), daemons.len());
            Finding::ok(check, detail)
        }
        Err(error) => Finding::fail(check, crate::failure::Failure::from(error).what()),
    })
}

/// The identity of a daemon on this machine.
fn identity(data: &Path) -> Option<Finding> {
    let (check, path) = ("daemon", owner::identity(Some(data)));
    // It is only read, since it exists.
    path.exists().then(|| match load_or_create(&path) {
        Ok(identity) => {
            let fingerprint = identity.public().fingerprint();
            Finding::ok(check, format!("identity {} is {fingerprint}", shown(&path)))
        }
        Err(error) => Finding::fail(check, format!("{error}; {}", error.hint())),
    })
}

/// The daemons that this machine knows by name: pins and pairings.
fn known(data: &Path) -> Option<Finding> {
    let (check, path) = ("known daemons", owner::known_file(Some(data)));
    path.exists().then(|| match owner::known(Some(data)).names() {
        Ok(names) => Finding::ok(check, format!("{} names in {}", names.len(), shown(&path))),
        Err(error) => Finding::fail(check, format!("{error}; {}", error.hint())),
    })
}

/// The registry of a control plane on this machine.
fn registry(folder: &Path) -> Option<Finding> {
    let check = "control data";
    folder.exists().then(|| match Registry::open_existing(folder) {
        Ok(mut registry) => match (registry.check(), registry.users()) {
            (Ok(()), Ok(users)) => {
                Finding::ok(check, format!("{} opens; users: {}", shown(folder), users.len()))
            }
            (Err(error), _) | (_, Err(error)) => Finding::fail(check, error.to_string()),
        },
        Err(error) => Finding::fail(check, error.to_string()),
    })
}
