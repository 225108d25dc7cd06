//! `bowline devices`: list and revoke paired devices.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::devices::DevicesCommand;
use crate::failure::Failure;
use crate::paired::{self, DeviceRow};
use crate::terminal::{note, printable, say, show, table, utc};

pub(crate) async fn run(command: DevicesCommand) -> Result<ExitCode, Failure> {
    match command {
        DevicesCommand::List { data, json } => {
            let devices = paired::list(data.as_deref()).await?;
            list(&devices, json);
        }
        DevicesCommand::Revoke { device, data, json } => {
            let revoked = paired::revoke(&device, data.as_deref()).await?;
            match json {
                true => say!("{}", json!({ "id": revoked.id, "revoked": true })),
                false => say!(
                    "{} ({}) is revoked; it is cut off within seconds",
                    printable(&revoked.name),
                    revoked.id
                ),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(devices: &[DeviceRow], json: bool) {
    if json {
        return say!("{}", json!({ "devices": devices }));
    }
    if devices.is_empty() {
        return note!("no devices yet; pair one with `bowline pair`");
    }
    let rows: Vec<_> = devices
        .iter()
        .map(|one| {
            let may = if one.may.is_empty() { "all".into() } else { one.may.join(",") };
            [
                one.id.clone(),
                printable(&one.name),
                one.user.as_deref().map_or("-".into(), printable),
                printable(&may),
                utc(one.paired_at),
                one.last_used_at.map_or("-".into(), utc),
            ]
        })
        .collect();
    show!("{}", table(["DEVICE", "NAME", "USER", "MAY", "PAIRED", "LAST USED"], &rows));
}
