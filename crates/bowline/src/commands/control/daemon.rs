//! `bowline control daemon`: list, revoke.

use std::path::Path;
use std::process::ExitCode;

use bowline_relay::control::registry::DaemonRecord;
use serde_json::{Value, json};

use super::{now, registry, undone, when};
use crate::cli::control::DaemonCommand;
use crate::failure::Failure;
use crate::terminal::{note, printable, say, show, table};

pub(super) fn run(data: &Path, command: DaemonCommand, json: bool) -> Result<ExitCode, Failure> {
    match command {
        DaemonCommand::List => {
            let daemons = registry(data)?.daemons().map_err(|error| undone(error, data))?;
            list(&daemons, json);
        }
        DaemonCommand::Revoke { id } => {
            let revoked = registry(data)?.revoke_daemon(&id, now());
            let until = revoked.map_err(|error| undone(error, data))?;
            if json {
                say!("{}", json!({ "id": id, "revoked": true, "token_until": until }));
            } else {
                note!(
                    "daemon {id} is revoked: it gets no new token, and its relay disconnects it \
                     and its clients within seconds. A relay that cannot reach this control plane \
                     accepts its old token until {}",
                    when(until)
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(daemons: &[DaemonRecord], json: bool) {
    if json {
        let daemons = daemons.iter().map(|daemon| {
            json!({ "id": daemon.id, "owner": daemon.owner, "name": daemon.name,
                    "fingerprint": daemon.identity.fingerprint().to_string(),
                    "created_at": daemon.created_at, "presence_at": daemon.presence_at,
                    "presence_until": daemon.presence_until, "revoked_at": daemon.revoked_at,
                    "relay": daemon.relay.as_ref().map(|relay| &relay.name) })
        });
        return say!("{}", Value::Array(daemons.collect()));
    }
    if daemons.is_empty() {
        return note!("no daemons yet: one registers itself with a user's API key");
    }
    let rows: Vec<_> = daemons
        .iter()
        .map(|daemon| {
            let state = match daemon.revoked_at {
                Some(at) => format!("revoked {}", when(at)),
                None => format!("token until {}", when(daemon.presence_until)),
            };
            let name = daemon.name.as_deref().unwrap_or("-");
            [
                daemon.id.clone(),
                daemon.owner.clone(),
                printable(name),
                daemon.relay.as_ref().map_or("-".into(), |relay| relay.name.clone()),
                when(daemon.presence_at),
                state,
            ]
        })
        .collect();
    show!("{}", table(["DAEMON", "OWNER", "NAME", "RELAY", "LAST PRESENCE", "STATE"], &rows));
}
