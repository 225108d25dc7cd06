//! Settings in layers: defaults, file, environment, flags. Each value records its origin.
//!
//! Not a configuration library, because `bowline config show` and every error have to name the file
//! and line, the variable or the flag that set a value. All keys are known, so
//! `BOWLINE_LIMITS_DRAIN` can be mapped to `limits.drain` without a special separator.

mod file;
mod flags;
mod key;
mod known;
mod layers;
mod mistake;
mod origin;
mod secret;
mod servers;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowline_gateway::StartError;
use bowline_gateway::config::Config;
use bowline_net::DoorError;
use bowline_tracker::TrackerConfig;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use url::Url;

use self::flags::Flag;
use self::layers::Layers;
use self::origin::Origin;
pub(crate) use self::servers::{ControlSettings, DaemonSettings, RelayServerSettings};
pub(crate) use self::store::{BusSettings, BusUrl, StoreSettings, StoreUrl};
use crate::cli::SettingArgs;
use crate::failure::Failure;
use crate::paths;

/// The effective settings, after all layers are merged.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) store: StoreSettings,
    pub(crate) bus: BusSettings,
    pub(crate) log: LogSettings,
    pub(crate) relay: RelaySettings,
    pub(crate) relay_server: RelayServerSettings,
    pub(crate) control: ControlSettings,
    pub(crate) daemon: DaemonSettings,
    pub(crate) tracker: TrackerConfig,
    pub(crate) gateway: Config,
    merged: Table,
    origins: Origins,
}

/// Where the values that are not defaults come from, by key.
pub(crate) type Origins = BTreeMap<String, Origin>;

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

/// The relay through which paired devices reach the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RelaySettings {
    /// The address of its control plane; none: the gateway is not reachable through a relay.
    pub(crate) url: Option<Url>,
    /// What devices call the gateway; the name of the machine by default.
    pub(crate) name: Option<String>,
    /// A file with the owner's key there; `bowline login` stores it otherwise.
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Settings {
    pub(crate) fn load(args: &SettingArgs) -> Result<Self, Failure> {
        Self::of(args.config.as_deref(), args.flags())
    }

    /// The settings of a command with flags of its own.
    pub(crate) fn of(config: Option<&Path>, flags: Vec<Flag>) -> Result<Self, Failure> {
        Self::from_layers(config, &std::env::vars().collect(), flags)
    }

    fn from_layers(
        config: Option<&Path>,
        environment: &BTreeMap<String, String>,
        flags: Vec<Flag>,
    ) -> Result<Self, Failure> {
        let mut layers = Layers::new();
        layers.file(config, environment)?;
        layers.environment(environment)?;
        layers.flags(flags);
        layers.finish()
    }

    /// Every setting, its value (secrets masked) and its origin, sorted by key.
    pub(crate) fn show(&self) -> Vec<(String, Value, String)> {
        let origin =
            |key: &str| self.origins.get(key).map_or("default".to_owned(), Origin::to_string);
        key::leaves(&self.merged)
            .into_iter()
            .map(|(key, value)| (key.clone(), secret::masked(&key, value), origin(&key)))
            .collect()
    }

    /// Whether a flag set this key.
    pub(crate) fn is_flag(&self, key: &str) -> bool {
        matches!(self.origins.get(key), Some(Origin::Flag(_)))
    }

    /// Whether no layer sets this key.
    pub(crate) fn is_default(&self, key: &str) -> bool {
        !self.origins.contains_key(key)
    }

    pub(crate) fn origins(&self) -> Origins {
        self.origins.clone()
    }

    /// The log settings, with `level` as the default if the user set none.
    pub(crate) fn log_or(self, level: &str) -> LogSettings {
        match self.is_default("log.level") {
            true => LogSettings { level: level.to_owned(), ..self.log },
            false => self.log,
        }
    }
}

