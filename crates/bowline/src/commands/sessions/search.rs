//! `bowline sessions search`.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::Value;

use super::words::{SHORTEST_OF_SOME, age, short_ids};
use crate::api::{Api, encoded};
use crate::cli::GatewayArgs;
use crate::failure::Failure;
use crate::terminal::{note, one_line, say};

pub(super) async fn search(
    gateway: &GatewayArgs,
    words: &[String],
    limit: u32,
    json: bool,
) -> Result<ExitCode, Failure> {
    let api = Api::new(gateway).await?;
    let path = format!("/v1/sessions/search?limit={limit}&q={}", encoded(&words.join(" ")));
    let found = api.get(&path).await?;
    if json {
        say!("{found}");
        return Ok(ExitCode::SUCCESS);
    }
    let hits = found["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = hits.iter().filter_map(|hit| hit["session_id"].as_str());
    let short = short_ids(ids, SHORTEST_OF_SOME);
    let now = Timestamp::now();
    let mut session = "";
    for hit in hits {
        let id = hit["session_id"].as_str().unwrap_or("-");
        if id != session {
            let title = hit["title"].as_str().map_or("(no title)".into(), one_line);
            let between = if session.is_empty() { "" } else { "\n" };
            say!("{between}{}  {title}", short.get(id).unwrap_or(&id));
            session = id;
        }
        say!("  {}", line(hit, now));
    }
    if hits.is_empty() {
        note!("nothing found");
    }
    if found["complete"] == false {
        note!("some messages are not indexed yet; search again for the rest");
    }
    Ok(ExitCode::SUCCESS)
}

/// `3 user, 5 min ago: … the words …`
fn line(hit: &Value, now: Timestamp) -> String {
    let text = |name: &str| one_line(hit[name].as_str().unwrap_or("?"));
    let then = hit["created_at"].as_str().and_then(|text| text.parse().ok());
    let when = then.map_or(String::new(), |then| format!(", {}", age(then, now)));
    format!("{} {}{when}: {}", hit["seq"], text("role"), text("snippet"))
}
