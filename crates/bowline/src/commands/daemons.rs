//! `bowline daemons`: lists the user's daemons, or revokes one.

use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bowline_client::relay::ControlPlane;
use bowline_sbrp::api::{DaemonStatus, DaemonView};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::Fingerprint;
use serde_json::json;

use crate::cli::relay_ends::DaemonsArgs;
use crate::failure::Failure;
use crate::owner;
use crate::terminal::{note, printable, say, show, table};

pub(crate) async fn run(args: DaemonsArgs) -> Result<ExitCode, Failure> {
    let control = owner::control_plane(&args.control)?;
    if let Some(daemon) = &args.revoke {
        return revoke(&control, daemon, args.json).await;
    }
    let daemons = control.daemons().await?;
    if args.json {
        say!("{}", json!(daemons));
        return Ok(ExitCode::SUCCESS);
    }
    if daemons.is_empty() {
        note!("no daemons yet; start one with `bowline daemon --tcp 127.0.0.1:22 --name home`");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |daemon: &DaemonView| {
        let status = match daemon.status {
            DaemonStatus::Online => "online",
            DaemonStatus::Offline => "offline",
            DaemonStatus::Unknown => "unknown",
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
    Ok(ExitCode::SUCCESS)
}

async fn revoke(control: &ControlPlane, daemon: &str, json: bool) -> Result<ExitCode, Failure> {
    let daemon = owner::find(control, daemon).await?;
    control.revoke(&DaemonId::new(daemon.id.as_str())).await?;
    if json {
        say!("{}", json!({ "id": daemon.id, "revoked": true }));
    } else {
        let name = printable(daemon.name.as_deref().unwrap_or(&daemon.id));
        say!("{name} is revoked; the relay disconnects it and its clients within seconds");
    }
    Ok(ExitCode::SUCCESS)
}

/// The fingerprint of the key as the control plane stores it. Not verified: only a handshake with
/// the daemon proves its key.
fn fingerprint(key: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(key).or_else(|_| STANDARD.decode(key)).ok()?;
    Some(Fingerprint::of(bytes.as_slice().try_into().ok()?).to_string())
}
