//! What `daemon`, `connect` and `daemons` share: the control plane's client, where keys are stored,
//! and readable errors.

use std::path::{Path, PathBuf};

use bowline_client::relay::{
    ClientClosed, ControlError, ControlPlane, DaemonClosed, LossReason, Pins,
};
use bowline_net::outbound;
use bowline_sbrp::api::DaemonView;
use bowline_sbrp::control::{Code, ControlCode};

use crate::cli::relay_ends::ControlArgs;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{self, printable};
use crate::{paths, secrets};

/// A client of the control plane given by the arguments.
pub(crate) fn control_plane(args: &ControlArgs) -> Result<ControlPlane, Failure> {
    let url = args.control.clone().ok_or_else(|| {
        Failure::new("no control plane was given")
            .hint("use --control URL, or set BOWLINE_CONTROL")
            .kind(FailureKind::Usage)
    })?;
    Ok(ControlPlane::new(url, &key(args.key_file.as_deref())?)?)
}

/// The user's API key. From a file or the environment, never from a flag, since other users of the
/// machine can see command lines.
fn key(file: Option<&Path>) -> Result<String, Failure> {
    if let Some(file) = file {
        return secrets::from_file(file, "--key-file");
    }
    match std::env::var("BOWLINE_CONTROL_KEY").unwrap_or_default().trim() {
        "" => Err(Failure::new("no key for the control plane")
            .hint("set BOWLINE_CONTROL_KEY, or name a file that holds it with --key-file")
            .kind(FailureKind::Usage)),
        key => Ok(key.to_owned()),
    }
}

/// The user's daemons.
pub(crate) async fn daemons(control: &ControlPlane) -> Result<Vec<DaemonView>, Failure> {
    let doing = format!("waiting for {}", control.host());
    Ok(terminal::waiting(doing, control.daemons()).await?)
}

/// Finds a daemon by its id, or by its name if the name is unique.
pub(crate) async fn find(control: &ControlPlane, named: &str) -> Result<DaemonView, Failure> {
    let daemons = daemons(control).await?;
    if let Some(daemon) = daemons.iter().find(|daemon| daemon.id == named) {
        return Ok(daemon.clone());
    }
    let mut found: Vec<_> =
        daemons.into_iter().filter(|daemon| daemon.name.as_deref() == Some(named)).collect();
    match (found.pop(), found.len()) {
        (Some(daemon), 0) => Ok(daemon),
        (Some(_), others) => {
            Err(Failure::new(format!("{} daemons are called {named}", others + 1))
                .hint("use an id; `bowline daemons list` shows them")
                .kind(FailureKind::Usage))
        }
        (None, _) => Err(Failure::new(format!("you have no daemon {named}"))
            .hint("`bowline daemons list` lists your daemons")
            .kind(FailureKind::NotFound)),
    }
}

/// The folder of a daemon's identity key and a client's pinned keys.
fn folder(data: Option<&Path>) -> PathBuf {
    data.map_or_else(paths::data, Path::to_owned).join("relay")
}

/// The file of a daemon's identity key.
pub(crate) fn identity(data: Option<&Path>) -> PathBuf {
    folder(data).join("identity")
}

/// The file of a client's pinned keys.
pub(crate) fn pins_file(data: Option<&Path>) -> PathBuf {
    folder(data).join("pins.json")
}

pub(crate) fn pins(data: Option<&Path>) -> Pins {
    Pins::file(pins_file(data))
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let hint = match &error {
            ControlError::Insecure => "write it like https://control.example.org",
            ControlError::Key => "check the key for line breaks",
            ControlError::Refused { status: 401, .. } => {
                "check the key in BOWLINE_CONTROL_KEY or --key-file"
            }
            ControlError::Refused { status: 403, .. } => {
                "`bowline daemons list` shows yours, `bowline daemons revoke` removes one; a revoked \
                 daemon can register again as a new one with another --data folder"
            }
            ControlError::Refused { status: 404, .. } => {
                "`bowline daemons list` lists your daemons"
            }
            ControlError::Unreachable { .. } => "check --control, and that it runs",
            ControlError::Untrusted { .. } => outbound::TRUST_HINT,
            ControlError::Refused { .. } => "try again later",
            ControlError::Unreadable => "check --control: another kind of server answers there",
            ControlError::InsecureRelay => "the relay's operator has to enable TLS",
        };
        let kind = match &error {
            ControlError::Insecure | ControlError::Key => FailureKind::Usage,
            ControlError::Unreachable { .. }
            | ControlError::Untrusted { .. }
            | ControlError::Unreadable => FailureKind::Unreachable,
            ControlError::Refused { status, .. } => FailureKind::of_status(*status),
            ControlError::InsecureRelay => FailureKind::Refused,
        };
        // The message may contain text from the server: no control characters to the terminal.
        Failure::new(printable(&error.to_string())).hint(hint).kind(kind)
    }
}

impl From<DaemonClosed> for Failure {
    fn from(closed: DaemonClosed) -> Self {
        match closed {
            DaemonClosed::Control(error) => error.into(),
            stopped @ DaemonClosed::Stopped => Failure::new(stopped),
        }
    }
}

impl From<ClientClosed> for Failure {
    fn from(closed: ClientClosed) -> Self {
        match closed {
            ClientClosed::Control(error) => error.into(),
            ClientClosed::Pins(error) => Failure::new(&error).hint(error.hint()),
            ClientClosed::KeyChanged(ref change) => {
                let (pinned, offered) = (change.pinned(), change.offered());
                let both = format!("{closed}\n\n  pinned   {pinned}\n  offered  {offered}");
                Failure::new(both).kind(FailureKind::KeyChanged).hint(format!(
                    "this may be a man-in-the-middle attack. If you know why the key changed, and \
                     the daemon itself\n      prints the offered fingerprint, use \
                     --approve-new-key {offered}"
                ))
            }
            ClientClosed::Handshake(_) => Failure::new(closed)
                .hint("this may be a man-in-the-middle attack; try another network"),
            ClientClosed::Relay(code @ Code::Known(ControlCode::DaemonNotFound)) => {
                lost(LossReason::Told(code))
            }
            ClientClosed::Relay(_) | ClientClosed::Stopped => Failure::new(closed),
        }
    }
}

/// The error for a lost session, in commands that do not reconnect.
pub(crate) fn lost(reason: LossReason) -> Failure {
    match reason {
        LossReason::Control(error) => error.into(),
        LossReason::Told(Code::Known(ControlCode::DaemonOffline)) => {
            Failure::new("the daemon is offline")
                .hint("start it on its machine with `bowline daemon run`")
                .kind(FailureKind::Unreachable)
        }
        LossReason::Told(Code::Known(ControlCode::DaemonNotFound)) => {
            Failure::new("the daemon was revoked")
                .hint("`bowline daemons list` lists your daemons")
                .kind(FailureKind::NotFound)
        }
        LossReason::Told(Code::Known(ControlCode::SessionExpired)) => {
            Failure::new("the daemon refused or closed the session")
                .hint("try again")
                .kind(FailureKind::Refused)
        }
        reason @ LossReason::Refused(status) => {
            Failure::new(reason).hint("try again").kind(FailureKind::of_status(status))
        }
        reason @ (LossReason::Unreachable(_)
        | LossReason::Broken
        | LossReason::Silent
        | LossReason::Stuck
        | LossReason::Closed(_)) => {
            Failure::new(reason).hint("try again").kind(FailureKind::Unreachable)
        }
        reason => Failure::new(reason).hint("try again"),
    }
}
