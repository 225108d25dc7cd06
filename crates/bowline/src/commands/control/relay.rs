//! `bowline control relay`: add, list, drain, remove.

use std::path::Path;
use std::process::ExitCode;

use bowline_relay::control::registry::{Registry, RelayRecord};
use serde_json::{Value, json};

use super::{data_flag, now, registry, undone, unopened, when};
use crate::cli::control::RelayCommand;
use crate::failure::Failure;
use crate::terminal::{note, say, show, table};

pub(super) fn run(data: &Path, command: RelayCommand, json: bool) -> Result<ExitCode, Failure> {
    let failed = |error| undone(error, data);
    match command {
        RelayCommand::Add { name, url, region } => {
            // Creates the registry: relays can be added before the server's first start.
            let mut registry = Registry::open(data).map_err(|error| unopened(error, data))?;
            registry.add_relay(&name, &url, region.as_deref(), now()).map_err(failed)?;
            if json {
                say!("{}", json!({ "name": name, "url": url.as_str(), "region": region }));
            } else {
                note!(
                    "relay {name} gets daemons from the next request on. Its process learns that it \
                     is drained if it runs with `--name {name}`"
                );
            }
        }
        RelayCommand::List => {
            let relays = registry(data)?.relays(now()).map_err(failed)?;
            list(&relays, data, json);
        }
        RelayCommand::Drain { name, force } => {
            let relay = registry(data)?.drain_relay(&name, force, now()).map_err(failed)?;
            if json {
                say!("{}", json!({ "name": name, "draining": true, "daemons": relay.daemons }));
            } else {
                note!(
                    "relay {name} gets no more daemons, and hands over the {} it has. `bowline \
                     control relay list{}` says how many are left",
                    relay.daemons,
                    data_flag(data)
                );
            }
        }
        RelayCommand::Remove { name, force } => {
            let relay = registry(data)?.remove_relay(&name, force, now()).map_err(failed)?;
            if json {
                say!("{}", json!({ "name": name, "removed": true, "daemons": relay.daemons }));
            } else if relay.daemons > 0 {
                note!(
                    "relay {name} is removed; {} daemons were still assigned to it. If it runs, it \
                     hands them over",
                    relay.daemons
                );
            } else {
                note!("relay {name} is removed");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(relays: &[RelayRecord], data: &Path, json: bool) {
    if json {
        let relays = relays.iter().map(|relay| {
            json!({ "name": relay.name, "url": relay.url, "region": relay.region,
                    "daemons": relay.daemons, "added_at": relay.added_at,
                    "drained_at": relay.drained_at })
        });
        return say!("{}", Value::Array(relays.collect()));
    }
    if relays.is_empty() {
        return note!(
            "no relays: all daemons use the one that the control plane was started with. \
             Add one with `bowline control relay add NAME URL{}`",
            data_flag(data)
        );
    }
    let rows: Vec<_> = relays
        .iter()
        .map(|relay| {
            let state = match relay.drained_at {
                Some(at) => format!("draining since {}", when(at)),
                None => "active".into(),
            };
            [
                relay.name.clone(),
                relay.url.clone(),
                relay.region.clone().unwrap_or_else(|| "-".into()),
                relay.daemons.to_string(),
                state,
            ]
        })
        .collect();
    show!("{}", table(["RELAY", "ADDRESS", "REGION", "DAEMONS", "STATE"], &rows));
}
