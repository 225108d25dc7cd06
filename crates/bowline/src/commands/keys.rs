//! `bowline keys`: creates, lists and revokes users' keys, creates one for the configuration file, rotates
//! the key that signs roaming tokens, or shows the one that signs bundles.

use std::process::ExitCode;

use bowline_sbp::api::{KeyList, KeyView, MakeKey};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::export::show;
use super::users::segment;
use crate::api::Api;
use crate::cli::keys::{KeysArgs, KeysCommand, NewKeyArgs};
use crate::failure::Failure;
use crate::local::random_secret;
use crate::terminal::{note, one_line, say, table, utc};

pub(crate) async fn run(args: KeysArgs) -> Result<ExitCode, Failure> {
    match args.command {
        KeysCommand::New(args) if args.user.is_some() => of_user(args).await,
        KeysCommand::New(args) => Ok(new(args.json)),
        KeysCommand::List { gateway, user, json } => {
            let path = match &user {
                Some(user) => format!("/v1/keys?user={}", segment(user)),
                None => "/v1/keys".to_owned(),
            };
            let list = Api::new(&gateway).await?.call(Method::GET, &path, None).await?;
            match json {
                true => say!("{list}"),
                false => show_keys(list)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::Revoke { gateway, id, json } => {
            let path = format!("/v1/keys/{}", segment(&id));
            Api::new(&gateway).await?.call(Method::DELETE, &path, None).await?;
            match json {
                true => say!("{}", json!({ "id": id, "revoked": true })),
                false => note!("the key {} opens nothing any more", one_line(&id)),
            }
            Ok(ExitCode::SUCCESS)
        }
        KeysCommand::Identity { gateway, json } => {
            let seen = Api::new(&gateway).await?.get("/v1/sbp/identity").await?;
            Ok(show(&seen, json, &[text(&seen, "fingerprint")]))
        }
        KeysCommand::Rotate { gateway, json } => {
            let made =
                Api::new(&gateway).await?.call(Method::POST, "/v1/sbp/keys/rotate", None).await?;
            let line = format!(
                "roaming tokens are signed with key {} from now on; tokens already issued stay \
                 valid until they expire",
                made["key_id"].as_str().unwrap_or("-")
            );
            Ok(show(&made, json, &[line]))
        }
    }
}

/// Has the running gateway make a key. Only the key is on stdout, so that scripts can read it.
async fn of_user(args: NewKeyArgs) -> Result<ExitCode, Failure> {
    let asked = MakeKey {
        user: args.user,
        name: args.name,
        scopes: args.scopes,
        agents: args.agents,
        models: args.models,
        expires_in: args.expires.map(|life| life.as_secs().max(1)),
        limits: args.limits.into_iter().collect(),
    };
    let asked = serde_json::to_value(asked).map_err(Failure::new)?;
    let made = Api::new(&args.gateway).await?.call(Method::POST, "/v1/keys", Some(asked)).await?;
    if args.json {
        say!("{made}");
        return Ok(ExitCode::SUCCESS);
    }
    note!("save it: it is shown only now");
    say!("{}", made["key"].as_str().unwrap_or_default());
    note!("it works at once; revoke it with `bowline keys revoke {}`", text(&made, "id"));
    Ok(ExitCode::SUCCESS)
}

fn text(value: &Value, name: &str) -> String {
    one_line(value[name].as_str().unwrap_or_default())
}

fn show_keys(list: Value) -> Result<(), Failure> {
    let list: KeyList = serde_json::from_value(list).map_err(Failure::new)?;
    if list.keys.is_empty() {
        note!("no keys of users; `bowline keys new --user owner --name laptop` makes one");
        return Ok(());
    }
    let time = |at: Option<jiff::Timestamp>| at.map_or_else(|| "-".to_owned(), utc);
    let row = |key: &KeyView| {
        let until = match (key.revoked_at, key.expires_at) {
            (Some(at), _) => format!("revoked {}", utc(at)),
            (None, until) => time(until),
        };
        let name = one_line(&key.name);
        let user = one_line(&key.user);
        let (scopes, limits) = (key.scopes.to_string(), key.limits.to_string());
        [key.id.to_string(), user, name, scopes, time(key.last_used_at), until, limits]
    };
    let rows: Vec<_> = list.keys.iter().map(row).collect();
    let headings = ["id", "user", "name", "scopes", "last used", "valid until", "limits"];
    say!("{}", table(headings, &rows).trim_end());
    Ok(())
}

fn new(json: bool) -> ExitCode {
    let key = format!("bow_{}", random_secret());
    let hash: String = Sha256::digest(key.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    if json {
        say!("{}", json!({ "key": key, "config": format!("sha256:{hash}") }));
    } else {
        say!("{key}\n");
        say!("Save it: it is shown only now. Add its hash to the configuration file:\n");
        say!("[auth]\napi_keys = [\"sha256:{hash}\"]");
    }
    ExitCode::SUCCESS
}
