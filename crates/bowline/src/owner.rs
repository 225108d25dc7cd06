//! What `daemon`, `connect` and `daemons` share: the control plane's client, where keys are stored,
//! and readable errors.

use std::path::{Path, PathBuf};

use bowline_client::relay::tunnel::{GreetError, TunnelClosed};
use bowline_client::relay::{
    ClientClosed, ControlError, ControlPlane, DaemonClosed, KnownDaemons, KnownError, LossReason,
};
use bowline_net::{outbound, private_file};
use bowline_sbrp::api::DaemonView;
use bowline_sbrp::control::{Code, ControlCode};
use bowline_sbrp::handshake::KeyChange;
use bowline_sbrp::identity::Fingerprint;
use bowline_sbrp::tunnel::HelloReply;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::cli::relay_ends::ControlArgs;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{self, printable};
use crate::{paths, secrets};

/// A client of the control plane given by the arguments, or of the one that the user logged in to.
pub(crate) fn control_plane(
    args: &ControlArgs,
    data: Option<&Path>,
) -> Result<ControlPlane, Failure> {
    let login = Login::read(data)?;
    let logged_in_to = login.as_ref().map(|login| login.control.clone());
    let url = args.control.clone().or(logged_in_to).ok_or_else(|| {
        Failure::new("no control plane was given")
            .hint("log in with `bowline login URL`, use --control URL, or set BOWLINE_CONTROL")
            .kind(FailureKind::Usage)
    })?;
    // A stored key is sent only to where it was stored for.
    let stored = login.filter(|login| login.control == url).map(|login| login.key);
    Ok(ControlPlane::new(url, &key(args.key_file.as_deref(), stored)?)?)
}

/// The user's API key. From a file, the environment or a login, never from a flag, since other users
/// of the machine can see command lines.
fn key(file: Option<&Path>, stored: Option<String>) -> Result<String, Failure> {
    if let Some(file) = file {
        return secrets::from_file(file, "--key-file");
    }
    let given = std::env::var("BOWLINE_CONTROL_KEY").unwrap_or_default().trim().to_owned();
    Some(given).filter(|key| !key.is_empty()).or(stored).ok_or_else(|| {
        Failure::new("no key for the control plane")
            .hint(
                "log in with `bowline login URL`, set BOWLINE_CONTROL_KEY, or name a file that holds \
                 it with --key-file",
            )
            .kind(FailureKind::Usage)
    })
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

/// A file of a daemon or of a client in the data folder.
fn file(data: Option<&Path>, name: &str) -> PathBuf {
    data.map_or_else(paths::data, Path::to_owned).join("relay").join(name)
}

/// The file of a daemon's identity key.
pub(crate) fn identity(data: Option<&Path>) -> PathBuf {
    file(data, "identity")
}

/// The file of a gateway's identity key at a relay. Another one than a daemon's: both may run at once.
pub(crate) fn gateway_identity(data: Option<&Path>) -> PathBuf {
    file(data, "gateway-identity")
}

/// The file of the devices that are paired with a daemon.
pub(crate) fn devices_file(data: Option<&Path>) -> PathBuf {
    file(data, "devices.json")
}

/// The file of the daemons that this machine knows by name.
pub(crate) fn known_file(data: Option<&Path>) -> PathBuf {
    file(data, "known.json")
}

pub(crate) fn known(data: Option<&Path>) -> KnownDaemons {
    KnownDaemons::file(known_file(data))
}

/// The control plane that the user logged in to, and their key there.
#[derive(Serialize, Deserialize)]
pub(crate) struct Login {
    control: Url,
    key: String,
}

impl Login {
    fn read(data: Option<&Path>) -> Result<Option<Self>, Failure> {
        let path = file(data, LOGIN);
        let bytes = private_file::read(&path, LOGIN_MOST).map_err(|error| {
            let hint = error.hint();
            Failure::new(error).hint(hint)
        })?;
        let malformed = || {
            Failure::new(format!("{} is malformed", path.display()))
                .hint("log in again with `bowline login URL`")
        };
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(|_| malformed())).transpose()
    }

    pub(crate) fn store(
        control: Url,
        key: String,
        data: Option<&Path>,
    ) -> Result<PathBuf, Failure> {
        let path = file(data, LOGIN);
        let json = serde_json::to_vec(&Self { control, key }).map_err(Failure::new)?;
        private_file::replace(&path, &json).map_err(|error| {
            let hint = error.hint();
            Failure::new(error).hint(hint)
        })?;
        Ok(path)
    }
}

