//! The devices that are paired with this machine's gateway or daemon, for the commands that pair, list
//! and revoke them.
//!
//! A gateway keeps them among its users' credentials and is asked over HTTP; `bowline daemon run` keeps
//! them in a file, which it watches.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_client::relay::{CODE_LIFE, DeviceFile, ListedDevice};
use bowline_net::private_file;
use bowline_sbp::access::Scopes;
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::pairing::PairingText;
use jiff::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use crate::api::{Api, encoded};
use crate::failure::{Failure, FailureKind};
use crate::{local, owner, settings};

/// Where the devices are.
#[derive(Debug)]
pub(crate) enum PairedDevices {
    Gateway(Api),
    File(DeviceFile, RunningDaemon),
}

/// A device as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeviceRow {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The user of a gateway whom it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Its scopes at a gateway, or the services of a daemon that it may use; empty: all.
    pub(crate) may: Vec<String>,
    pub(crate) fingerprint: String,
    pub(crate) paired_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_used_at: Option<Timestamp>,
}

/// What a new device may do.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    pub(crate) user: Option<String>,
    pub(crate) scopes: Option<Scopes>,
    pub(crate) services: Vec<String>,
}

/// A text for one device, and until when it is valid.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) text: String,
    pub(crate) expires_at: Timestamp,
}

/// What `bowline daemon run` says of itself in its data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunningDaemon {
    pub(crate) control: Url,
    pub(crate) daemon: String,
    pub(crate) fingerprint: String,
    pub(crate) name: Option<String>,
    /// The names of its targets.
    pub(crate) services: Vec<String>,
    pub(crate) pid: u32,
}

impl RunningDaemon {
    /// Whether its process is still there.
    fn is_running(&self) -> bool {
        Path::new("/proc").join(self.pid.to_string()).exists()
    }

    /// Refuses a code that no device could use.
    fn check(&self, services: &[String]) -> Result<(), Failure> {
        if !self.is_running() {
            return Err(Failure::new("the daemon does not run, and nobody could use a code")
                .hint("start it with `bowline daemon run`")
                .kind(FailureKind::Unreachable));
        }
        match services.iter().find(|service| !self.services.contains(service)) {
            None => Ok(()),
            Some(unknown) => Err(Failure::new(format!("the daemon has no target `{unknown}`"))
                .hint(format!("its targets are: {}", self.services.join(", ")))
                .kind(FailureKind::Usage)),
        }
    }

    fn file(data: Option<&Path>) -> PathBuf {
        owner::identity(data).with_file_name("daemon.json")
    }

    pub(crate) fn announce(&self, data: Option<&Path>) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(self).map_err(Failure::new)?;
        private_file::replace(&Self::file(data), &json).map_err(|error| {
            let hint = error.hint();
            Failure::new(error).hint(hint)
        })
    }

    fn read(data: Option<&Path>) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::file(data)).ok()?).ok()
    }
}

impl PairedDevices {
    /// Those of the gateway that runs in this data folder, and those of the daemon that has run in it.
    pub(crate) async fn here(data: Option<&Path>) -> Result<Vec<Self>, Failure> {
        let folder = settings::data_folder(data);
        let mut found = Vec::new();
        let daemon = RunningDaemon::read(Some(&folder));
        if local::running(&folder).is_some() {
            let api = Api::of_folder(&folder)?;
            // A gateway that was killed leaves its address behind.
            if daemon.is_none() || api.status("/healthz").await.is_ok() {
                found.push(Self::Gateway(api));
            }
        }
        if let Some(daemon) = daemon {
            found.push(Self::File(DeviceFile::new(owner::devices_file(Some(&folder))), daemon));
        }
        if found.is_empty() {
            let what = format!("neither a gateway nor a daemon runs in {}", folder.display());
            let hint = "start `bowline up --relay URL` or `bowline daemon run`, or name its folder with \
                        --data";
            return Err(Failure::new(what).hint(hint).kind(FailureKind::NotFound));
        }
        Ok(found)
    }

    /// Those that such a grant is meant for: with services the daemon's, else the gateway's if there is
    /// one that is reachable through a relay.
    pub(crate) async fn meant(data: Option<&Path>, grant: &Grant) -> Result<Self, Failure> {
        let is_daemon = |one: &Self| matches!(one, Self::File(..));
        let mut found = Self::here(data).await?;
        let at = found.iter().position(|one| !grant.services.is_empty() && is_daemon(one));
        Ok(found.swap_remove(at.unwrap_or(0)))
    }

