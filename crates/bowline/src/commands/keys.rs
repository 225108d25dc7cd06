//! `bowline keys new`: an API key, and the line that lets it in.

use std::process::ExitCode;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::{KeysArgs, KeysCommand};
use crate::failure::Failure;
use crate::local::random_secret;

pub(crate) fn run(args: KeysArgs) -> Result<ExitCode, Failure> {
    let KeysCommand::New { json } = args.command;
    let key = format!("bow_{}", random_secret());
    let hash: String = Sha256::digest(key.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    if json {
        println!("{}", json!({ "key": key, "config": format!("sha256:{hash}") }));
    } else {
        println!("{key}\n");
        println!("Keep it: it is shown only now. Add its hash to the configuration file:\n");
        println!("[auth]\napi_keys = [\"sha256:{hash}\"]");
    }
    Ok(ExitCode::SUCCESS)
}
