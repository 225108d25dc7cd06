//! `bowline peers`: other gateways and trackers, as the gateway knows them.
//!
//! All but `add` ask the running gateway. `add` looks for itself, and prints lines for the configuration: who is
//! named there may have a private address, so that is nothing to be changed with a stolen key.

use std::process::ExitCode;
use std::sync::Arc;

use bowline_federation::{PeerClient, StaticPeer, SystemLookup, Target, manifests};
use bowline_sbp::federation::{Allow, GatewayId};
use bowline_sbp::federation::{PeerChecked, PeerList, PeerNamed, PeerView, PinState};
use bowline_sbp::gateway_key::KeyFingerprint;
use reqwest::Method;
use serde_json::{Value, json};

use super::users::segment;
use crate::api::Api;
use crate::cli::GatewayArgs;
use crate::cli::federation::PeerFlag;
use crate::cli::peers::PeersCommand;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{note, one_line, say, table};

pub(crate) async fn run(command: PeersCommand) -> Result<ExitCode, Failure> {
    match command {
        PeersCommand::List { gateway, json } => {
            let list = Api::new(&gateway).await?.get("/v1/peers").await?;
            match json {
                true => say!("{list}"),
                false => show(&parsed(list)?),
            }
            Ok(ExitCode::SUCCESS)
        }
        PeersCommand::Check { gateway, peers, json } => check(&gateway, peers, json).await,
        PeersCommand::Add { peer, allow, tracker, json } => {
            add(peer, allow.map(Allow::from), tracker, json).await
        }
        PeersCommand::Remove { gateway, peer, json } => {
            let path = format!("/v1/peers/{}", segment(peer.as_str()));
            let removed = Api::new(&gateway).await?.call(Method::DELETE, &path, None).await?;
            if json {
                say!("{removed}");
                return Ok(ExitCode::SUCCESS);
            }
            note!("the key of {peer} is forgotten; the next one that it shows is remembered");
            let section = match removed["named"].as_str() {
                Some("peer") => "peers",
                Some("tracker") => "trackers",
                _ => return Ok(ExitCode::SUCCESS),
            };
            note!(
                "The configuration names it: delete [federation.{section}.{peer}] (or its flag) and restart the \
                 gateway, if it is to be unknown."
            );
            Ok(ExitCode::SUCCESS)
        }
        PeersCommand::Approve { gateway, peer, fingerprint, json } => {
            approve(&gateway, &peer, fingerprint, json).await
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    let unread = |_| Failure::new("the gateway's answer cannot be read");
    serde_json::from_value(answer).map_err(unread)
}

fn show(list: &PeerList) {
    note!("{} at {}, key {}", one_line(&list.gateway_id), one_line(&list.url), list.fingerprint);
    if list.peers.is_empty() {
        note!("no other gateways are known; `bowline peers add ID=URL` shows how to name one");
        return;
    }
    let row = |peer: &PeerView| {
        let what = match peer.named {
            PeerNamed::Peer => "named",
            PeerNamed::Tracker => "tracker",
            PeerNamed::No => "met",
        };
        let alone = peer.backed_off_seconds.map(|wait| format!("for {wait} s"));
        [
            one_line(&peer.id),
            one_line(&peer.url),
            what.to_owned(),
            peer.allow.map_or("-", allow_text).to_owned(),
            key_text(peer),
            alone.unwrap_or_else(|| "-".into()),
        ]
    };
    let rows: Vec<_> = list.peers.iter().map(row).collect();
    let headings = ["peer", "address", "is", "may have", "key", "left alone"];
    say!("{}", table(headings, &rows).trim_end());
    for peer in list.peers.iter().filter(|peer| peer.pin == PinState::Changed) {
        note!("{} shows another key: see `bowline peers approve {0}`", one_line(&peer.id));
    }
}

fn allow_text(allow: Allow) -> &'static str {
    match allow {
        Allow::All => "all",
        Allow::ExportedToMe => "exported-to-me",
        Allow::None => "none",
    }
}

/// The state of its key, and the beginning of the fingerprint.
fn key_text(peer: &PeerView) -> String {
    let state = match peer.pin {
        PinState::Configured => "configured",
        PinState::Remembered => "remembered",
        PinState::Changed => "CHANGED",
        PinState::Unknown => return "not seen yet".to_owned(),
    };
    let fingerprint = peer.fingerprint.as_deref().unwrap_or_default();
    let beginning: String = fingerprint.chars().take("SHA256:00:00:00:00".len()).collect();
    one_line(&format!("{state} {beginning}…"))
}

async fn check(
    gateway: &GatewayArgs,
    peers: Vec<GatewayId>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let ids: Vec<String> = match peers.is_empty() {
        false => peers.iter().map(ToString::to_string).collect(),
        true => {
            let list: PeerList = parsed(api.get("/v1/peers").await?)?;
            list.peers.into_iter().map(|peer| peer.id).collect()
        }
    };
    if ids.is_empty() && !json {
        note!("no other gateways are known");
    }
    let mut all = Vec::new();
    for id in &ids {
        let path = format!("/v1/peers/{}/check", segment(id));
        let answer = api.call(Method::POST, &path, None).await?;
        let checked: PeerChecked = parsed(answer.clone())?;
        if !json {
            show_checked(&checked);
        }
        all.push((checked.ok, answer));
    }
    let ok = all.iter().all(|(ok, _)| *ok);
    if json {
        let checked: Vec<_> = all.into_iter().map(|(_, answer)| answer).collect();
        say!("{}", json!({ "ok": ok, "peers": checked }));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_checked(checked: &PeerChecked) {
    let peer = &checked.peer;
    let id = one_line(&peer.id);
    match &checked.problem {
        None => {
            let role = checked.role.map(|role| format!("{role:?}").to_lowercase());
            say!(
                "{id}: ok, {} ms, {} of SBP {}, at {}",
                checked.round_trip_ms.unwrap_or_default(),
                role.unwrap_or_default(),
                one_line(checked.sbp_version.as_deref().unwrap_or("?")),
                one_line(&peer.url),
            );
        }
        Some(problem) => say!("{id}: {}", one_line(problem)),
    }
    if let Some(fingerprint) = &peer.fingerprint {
        say!("  key    {}", one_line(fingerprint));
    }
    if let Some(shown) = &peer.shown {
        say!("  shows  {}", one_line(shown));
        note!(
            "  `bowline peers approve {id} FINGERPRINT` accepts it, if its operator says that it is theirs"
        );
    }
}

async fn approve(
    gateway: &GatewayArgs,
    id: &GatewayId,
    fingerprint: Option<KeyFingerprint>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let path = format!("/v1/peers/{}", segment(id.as_str()));
    // What it shows now is what is approved.
    let now = api.call(Method::POST, &format!("{path}/check"), None).await?;
    let Some(fingerprint) = fingerprint else {
        let checked: PeerChecked = parsed(now)?;
        let Some(shown) = checked.peer.shown else {
            return Err(Failure::new(format!(
                "{id} shows no other key than the one that is known"
            ))
            .hint("there is nothing to approve; `bowline peers check` says more"));
        };
        let known = checked.peer.fingerprint.unwrap_or_default();
        let what = format!(
            "{id} shows another key:\n  known  {}\n  shows  {}",
            one_line(&known),
            one_line(&shown)
        );
        return Err(Failure::new(what)
            .hint(format!(
                "ask its operator for the fingerprint; if it is the second one: bowline peers approve {id} {}",
                one_line(&shown)
            ))
            .kind(FailureKind::KeyChanged));
    };
    let asked = json!({ "fingerprint": fingerprint.to_string() });
    let approved = api.call(Method::POST, &format!("{path}/approve"), Some(asked)).await?;
    match json {
        true => say!("{approved}"),
        false => note!("{id} has the key {fingerprint} from now on"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at a peer from here, and prints what names it in the configuration.
async fn add(
    PeerFlag { id, url }: PeerFlag,
    allow: Option<Allow>,
    tracker: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let client = PeerClient::new(Arc::new(SystemLookup)).map_err(Failure::new)?;
    let target = Target::named(&StaticPeer { id: id.clone(), url: url.clone(), key: None });
    let manifest = manifests::fetch(&client, &target).await.map_err(|fault| {
        Failure::new(format!("{url}: {fault}"))
            .hint("check the address; the gateway there has to run with --federation")
            .kind(FailureKind::Unreachable)
    })?;
    if manifest.gateway_id != id {
        let what = format!("the gateway at {url} is called {}, not {id}", manifest.gateway_id);
        let hint = format!("bowline peers add {}={url}", manifest.gateway_id);
        return Err(Failure::new(what).hint(hint).kind(FailureKind::Usage));
    }
    let section = if tracker { "trackers" } else { "peers" };
    let fingerprint = manifest.key.fingerprint().to_string();
    if json {
        say!(
            "{}",
            json!({
                "id": id, "url": url, "key": manifest.key.to_string(), "fingerprint": fingerprint,
                "name": manifest.gateway_name, "role": manifest.role, "section": format!("federation.{section}"),
                "allow": allow,
            })
        );
        return Ok(ExitCode::SUCCESS);
    }
    note!("{} at {url}", one_line(&manifest.gateway_name));
    note!("key {fingerprint}: compare it with what `bowline identity show` prints there\n");
    say!("[federation.{section}.{}]", quoted(id.as_str()));
    say!("url = \"{url}\"");
    say!("key = \"{}\"", manifest.key);
    if let Some(allow) = allow {
        say!("allow = \"{}\"", allow_text(allow));
    }
    note!(
        "\nThese lines go into the configuration of the gateway (bowline.toml); then restart it."
    );
    Ok(ExitCode::SUCCESS)
}

/// A key of TOML: a dot in it would be another table.
fn quoted(id: &str) -> String {
    if id.contains('.') { format!("\"{id}\"") } else { id.to_owned() }
}
