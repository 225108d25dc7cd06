//! Settings in layers: defaults, file, environment, flags. Each value records its origin.
//!
//! Not a configuration library, because `bowline config show` has to name the file, the variable or
//! the flag that set a value. All keys are known, so `BOWLINE_LIMITS_DRAIN` can be mapped to
//! `limits.drain` without a special separator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_gateway::config::Config;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::cli::SettingArgs;
use crate::failure::{Failure, Kind};
use crate::paths;
use crate::terminal::note;

/// The effective settings, after all layers are merged.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) log: LogSettings,
    pub(crate) gateway: Config,
    merged: Table,
    origins: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSettings {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// `BOWLINE_*` variables that are not settings.
const NOT_SETTINGS: [&str; 7] = [
    "BOWLINE_CONFIG",
    "BOWLINE_URL",
    "BOWLINE_API_KEY",
    "BOWLINE_SESSION_TOKEN",
    "BOWLINE_BIN",
    "BOWLINE_CONTROL",
    "BOWLINE_CONTROL_KEY",
];
/// Keys without a default, which are therefore missing in the table of defaults.
const OPTIONAL: [&str; 6] = [
    "auth.api_keys_file",
    "tls.cert",
    "tls.key",
    "tls.reload_every",
    "upstream.default.url",
    "upstream.default.key_env",
];

impl Settings {
    pub(crate) fn load(args: &SettingArgs) -> Result<Self, Failure> {
        let environment = std::env::vars().collect();
        Self::layered(args, &environment)
    }

    fn layered(
        args: &SettingArgs,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        let mut layers = Layers { merged: defaults(), origins: BTreeMap::new() };
        layers.file(args, environment)?;
        layers.environment(environment)?;
        layers.flags(args);
        layers.finish()
    }

    /// Every setting, its value (secrets masked) and its origin, sorted by key.
    pub(crate) fn show(&self) -> Vec<(String, Value, String)> {
        let mut leaves = Vec::new();
        collect(&self.merged, "", &mut leaves);
        let origin = |key: &str| self.origins.get(key).cloned().unwrap_or_else(|| "default".into());
        leaves
            .into_iter()
            .map(|(key, value)| (key.clone(), masked(&key, value), origin(&key)))
            .collect()
    }

    /// Whether no layer sets this key.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        !self.origins.contains_key(key)
    }

    /// The log settings, with `level` as the default if the user set none.
    pub(crate) fn log_or(self, level: &str) -> LogSettings {
        match self.is_default("log.level") {
            true => LogSettings { level: level.to_owned(), ..self.log },
            false => self.log,
        }
    }
}

struct Layers {
    merged: Table,
    origins: BTreeMap<String, String>,
}

