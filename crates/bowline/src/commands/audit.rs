//! `bowline audit`: what was done at the gateway, and by whom.

use std::process::ExitCode;

use bowline_sbp::api::{AuditList, AuditView};
use reqwest::Method;
use serde_json::Value;

use super::users::segment;
use crate::api::Api;
use crate::cli::usage::AuditArgs;
use crate::failure::Failure;
use crate::terminal::{note, one_line, say, table, utc};

pub(crate) async fn run(args: AuditArgs) -> Result<ExitCode, Failure> {
    let mut path = format!("/v1/audit?limit={}", args.limit);
    if let Some(since) = args.since {
        path.push_str(&format!("&since={}", since.as_secs()));
    }
    if let Some(user) = args.user {
        path.push_str(&format!("&user={}", segment(&user)));
    }
    let list = Api::new(&args.gateway).await?.call(Method::GET, &path, None).await?;
    match args.json {
        true => say!("{list}"),
        false => show(list)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(list: Value) -> Result<(), Failure> {
    let list: AuditList = serde_json::from_value(list).map_err(Failure::new)?;
    if list.entries.is_empty() {
        note!("nothing is recorded; `audit.enabled = false` turns it off");
        return Ok(());
    }
    let row = |entry: &AuditView| {
        let who = entry.user.clone().or_else(|| entry.user_id.map(|id| id.to_string()));
        let action = match entry.times {
            1 => entry.action.clone(),
            times => format!("{} ({times} times in that hour)", entry.action),
        };
        [
            utc(entry.at),
            one_line(&who.unwrap_or_else(|| "-".into())),
            one_line(&entry.credential),
            one_line(&action),
            one_line(&entry.object),
            one_line(&entry.result),
            one_line(&entry.address),
        ]
    };
    let rows: Vec<_> = list.entries.iter().map(row).collect();
    let headings = ["at", "user", "by", "action", "object", "result", "from"];
    say!("{}", table(headings, &rows).trim_end());
    Ok(())
}
