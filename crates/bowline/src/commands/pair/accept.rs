//! Pairs this device by the text that the other machine shows.
//!
//! The daemon's key is known from the text before anything is said, and the code itself never leaves
//! this device (SBRP-PEER-01).
//!
//! Invariants
//! - A name that stands for another daemon is not taken by this one, unless the person says so: least of
//!   all by what the other end calls itself.
//! - The device's key is on disk before the code is used up: a pairing that was interrupted can be
//!   repeated with the same text.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_client::relay::tunnel::{Connected, DeviceIdentity, HTTP, TunnelClient};
use bowline_client::relay::{
    ClientConfig, ControlError, ControlPlane, KnownDaemons, NewPairing, PendingPairing,
};
use bowline_sbrp::identity::IdentitySecret;
use bowline_sbrp::pairing::{BadPairingText, PairingText};
use bowline_sbrp::peer;
use serde_json::json;
use tokio::time::{Instant, sleep};
use url::Url;

use crate::cli::devices::PairArgs;
use crate::failure::{Failure, FailureKind};
use crate::shell::{quote, quote_path};
use crate::terminal::{self, raw, say};
use crate::{owner, paths, reach};

pub(super) async fn run(text: Option<&str>, args: &PairArgs) -> Result<ExitCode, Failure> {
    let text = given(text)?;
    let control: Url = text.control.parse().map_err(|_| bad(BadPairingText::Damaged))?;
    let known = owner::known(args.data.as_deref());
    if let Some(name) = args.name.as_deref().filter(|_| !args.replace) {
        is_free(&known, name, &text)?;
    }
    let device_name = device_name(args)?;
    let PendingPairing { seed, was_begun } = known.begin_pairing(&text.daemon)?;
    let device = Arc::new(IdentitySecret::from_seed(&seed));
    let accepting = Accepting { text: &text, control: &control, device: &device, was_begun };
    let connected = terminal::waiting("pairing", accepting.pair(device_name)).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => own_name(&known, &connected.name, &text)?,
    };
    let kept = NewPairing { control: control.clone(), seed };
    known.keep_pairing(&name, &text.daemon, &connected.identity, &kept)?;
    terminal::waiting("waiting for the control plane", accepting.usable()).await?;
    tell(&name, &text, &connected, args);
    Ok(ExitCode::SUCCESS)
}

fn tell(name: &str, text: &PairingText, connected: &Connected, args: &PairArgs) {
    let fingerprint = connected.identity.key().fingerprint().to_string();
    if args.json {
        return say!(
            "{}",
            json!({ "name": name, "daemon": text.daemon.as_str(), "fingerprint": fingerprint,
                    "services": connected.services })
        );
    }
    let shown = quote(name);
    say!("paired with {shown}");
    say!("fingerprint  {fingerprint}");
    let data = |data: &Path| format!(" --data {}", quote_path(data));
    let data = args.data.as_deref().map(data).unwrap_or_default();
    match connected.services.iter().any(|service| service == HTTP) {
        true => {
            say!("\ntry:\n  bowline chat --via {shown}{data}");
            say!("  bowline sessions list --via {shown}{data}");
        }
        false => say!("\ntry:\n  bowline connect {shown} --listen 127.0.0.1:2222{data}"),
    }
}

/// The text: from the command line, standard input, or the person.
fn given(text: Option<&str>) -> Result<PairingText, Failure> {
    let read = match text {
        None if io::stdin().is_terminal() => raw::secret("pairing text: ").map_err(Failure::new)?,
        None | Some("-") => {
            let mut read = String::new();
            io::stdin().take(LONGEST).read_to_string(&mut read).map_err(Failure::new)?;
            read
        }
        Some(text) => text.to_owned(),
    };
    read.parse().map_err(bad)
}

fn bad(error: BadPairingText) -> Failure {
    Failure::new(error)
        .hint("copy the whole text that `bowline pair` shows on the other machine")
        .kind(FailureKind::Usage)
}

