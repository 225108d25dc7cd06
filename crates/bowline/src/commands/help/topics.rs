//! The documentation, embedded.

/// A text that `bowline help NAME` shows. Names are no names of commands.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: &'static str,
    /// One line for the list of topics.
    pub(super) about: &'static str,
    pub(super) document: &'static str,
    /// The heading of the only section that is shown, or the whole document.
    section: Option<&'static str>,
}

impl Topic {
    /// The Markdown that is shown.
    pub(super) fn text(&self) -> &'static str {
        let Some(heading) = self.section else { return self.document };
        let Some(at) = self.document.find(&format!("\n## {heading}\n")) else {
            return self.document;
        };
        let section = &self.document[at + 1..];
        let end = section[3..].find("\n## ").map_or(section.len(), |end| end + 4);
        &section[..end]
    }
}

macro_rules! topic {
    ($name:literal, $file:literal, $about:literal) => {
        topic!($name, $file, None, $about)
    };
    ($name:literal, $file:literal, $section:expr, $about:literal) => {
        Topic {
            name: $name,
            about: $about,
            document: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/", $file)),
            section: $section,
        }
    };
}

pub(super) const TOPICS: &[Topic] = &[
    topic!("backup-guide", "backup.md", "backups while the gateway runs, and how to restore one"),
    topic!("certify", "certify.md", "checking any server against the protocol"),
    topic!("chat-guide", "chat.md", "talking in a terminal and in scripts"),
    topic!("clients", "clients.md", "other programs that talk to the gateway"),
    topic!("configuration", "configuration.md", "every setting, its variable and its default"),
    topic!("errors", "errors.md", "error codes and WebSocket closes, and what to do"),
    topic!("exit-codes", "errors.md", Some("Exit codes"), "what the exit code of a command says"),
    topic!("frames", "frames.md", "the WebSocket side, frame by frame"),
    topic!("federation", "federation.md", "several gateways, and sessions that move between them"),
    topic!("guarantees", "guarantees.md", "what is promised, and the tests that show it"),
    topic!("local-key", "local-key.md", "the key in the data folder, and what it opens"),
    topic!("mcp-guide", "mcp.md", "MCP servers for agents, and the gateway for MCP hosts"),
    topic!("libraries", "libraries.md", "the protocol and its clients, for programs of your own"),
    topic!("memory", "memory.md", "what agents keep beyond a session"),
    topic!("performance", "performance.md", "how fast, beside what, and how to measure it"),
    topic!("relay-guide", "relay.md", "a machine at home, reached through a relay"),
    topic!("reverse-proxy", "reverse-proxy.md", "the gateway behind a proxy"),
    topic!("requirements", "conformance.md", "every requirement of the protocols, and its test"),
    topic!("roaming", "roaming.md", "export, import, fork, handoff, lineage"),
    topic!("scaling", "scaling.md", "several gateways on PostgreSQL and Redis"),
    topic!(
        "sbp-over-sbrp",
        "sbp-over-sbrp.md",
        "the protocol of a device behind a relay, byte by byte"
    ),
    topic!("second-device", "second-device.md", "the same session on another device"),
    topic!("security", "security.md", "whom the gateway trusts, and what an attacker gets"),
    topic!("sessions-guide", "sessions.md", "titles, names and search of sessions"),
    topic!("surfaces", "surfaces.md", "what each device gets"),
    topic!("usage-guide", "usage.md", "limits of users and keys, what was used, and who did what"),
    topic!("users-guide", "users.md", "users, keys and scopes, and what belongs to whom"),
    topic!("testing", "testing.md", "how to run and read the tests"),
    topic!("tools", "tools.md", "tools on devices, and who may call them"),
    topic!("tracker-guide", "tracker.md", "which gateway has which bundle: a process of its own"),
];
