//! One message of an agent: OpenAI's format with more kinds of parts and the role `approval`.

use bowline_pyjson::{Object, Text, Value};
use bowline_sbp::bundle::is_strict;

use super::super::draft::{Beside, Draft, is_nothing, text_part};
use super::super::report::Report;
use super::super::words::{joined, said, shortened, shown, time};

/// Adds a message; returns it if it must not be sent to models, to be carried.
pub(super) fn add<'t>(
    draft: &mut Draft,
    place: &str,
    item: Value<'t>,
    report: &mut Report,
) -> Option<Value<'t>> {
    let aside = |item: Value<'t>, what: &str, report: &mut Report| {
        report.say(place, format!("{what}; it is kept but not sent to models"));
        Some(item)
    };
    let calls = item.get("tool_calls").filter(|calls| !is_nothing(calls) && is_strict(calls));
    let role = match said(item.get("role")).and_then(Text::as_str) {
        // `approval` is the request with the tool calls, and also the person's decision.
        Some("approval") if calls.is_some() => "assistant",
        Some("approval") => return aside(item, "is an approval of a tool call", report),
        Some("function") => "tool",
        Some(role) => role,
        None => return aside(item, "has no role", report),
    };
    let words = Words::of(item.get("content"), place, report);
    let is_silent = words.content.is_null() && calls.is_none() && role != "tool";
    if is_silent {
        return aside(item, "has no content for a model", report);
    }
    let (role, calls) = (role.to_owned(), calls.cloned());
    let results = results(&item);
    let are_several = role == "tool" && results.len() > 1;
    let Value::Object(mut rest) = item else { return None };
    if rest.get("role").and_then(Value::as_str) == Some(&role) {
        rest.remove("role");
    }
    if words.are_all && !are_several {
        rest.remove("content");
    }
    if calls.is_some() {
        rest.remove("tool_calls");
    }
    let at = time(rest.get("created_at"));
    let model = said(rest.get("model")).and_then(Text::as_str).map(str::to_owned);
    let call = rest.remove("tool_call_id").filter(|id| !id.is_null());
    let mut beside = Beside { at, model, carried: rest, ..Beside::default() };
    let messages = if are_several {
        results
    } else {
        let call = call.or_else(|| results.into_iter().next().map(|(call, _)| call));
        vec![(call.unwrap_or_default(), words.content)]
    };
    for (call, content) in messages {
        let content = if role == "tool" && content.is_null() { "".into() } else { content };
        let mut message = Object::from_iter([("role", role.clone().into()), ("content", content)]);
        if let Some(calls) = &calls {
            message.insert("tool_calls", calls.clone());
        }
        if role == "tool" {
            message.insert("tool_call_id", call);
        }
        let beside = std::mem::replace(&mut beside, Beside { at, ..Beside::default() });
        if let Err(why) = draft.add(place, message, beside, report) {
            report.say(place, format!("was left out: {why}"));
        }
    }
    None
}

/// Whether a system message contains the text.
pub(super) fn is_said(system: &Text<'_>, messages: &[Value<'_>]) -> bool {
    let says = |text: &Text<'_>| match (text.as_str(), system.as_str()) {
        (Some(text), Some(system)) => text.contains(system.trim()),
        _ => text == system,
    };
    let of_system = messages
        .iter()
        .filter(|message| message.get("role").and_then(Value::as_str) == Some("system"));
    let mut contents = of_system.filter_map(|message| message.get("content"));
    contents.any(|content| match content {
        Value::String(text) => says(text),
        Value::Array(parts) => parts.iter().filter_map(|part| said(part.get("text"))).any(says),
        _ => false,
    })
}

/// The content of a message for models.
struct Words<'t> {
    content: Value<'t>,
    /// The content is complete: nothing was omitted or joined.
    are_all: bool,
}

impl<'t> Words<'t> {
    fn of(content: Option<&Value<'t>>, place: &str, report: &mut Report) -> Self {
        let parts = match content {
            Some(Value::String(text)) => {
                return Self { content: text.clone().into(), are_all: true };
            }
            Some(Value::Array(parts)) => parts.as_slice(),
            Some(_) | None => return Self { content: Value::Null, are_all: false },
        };
        let mut texts = Vec::new();
        let mut others = false;
        let mut are_all = true;
        for part in parts {
            match part.get("type").and_then(Value::as_str) {
                Some("text") if said(part.get("text")).is_some() => {
                    are_all &= has_only(part, &["type", "text"]);
                    texts.push(text_part(said(part.get("text")).cloned().unwrap_or_default()));
                }
                Some("tool_return") => {
                    are_all = false;
                    texts.extend(said(part.get("content")).cloned().map(text_part));
                }
                Some("image") => {
                    others = true;
                    texts.push(image(part.get("source").unwrap_or(part), place, report));
                    are_all = false;
                }
                // Reasoning, and tool calls that are also in `tool_calls`.
                _ => are_all = false,
            }
        }
        if others {
            return Self { content: Value::Array(texts), are_all };
        }
        let texts: Vec<Text<'t>> =
            texts.iter().filter_map(|part| part.get("text")?.as_text().cloned()).collect();
        match texts.as_slice() {
            [] => Self { content: Value::Null, are_all: parts.is_empty() },
            [text] => Self { content: text.clone().into(), are_all },
            texts => Self { content: joined(texts, "\n").into(), are_all: false },
        }
    }
}

/// An image for models, or a note in its place.
fn image<'t>(source: &Value<'t>, place: &str, report: &mut Report) -> Value<'t> {
    let text = |name: &str| said(source.get(name)).and_then(Text::as_str);
    let url = match (text("url"), text("data")) {
        (Some(url), _) => Some(url.to_owned()),
        (None, Some(data)) => {
            let kind = text("media_type").unwrap_or("image/png");
            Some(format!("data:{kind};base64,{data}"))
        }
        (None, None) => None,
    };
    let Some(url) = url else {
        let name = said(source.get("file_id")).map_or("?".into(), |id| shortened(&shown(id)));
        report.say(place, format!("the image {name} is not in the file; a note replaces it"));
        return text_part(format!("[image: {name}]").into());
    };
    let image = Object::from_iter([("url", url)]);
    Object::from_iter([("type", Value::from("image_url")), ("image_url", image.into())]).into()
}

/// The results of parallel tool calls, each with its call.
fn results<'t>(item: &Value<'t>) -> Vec<(Value<'t>, Value<'t>)> {
    let returns = item.get("tool_returns").and_then(Value::as_array).unwrap_or_default();
    let result = |result: &Value<'t>| {
        let call = said(result.get("tool_call_id"))?.clone();
        let response = match result.get("func_response") {
            Some(Value::String(text)) => text.clone().into(),
            Some(other) if !other.is_null() => other.to_json().into(),
            _ => Value::from(""),
        };
        Some((call.into(), response))
    };
    returns.iter().filter_map(result).collect()
}

fn has_only(part: &Value<'_>, names: &[&str]) -> bool {
    let members = part.as_object().into_iter().flat_map(Object::iter);
    members
        .filter(|(name, _)| !names.iter().any(|known| *name == *known))
        .all(|(_, value)| is_nothing(value))
}
