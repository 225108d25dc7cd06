//! `bowline daemons`: list, rename, revoke.

use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bowline_sbrp::api::{DaemonStatus, DaemonView};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::Fingerprint;
use serde_json::{Value, json};

use crate::cli::relay_ends::DaemonsCommand;
use crate::failure::Failure;
use crate::owner;
use crate::terminal::{note, printable, say, show, table};

pub(crate) async fn run(command: DaemonsCommand) -> Result<ExitCode, Failure> {
    match command {
        DaemonsCommand::List { control, data, json } => {
            let daemons = owner::daemons(&owner::control_plane(&control, data.as_deref())?).await?;
            list(&daemons, json);
        }
        DaemonsCommand::Rename { control, data, daemon, name, json } => {
            let control = owner::control_plane(&control, data.as_deref())?;
            let daemon = owner::find(&control, &daemon).await?;
            control.rename(&DaemonId::new(daemon.id.as_str()), &name).await?;
            match json {
                true => say!("{}", json!({ "id": daemon.id, "name": name })),
                false => say!("{} is called {}", shown(&daemon), printable(&name)),
            }
        }
        DaemonsCommand::Revoke { control, data, daemon, json } => {
            let control = owner::control_plane(&control, data.as_deref())?;
            let daemon = owner::find(&control, &daemon).await?;
            control.revoke(&DaemonId::new(daemon.id.as_str())).await?;
            match json {
                true => say!("{}", json!({ "id": daemon.id, "revoked": true })),
                false => say!(
                    "{} is revoked; the relay disconnects it and its clients within seconds",
                    shown(&daemon)
                ),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(daemons: &[DaemonView], json: bool) {
    if json {
        let daemons = daemons.iter().map(|daemon| {
            json!({ "id": daemon.id, "name": daemon.name, "status": daemon.status,
                    "identity_public_key": daemon.identity_public_key,
                    "fingerprint": fingerprint(&daemon.identity_public_key) })
        });
        return say!("{}", Value::Array(daemons.collect()));
    }
    if daemons.is_empty() {
        return note!(
            "no daemons yet; start one with `bowline daemon run --tcp 127.0.0.1:22 --name home`"
        );
    }
    let row = |daemon: &DaemonView| {
        let status = match daemon.status {
            DaemonStatus::Online => "online",
            DaemonStatus::Offline => "offline",
            _ => "unknown",
        };
        [
            printable(&daemon.id),
            printable(daemon.name.as_deref().unwrap_or("-")),
            status.to_owned(),
            fingerprint(&daemon.identity_public_key).unwrap_or_else(|| "-".into()),
        ]
    };
    let rows: Vec<_> = daemons.iter().map(row).collect();
    show!("{}", table(["DAEMON", "NAME", "STATUS", "FINGERPRINT"], &rows));
}

fn shown(daemon: &DaemonView) -> String {
    printable(daemon.name.as_deref().unwrap_or(&daemon.id))
}

/// The fingerprint of the key as the control plane stores it. Not verified: only a handshake with
/// the daemon proves its key.
fn fingerprint(key: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(key).or_else(|_| STANDARD.decode(key)).ok()?;
    Some(Fingerprint::of(bytes.as_slice().try_into().ok()?).to_string())
}
