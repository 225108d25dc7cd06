//! Settings whose values may be secret, and how `bowline config show` masks them.

use toml::Value;

use super::key::split;

/// Whether the value may be a secret, or contain one.
pub(super) fn is_secret(key: &str) -> bool {
    key == "auth.api_keys" || is_address(key) || is_of_mcp_server(key)
}

/// Whether the key is an environment variable or header of an MCP server.
fn is_of_mcp_server(key: &str) -> bool {
    let parts = split(key);
    let kind = parts.get(3).map(String::as_str);
    key.starts_with("mcp.servers.") && matches!(kind, Some("env" | "headers"))
}

/// Whether the value is a URL, which may hold a password.
fn is_address(key: &str) -> bool {
    [".url", ".relay_url", ".issuer"].iter().any(|name| key.ends_with(name))
        || key == "daemon.control"
}

/// The value with what is secret in it replaced.
pub(super) fn masked(key: &str, value: Value) -> Value {
    match value {
        Value::Array(keys) if key == "auth.api_keys" => {
            Value::Array(keys.iter().map(|_| Value::String("***".into())).collect())
        }
        // `env:NAME` only names a variable, which is not secret.
        Value::String(text) if is_of_mcp_server(key) && !text.starts_with("env:") => {
            Value::String("***".into())
        }
        Value::String(text) if is_address(key) => Value::String(without_password(&text)),
        value => value,
    }
}

fn without_password(text: &str) -> String {
    match url::Url::parse(text) {
        // An `@` behind the host: the user or password has a character that should be escaped.
        Ok(url) if url.path().contains('@') => hidden(text),
        Ok(mut url) if url.password().is_some() || url.query().is_some() => {
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        Ok(_) => text.to_owned(),
        // Such as an address with several hosts, which only its driver can read.
        Err(_) if text.contains(['@', '?']) => hidden(text),
        Err(_) => text.to_owned(),
    }
}

/// Only the scheme.
fn hidden(text: &str) -> String {
    text.split_once("://").map_or("***".to_owned(), |(scheme, _)| format!("{scheme}://***"))
}

/// Whether an address may hold a password.
pub(super) fn has_password(text: &str) -> bool {
    match url::Url::parse(text) {
        Ok(url) => {
            url.password().is_some()
                || url.path().contains('@')
                || url.query_pairs().any(|(name, _)| name == "password")
        }
        Err(_) => text.contains('@'),
    }
}

/// Whether the reason why a value is wrong may be shown although the value may be a secret: what reads
/// these settings never says the value.
pub(super) fn reason_is_safe(key: &str) -> bool {
    matches!(key, "store.url" | "bus.url")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_password_is_left() {
        for (text, shown) in [
            ("postgres://me:hunter22@db/b?password=hunter22", "postgres://me@db/b"),
            ("postgres://me:hunter22@one:1,two:2/b", "postgres://***"),
            ("postgres://me:5/hunter22@db/b", "postgres://***"),
            ("postgres://me:x/hunter22@db/b", "postgres://***"),
            ("rediss://:hunter22@cache:6380/1", "rediss://cache:6380/1"),
            ("postgres://me@db/b", "postgres://me@db/b"),
            ("host=db password=hunter22 user=me@x", "***"),
            ("sqlite", "sqlite"),
        ] {
            assert_eq!(without_password(text), shown);
            assert_eq!(has_password(text), text.contains("hunter22"), "{text}");
        }
    }
}
