//! `bowline pair`: shows a code for one device; with --accept, pairs this device by such a code.

mod accept;
mod qr;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;

use crate::cli::devices::PairArgs;
use crate::failure::{Failure, FailureKind};
use crate::paired::{Grant, PairedDevices};
use crate::signals::StopSignals;
use crate::terminal::{self, note, printable, say, show};

pub(crate) async fn run(args: PairArgs) -> Result<ExitCode, Failure> {
    match &args.accept {
        Some(text) => accept::run(text.as_deref(), &args).await,
        None => offer(args).await,
    }
}

async fn offer(args: PairArgs) -> Result<ExitCode, Failure> {
    let grant = Grant { user: args.user, scopes: args.scopes, services: args.service };
    let devices = PairedDevices::meant(args.data.as_deref(), &grant).await?;
    let before = devices.list().await?;
    let offer = devices.offer(grant).await?;
    if args.json {
        let expires_at = offer.expires_at.to_string();
        say!("{}", json!({ "text": offer.text, "expires_at": expires_at }));
        return Ok(ExitCode::SUCCESS);
    }
    show!("{}", invitation(&offer.text));
    if !io::stdout().is_terminal() {
        return Ok(ExitCode::SUCCESS);
    }
    note!("waiting for the device; Ctrl-C leaves, and the code stays valid for five minutes");
    let mut signals = StopSignals::install()?;
    let left = offer.expires_at.duration_since(Timestamp::now()).unsigned_abs();
    tokio::select! {
        device = devices.newcomer(&before) => {
            let device = device?;
            say!("paired: {} ({})", printable(&device.name), device.id);
            Ok(ExitCode::SUCCESS)
        }
        () = tokio::time::sleep(left) => {
            Err(Failure::new("no device used the code, and it has expired")
                .hint("run `bowline pair` again")
                .kind(FailureKind::Failed))
        }
        () = signals.stop() => Ok(ExitCode::SUCCESS),
    }
}

/// The code for people: to scan, and to copy.
pub(crate) fn invitation(text: &str) -> String {
    let has_colour = io::stdout().is_terminal() && terminal::has_colour();
    let scan = qr::code(text, has_colour).map(|code| format!("{code}\n")).unwrap_or_default();
    format!(
        "{scan}on the other device, within five minutes:\n  bowline pair --accept\n\nand give it this text when it \
         asks:\n  {text}\n\nThe code is for one device. Whoever has it can use this machine as that device: show it \
         to nobody else.\n"
    )
}
