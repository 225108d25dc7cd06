//! `bowline login`: stores the key of a control plane, after it was tried.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use bowline_client::relay::ControlPlane;
use serde_json::json;

use crate::cli::devices::LoginArgs;
use crate::failure::{Failure, FailureKind};
use crate::owner::{self, Login};
use crate::paths;
use crate::terminal::{raw, say};

pub(crate) async fn run(args: LoginArgs) -> Result<ExitCode, Failure> {
    let key = match io::stdin().is_terminal() {
        true => raw::secret("API key of the control plane: ").map_err(Failure::new)?,
        false => {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map_err(Failure::new)?;
            line
        }
    };
    let key = key.trim().to_owned();
    if key.is_empty() {
        return Err(Failure::new("no key was given")
            .hint("the operator of the control plane makes one: `bowline control user add NAME`")
            .kind(FailureKind::Usage));
    }
    let control = ControlPlane::new(args.control.clone(), &key)?;
    let daemons = owner::daemons(&control).await.map_err(|failure| {
        failure.hint("check the key, and that the control plane of a relay is at this address")
    })?;
    let host = control.host();
    let file = Login::store(args.control, key, args.data.as_deref())?;
    match args.json {
        true => say!("{}", json!({ "control": host, "file": file, "daemons": daemons.len() })),
        false => {
            say!("logged in to {host}; the key is in {}", paths::short(&file));
            say!("next: `bowline up --relay {}`", control.base());
        }
    }
    Ok(ExitCode::SUCCESS)
}
