//! `bowline users`: add, list, disable, enable, limit, share, unshare.

use std::process::ExitCode;

use bowline_sbp::api::{UserList, UserView};
use bowline_sbp::budget::OwnLimits;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::cli::GatewayArgs;
use crate::cli::users::{LimitChange, UsersArgs, UsersCommand};
use crate::failure::Failure;
use crate::terminal::{note, one_line, say, table, utc};

pub(crate) async fn run(args: UsersArgs) -> Result<ExitCode, Failure> {
    match args.command {
        UsersCommand::Add { gateway, name, role, limits, json } => {
            let api = Api::new(&gateway).await?;
            let limits: OwnLimits = limits.into_iter().collect();
            let asked = json!({ "name": name, "role": role, "limits": limits });
            let added = api.call(Method::POST, "/v1/users", Some(asked)).await?;
            let name = one_line(added["name"].as_str().unwrap_or(&name));
            match json {
                true => say!("{added}"),
                false => {
                    note!(
                        "{name} is added; make a key: bowline keys new --user {name} --name laptop"
                    );
                    if added["loopback_closed"] == true {
                        note!(
                            "from now on callers on this machine need a key, too; `bowline` commands \
                             on it use local.key in the data folder (access.loopback = \"open\" \
                             keeps it open)"
                        );
                    }
                }
            }
        }
        UsersCommand::List { gateway, json } => {
            let list = Api::new(&gateway).await?.call(Method::GET, "/v1/users", None).await?;
            match json {
                true => say!("{list}"),
                false => show(list)?,
            }
        }
        UsersCommand::Disable { gateway, name, json } => {
            disable(&gateway, &name, true, json).await?;
        }
        UsersCommand::Enable { gateway, name, json } => {
            disable(&gateway, &name, false, json).await?;
        }
        UsersCommand::Limit { gateway, name, limits, json } => {
            let path = format!("/v1/users/{}", segment(&name));
            let asked = json!({ "limits": changes(limits)? });
            let user = Api::new(&gateway).await?.call(Method::PATCH, &path, Some(asked)).await?;
            match json {
                true => say!("{user}"),
                false => note!("{}: {}", one_line(&name), limits_of(user)?),
            }
        }
        UsersCommand::Share { gateway, session, with, scope, json } => {
            let api = Api::new(&gateway).await?;
            let id = api.session(&session).await?;
            let path = format!("/v1/sessions/{id}/shares/{}", segment(&with));
            let shared = api.call(Method::PUT, &path, Some(json!({ "scope": scope }))).await?;
            match json {
                true => say!("{shared}"),
                false => {
                    note!("session {id} is shared with {} to {}", one_line(&with), scope.as_str())
                }
            }
        }
        UsersCommand::Unshare { gateway, session, with, json } => {
            let api = Api::new(&gateway).await?;
            let id = api.session(&session).await?;
            let path = format!("/v1/sessions/{id}/shares/{}", segment(&with));
            api.call(Method::DELETE, &path, None).await?;
            match json {
                true => say!("{}", json!({ "session_id": id, "user": with, "shared": false })),
                false => note!("session {id} is not shared with {} any more", one_line(&with)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn disable(
    gateway: &GatewayArgs,
    name: &str,
    disabled: bool,
    json: bool,
) -> Result<(), Failure> {
    let path = format!("/v1/users/{}", segment(name));
    let asked = json!({ "disabled": disabled });
    let user = Api::new(gateway).await?.call(Method::PATCH, &path, Some(asked)).await?;
    match (json, disabled) {
        (true, _) => say!("{user}"),
        (false, true) => note!("{} is disabled: none of its keys opens anything", one_line(name)),
        (false, false) => note!("{} is enabled", one_line(name)),
    }
    Ok(())
}

/// As the gateway takes it: `null` goes back to the default.
fn changes(limits: Vec<LimitChange>) -> Result<Value, Failure> {
    let mut changes = Map::new();
    for change in limits {
        match change {
            LimitChange::Default(budget) => {
                changes.insert(budget.field().to_owned(), Value::Null);
            }
            LimitChange::Set(limits) => {
                let set = serde_json::to_value(limits).map_err(Failure::new)?;
                changes.extend(set.as_object().cloned().unwrap_or_default());
            }
        }
    }
    Ok(Value::Object(changes))
}

fn limits_of(user: Value) -> Result<String, Failure> {
    let user: UserView = serde_json::from_value(user).map_err(Failure::new)?;
    Ok(match user.limits.is_empty() {
        true => "the limits of the configuration".to_owned(),
        false => user.limits.to_string(),
    })
}

fn show(list: Value) -> Result<(), Failure> {
    let list: UserList = serde_json::from_value(list).map_err(Failure::new)?;
    let row = |user: &UserView| {
        let state = match user.disabled_at {
            Some(at) => format!("disabled {}", utc(at)),
            None => "active".to_owned(),
        };
        [one_line(&user.name), user.role.as_str().to_owned(), state, user.limits.to_string()]
    };
    let rows: Vec<_> = list.users.iter().map(row).collect();
    say!("{}", table(["user", "role", "state", "limits"], &rows).trim_end());
    Ok(())
}

/// A name as one segment of a path.
pub(super) fn segment(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