    pub(crate) async fn list(&self) -> Result<Vec<DeviceRow>, Failure> {
        match self {
            Self::Gateway(api) => {
                let list = api.get("/v1/devices").await?;
                let devices = list["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
                devices.iter().map(row_of_gateway).collect()
            }
            Self::File(file, _) => {
                let devices = file.list().map_err(Failure::new)?;
                Ok(devices.iter().map(row_of_file).collect())
            }
        }
    }

    /// Makes a text by which one device can be paired.
    pub(crate) async fn offer(&self, grant: Grant) -> Result<Offer, Failure> {
        let wrong = |what: &str| Err(Failure::new(what).kind(FailureKind::Usage));
        match self {
            Self::Gateway(_) if !grant.services.is_empty() => {
                wrong("--service is for `bowline daemon run`; a gateway has --user and --scopes")
            }
            Self::Gateway(api) => {
                let asked = json!({ "user": grant.user, "scopes": grant.scopes });
                let made = api.call(Method::POST, "/v1/devices/pairing", Some(asked)).await?;
                let text = made["text"].as_str().unwrap_or_default().to_owned();
                Ok(Offer { text, expires_at: time(&made["expires_at"]).unwrap_or_default() })
            }
            Self::File(..) if grant.user.is_some() || grant.scopes.is_some() => {
                wrong("--user and --scopes are for a gateway; `bowline daemon run` has --service")
            }
            Self::File(file, about) => {
                about.check(&grant.services)?;
                let code = file.offer(grant.services).map_err(|error| {
                    Failure::new(error).hint("wait until they expire, five minutes at most")
                })?;
                let fingerprint = about.fingerprint.parse().map_err(Failure::new)?;
                let daemon = DaemonId::new(about.daemon.as_str());
                let control = about.control.to_string();
                let text = PairingText { code, fingerprint, daemon, control }.to_string();
                Ok(Offer { text, expires_at: Timestamp::now() + CODE_LIFE })
            }
        }
    }

    /// Revokes a device of these.
    async fn remove(&self, device: &DeviceRow) -> Result<(), Failure> {
        match self {
            Self::Gateway(api) => {
                let path = format!("/v1/devices/{}", encoded(&device.id));
                api.call(Method::DELETE, &path, None).await?;
            }
            Self::File(file, _) => drop(file.revoke(&device.id).map_err(Failure::new)?),
        }
        Ok(())
    }

    /// Waits for a device that was not there before.
    pub(crate) async fn newcomer(&self, before: &[DeviceRow]) -> Result<DeviceRow, Failure> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.list().await?;
            if let Some(new) = now.into_iter().find(|one| before.iter().all(|b| b.id != one.id)) {
                return Ok(new);
            }
        }
    }
}

/// All devices that are paired with this machine.
pub(crate) async fn list(data: Option<&Path>) -> Result<Vec<DeviceRow>, Failure> {
    let mut rows = Vec::new();
    for devices in PairedDevices::here(data).await? {
        rows.extend(devices.list().await?);
    }
    Ok(rows)
}

/// Revokes a device by its id or name.
pub(crate) async fn revoke(named: &str, data: Option<&Path>) -> Result<DeviceRow, Failure> {
    let here = PairedDevices::here(data).await?;
    let mut found = Vec::new();
    for devices in &here {
        let rows = devices.list().await?.into_iter();
        let rows = rows.filter(|one| one.id == named || one.name == named);
        found.extend(rows.map(|row| (devices, row)));
    }
    match found.as_slice() {
        [(devices, row)] => {
            devices.remove(row).await?;
            Ok(row.clone())
        }
        [] => Err(Failure::new("there is no such device")
            .hint("`bowline devices list` lists them")
            .kind(FailureKind::NotFound)),
        _ => Err(Failure::new("several devices have this name")
            .hint("use an id; `bowline devices list` shows them")
            .kind(FailureKind::Usage)),
    }
}

fn row_of_file(device: &ListedDevice) -> DeviceRow {
    DeviceRow {
        id: device.id.clone(),
        name: device.name.clone(),
        user: None,
        may: device.services.clone(),
        fingerprint: device.fingerprint().map(|one| one.to_string()).unwrap_or_default(),
        paired_at: Timestamp::from_second(device.paired_at as i64).unwrap_or_default(),
        last_used_at: None,
    }
}

fn row_of_gateway(device: &Value) -> Result<DeviceRow, Failure> {
    let text = |name: &str| device[name].as_str().unwrap_or_default().to_owned();
    let scopes = device["scopes"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(DeviceRow {
        id: text("id"),
        name: text("name"),
        user: Some(text("user")),
        may: scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        fingerprint: text("fingerprint"),
        paired_at: time(&device["paired_at"]).unwrap_or_default(),
        last_used_at: time(&device["last_used_at"]),
    })
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

const LOOK_EVERY: Duration = Duration::from_millis(500);