impl Layers {
    fn file(
        &mut self,
        args: &SettingArgs,
        environment: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let named =
            args.config.clone().or_else(|| environment.get("BOWLINE_CONFIG").map(PathBuf::from));
        let path = named.clone().unwrap_or_else(paths::config);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => {
                return Ok(());
            }
            Err(error) => {
                let what =
                    format!("cannot read the configuration file {}: {error}", path.display());
                return Err(Failure::new(what)
                    .hint("check the path given by --config or BOWLINE_CONFIG")
                    .kind(Kind::Usage));
            }
        };
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            Failure::new(format!("the configuration file {} is not TOML:\n{error}", path.display()))
                .hint("docs/configuration.md shows every setting")
        })?;
        let origin = format!("file {}", path.display());
        let mut leaves = Vec::new();
        collect(&table, "", &mut leaves);
        for (key, value) in leaves {
            self.set(&key, value, &origin);
        }
        Ok(())
    }

    fn environment(&mut self, environment: &BTreeMap<String, String>) -> Result<(), Failure> {
        let mut known = Vec::new();
        collect(&defaults(), "", &mut known);
        known.extend(OPTIONAL.map(|key| (key.to_owned(), Value::String(String::new()))));
        for (name, text) in environment {
            if !name.starts_with("BOWLINE_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let Some((key, like)) = known.iter().find(|(key, _)| variable(key) == *name) else {
                note!("warning: the environment variable {name} is not a setting and is ignored");
                continue;
            };
            let value = parsed(text, like).ok_or_else(|| {
                Failure::new(format!(
                    "the environment variable {name} is not a {}",
                    like.type_str()
                ))
                .hint(format!("it sets `{key}`; see docs/configuration.md"))
            })?;
            self.set(key, value, &format!("environment {name}"));
        }
        Ok(())
    }

    fn flags(&mut self, args: &SettingArgs) {
        let text = |value: &str| Value::String(value.to_owned());
        if let Some(data) = &args.data {
            self.set("data", text(&data.display().to_string()), "flag --data");
        }
        if let Some(listen) = &args.listen {
            self.set("listen", text(&listen.to_string()), "flag --listen");
        }
        let files = [("cert", &args.tls.tls_cert), ("key", &args.tls.tls_key)];
        for (name, file) in
            files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?)))
        {
            let path = text(&file.display().to_string());
            self.set(&format!("tls.{name}"), path, &format!("flag --tls-{name}"));
        }
        if let Some(url) = &args.upstream {
            self.set("upstream.default.url", text(url), "flag --upstream");
        }
        if let Some(name) = &args.upstream_key_env {
            self.set("upstream.default.key_env", text(name), "flag --upstream-key-env");
        }
        if let Some(model) = &args.model {
            self.set("default_model", text(model), "flag --model");
        }
        if args.insecure {
            self.set("insecure", Value::Boolean(true), "flag --insecure");
        }
    }

    fn set(&mut self, key: &str, value: Value, origin: &str) {
        let parts = split(key);
        let Some((last, folders)) = parts.split_last() else { return };
        let mut table = &mut self.merged;
        for folder in folders {
            let place = table.entry(folder.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !place.is_table() {
                *place = Value::Table(Table::new());
            }
            let Value::Table(next) = place else { return };
            table = next;
        }
        table.insert(last.clone(), value);
        self.origins.insert(key.to_owned(), origin.to_owned());
    }

    fn finish(self) -> Result<Settings, Failure> {
        let bad = |error: toml::de::Error| {
            Failure::new(format!("the settings cannot be used: {}", error.message().trim()))
                .hint("`bowline config show` names where each one comes from; docs/configuration.md lists them")
        };
        let mut rest = self.merged.clone();
        let data = match rest.remove("data") {
            Some(Value::String(path)) => PathBuf::from(path),
            _ => paths::data(),
        };
        let log = rest.remove("log").unwrap_or_else(|| Value::Table(Table::new()));
        let log = log.try_into().map_err(bad)?;
        let gateway = Value::Table(rest).try_into().map_err(bad)?;
        Ok(Settings { data, log, gateway, merged: self.merged, origins: self.origins })
    }
}

/// The table of all defaults.
fn defaults() -> Table {
    let mut table = Table::try_from(Config::default()).expect("the defaults are TOML");
    table.insert("data".into(), Value::String(paths::data().display().to_string()));
    table.insert(
        "log".into(),
        Value::try_from(LogSettings::default()).expect("the defaults are TOML"),
    );
    table
}

/// Collects all values of a table with their dotted keys; a key part that contains a dot is quoted.
fn collect(table: &Table, prefix: &str, into: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let name = if name.contains('.') { format!("\"{name}\"") } else { name.clone() };
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => collect(inner, &key, into),
            value => into.push((key, value.clone())),
        }
    }
}

fn split(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in key.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c => parts.last_mut().expect("there is always one").push(c),
        }
    }
    parts
}

fn variable(key: &str) -> String {
    // Variables can define only the upstream `default`, so its name is left out.
    let key = key.replace("upstream.default.", "upstream.");
    format!("BOWLINE_{}", key.replace('.', "_").to_uppercase())
}

