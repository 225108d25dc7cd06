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
        Ok(mut url) if url.password().is_some() || url.query().is_some() => {
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        _ => text.to_owned(),
    }
}
