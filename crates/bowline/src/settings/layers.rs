//! The layers on top of each other: defaults, file, environment, flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_gateway::config::Config;
use bowline_tracker::TrackerConfig;
use toml::{Table, Value};

use super::flags::Flag;
use super::key::{insert, split, variable};
use super::known::{KnownSettings, defaults};
use super::origin::Origin;
use super::secret::{is_secret, reason_is_safe};
use super::servers::{ControlSettings, DaemonSettings, RelayServerSettings};
use super::store::{BusSettings, StoreSettings};
use super::{CA_FILE, LogSettings, RelaySettings, Settings, file, mistake};
use crate::failure::{Failure, FailureKind};
use crate::paths;
use crate::terminal::note;

/// `BOWLINE_*` variables that are not settings.
const NOT_SETTINGS: [&str; 9] = [
    "BOWLINE_CONFIG",
    "BOWLINE_URL",
    "BOWLINE_VIA",
    "BOWLINE_API_KEY",
    "BOWLINE_SESSION_TOKEN",
    "BOWLINE_TO_KEY",
    "BOWLINE_BIN",
    "BOWLINE_CONTROL",
    "BOWLINE_CONTROL_KEY",
];

pub(super) struct Layers {
    known: KnownSettings,
    /// The values that were set, without defaults.
    set: BTreeMap<String, (Value, Origin)>,
}

impl Layers {
    pub(super) fn new() -> Self {
        Self { known: KnownSettings::new(), set: BTreeMap::new() }
    }

    pub(super) fn file(
        &mut self,
        config: Option<&Path>,
        environment: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let named = named_file(config, environment);
        let path = named.clone().unwrap_or_else(paths::config);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if file::is_missing(&error, named.as_deref()) => return Ok(()),
            Err(error) => {
                let what =
                    format!("cannot read the configuration file {}: {error}", path.display());
                return Err(Failure::new(what)
                    .hint("check the path given by --config or BOWLINE_CONFIG")
                    .kind(FailureKind::Usage));
            }
        };
        let values =
            file::read(&text).map_err(|error| mistake::not_toml(&self.known, &path, error))?;
        for value in values {
            let origin = Origin::File { path: path.clone(), line: value.line };
            self.checked(&value.key, value.value, origin)?;
        }
        Ok(())
    }

    pub(super) fn environment(
        &mut self,
        environment: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        for (name, text) in environment {
            if !name.starts_with("BOWLINE_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let Some((key, example)) = self.known.of_variable(name) else {
                let near = self.known.nearest_variable(name);
                let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                note!(
                    "warning: the environment variable {name} is not a setting and is ignored{near}"
                );
                continue;
            };
            let origin = Origin::Environment(name.clone());
            let value = parsed(text, example).ok_or_else(|| {
                let why = format!("it has to be {}", mistake::kind_of(example));
                mistake::wrong(&self.known, &key, &origin, &why)
            })?;
            self.checked(&key, value, origin)?;
        }
        Ok(())
    }

    pub(super) fn flags(&mut self, flags: Vec<Flag>) {
        for Flag { key, flag, value } in flags {
            if let Some(value) = value {
                self.set.insert(key, (value, Origin::Flag(flag)));
            }
        }
    }

    /// Sets a value if there is such a setting and it has this type.
    fn checked(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), Failure> {
        let Some(example) = self.known.example(key) else {
            return Err(mistake::unknown(&self.known, key, &origin));
        };
        if let Some(why) = mistake::wrong_type(&value, example) {
            return Err(mistake::wrong(&self.known, key, &origin, &why));
        }
        self.set.insert(key.to_owned(), (value, origin));
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Settings, Failure> {
        let merged = self.merged(|_| true);
        let read = match read(merged.clone()) {
            Ok(read) => read,
            Err(error) => return Err(self.blamed(&error)),
        };
        let Sections { data, mut store, mut bus, log, relay, .. } = read;
        let Sections { relay_server, control, daemon, tracker, gateway, .. } = read;
        let origins = self.set.into_iter().map(|(key, (_, origin))| (key, origin)).collect();
        store.settle(&origins)?;
        bus.settle(&origins)?;
        Ok(Settings {
            data,
            store,
            bus,
            log,
            relay,
            relay_server,
            control,
            daemon,
            tracker,
            gateway,
            merged,
            origins,
        })
    }

    /// The defaults with those of the set values whose keys are wanted.
    fn merged(&self, wanted: impl Fn(&str) -> bool) -> Table {
        let mut table = defaults();
        for (key, (value, _)) in self.set.iter().filter(|(key, _)| wanted(key)) {
            insert(&mut table, key, value.clone());
        }
        table
    }

    /// Which value the settings cannot be used for: deserialising what was merged does not tell.
    ///
    /// A value is at fault if its table can be used without it, or if it cannot be used alone.
    fn blamed(&self, error: &toml::de::Error) -> Failure {
        for (key, (_, origin)) in &self.set {
            let section = &split(key)[0];
            let in_section = |other: &str| split(other)[0] == *section;
            let Err(whole) = read(self.merged(in_section)) else { continue };
            let without = read(self.merged(|other| in_section(other) && other != key));
            let alone = read(self.merged(|other| other == key));
            if without.is_ok() || alone.is_err() {
                let why = alone.err().unwrap_or(whole);
                let why = match is_secret(key) && !reason_is_safe(key) {
                    true => "its value cannot be used".to_owned(),
                    false => mistake::sentence(parent(key), why.message()),
                };
                return mistake::wrong(&self.known, key, origin, &why);
            }
        }
        Failure::new(format!("the settings cannot be used: {}", error.message().trim()))
            .hint("`bowline config show` names where each one comes from")
            .kind(FailureKind::Usage)
    }
}

