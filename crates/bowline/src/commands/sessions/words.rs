//! What a session is doing, how long ago, and who is there: words for people.

use std::collections::BTreeMap;

use jiff::{Timestamp, Unit};
use serde_json::Value;

use crate::terminal::one_line;

/// The shortest id that is shown, in characters, in a list of the newest sessions; and in a list
/// from which some are left out. Ids begin with their time: 13 characters are the millisecond.
pub(super) const SHORTEST_ID: usize = 8;
pub(super) const SHORTEST_OF_SOME: usize = 13;
/// The longest title in a list, in characters.
const LONGEST_TITLE: usize = 40;

/// The state of a session. The protocol calls a session `running` as long as it accepts turns; here
/// it is `working` only while a turn runs.
pub(super) fn state(session: &Value) -> &'static str {
    let waits = session["approvals_pending"].as_u64() > Some(0);
    match session["status"].as_str() {
        _ if waits => "waiting for you",
        _ if session["turn_running"] == true => "working",
        Some("completed") => "done",
        Some("failed") => "failed",
        _ if !session["handed_off_to"].is_null() => "handed off",
        Some("suspended") => "away",
        Some("idle" | "running") => "idle",
        _ => "-",
    }
}

/// What waits in it: answers for a surface, approvals for a person.
pub(super) fn waiting(session: &Value) -> String {
    let counted = |name: &str, one: &str| {
        let count = session[name].as_u64().filter(|count| *count > 0)?;
        Some(format!("{count} {one}{}", if count == 1 { "" } else { "s" }))
    };
    let parts = [counted("approvals_pending", "approval"), counted("tether_turns_pending", "turn")];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

/// The attached surfaces: their names, or what kind of device they are.
pub(super) fn attached(session: &Value) -> String {
    let surfaces = session["attached"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |surface: &Value| {
        let name = surface["surface_id"].as_str().or(surface["device_type"].as_str());
        one_line(name.unwrap_or("?"))
    };
    let names: Vec<_> = surfaces.iter().map(name).collect();
    if names.is_empty() { "-".into() } else { names.join(", ") }
}

/// The title, shortened for a list.
pub(super) fn short_title(title: &Value) -> String {
    let title = one_line(title.as_str().unwrap_or("-"));
    if title.chars().count() <= LONGEST_TITLE {
        return title;
    }
    let cut: String = title.chars().take(LONGEST_TITLE - 1).collect();
    format!("{}…", cut.trim_end())
}

/// How long ago that was; a date if it was long ago.
pub(super) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.since((Unit::Second, then)).map_or(0, |span| span.get_seconds());
    match seconds {
        ..60 => "just now".into(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => then.strftime("%Y-%m-%d").to_string(),
    }
}

/// The beginning of each id that none of the others has, at least `shortest` characters.
pub(super) fn short_ids<'a>(
    ids: impl Iterator<Item = &'a str>,
    shortest: usize,
) -> BTreeMap<&'a str, &'a str> {
    let mut sorted: Vec<&str> = ids.collect();
    sorted.sort_unstable();
    sorted.dedup();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let short = |at: usize| {
        let id = sorted[at];
        let before = at.checked_sub(1).map_or(0, |at| shared(sorted[at], id));
        let after = sorted.get(at + 1).map_or(0, |next| shared(next, id));
        let length = (before.max(after) + 1).max(shortest);
        (id, id.get(..length).unwrap_or(id))
    };
    (0..sorted.len()).map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_session_with_a_running_turn_is_said_to_work() {
        let session = |status: &str, turn_running: bool, approvals_pending: u64| {
            json!({ "status": status, "turn_running": turn_running,
                    "approvals_pending": approvals_pending,
                    "attached": [{ "device_type": "mobile" }] })
        };
        for (status, running, approvals, word) in [
            ("idle", false, 0, "idle"),
            ("running", false, 0, "idle"),
            ("running", true, 0, "working"),
            ("suspended", true, 0, "working"),
            ("running", true, 1, "waiting for you"),
            ("suspended", false, 0, "away"),
            ("completed", false, 0, "done"),
            ("failed", false, 0, "failed"),
            ("of the future", false, 0, "-"),
        ] {
            assert_eq!(state(&session(status, running, approvals)), word, "{status} {running}");
        }
        let mut handed = session("suspended", false, 0);
        handed["handed_off_to"] = json!("0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f");
        assert_eq!(state(&handed), "handed off");
        // A gateway that says less.
        assert_eq!(state(&json!({ "status": "running" })), "idle");
    }

    #[test]
    fn what_waits_and_who_is_there_is_said_in_words() {
        let busy = json!({ "approvals_pending": 1, "tether_turns_pending": 2, "attached": [
            { "surface_id": "pix\u{1b}el", "device_type": "mobile" },
            { "surface_id": null, "device_type": "desktop" }] });
        assert_eq!(waiting(&busy), "1 approval, 2 turns");
        assert_eq!(attached(&busy), "pixel, desktop");
        let quiet = json!({ "approvals_pending": 0, "tether_turns_pending": 0, "attached": [] });
        assert_eq!((waiting(&quiet), attached(&quiet)), ("-".into(), "-".into()));
    }

    #[test]
    fn a_title_fits_into_a_list() {
        assert_eq!(short_title(&json!("a\nb")), "a b");
        assert_eq!(short_title(&Value::Null), "-");
        assert_eq!(short_title(&json!("é".repeat(40))), "é".repeat(40));
        assert_eq!(short_title(&json!("é".repeat(41))), format!("{}…", "é".repeat(39)));
    }

    #[test]
    fn an_age_has_one_unit() {
        let now: Timestamp = "2026-05-02T12:00:00Z".parse().unwrap();
        for (then, word) in [
            ("2026-05-02T12:00:09Z", "just now"),
            ("2026-05-02T11:59:01Z", "just now"),
            ("2026-05-02T11:57:00Z", "3 min ago"),
            ("2026-05-02T11:00:00Z", "1 h ago"),
            ("2026-05-01T12:00:01Z", "23 h ago"),
            ("2026-05-01T12:00:00Z", "1 d ago"),
            ("2026-04-03T12:00:00Z", "29 d ago"),
            ("2026-04-02T12:00:00Z", "2026-04-02"),
        ] {
            assert_eq!(age(then.parse().unwrap(), now), word, "{then}");
        }
    }

    #[test]
    fn an_id_is_as_short_as_it_can_be() {
        let ids = [
            "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f",
            "0191f2c1-3b5e-7a10-8a55-1d2b3c4d5e6f",
            "0191f2c1-3b5e-7a10-8a55-1d2b3c4d5e70",
            "0191f2c1-4b5e-7a10-8a55-1d2b3c4d5e70",
        ];
        let short = short_ids(ids.into_iter(), SHORTEST_ID);
        let short: Vec<_> = ids.iter().map(|id| short[id]).collect();
        assert_eq!(short, ["0191f2c0", &ids[1][..35], &ids[2][..35], "0191f2c1-4"]);
        let twice = short_ids([ids[0], ids[0]].into_iter(), SHORTEST_OF_SOME);
        assert_eq!(twice[ids[0]], "0191f2c0-3b5e");
    }
}
