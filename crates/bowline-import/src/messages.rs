//! OpenAI-style messages: a list, an object with such a list, or either of them one per line.
//!
//! The fields for models stay in the message; the others are carried in its member `openai`.

use bowline_pyjson::{Object, Text, Value};
use bowline_sbp::bundle::{FOR_MODELS, is_strict};
use jiff::Timestamp;

use super::draft::{Beside, Draft, id_of, title_of};
use super::report::Report;
use super::words::{shown, time};
use super::{Conversation, Unit, nature};

/// A plain list of messages: one conversation.
pub(super) fn list(
    unit: Unit,
    items: Vec<(usize, Value<'_>)>,
    now: Timestamp,
    report: &mut Report,
) -> Conversation {
    let mut draft = Draft::new(FORMAT);
    for (number, item) in items {
        let place = match unit {
            Unit::Line => unit.place(number),
            Unit::Element => format!("message {number}"),
        };
        message(&mut draft, &place, item, report);
    }
    draft.finish(Object::new(), now)
}

/// An object with `messages`.
pub(super) fn dialogue(
    mut dialogue: Object<'_>,
    place: String,
    now: Timestamp,
    report: &mut Report,
) -> Conversation {
    let mut draft = Draft::new(FORMAT);
    draft.id = id_of(&dialogue, &["id", "conversation_id", "session_id", "thread_id"]);
    draft.title = title_of(&mut dialogue, "title");
    draft.created_at = time_of(&dialogue);
    let agent = ["agent_id", "agent"].into_iter().find_map(|name| dialogue.get(name)?.as_str());
    draft.agent = agent.and_then(|agent| agent.parse().ok());
    let Some(Value::Array(messages)) = dialogue.remove("messages") else {
        return draft.finish(dialogue, now);
    };
    for (n, item) in (1..).zip(messages) {
        let place = match place.as_str() {
            "" => format!("message {n}"),
            place => format!("{place}, message {n}"),
        };
        message(&mut draft, &place, item, report);
    }
    draft.finish(dialogue, now)
}

fn message(draft: &mut Draft, place: &str, item: Value<'_>, report: &mut Report) {
    let Value::Object(mut fields) = item else {
        let what = format!("is not a message but {}, and was left out", nature(&item));
        return report.say(place, what);
    };
    let at = time_of(&fields);
    let is_answer = fields.get("role").and_then(Value::as_str) == Some("assistant");
    let model = fields.get("model").and_then(Value::as_str).map(str::to_owned);
    let model = model.filter(|_| is_answer);
    if model.is_some() {
        fields.remove("model");
    }
    let for_models = |(name, value): &(Text<'_>, Value<'_>)| {
        name.as_str().is_some_and(|name| FOR_MODELS.contains(&name)) && is_strict(value)
    };
    let (for_models, rest): (Vec<_>, Vec<_>) = fields.into_iter().partition(for_models);
    for (name, _) in rest.iter().filter(|(name, _)| FOR_MODELS.iter().any(|known| name == *known)) {
        let what = "holds NaN or an infinity, which no upstream accepts; it is kept but not sent";
        report.say(place, format!("its `{}` {what}", shown(name)));
    }
    let (for_models, carried) = (for_models.into_iter().collect(), rest.into_iter().collect());
    let beside = Beside { at, model, carried, ..Beside::default() };
    if let Err(why) = draft.add(place, for_models, beside, report) {
        report.say(place, format!("is not a message, and was left out: {why}"));
    }
}

fn time_of(object: &Object<'_>) -> Option<Timestamp> {
    ["created_at", "create_time", "created", "timestamp"]
        .into_iter()
        .find_map(|name| time(object.get(name)))
}

const FORMAT: &str = "openai";