/// The table that a setting is in.
fn parent(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(table, _)| table)
}

/// The file that was named, by flag or variable.
fn named_file(flag: Option<&Path>, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = flag.map(Path::to_owned);
    named.or_else(|| environment.get("BOWLINE_CONFIG").map(PathBuf::from))
}

/// One setting from the environment or the file, without a look at the others.
pub(super) fn one(
    config: Option<&Path>,
    environment: &BTreeMap<String, String>,
    key: &str,
) -> Option<Value> {
    let known = KnownSettings::new();
    let example = known.example(key)?;
    let value = match environment.get(&variable(key)) {
        Some(text) => parsed(text, example)?,
        None => {
            let path = named_file(config, environment).unwrap_or_else(paths::config);
            let text = std::fs::read_to_string(path).ok()?;
            file::read(&text).ok()?.into_iter().find(|value| value.key == key)?.value
        }
    };
    mistake::wrong_type(&value, example).is_none().then_some(value)
}

/// What was merged, by whom it is for.
struct Sections {
    data: PathBuf,
    store: StoreSettings,
    bus: BusSettings,
    log: LogSettings,
    relay: RelaySettings,
    relay_server: RelayServerSettings,
    control: ControlSettings,
    daemon: DaemonSettings,
    tracker: TrackerConfig,
    gateway: Config,
}

fn read(mut table: Table) -> Result<Sections, toml::de::Error> {
    let data = match table.remove("data") {
        Some(Value::String(path)) => PathBuf::from(path),
        _ => paths::data(),
    };
    // Used by every command, not by the gateway alone.
    let _: Vec<PathBuf> = table.remove(CA_FILE).map_or(Ok(Vec::new()), Value::try_into)?;
    let mut section = |name| match table.remove(name) {
        Some(Value::Table(section)) => section,
        _ => Table::new(),
    };
    Ok(Sections {
        data,
        store: Value::Table(section("store")).try_into()?,
        bus: Value::Table(section("bus")).try_into()?,
        log: Value::Table(section("log")).try_into()?,
        relay: Value::Table(section("relay")).try_into()?,
        relay_server: RelayServerSettings::read(section("relay_server"))?,
        control: Value::Table(section("control")).try_into()?,
        daemon: Value::Table(section("daemon")).try_into()?,
        tracker: Value::Table(section("tracker")).try_into()?,
        gateway: Value::Table(table).try_into()?,
    })
}

/// A variable's text as a value of the example's type.
fn parsed(text: &str, example: &Value) -> Option<Value> {
    match example {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        _ => Some(Value::String(text.to_owned())),
    }
}
