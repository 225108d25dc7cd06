//! The settings that exist: their types, examples, and the nearest one to a typo.

use bowline_gateway::config::mcp::McpServerConfig;
use bowline_gateway::config::{Config, Price, Upstream};
use bowline_tracker::TrackerConfig;
use toml::{Table, Value};

use super::key::{insert, joined, leaves, split, variable};
use super::{
    BusSettings, CA_FILE, ControlSettings, DaemonSettings, LogSettings, RelayServerSettings,
    StoreSettings,
};
use crate::paths;

/// Examples of settings without a default, and of those whose default shows nothing. `*` stands for
/// a name that the user chooses.
const EXAMPLES: [(&str, &str); 96] = [
    (CA_FILE, r#"["/etc/bowline/ca.pem"]"#),
    ("behind_proxy", r#"["10.0.0.0/8"]"#),
    ("store.url", r#""postgres://bowline@db.example/bowline""#),
    ("store.url_file", r#""/etc/bowline/store.url""#),
    ("store.url_command", r#"["cat", "/run/secrets/store.url"]"#),
    ("bus.url", r#""redis://cache.example""#),
    ("bus.url_file", r#""/etc/bowline/bus.url""#),
    ("bus.url_command", r#"["cat", "/run/secrets/bus.url"]"#),
    ("secrets.file", r#""/etc/bowline/secrets.key""#),
    ("auth.api_keys", r#"["sha256:…"]"#),
    ("auth.api_keys_file", r#""/etc/bowline/keys""#),
    ("http.allowed_origins", r#"["https://app.example"]"#),
    ("http.allowed_hosts", r#"["gateway.example"]"#),
    ("http.trusted_proxies", r#"["10.0.0.0/8"]"#),
    ("agents.known", r#"["booking"]"#),
    ("tls.cert", r#""/etc/bowline/cert.pem""#),
    ("tls.key", r#""/etc/bowline/key.pem""#),
    ("tls.reload_every", r#""10s""#),
    ("tools.idempotent", r#"["get_*"]"#),
    ("tools.timeouts.*", r#""60s""#),
    ("tools.policy.*", r#""ask""#),
    ("context.tokens.*", "8192"),
    ("budgets.user.requests_per_minute", "60"),
    ("budgets.user.turns_at_once", "4"),
    ("budgets.user.tokens_per_day", "2000000"),
    ("budgets.user.usd_per_day", "5.0"),
    ("budgets.user.stored_bytes", "500000000"),
    ("budgets.user.exports_per_day", "10"),
    ("budgets.key.requests_per_minute", "60"),
    ("budgets.key.turns_at_once", "4"),
    ("budgets.key.tokens_per_day", "2000000"),
    ("budgets.key.usd_per_day", "5.0"),
    ("budgets.key.stored_bytes", "500000000"),
    ("budgets.key.exports_per_day", "10"),
    ("federation.gateway_id", r#""home""#),
    ("federation.url", r#""https://home.example""#),
    ("federation.peers.*.url", r#""https://work.example""#),
    ("federation.peers.*.key", r#""nYTJ…""#),
    ("federation.peers.*.allow", r#""exported-to-me""#),
    ("federation.trackers.*.url", r#""https://tracker.example""#),
    ("federation.trackers.*.key", r#""nYTJ…""#),
    ("federation.domains", r#"["example.org"]"#),
    ("federation.name_servers", r#"["9.9.9.9:53"]"#),
    ("translate.model", r#""gpt-4o-mini""#),
    ("upstream.*.url", r#""https://host/v1""#),
    ("upstream.*.key_env", r#""OPENAI_API_KEY""#),
    ("upstream.*.key_file", r#""/etc/bowline/openai.key""#),
    ("upstream.*.models", r#"["gpt-*"]"#),
    ("upstream.*.vision", r#"["gpt-4o*"]"#),
    ("prices.*.input", "2.5"),
    ("prices.*.output", "10.0"),
    ("mcp.servers.*.command", r#""uvx""#),
    ("mcp.servers.*.args", r#"["mcp-server-time"]"#),
    ("mcp.servers.*.env.*", r#""env:NAME""#),
    ("mcp.servers.*.env_from", r#"["NAME"]"#),
    ("mcp.servers.*.url", r#""https://host/mcp""#),
    ("mcp.servers.*.headers.*", r#""env:NAME""#),
    ("mcp.servers.*.tools", r#"["*"]"#),
    ("mcp.servers.*.idempotent", r#"["get_*"]"#),
    ("relay.url", r#""https://relay.example.org""#),
    ("relay.name", r#""home""#),
    ("relay.key_file", r#""/etc/bowline/relay.key""#),
    ("relay_server.issuer", r#""https://control.example.org""#),
    ("relay_server.url", r#""https://relay.example.org""#),
    ("relay_server.name", r#""fra-1""#),
    ("relay_server.region", r#""eu""#),
    ("relay_server.tls.cert", r#""/etc/bowline/cert.pem""#),
    ("relay_server.tls.key", r#""/etc/bowline/key.pem""#),
    ("relay_server.tls.reload_every", r#""10s""#),
    ("relay_server.behind_proxy", r#"["10.0.0.0/8"]"#),
    ("relay_server.metrics_key_file", r#""/etc/bowline/metrics.key""#),
    ("control.data", r#""/var/lib/bowline/control""#),
    ("control.issuer", r#""https://control.example.org""#),
    ("control.relay_url", r#""wss://relay.example.org/relay""#),
    ("control.region", r#""eu""#),
    ("control.tls.cert", r#""/etc/bowline/cert.pem""#),
    ("control.tls.key", r#""/etc/bowline/key.pem""#),
    ("control.tls.reload_every", r#""10s""#),
    ("control.behind_proxy", r#"["10.0.0.0/8"]"#),
    ("control.metrics_key_file", r#""/etc/bowline/metrics.key""#),
    ("daemon.control", r#""https://control.example.org""#),
    ("daemon.key_file", r#""/etc/bowline/relay.key""#),
    ("daemon.tcp", r#"["ssh=127.0.0.1:22"]"#),
    ("daemon.name", r#""home""#),
    ("daemon.region", r#""eu""#),
    ("daemon.data", r#""/var/lib/bowline""#),
    ("tracker.data", r#""/var/lib/bowline/tracker""#),
    ("tracker.id", r#""tracker-eu""#),
    ("tracker.name", r#""Tracker in Europe""#),
    ("tracker.url", r#""https://tracker.example.org""#),
    ("tracker.tls.cert", r#""/etc/bowline/cert.pem""#),
    ("tracker.tls.key", r#""/etc/bowline/key.pem""#),
    ("tracker.tls.reload_every", r#""10s""#),
    ("tracker.behind_proxy", r#"["10.0.0.0/8"]"#),
    ("tracker.peers.*", r#""https://gateway.example.org""#),
    ("log.level", r#""info""#),
];

/// The table of all defaults.
pub(super) fn defaults() -> Table {
    let mut table = Table::try_from(Config::default()).expect("the defaults are TOML");
    table.insert("data".into(), Value::String(paths::data().display().to_string()));
    table.insert(
        "log".into(),
        Value::try_from(LogSettings::default()).expect("the defaults are TOML"),
    );
    for (section, values) in [
        ("store", Table::try_from(StoreSettings::default())),
        ("bus", Table::try_from(BusSettings::default())),
        ("relay_server", RelayServerSettings::defaults()),
        ("control", Table::try_from(ControlSettings::default())),
        ("daemon", Table::try_from(DaemonSettings::default())),
        ("tracker", Table::try_from(TrackerConfig::default())),
    ] {
        table.insert(section.into(), Value::Table(values.expect("the defaults are TOML")));
    }
    table
}

/// All settings, as patterns of keys and example values.
#[derive(Debug)]
pub(super) struct KnownSettings(Vec<(String, Value)>);

impl KnownSettings {
    pub(super) fn new() -> Self {
        let mut table = defaults();
        let named: [(&str, Result<Table, _>); 3] = [
            ("upstream.*", Table::try_from(Upstream::default())),
            ("mcp.servers.*", Table::try_from(McpServerConfig::default())),
            ("prices.*", Table::try_from(Price::default())),
        ];
        for (prefix, values) in named {
            for (name, value) in leaves(&values.expect("the defaults are TOML")) {
                insert(&mut table, &format!("{prefix}.{name}"), value);
            }
        }
        for (key, example) in EXAMPLES {
            insert(&mut table, key, example.parse().expect("the examples are TOML"));
        }
        Self(leaves(&table))
    }

    /// An example of the setting's value; `None` if there is no such setting.
    pub(super) fn example(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(pattern, _)| fits(pattern, key)).map(|(_, example)| example)
    }

    /// Whether the key is that of a table with settings.
    pub(super) fn is_table(&self, key: &str) -> bool {
        let parts = split(key).len();
        self.0.iter().any(|(pattern, _)| {
            let pattern = split(pattern);
            pattern.len() > parts && fits(&pattern[..parts].join("."), key)
        })
    }

    /// The setting that an environment variable sets, and an example of its value. Tables whose
    /// names the user chooses come only from the file, except the upstream `default`.
    pub(super) fn of_variable(&self, name: &str) -> Option<(String, &Value)> {
        let keys = self
            .0
            .iter()
            .map(|(key, example)| (key.replacen("upstream.*.", "upstream.default.", 1), example));
        let mut keys = keys.filter(|(key, _)| {
            !key.contains('*')
                && (!key.starts_with("upstream.") || matches!(&key[17..], "url" | "key_env"))
        });
        keys.find(|(key, _)| variable(key) == name)
    }

    /// The setting that was probably meant by an unknown key.
    pub(super) fn nearest(&self, key: &str) -> Option<String> {
        let candidates = self.0.iter().map(|(pattern, _)| named_like(pattern, key));
        nearest_of(key, candidates, |known| {
            // The right name in the wrong table, or in none.
            let (ours, theirs) = (split(key), split(known));
            ours.last() == theirs.last() && ours.len() != theirs.len()
        })
    }

    /// The variable that was probably meant by an unknown one.
    pub(super) fn nearest_variable(&self, name: &str) -> Option<String> {
        let known =
            self.0.iter().map(|(key, _)| key.replacen("upstream.*.", "upstream.default.", 1));
        let known = known.filter(|key| !key.contains('*')).map(|key| variable(&key));
        nearest_of(name, known, |_| false)
    }
}

/// The nearest of the known words, if it is near enough to be meant.
fn nearest_of(
    word: &str,
    known: impl Iterator<Item = String>,
    meant: impl Fn(&str) -> bool,
) -> Option<String> {
    let distance = |known: &String| match meant(known) {
        true => 1,
        false => strsim::damerau_levenshtein(word, known),
    };
    let (distance, known) =
        known.map(|known| (distance(&known), known)).min_by_key(|(distance, _)| *distance)?;
    (distance <= (word.len() / 4).clamp(1, 3)).then_some(known)
}

/// Whether a key has the form of the pattern, in which `*` stands for one part.
fn fits(pattern: &str, key: &str) -> bool {
    let (pattern, key) = (split(pattern), split(key));
    pattern.len() == key.len()
        && pattern.iter().zip(&key).all(|(pattern, part)| pattern == "*" || pattern == part)
}

/// The pattern with the names that the key has in the same places.
fn named_like(pattern: &str, key: &str) -> String {
    let names = split(key);
    let parts = split(pattern).into_iter().enumerate();
    parts.fold(String::new(), |so_far, (at, part)| {
        let name = if part == "*" { names.get(at).cloned().unwrap_or(part) } else { part };
        joined(&so_far, &name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_what_was_meant() {
        let known = KnownSettings::new();
        for (typo, meant) in [
            ("lisen", Some("listen")),
            ("limits.drian", Some("limits.drain")),
            ("limit.drain", Some("limits.drain")),
            ("drain", Some("limits.drain")),
            ("upstream.openai.urll", Some("upstream.openai.url")),
            ("mcp.servers.time.comand", Some("mcp.servers.time.command")),
            ("prices.\"gpt-4.1*\".inputs", Some("prices.\"gpt-4.1*\".input")),
            ("something.else.entirely", None),
            ("x", None),
        ] {
            assert_eq!(known.nearest(typo).as_deref(), meant, "{typo}");
        }
        let near = known.nearest_variable("BOWLINE_LIMIT_DRAIN");
        assert_eq!(near.as_deref(), Some("BOWLINE_LIMITS_DRAIN"));
    }

    #[test]
    fn tables_with_chosen_names_are_known() {
        let known = KnownSettings::new();
        for key in ["upstream.x.url", "prices.\"a.b\".input", "tools.policy.camera", "data"] {
            assert!(known.example(key).is_some(), "{key}");
        }
        assert!(known.is_table("limits") && known.is_table("upstream.x") && known.is_table("mcp"));
        assert!(!known.is_table("listen") && !known.is_table("limitz"));
        let (key, _) = known.of_variable("BOWLINE_UPSTREAM_URL").unwrap();
        assert_eq!(key, "upstream.default.url");
        assert!(known.of_variable("BOWLINE_UPSTREAM_RETRIES").is_none());
        assert!(known.of_variable("BOWLINE_NOTHING").is_none());
    }

    #[test]
    fn every_example_is_a_setting_that_can_be_used() {
        let known = KnownSettings::new();
        let others = [
            "data",
            "store",
            "bus",
            "log",
            "relay",
            "relay_server",
            "control",
            "daemon",
            "tracker",
            CA_FILE,
        ];
        for (key, _) in EXAMPLES {
            let mut table = defaults();
            others.iter().for_each(|other| drop(table.remove(*other)));
            // These sections are not the gateway's.
            if others.contains(&key.split('.').next().expect("there is always one")) {
                continue;
            }
            let section = key.split('.').next().expect("there is always one");
            for (pattern, example) in &known.0 {
                // A server has a command or an address, not both; and a certificate has a key.
                if pattern == key || section == "tls" && pattern.starts_with("tls.") {
                    insert(&mut table, &pattern.replace('*', "x"), example.clone());
                }
            }
            Value::Table(table)
                .try_into::<Config>()
                .unwrap_or_else(|error| panic!("{key}: {error}"));
        }
    }
}
