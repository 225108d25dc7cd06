//! The way of a command to a gateway through a relay: a tunnel, and a socket file that leads into it.
//!
//! A socket file in a private folder and not a local port: only its owner can connect to it, and who
//! connects acts as the device. It lasts as long as the command, whose end tells the daemon that the
//! tunnel is needed no more ([`close_all`]): otherwise it would be kept for minutes.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use bowline_client::relay::tunnel::{HTTP, TunnelClient, TunnelNotice, forward_unix};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::cli::relay_ends::ControlArgs;
use crate::failure::{Failure, FailureKind};
use crate::reach::{self, Reach};
use crate::signals::{self, StopSignals};
use crate::terminal::{self, note, printable};

/// The tunnels that are open, or saying goodbye.
static OPEN: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);
/// Cancelled when the process is about to end.
static ENDING: LazyLock<CancellationToken> = LazyLock::new(CancellationToken::new);

/// Closes every way in good order. To be called before the process ends.
pub(crate) async fn close_all() {
    ENDING.cancel();
    OPEN.close();
    let _ = tokio::time::timeout(GOODBYE, OPEN.wait()).await;
}

/// An open way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Via {
    name: String,
    socket: PathBuf,
    states: tokio::sync::Mutex<mpsc::Receiver<WayState>>,
    _closing: DropGuard,
    _forwarding: AbortOnDropHandle<()>,
    _folder: TempDir,
}

/// What becomes of the way.
#[derive(Debug)]
pub(crate) enum WayState {
    /// In words for the person.
    Changed(String),
    /// It is over, for example because the device was revoked.
    Closed(Failure),
}

impl Via {
    /// Connects to the gateway of this name.
    pub(crate) async fn open(name: &str, data: Option<&Path>) -> Result<Self, Failure> {
        let Reach { config, identity } =
            reach::by_name(name, &ControlArgs::default(), data, None).await?;
        let mut tunnel = TunnelClient::connect(config, identity);
        let doing = format!("waiting for `{}`", printable(name));
        let connected = terminal::waiting(doing, reach::connected(&mut tunnel, false)).await?;
        if connected.first_use {
            let fingerprint = connected.identity.key().fingerprint();
            note!("first use of `{}`: its key {fingerprint} is pinned now", printable(name));
        }
        if !connected.services.iter().any(|service| service == HTTP) {
            return Err(Failure::new(format!("`{}` is no gateway", printable(name)))
                .hint("`bowline connect` reaches the services of a daemon")
                .kind(FailureKind::Refused));
        }
        remove_leftovers();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(Failure::new)?;
        let socket = folder.path().join("gateway");
        let listener = UnixListener::bind(&socket).map_err(|error| {
            Failure::new(format!("cannot make {}: {error}", socket.display()))
                .hint("set TMPDIR to a folder with a short path")
        })?;
        let forwarding = forward_unix(listener, tunnel.opener(), HTTP);
        let (tell, states) = mpsc::channel(STATES);
        let stop = ENDING.child_token();
        OPEN.spawn(watch(tunnel, tell, stop.clone(), StopSignals::beside_the_command()?));
        Ok(Self {
            name: printable(name),
            socket,
            states: tokio::sync::Mutex::new(states),
            _closing: stop.drop_guard(),
            _forwarding: AbortOnDropHandle::new(tokio::spawn(forwarding)),
            _folder: folder,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The next change. For one caller.
    pub(crate) async fn next(&self) -> WayState {
        match self.states.lock().await.recv().await {
            Some(state) => state,
            None => std::future::pending().await,
        }
    }
}

/// Removes the folders of commands that were killed.
fn remove_leftovers() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Those of other users cannot be removed, and are theirs.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Keeps the tunnel and tells of its states. Those that nobody asks for are dropped.
async fn watch(
    mut tunnel: TunnelClient,
    tell: mpsc::Sender<WayState>,
    stop: CancellationToken,
    mut signals: StopSignals,
) {
    loop {
        let notice = tokio::select! {
            notice = tunnel.next() => notice,
            () = stop.cancelled() => return tunnel.close().await,
            signal = signals.next() => {
                if signals::is_handled() {
                    continue;
                }
                tunnel.close().await;
                // As if there were no handler: the command knows nothing of signals.
                std::process::exit(signal.exit_code());
            }
        };
        let Some(notice) = notice else { return };
        let state = match notice {
            TunnelNotice::Closed(closed) => {
                let _ = tell.send(WayState::Closed(closed.into())).await;
                return;
            }
            TunnelNotice::Connected(_) => WayState::Changed("connected again".into()),
            notice => match reach::words(&notice) {
                Some((state, detail)) => {
                    WayState::Changed(printable(&format!("{state}: {detail}")))
                }
                None => continue,
            },
        };
        let _ = tell.try_send(state);
    }
}

const PREFIX: &str = "bowline-via-";
const STATES: usize = 16;
/// How long all goodbyes may take.
const GOODBYE: Duration = Duration::from_secs(5);