/// The error of a gateway that did not start, with the place of the setting at fault.
pub(crate) fn not_started(error: StartError, origins: &Origins) -> Failure {
    let key = match &error {
        StartError::Key(_) => "auth.api_keys".to_owned(),
        StartError::KeysFile { .. } => "auth.api_keys_file".to_owned(),
        StartError::Upstream(bad) => format!("upstream.{}.", bad.name),
        StartError::Translate(_) => "translate.model".to_owned(),
        StartError::Mcp(bad) => format!("mcp.servers.{}.", bad.name),
        StartError::Origins(_) => "http.allowed_origins".to_owned(),
        StartError::Exposed { .. }
        | StartError::CertifyExposed { .. }
        | StartError::Door(DoorError::Plain(_)) => "listen".to_owned(),
        StartError::Federation(error) if error.is_of_registry() => {
            "federation.serve_registry".to_owned()
        }
        StartError::Federation(_) => "federation.".to_owned(),
        StartError::Secrets(_) => "secrets.".to_owned(),
        StartError::Bus(_) => "bus.".to_owned(),
        StartError::Door(_) | StartError::Store(_) | StartError::Lease(_) => return error.into(),
    };
    // Of a table the first value, which is in the line below its header.
    let mut places = origins.range(key.clone()..).take_while(|(set, _)| set.starts_with(&key));
    let place = places.next().map(|(_, origin)| origin.place());
    let failure = Failure::from(error);
    match place {
        Some(place) => failure.at(&place),
        None => failure,
    }
}

/// Only the data folder, for commands that look for a gateway on this machine.
pub(crate) fn data_folder(flag: Option<&Path>) -> PathBuf {
    let args = SettingArgs { data: flag.map(Path::to_owned), ..SettingArgs::default() };
    Settings::load(&args).map_or_else(|_| paths::data(), |settings| settings.data)
}

/// Only the files of private certificate authorities, for every command that connects to another
/// server. Mistakes elsewhere in the settings are for commands that use them.
pub(crate) fn ca_files(config: Option<&Path>) -> Vec<PathBuf> {
    layers::one(config, &std::env::vars().collect(), CA_FILE)
        .and_then(|files| files.try_into().ok())
        .unwrap_or_default()
}

/// Only the control plane's data folder, for commands that administer it.
pub(crate) fn control_data(flag: Option<PathBuf>, config: Option<&Path>) -> PathBuf {
    let set = || layers::one(config, &std::env::vars().collect(), "control.data")?.try_into().ok();
    flag.or_else(set).unwrap_or_else(|| paths::data().join("control"))
}

/// The key of [`ca_files`].
const CA_FILE: &str = "ca_file";

#[cfg(test)]
mod tests {
    use super::*;

