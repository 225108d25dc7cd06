//! `bowline config show`: the effective settings and the origin of each.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::{ConfigArgs, ConfigCommand};
use crate::failure::{Failure, FailureKind};
use crate::settings::Settings;
use crate::terminal::{printable, say};

pub(crate) fn run(args: ConfigArgs) -> Result<ExitCode, Failure> {
    let ConfigCommand::Show { section, settings, json } = args.command;
    let mut shown = Settings::load(&settings)?.show();
    if let Some(section) = section {
        let is_in = |key: &str| {
            key.strip_prefix(&section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        shown.retain(|(key, ..)| is_in(key));
        if shown.is_empty() {
            return Err(Failure::new(format!("nothing is set in `{}`", printable(&section)))
                .hint("`bowline help configuration` lists every setting")
                .kind(FailureKind::NotFound));
        }
    }
    if json {
        let object: serde_json::Map<_, _> = shown
            .into_iter()
            .map(|(key, value, origin)| (key, json!({ "value": value, "from": origin })))
            .collect();
        say!("{}", serde_json::Value::Object(object));
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<_> = shown
        .into_iter()
        .map(|(key, value, origin)| (format!("{key} = {value}"), origin))
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(60);
    for (line, origin) in lines {
        say!("{line:width$}  # {origin}");
    }
    Ok(ExitCode::SUCCESS)
}