const LOGIN: &str = "login.json";
const LOGIN_MOST: u64 = 64 << 10;

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let hint = match &error {
            ControlError::Insecure => "write it like https://control.example.org",
            ControlError::Key => "check the key for line breaks",
            error if error.is_unknown_device() => {
                "this device was revoked; pair it again with `bowline pair` on the daemon's machine"
            }
            ControlError::Refused { status: 401, .. } => {
                "check the key: that of --key-file, BOWLINE_CONTROL_KEY or `bowline login`"
            }
            ControlError::Refused { status: 403, .. } => {
                "`bowline daemons list` shows yours, `bowline daemons revoke` removes one; a revoked \
                 daemon can register again as a new one with another --data folder"
            }
            ControlError::Refused { status: 404, .. } => {
                "`bowline daemons list` lists your daemons"
            }
            ControlError::Unreachable { .. } => "check that it runs, and its address",
            ControlError::Untrusted { .. } => outbound::TRUST_HINT,
            ControlError::Refused { .. } => "try again later",
            ControlError::ClockSkew { .. } => "set this machine's clock",
            ControlError::NeedsKey => "log in with `bowline login URL`",
            ControlError::Unreadable => "check its address: another kind of server answers there",
            ControlError::InsecureRelay => "the relay's operator has to enable TLS",
            _ => "try again later",
        };
        let kind = match &error {
            ControlError::Insecure | ControlError::Key | ControlError::NeedsKey => {
                FailureKind::Usage
            }
            ControlError::Unreachable { .. }
            | ControlError::Untrusted { .. }
            | ControlError::Unreadable => FailureKind::Unreachable,
            ControlError::Refused { status, .. } => FailureKind::of_status(*status),
            _ => FailureKind::Refused,
        };
        // The message may contain text from the server: no control characters to the terminal.
        Failure::new(printable(&error.to_string())).hint(hint).kind(kind)
    }
}

impl From<DaemonClosed> for Failure {
    fn from(closed: DaemonClosed) -> Self {
        match closed {
            DaemonClosed::Control(error) => error.into(),
            stopped => Failure::new(stopped),
        }
    }
}

impl From<ClientClosed> for Failure {
    fn from(closed: ClientClosed) -> Self {
        match closed {
            ClientClosed::Control(error) => error.into(),
            ClientClosed::Known(error) => error.into(),
            ClientClosed::KeyChanged(KeyChange { pinned, offered }) => {
                let both = format!("{closed}\n\n  pinned   {pinned}\n  offered  {offered}");
                Failure::new(both).kind(FailureKind::KeyChanged).hint(approve(Some(offered)))
            }
            ClientClosed::Handshake(_) => Failure::new(closed)
                .hint("this may be a man-in-the-middle attack; try another network"),
            ClientClosed::Relay(code @ Code::Known(ControlCode::DaemonNotFound)) => {
                lost(LossReason::Told(code))
            }
            _ => Failure::new(closed),
        }
    }
}

impl From<KnownError> for Failure {
    fn from(error: KnownError) -> Self {
        let KnownError::OtherDaemon(other) = error else {
            let hint = error.hint();
            return Failure::new(error).hint(hint);
        };
        let offered =
            other.offered_key.map_or("its key was not asked for".into(), |key| key.to_string());
        let both = format!(
            "this name leads to another daemon than before\n\n  pinned   {}  daemon {}\n  offered  {}  \
             daemon {}",
            other.pinned_key,
            printable(other.pinned.as_str()),
            offered,
            printable(other.offered.as_str()),
        );
        Failure::new(both).kind(FailureKind::KeyChanged).hint(approve(other.offered_key))
    }
}

fn approve(offered: Option<Fingerprint>) -> String {
    let offered = offered.map_or("FINGERPRINT".into(), |offered| offered.to_string());
    format!(
        "this may be a man-in-the-middle attack. If you know why the key changed, and the daemon itself\n      \
         prints the offered fingerprint, use --approve-new-key {offered}"
    )
}

impl From<TunnelClosed> for Failure {
    fn from(closed: TunnelClosed) -> Self {
        match closed {
            TunnelClosed::Client(closed) => closed.into(),
            TunnelClosed::Greet(error) => {
                let hint = match &error {
                    GreetError::Refused(HelloReply::NotPaired) => {
                        "pair it: run `bowline pair` on the daemon's machine, and here \
                         `bowline pair --accept TEXT`"
                    }
                    GreetError::Refused(HelloReply::BadCode) => {
                        "run `bowline pair` on the daemon's machine again"
                    }
                    GreetError::Refused(HelloReply::Version) => "update bowline at both ends",
                    _ => "try again",
                };
                Failure::new(error).hint(hint).kind(FailureKind::Refused)
            }
            other => Failure::new(other),
        }
    }
}

/// The error for a lost session, in commands that do not reconnect.
pub(crate) fn lost(reason: LossReason) -> Failure {
    match reason {
        LossReason::Control(error) => error.into(),
        LossReason::Told(Code::Known(ControlCode::DaemonOffline)) => {
            Failure::new("the daemon is offline")
                .hint(
                    "start it on its machine with `bowline up --relay URL` or `bowline daemon run`",
                )
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
