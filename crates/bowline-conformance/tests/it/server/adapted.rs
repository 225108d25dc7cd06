//! Output that fits the device: a very small form of it.

use serde_json::{Value, json};

use super::sessions::Surface;

/// Whether a surface shows an answer as it is.
pub(crate) fn shows_all(surface: &Surface) -> bool {
    let list = surface.context["ui_capabilities"].as_array();
    list.is_none_or(|list| list.is_empty() || list.contains(&json!("markdown")))
}

/// The answer without the marks of Markdown; addresses go with them.
pub(crate) fn adapted(surface: &Surface, text: &str) -> String {
    if shows_all(surface) {
        return text.to_owned();
    }
    let line = |line: &str| line.trim_start_matches(['#', '-', ' ']).replace("**", "");
    let text = text.lines().map(line).collect::<Vec<_>>().join("\n");
    let mut plain = String::new();
    for (n, piece) in text.split("](").enumerate() {
        let rest = if n == 0 { piece } else { piece.split_once(')').map_or("", |(_, rest)| rest) };
        plain += rest;
    }
    plain.replace('[', "")
}

/// Says to the model for which device it writes.
pub(crate) fn tell(surface: Option<&Surface>, body: &mut Value) {
    let Some(context) = surface.map(|surface| &surface.context) else { return };
    if let Some(limit) = context["max_output_tokens"].as_u64() {
        body["max_tokens"] = json!(limit);
    }
    if let (Some(device), Some(messages)) =
        (context["device_type"].as_str(), body["messages"].as_array_mut())
    {
        let note = json!({ "role": "system", "content": format!("The device: {device}.") });
        messages.insert(0, note);
    }
}
