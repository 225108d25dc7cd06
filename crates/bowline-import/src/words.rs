//! Helpers for texts and times of imported files: join, split, shorten, parse.

use bowline_pyjson::{Text, Value};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Joins texts. Lone surrogates are kept.
pub(super) fn joined(texts: &[Text<'_>], between: &str) -> Text<'static> {
    if let Some(plain) = texts.iter().map(Text::as_str).collect::<Option<Vec<_>>>() {
        return Text::from(plain.join(between));
    }
    // JSON can spell lone surrogates and a `String` cannot, so the JSON literals are joined.
    let spelled = |text: Text<'_>| {
        let literal = Value::String(text).to_json();
        literal[1..literal.len() - 1].to_owned()
    };
    let texts: Vec<String> = texts.iter().cloned().map(spelled).collect();
    let literal = format!("\"{}\"", texts.join(&spelled(Text::from(between))));
    match Value::parse(&literal).map(Value::into_owned) {
        Ok(Value::String(text)) => text,
        _ => unreachable!("joined spellings are a spelling"),
    }
}

/// A string that is not empty.
pub(super) fn said<'v, 't>(value: Option<&'v Value<'t>>) -> Option<&'v Text<'t>> {
    value.and_then(Value::as_text).filter(|text| !text.as_wtf8().is_empty())
}

/// A text for display: one line without control characters.
pub(super) fn shown(text: &Text<'_>) -> String {
    let text = text.to_string_lossy();
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A name, shortened to fit into a line of the report.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// `1 tool was`, `2 tools were`.
pub(super) fn were(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one} was") } else { format!("{count} {many} were") }
}

/// Parses a time: seconds since 1970, or a date. Truncated to milliseconds.
pub(super) fn time(value: Option<&Value<'_>>) -> Option<Timestamp> {
    let at = match value? {
        Value::String(text) => {
            let text = text.as_str()?;
            // Without an offset it is UTC.
            let civil = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
            text.parse().ok().or_else(|| civil().map(|at| at.timestamp()))?
        }
        number => {
            let milliseconds = (number.as_f64()? * 1e3).round();
            let in_range = milliseconds.abs() < 1e15;
            return in_range.then(|| Timestamp::from_millisecond(milliseconds as i64).ok())?;
        }
    };
    Timestamp::from_millisecond(at.as_millisecond()).ok()
}

/// Splits a text into pieces of at most `most` bytes, at the ends of lines where possible.
pub(super) fn pieces(text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > most {
        let whole = &rest[..rest.floor_char_boundary(most)];
        let line = whole.rfind('\n').filter(|newline| *newline > most / 2);
        let end = line.map_or(whole.len(), |newline| newline + 1);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

const SHOWN_CHARS: usize = 60;
