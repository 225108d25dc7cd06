//! `bowline keys`: creates an API key with its line for the configuration file, or rotates the key
//! that signs roaming tokens.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::export::show;
use crate::api::Api;
use crate::cli::{KeysArgs, KeysCommand};
use crate::failure::Failure;
use crate::local::random_secret;
use crate::terminal::say;

pub(crate) async fn run(args: KeysArgs) -> Result<ExitCode, Failure> {
    match args.command {
        KeysCommand::New { json } => Ok(new(json)),
        KeysCommand::Rotate { gateway, json } => {
            let made = Api::new(&gateway)?.call(Method::POST, "/v1/sbp/keys/rotate", None).await?;
            let line = format!(
                "roaming tokens are signed with key {} from now on; tokens already issued stay \
                 valid until they expire",
                made["key_id"].as_str().unwrap_or("-")
            );
            Ok(show(&made, json, &[line]))
        }
    }
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
