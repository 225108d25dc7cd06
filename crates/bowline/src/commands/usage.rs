//! `bowline usage`: what users and keys have used.

use std::process::ExitCode;

use bowline_sbp::api::UsageReport;
use reqwest::Method;
use serde_json::Value;

use super::users::segment;
use crate::api::Api;
use crate::cli::usage::UsageArgs;
use crate::failure::Failure;
use crate::terminal::{note, one_line, say, table};

pub(crate) async fn run(args: UsageArgs) -> Result<ExitCode, Failure> {
    let user = args.user.map(|user| format!("&user={}", segment(&user))).unwrap_or_default();
    let path = format!("/v1/usage?days={}{user}", args.days);
    let report = Api::new(&args.gateway).await?.call(Method::GET, &path, None).await?;
    match args.json {
        true => say!("{report}"),
        false => show(report)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: Value) -> Result<(), Failure> {
    let report: UsageReport = serde_json::from_value(report).map_err(Failure::new)?;
    let mut rows = Vec::new();
    for user in &report.users {
        for day in &user.days {
            rows.push([
                day.day.clone(),
                one_line(&user.user),
                day.key.as_ref().map(ToString::to_string).unwrap_or_default(),
                day.turns.to_string(),
                day.model_calls.to_string(),
                (day.prompt_tokens + day.completion_tokens).to_string(),
                format!("{:.4}", day.usd),
                day.exports.to_string(),
            ]);
        }
    }
    match rows.is_empty() {
        true => note!("nothing was used since {}", one_line(&report.since)),
        false => {
            rows.sort_by(|a, b| b[0].cmp(&a[0]));
            let headings =
                ["day (UTC)", "user", "key", "turns", "model calls", "tokens", "usd", "exports"];
            say!("{}", table(headings, &rows).trim_end());
        }
    }
    for user in &report.users {
        let limits = match user.limits.is_empty() {
            true => String::new(),
            false => format!("; limits: {}", user.limits),
        };
        note!("{}: {} bytes in sessions{limits}", one_line(&user.user), user.stored_bytes);
    }
    Ok(())
}
