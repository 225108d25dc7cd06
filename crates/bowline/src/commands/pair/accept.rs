//! Pairs this device by the text that the other machine shows.
//!
//! The daemon's key is known from the text before anything is said, and the code itself never leaves
//! this device (SBRP-PEER-01).

use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_client::relay::tunnel::{Connected, DeviceIdentity, TunnelClient};
use bowline_client::relay::{ClientConfig, ControlError, ControlPlane, KnownDaemons, NewPairing};
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::pairing::PairingText;
use bowline_sbrp::peer;
use serde_json::json;
use tokio::time::{Instant, sleep};
use url::Url;
use zeroize::Zeroizing;

use crate::cli::devices::PairArgs;
use crate::failure::{Failure, FailureKind};
use crate::owner;
use crate::reach;
use crate::terminal::{self, note, printable, say};

pub(super) async fn run(text: &str, args: &PairArgs) -> Result<ExitCode, Failure> {
    let text = given(text)?;
    let control: Url = text.control.parse().map_err(|_| damaged())?;
    let known = owner::known(args.data.as_deref());
    // Fails before the code is used up.
    known.names()?;
    let device_name = device_name(args)?;
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(Failure::new)?;
    let device = Arc::new(IdentitySecret::from_seed(&seed));
    let paired = pair(&text, &control, &device, &device_name);
    let connected = terminal::waiting("pairing", paired).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None if !connected.name.is_empty() => connected.name.clone(),
        None => text.daemon.as_str().to_owned(),
    };
    let before = known.look_up(&name)?;
    let pairing = NewPairing { control: control.clone(), seed };
    known.keep_pairing(&name, &text.daemon, &connected.identity, &pairing)?;
    if before.is_some_and(|before| before.daemon != text.daemon) {
        note!("`{}` stood for another daemon here; it stands for this one now", printable(&name));
    }
    let ready =
        terminal::waiting("waiting for the control plane", usable(&control, &device, &text));
    ready.await?;
    let fingerprint = connected.identity.key().fingerprint().to_string();
    if args.json {
        say!(
            "{}",
            json!({ "name": name, "daemon": text.daemon.as_str(), "fingerprint": fingerprint,
                    "services": connected.services })
        );
        return Ok(ExitCode::SUCCESS);
    }
    let shown = crate::shell::quote(&printable(&name));
    say!("paired with {shown}");
    say!("fingerprint  {fingerprint}");
    let data =
        args.data.as_deref().map(|data| format!(" --data {}", crate::shell::quote_path(data)));
    let data = data.unwrap_or_default();
    match connected.services.iter().any(|service| service == HTTP) {
        true => {
            say!("\ntry:\n  bowline chat --via {shown}{data}");
            say!("  bowline sessions list --via {shown}{data}");
        }
        false => say!("\ntry:\n  bowline connect {shown} --listen 127.0.0.1:2222{data}"),
    }
    Ok(ExitCode::SUCCESS)
}

const HTTP: &str = bowline_client::relay::tunnel::HTTP;

fn given(text: &str) -> Result<PairingText, Failure> {
    let mut read = String::new();
    if text == "-" {
        std::io::stdin().take(LONGEST).read_to_string(&mut read).map_err(Failure::new)?;
    } else {
        text.clone_into(&mut read);
    }
    read.parse().map_err(|error| {
        Failure::new(error)
            .hint("copy the whole text that `bowline pair` shows on the other machine")
            .kind(FailureKind::Usage)
    })
}

fn damaged() -> Failure {
    Failure::new(bowline_sbrp::pairing::BadPairingText::Damaged)
        .hint("copy the whole text that `bowline pair` shows on the other machine")
        .kind(FailureKind::Usage)
}

/// What the daemon is to call this device.
fn device_name(args: &PairArgs) -> Result<String, Failure> {
    let name = match &args.device_name {
        Some(name) => name.clone(),
        None => crate::paths::machine().unwrap_or_else(|| "device".into()),
    };
    match peer::is_name(&name) {
        true => Ok(name),
        false => Err(Failure::new(format!(
            "the device's name has 1 to {} bytes and no control characters",
            peer::LONGEST_NAME
        ))
        .hint("choose another with --device-name")
        .kind(FailureKind::Usage)),
    }
}

/// Connects with the code. The daemon tells the control plane of a new code within a second, so a
/// refusal there is tried again for a while.
async fn pair(
    text: &PairingText,
    control: &Url,
    device: &Arc<IdentitySecret>,
    device_name: &str,
) -> Result<Connected, Failure> {
    let plane = ControlPlane::for_device(control.clone(), Arc::new(text.code.token_key()))?;
    until_known(|| async { plane.open_session(&text.daemon).await.map(drop) }).await.map_err(
        |error| match error {
            error if error.is_unknown_device() => Failure::new(
                "the pairing code is wrong, was used, or has expired",
            )
            .hint("run `bowline pair` on the other machine again, while its gateway or daemon runs")
            .kind(FailureKind::Refused),
            error => error.into(),
        },
    )?;
    let config = ClientConfig::new(plane, text.daemon.clone(), "", KnownDaemons::nowhere());
    let identity = DeviceIdentity::Pairing {
        device: Arc::clone(device),
        code: text.code.clone(),
        name: device_name.to_owned(),
    };
    let mut tunnel = TunnelClient::connect(config.vouched_for(text.fingerprint), identity);
    let connected = reach::connected(&mut tunnel, true).await;
    tunnel.close().await;
    connected
}

/// Waits until the control plane knows the device's own key.
async fn usable(
    control: &Url,
    device: &Arc<IdentitySecret>,
    text: &PairingText,
) -> Result<(), Failure> {
    let plane = ControlPlane::for_device(control.clone(), Arc::clone(device))?;
    let asked = until_known(|| async { plane.open_session(&text.daemon).await.map(drop) }).await;
    asked.map_err(|error| {
        Failure::from(error).hint("the pairing is stored; the device works as soon as the daemon has told the control plane")
    })
}

/// Asks again while the control plane does not know the key.
async fn until_known<F: Future<Output = Result<(), ControlError>>>(
    ask: impl Fn() -> F,
) -> Result<(), ControlError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if error.is_unknown_device() && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

const LONGEST: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(10);
/// The control plane counts each refusal against this address.
const PAUSE: Duration = Duration::from_millis(700);
