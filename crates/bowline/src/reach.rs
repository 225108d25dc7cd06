//! How a command reaches a daemon by the name that was typed: as a paired device, or as the owner who
//! has a key of the control plane.
//!
//! A name that is paired is never looked up: its daemon, its key and its control plane are known here.
//! Any other name is asked for at the control plane, and refused if it leads elsewhere than before.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_client::relay::tunnel::{
    Connected, DeviceIdentity, TunnelClient, TunnelClosed, TunnelNotice,
};
use bowline_client::relay::{
    ClientClosed, ClientConfig, ControlPlane, KnownError, LossReason, OtherDaemon,
};
use bowline_sbrp::api::DaemonView;
use bowline_sbrp::handshake::KeyChange;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::Fingerprint;

use crate::cli::relay_ends::ControlArgs;
use crate::failure::{Failure, FailureKind};
use crate::owner;
use crate::terminal::{note, printable};

/// A daemon, and what to show it.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) config: ClientConfig,
    pub(crate) identity: DeviceIdentity,
}

/// Finds the daemon of this name. `vouched`: the fingerprint that its key must have.
pub(crate) async fn by_name(
    name: &str,
    control: &ControlArgs,
    data: Option<&Path>,
    vouched: Option<Fingerprint>,
) -> Result<Reach, Failure> {
    let known = owner::known(data);
    let found = known.look_up(name)?;
    let vouch = |config: ClientConfig| match vouched {
        Some(fingerprint) => config.vouched_for(fingerprint),
        None => config,
    };
    let (pinned, pairing) = match found {
        Some(found) => (Some((found.daemon, found.key)), found.pairing),
        None => (None, None),
    };
    if let (Some((daemon, _)), Some(pairing)) = (&pinned, pairing) {
        let plane = ControlPlane::for_device(pairing.control, Arc::clone(&pairing.device))?;
        let config = ClientConfig::new(plane, daemon.clone(), name, known);
        let identity = DeviceIdentity::Device(pairing.device);
        return Ok(Reach { config: vouch(config), identity });
    }
    let plane = owner::control_plane(control, data).map_err(|failure| unknown(name, failure))?;
    let daemon = owner::find(&plane, name).await?;
    let id = DaemonId::new(daemon.id.as_str());
    if let Some((pinned, key)) = pinned.filter(|(pinned, _)| *pinned != id)
        && vouched.is_none()
    {
        return Err(KnownError::OtherDaemon(OtherDaemon {
            pinned,
            pinned_key: key.fingerprint(),
            offered: id,
            offered_key: fingerprint(&daemon),
        })
        .into());
    }
    let config = ClientConfig::new(plane, id, name, known);
    Ok(Reach { config: vouch(config), identity: DeviceIdentity::Plain })
}

/// The fingerprint of the key that the control plane has for a daemon.
pub(crate) fn fingerprint(daemon: &DaemonView) -> Option<Fingerprint> {
    let key = URL_SAFE_NO_PAD.decode(&daemon.identity_public_key).ok()?;
    Some(Fingerprint::of(&key.try_into().ok()?))
}

/// Neither is the name paired, nor is there a control plane to ask for it.
fn unknown(name: &str, failure: Failure) -> Failure {
    let name = printable(name);
    Failure::new(format!("this device is not paired with `{name}`, and {}", failure.what()))
        .hint(
            "run `bowline pair` on the machine to be reached, and here `bowline pair --accept TEXT`",
        )
        .kind(FailureKind::NotFound)
}

/// Waits for the daemon's welcome. Fails at the first loss if the daemon is offline or cannot be
/// reached at all: whoever starts a command wants to know. `is_vouched_for`: the key was named by a
/// person or a pairing code.
pub(crate) async fn connected(
    tunnel: &mut TunnelClient,
    is_vouched_for: bool,
) -> Result<Connected, Failure> {
    loop {
        match tunnel.next().await {
            Some(TunnelNotice::Connected(connected)) => return Ok(connected),
            Some(TunnelNotice::Closed(TunnelClosed::Client(ClientClosed::KeyChanged(change))))
                if is_vouched_for =>
            {
                return Err(not_vouched_for(change));
            }
            Some(TunnelNotice::Closed(closed)) => return Err(closed.into()),
            Some(TunnelNotice::Refused(error)) => return Err(TunnelClosed::Greet(error).into()),
            // The session that was refused ended; the next one may be let in.
            Some(TunnelNotice::Lost { reason: LossReason::Here, .. }) => {}
            Some(TunnelNotice::Lost { reason, .. }) => return Err(owner::lost(reason)),
            // Who was named is trusted by its fingerprint, every time.
            Some(TunnelNotice::NotPinned(KnownError::NowhereToKeep)) if is_vouched_for => {}
            Some(TunnelNotice::NotPinned(error)) => {
                note!("warning: the daemon's key is not pinned: {error}");
            }
            Some(_) => {}
            None => return Err(Failure::new("the connection was closed")),
        }
    }
}

/// The daemon showed another key than the one that was named.
fn not_vouched_for(KeyChange { pinned: named, offered }: KeyChange) -> Failure {
    let both = format!(
        "the daemon's key does not have that fingerprint\n\n  named    {named}\n  offered  {offered}"
    );
    Failure::new(both).kind(FailureKind::KeyChanged).hint(
        "nothing was changed. Somebody may be between you and the daemon; it prints its fingerprint when \
         it starts",
    )
}

/// A state of the connection in words; `None` if it is told otherwise.
pub(crate) fn words(notice: &TunnelNotice) -> Option<(&'static str, String)> {
    Some(match notice {
        TunnelNotice::Paused => ("paused", "the daemon is disconnected; connections wait".into()),
        TunnelNotice::Pending => ("pending", "the daemon has reconnected".into()),
        TunnelNotice::Resumed => ("resumed", "connections continue".into()),
        TunnelNotice::NotPinned(error) => {
            ("warning", format!("the daemon's key is not pinned: {error}"))
        }
        TunnelNotice::Refused(error) => ("refused", error.to_string()),
        TunnelNotice::Lost { reason, retry_in } => {
            let seconds = retry_in.as_secs_f64();
            ("lost", format!("{reason}; connections wait; retrying in {seconds:.1} s"))
        }
        TunnelNotice::StreamsLost(count) => (
            "cut off",
            format!("the daemon was restarted or away for too long: {count} connections"),
        ),
        _ => return None,
    })
}
