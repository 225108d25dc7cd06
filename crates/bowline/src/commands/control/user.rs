//! `bowline control user`: add, list, key, revoke.

use std::path::Path;
use std::process::ExitCode;

use bowline_relay::control::ApiKey;
use bowline_relay::control::registry::{Registry, User};
use serde_json::{Value, json};

use super::{data_flag, now, registry, undone, unopened, when};
use crate::cli::control::UserCommand;
use crate::failure::Failure;
use crate::terminal::{note, say, show, table};

pub(super) fn run(data: &Path, command: UserCommand, json: bool) -> Result<ExitCode, Failure> {
    match command {
        UserCommand::Add { name } => {
            // Creates the registry: users can be added before the server's first start.
            let mut registry = Registry::open(data).map_err(|error| unopened(error, data))?;
            let key = registry.add_user(&name, now()).map_err(|error| undone(error, data))?;
            show_key(&name, &key, json);
        }
        UserCommand::Key { name, replace } => {
            let key = registry(data)?.add_key(&name, replace, now());
            show_key(&name, &key.map_err(|error| undone(error, data))?, json);
        }
        UserCommand::List => {
            let users = registry(data)?.users().map_err(|error| undone(error, data))?;
            list(&users, data, json);
        }
        UserCommand::Revoke { name } => {
            let revoked = registry(data)?.revoke_user(&name, now());
            let revoked = revoked.map_err(|error| undone(error, data))?;
            if json {
                say!(
                    "{}",
                    json!({ "name": name, "revoked": true, "api_keys": revoked.keys,
                            "daemons": revoked.daemons, "tokens_until": revoked.tokens_until })
                );
            } else {
                let (keys, daemons) = (revoked.keys, revoked.daemons);
                note!("{name} is revoked, with {keys} API keys and {daemons} daemons");
                if let Some(until) = revoked.tokens_until {
                    note!(
                        "relays disconnect the daemons and their clients within seconds; a relay \
                         that cannot reach this control plane accepts their old tokens until {}",
                        when(until)
                    );
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints only the key on stdout, so that scripts can read it; the explanation goes to stderr.
fn show_key(name: &str, key: &ApiKey, json: bool) {
    if json {
        say!("{}", json!({ "name": name, "api_key": key.reveal() }));
    } else {
        say!("{}", key.reveal());
        note!("\nThis is {name}'s API key. Save it: it is shown only now.");
    }
}

fn list(users: &[User], data: &Path, json: bool) {
    if json {
        let users = users.iter().map(|user| {
            json!({ "name": user.name, "id": user.id, "created_at": user.created_at,
                    "revoked_at": user.revoked_at, "api_keys": user.keys, "daemons": user.daemons })
        });
        return say!("{}", Value::Array(users.collect()));
    }
    if users.is_empty() {
        return note!("no users yet: bowline control user add NAME{}", data_flag(data));
    }
    let rows: Vec<_> = users
        .iter()
        .map(|user| {
            let state =
                user.revoked_at.map_or("active".into(), |at| format!("revoked {}", when(at)));
            [
                user.name.clone(),
                user.keys.to_string(),
                user.daemons.to_string(),
                when(user.created_at),
                state,
            ]
        })
        .collect();
    show!("{}", table(["USER", "KEYS", "DAEMONS", "CREATED", "STATE"], &rows));
}