    impl Settings {
        fn layered(
            args: &SettingArgs,
            environment: &BTreeMap<String, String>,
        ) -> Result<Self, Failure> {
            Self::from_layers(args.config.as_deref(), environment, args.flags())
        }
    }

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
    fn an_address_of_a_store_is_masked_and_a_wrong_one_is_named_without_it() {
        let (_folder, args) = file("[bus]\nurl = 'rediss://:hunter22@cache:6380'\n");
        let env = [
            ("BOWLINE_STORE_URL", "postgres://me:hunter22@db/b"),
            ("BOWLINE_STORE_CONNECTIONS", "3"),
        ];
        let settings = Settings::layered(&args, &environment(&env)).unwrap();
        let shown = format!("{:?}", settings.show());
        assert!(!shown.contains("hunter22") && shown.contains("postgres://me@db/b"), "{shown}");
        assert!(shown.contains("rediss://cache:6380"), "{shown}");
        assert_eq!(settings.store.connections, 3);
        insta::assert_snapshot!(fails("[store]\nurl = 'postgre://me:hunter22@db/b'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `store.url` is wrong: it is neither `sqlite` nor an address that begins with postgres://; did you mean postgres://?

        hint: for example:

          [store]
          url = "postgres://bowline@db.example/bowline"
        "#);
        insta::assert_snapshot!(fails("", &[("BOWLINE_BUS_URL", "redi://:hunter22@h")]), @r"
        error: the environment variable BOWLINE_BUS_URL: `bus.url` is wrong: it is neither `postgres`, `none`, nor an address that begins with redis:// or rediss://; did you mean redis://?

        hint: for example: BOWLINE_BUS_URL=redis://cache.example
        ");
    }

    #[test]
    fn of_two_ways_to_an_address_the_higher_layer_counts() {
        let text = "[store]\nurl_file = '/etc/bowline/store.url'\n";
        let (_folder, args) = file(text);
        let env = environment(&[("BOWLINE_STORE_URL", "sqlite")]);
        let settings = Settings::layered(&args, &env).unwrap();
        assert_eq!((settings.store.url, settings.store.url_file), (Some(StoreUrl::Sqlite), None));
        insta::assert_snapshot!(fails(&format!("{text}url = 'sqlite'\n"), &[]), @r"
        error: [FOLDER]/config.toml, line 3: both `store.url` and `store.url_file` are set

        hint: keep one of them
        ");
    }

    /// The error of a file and of variables, with the path of the file replaced.
    fn fails(text: &str, pairs: &[(&str, &str)]) -> String {
        let (folder, args) = file(text);
        let error = Settings::layered(&args, &environment(pairs)).unwrap_err();
        error.text().replace(&folder.path().display().to_string(), "[FOLDER]")
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_one() {
        insta::assert_snapshot!(fails("insecure = false\n[limits]\ndrian = '5s'\n", &[]), @r#"
        error: [FOLDER]/config.toml, line 3: `limits.drian` is not a setting

        hint: did you mean `limits.drain`? for example:

          [limits]
          drain = "25s"
        "#);
        insta::assert_snapshot!(fails("drain = '5s'", &[]), @r#"
        error: [FOLDER]/config.toml, line 1: `drain` is not a setting

        hint: did you mean `limits.drain`? for example:

          [limits]
          drain = "25s"
        "#);
        insta::assert_snapshot!(fails("quite = 'other'", &[]), @r"
        error: [FOLDER]/config.toml, line 1: `quite` is not a setting

        hint: `bowline help configuration` lists every setting
        ");
        insta::assert_snapshot!(fails("limits = 5", &[]), @r"
        error: [FOLDER]/config.toml, line 1: `limits` is a table of settings, not a value

        hint: write [limits] on a line of its own, and its settings below
        ");
        insta::assert_snapshot!(fails("[upstream.x]\nurll = 'https://h/v1'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `upstream.x.urll` is not a setting

        hint: did you mean `upstream.x.url`? for example:

          [upstream.x]
          url = "https://host/v1"
        "#);
    }

    #[test]
    fn a_wrong_type_or_value_is_named_with_its_line_and_an_example() {
        insta::assert_snapshot!(fails("[limits]\n\ndrain = 5", &[]), @r#"
        error: [FOLDER]/config.toml, line 3: `limits.drain` is wrong: it is a whole number, and has to be text in quotes

        hint: for example:

          [limits]
          drain = "25s"
        "#);
        insta::assert_snapshot!(fails("[limits]\ndrain = 'soon'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `limits.drain` is wrong: `soon` is not a duration; write it like 250ms, 30s, 2h or 30d

        hint: for example:

          [limits]
          drain = "25s"
        "#);
        insta::assert_snapshot!(fails("listen = 'example.org:80'", &[]), @r#"
        error: [FOLDER]/config.toml, line 1: `listen` is wrong: `example.org:80` is not an address to listen on; write it like 127.0.0.1:8080, localhost:8080, :8080 (every address of this machine) or [::1]:8080

        hint: for example: listen = "127.0.0.1:8080"
        "#);
        insta::assert_snapshot!(fails("wire_version = '3'", &[]), @r#"
        error: [FOLDER]/config.toml, line 1: `wire_version` is wrong: unknown variant `3`, expected `1.2` or `0.9`

        hint: for example: wire_version = "1.2"
        "#);
        insta::assert_snapshot!(fails("[tls]\ncert = 'x'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `tls.cert` is wrong: `tls.key` has to be set, too

        hint: for example:

          [tls]
          cert = "/etc/bowline/cert.pem"
        "#);
        insta::assert_snapshot!(fails("[log]\nformat = 'xml'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `log.format` is wrong: unknown variant `xml`, expected `text` or `json`

        hint: for example:

          [log]
          format = "text"
        "#);
    }

    #[test]
    fn a_file_that_is_not_toml_is_named_with_line_and_key() {
        insta::assert_snapshot!(fails("insecure = false\nlisten = 127.0.0.1:80\n", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `listen` is not TOML: invalid float, expected nothing

        hint: for example: listen = "127.0.0.1:8080"
        "#);
        insta::assert_snapshot!(fails("[limits\ndrain = '5s'", &[]), @r"
        error: [FOLDER]/config.toml, line 1: this is not TOML: unclosed table, expected `]`

        hint: `bowline help configuration` lists every setting
        ");
    }

    #[test]
    fn a_wrong_variable_is_named_with_an_example() {
        insta::assert_snapshot!(fails("", &[("BOWLINE_INSECURE", "maybe")]), @r"
        error: the environment variable BOWLINE_INSECURE: `insecure` is wrong: it has to be true or false

        hint: for example: BOWLINE_INSECURE=false
        ");
        insta::assert_snapshot!(fails("", &[("BOWLINE_LIMITS_DRAIN", "soon")]), @r"
        error: the environment variable BOWLINE_LIMITS_DRAIN: `limits.drain` is wrong: `soon` is not a duration; write it like 250ms, 30s, 2h or 30d

        hint: for example: BOWLINE_LIMITS_DRAIN=25s
        ");
        insta::assert_snapshot!(fails("", &[("BOWLINE_LISTEN", "here")]), @r"
        error: the environment variable BOWLINE_LISTEN: `listen` is wrong: `here` is not an address to listen on; write it like 127.0.0.1:8080, localhost:8080, :8080 (every address of this machine) or [::1]:8080

        hint: for example: BOWLINE_LISTEN=127.0.0.1:8080
        ");
        insta::assert_snapshot!(fails("", &[("BOWLINE_HTTP_TRUSTED_PROXIES", "x")]), @r"
        error: the environment variable BOWLINE_HTTP_TRUSTED_PROXIES: `http.trusted_proxies` is wrong: `x` is not a network; write it like 10.0.0.0/8 or 10.0.0.5

        hint: for example: BOWLINE_HTTP_TRUSTED_PROXIES=10.0.0.0/8
        ");
    }

    #[test]
    fn a_mistake_shows_no_secret() {
        for text in [
            "[auth]\napi_keys = 'hunter22'",
            "[auth]\napi_keys = ['hunter22', 5]",
            "[auth]\napi_keys = ['hunter22",
            "[mcp.servers.x]\nheaders = 'hunter22'",
            "[mcp.servers.x.env]\nTOKEN = ['hunter22']",
            "[upstream.x]\nurl = ['https://user:hunter22@host']",
        ] {
            let said = fails(text, &[]);
            assert!(!said.contains("hunter22") && said.contains("line 2"), "{text}: {said}");
        }
    }

    #[test]
    fn a_named_file_has_to_be_there() {
        let missing = SettingArgs { config: Some("/no/such/file".into()), ..Default::default() };
        let error = Settings::layered(&missing, &environment(&[])).unwrap_err();
        assert!(error.text().contains("/no/such/file"), "{error}");
    }

    #[test]
    fn a_gateway_that_does_not_start_names_the_line() {
        let (folder, args) = file("[upstream.x]\nurl = 'nowhere'\n");
        let origins = Settings::layered(&args, &environment(&[])).unwrap().origins();
        let bad = bowline_gateway::model::BadUpstream { name: "x".into(), reason: "no".into() };
        let error = not_started(StartError::Upstream(bad), &origins).text();
        let error = error.replace(&folder.path().display().to_string(), "[FOLDER]");
        assert!(
            error.starts_with("error: [FOLDER]/config.toml, line 2: upstream `x`: no\n"),
            "{error}"
        );
    }

    #[test]
    fn localhost_and_a_bare_port_are_addresses_in_every_layer() {
        let (_folder, args) = file("listen = 'localhost:1'");
        let listen = |pairs: &[(&str, &str)]| {
            Settings::layered(&args, &environment(pairs)).unwrap().gateway.listen.to_string()
        };
        assert_eq!(listen(&[]), "127.0.0.1:1");
        assert_eq!(listen(&[("BOWLINE_LISTEN", ":2")]), "0.0.0.0:2");
    }

    #[test]
    fn servers_of_a_relay_take_their_sections_like_the_gateway() {
        let (_folder, args) = file(
            "[relay_server]\nlisten = 'localhost:1'\nissuer = 'https://c.example/'\ngrace = '3s'\n\
             limits.rate_frames = 7\n[relay_server.tls]\ncert = 'c'\nkey = 'k'\n\
             [control]\nlisten = ':2'\nrelay_url = 'wss://u:hunter22@r.example/relay'\n\
             behind_proxy = ['10.0.0.5']\n\
             [daemon]\ntcp = ['ssh=127.0.0.1:22']\nname = 'home'\n",
        );
        let env = environment(&[
            ("BOWLINE_RELAY_SERVER_GRACE", "4s"),
            ("BOWLINE_RELAY_SERVER_LIMITS_QUEUE_FRAMES", "9"),
            ("BOWLINE_CONTROL_PRESENCE_MINUTES", "5"),
            ("BOWLINE_DAEMON_TCP", "web=127.0.0.1:80, 127.0.0.1:22"),
            // Not settings: a control plane and a key.
            ("BOWLINE_CONTROL", "https://x"),
            ("BOWLINE_CONTROL_KEY", "y"),
        ]);
        let flag = |key: &str, value: &str| Flag {
            key: key.into(),
            flag: "--grace",
            value: Some(Value::String(value.into())),
        };
        let flags = vec![flag("relay_server.grace", "5s")];
        let settings = Settings::from_layers(args.config.as_deref(), &env, flags).unwrap();
        let RelayServerSettings { relay, has_issuer, around } = &settings.relay_server;
        assert_eq!((relay.listen.to_string().as_str(), *has_issuer), ("127.0.0.1:1", true));
        assert_eq!((relay.grace.as_secs(), relay.limits.rate_frames), (5, 7));
        assert_eq!((relay.limits.queue_frames, around.with_control), (9, false));
        assert!(relay.tls.is_some());
        assert_eq!(settings.control.listen.to_string(), "0.0.0.0:2");
        assert_eq!(settings.control.presence_minutes, 5);
        assert_eq!(settings.daemon.tcp, ["web=127.0.0.1:80", "127.0.0.1:22"]);
        assert_eq!(settings.daemon.name.as_deref(), Some("home"));
        assert!(settings.is_flag("relay_server.grace") && !settings.is_flag("relay_server.listen"));
        let shown = format!("{:?}", settings.show());
        assert!(!shown.contains("hunter22") && shown.contains("r.example"), "{shown}");
    }

    #[test]
    fn a_mistake_in_a_servers_section_is_named_like_the_gateways() {
        insta::assert_snapshot!(fails("[relay_server]\nisuer = 'https://c.example'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `relay_server.isuer` is not a setting

        hint: did you mean `relay_server.issuer`? for example:

          [relay_server]
          issuer = "https://control.example.org"
        "#);
        insta::assert_snapshot!(fails("[control.tls]\ncert = 'x'", &[]), @r#"
        error: [FOLDER]/config.toml, line 2: `control.tls.cert` is wrong: `control.tls.key` has to be set, too

        hint: for example:

          [control.tls]
          cert = "/etc/bowline/cert.pem"
        "#);
        insta::assert_snapshot!(fails("", &[("BOWLINE_DAEMON_ALLOW_UNPAIRED", "maybe")]), @r"
        error: the environment variable BOWLINE_DAEMON_ALLOW_UNPAIRED: `daemon.allow_unpaired` is wrong: it has to be true or false

        hint: for example: BOWLINE_DAEMON_ALLOW_UNPAIRED=false
        ");
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