/// Refuses a name that stands for another daemon.
fn is_free(known: &KnownDaemons, name: &str, text: &PairingText) -> Result<(), Failure> {
    match known.look_up(name)? {
        Some(other) if other.daemon != text.daemon => {
            Err(Failure::new(format!("`{name}` stands for another daemon here"))
                .hint("choose another --name, or say --replace if it is to stand for this one")
                .kind(FailureKind::Usage))
        }
        _ => Ok(()),
    }
}

/// What the daemon calls itself, with a number if that is taken.
fn own_name(known: &KnownDaemons, called: &str, text: &PairingText) -> Result<String, Failure> {
    let called = match called.is_empty() || called.starts_with('-') {
        true => text.daemon.as_str(),
        false => called,
    };
    let numbered = (2..).map(|number| format!("{called}-{number}"));
    for name in std::iter::once(called.to_owned()).chain(numbered) {
        match known.look_up(&name)? {
            Some(other) if other.daemon != text.daemon => {}
            _ => return Ok(name),
        }
    }
    Ok(text.daemon.as_str().to_owned())
}

/// What the daemon is to call this device.
fn device_name(args: &PairArgs) -> Result<String, Failure> {
    let name = match &args.device_name {
        Some(name) => name.clone(),
        None => paths::machine().unwrap_or_else(|| "device".into()),
    };
    match peer::is_name(&name) {
        true => Ok(name),
        false => Err(Failure::new(format!(
            "the device's name has 1 to {} bytes that can be seen",
            peer::LONGEST_NAME
        ))
        .hint("choose another with --device-name")
        .kind(FailureKind::Usage)),
    }
}

/// A device and the text that it is paired by.
struct Accepting<'a> {
    text: &'a PairingText,
    control: &'a Url,
    device: &'a Arc<IdentitySecret>,
    /// An attempt before may have succeeded without our hearing of it.
    was_begun: bool,
}

impl Accepting<'_> {
    /// Connects with the code.
    async fn pair(&self, name: String) -> Result<Connected, Failure> {
        let plane = self.plane().await?;
        let config =
            ClientConfig::new(plane, self.text.daemon.clone(), "", KnownDaemons::nowhere());
        let (device, code) = (Arc::clone(self.device), self.text.code.clone());
        let identity = DeviceIdentity::Pairing { device, code, name };
        let mut tunnel = TunnelClient::connect(config.vouched_for(self.text.fingerprint), identity);
        let connected = reach::connected(&mut tunnel, true).await;
        tunnel.close().await;
        connected
    }

    /// The control plane, as somebody to whom it gives tokens: who has the code, or the device itself.
    async fn plane(&self) -> Result<ControlPlane, Failure> {
        if self.was_begun {
            let own = ControlPlane::for_device(self.control.clone(), Arc::clone(self.device))?;
            if own.open_session(&self.text.daemon).await.is_ok() {
                return Ok(own);
            }
        }
        let code = Arc::new(self.text.code.token_key());
        let plane = ControlPlane::for_device(self.control.clone(), code)?;
        self.until_known(&plane).await.map_err(|error| match error {
            error if error.is_unknown_device() => {
                let hint = "run `bowline pair` on the other machine again, while its gateway or daemon \
                            runs";
                Failure::new("the pairing code is wrong, was used, or has expired")
                    .hint(hint)
                    .kind(FailureKind::Refused)
            }
            error => error.into(),
        })?;
        Ok(plane)
    }

    /// Waits until the control plane knows the device's own key.
    async fn usable(&self) -> Result<(), Failure> {
        let plane = ControlPlane::for_device(self.control.clone(), Arc::clone(self.device))?;
        self.until_known(&plane).await.map_err(|error| {
            Failure::from(error).hint(
                "the pairing is stored; the device works as soon as the daemon has told the control plane",
            )
        })
    }

    /// Asks again while the control plane does not know the key: the daemon tells it of a new one within
    /// a second. Rarely, because each refusal counts against this address.
    async fn until_known(&self, plane: &ControlPlane) -> Result<(), ControlError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            match plane.open_session(&self.text.daemon).await {
                Err(error)
                    if (error.is_unknown_device() || error.may_pass())
                        && Instant::now() + pause < deadline =>
                {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                done => return done.map(drop),
            }
        }
    }
}

const LONGEST: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(12);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