fn parsed(text: &str, like: &Value) -> Option<Value> {
    match like {
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

/// Masks secrets in the output of `bowline config show`.
fn masked(key: &str, value: Value) -> Value {
    match value {
        Value::Array(keys) if key == "auth.api_keys" => {
            Value::Array(keys.iter().map(|_| Value::String("***".into())).collect())
        }
        // `env:NAME` only names a variable, which is not secret.
        Value::String(text) if is_secret(key) && !text.starts_with("env:") => {
            Value::String("***".into())
        }
        Value::String(text) if key.ends_with(".url") => Value::String(without_password(&text)),
        value => value,
    }
}

/// Whether the key is an environment variable or header of an MCP server.
fn is_secret(key: &str) -> bool {
    let parts = split(key);
    let kind = parts.get(3).map(String::as_str);
    key.starts_with("mcp.servers.") && matches!(kind, Some("env" | "headers"))
}

fn without_password(text: &str) -> String {
    match url::Url::parse(text) {
        Ok(mut url) if url.password().is_some() || url.query().is_some() => {
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        _ => text.to_owned(),
    }
}

/// Only the data folder, for commands that look for a gateway on this machine.
pub(crate) fn data_folder(flag: Option<&Path>) -> PathBuf {
    let args = SettingArgs { data: flag.map(Path::to_owned), ..SettingArgs::default() };
    Settings::load(&args).map_or_else(|_| paths::data(), |settings| settings.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn file(text: &str) -> (tempfile::TempDir, SettingArgs) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        (folder, SettingArgs { config: Some(path), ..SettingArgs::default() })
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file() {
        let (_folder, mut args) = file("listen = '127.0.0.1:1'\ndefault_model = 'from-file'\n");
        let env = environment(&[("BOWLINE_LISTEN", "127.0.0.1:2"), ("BOWLINE_LIMITS_DRAIN", "5s")]);
        let settings = Settings::layered(&args, &env).unwrap();
        assert_eq!(settings.gateway.listen.port(), 2);
        assert_eq!(settings.gateway.default_model, "from-file");
        assert_eq!(settings.gateway.limits.drain.as_secs(), 5);
        args.listen = Some("127.0.0.1:3".parse().unwrap());
        let settings = Settings::layered(&args, &env).unwrap();
        assert_eq!(settings.gateway.listen.port(), 3);
        let origin =
            |key: &str| settings.show().into_iter().find(|(name, _, _)| name == key).unwrap().2;
        assert_eq!(origin("listen"), "flag --listen");
        assert_eq!(origin("limits.drain"), "environment BOWLINE_LIMITS_DRAIN");
        assert!(origin("default_model").starts_with("file "));
        assert_eq!(origin("insecure"), "default");
    }

    #[test]
    fn secrets_are_masked() {
        let (_folder, args) = file(
            "[auth]\napi_keys = ['a-very-secret-key-indeed']\n\
             [upstream.x]\nurl = 'https://user:hunter22@host/v1?key=hunter22'\n\
             [mcp.servers.x]\nurl = 'https://host/mcp'\n\
             headers = { Authorization = 'hunter22', X-Key = 'env:THE_KEY' }\n\
             [mcp.servers.y]\ncommand = 'y'\nenv = { TOKEN = 'hunter22' }\n\
             [prices.'gpt-4.1*']\ninput = 2.0\n",
        );
        let settings = Settings::layered(&args, &environment(&[])).unwrap();
        let shown = format!("{:?} {settings:?}", settings.show());
        assert!(!format!("{:?}", settings.show()).contains("secret-key"), "{shown}");
        assert!(!format!("{:?}", settings.show()).contains("hunter22"));
        assert!(format!("{:?}", settings.show()).contains("env:THE_KEY"), "{shown}");
        assert!(settings.gateway.prices.contains_key("gpt-4.1*"));
    }

    #[test]
    fn mistakes_are_named() {
        let fails = |text: &str, pairs: &[(&str, &str)]| {
            let (_folder, args) = file(text);
            format!("{:?}", Settings::layered(&args, &environment(pairs)).unwrap_err())
        };
        assert!(fails("listen = ", &[]).contains("not TOML"));
        assert!(fails("lisen = 'x'", &[]).contains("lisen"));
        assert!(fails("[limits]\ndrain = 'soon'", &[]).contains("soon"));
        assert!(fails("", &[("BOWLINE_INSECURE", "maybe")]).contains("BOWLINE_INSECURE"));
        let missing = SettingArgs { config: Some("/no/such/file".into()), ..Default::default() };
        let error = Settings::layered(&missing, &environment(&[])).unwrap_err();
        assert!(format!("{error:?}").contains("/no/such/file"));
    }

    #[test]
    fn an_upstream_can_come_from_the_environment_alone() {
        let (_folder, args) = file("");
        let env = environment(&[
            ("BOWLINE_UPSTREAM_URL", "http://localhost:1/v1"),
            ("BOWLINE_AUTH_API_KEYS", "aaa, bbb"),
        ]);
        let settings = Settings::layered(&args, &env).unwrap();
        assert_eq!(settings.gateway.upstream["default"].url, "http://localhost:1/v1");
        assert_eq!(settings.gateway.auth.api_keys, ["aaa", "bbb"]);
    }
}
