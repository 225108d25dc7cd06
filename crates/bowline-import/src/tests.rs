use bowline_pyjson::Value;
use bowline_sbp::bundle::{Contents, MessagePart};

use super::*;

mod chatgpt;
mod letta;
mod messages;

fn now() -> Timestamp {
    at("2026-01-02T03:04:05Z")
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Reads a text, and checks the invariants.
fn found(text: &str) -> Found {
    let found = read(text, now()).unwrap();
    for conversation in &found.sessions {
        let contents = &conversation.contents;
        let sealed = contents.seal();
        let (opened, _) = Contents::open(&sealed.text).unwrap();
        assert_eq!(opened.seal(), sealed);
        assert_eq!(opened.carried, contents.carried);
        assert_eq!(opened.session, contents.session);
        assert_eq!(opened.memory, contents.memory);
        assert_eq!(opened.messages.len(), contents.messages.len());
        for (opened, part) in opened.messages.iter().zip(&contents.messages) {
            assert_eq!(opened.message, part.message);
            assert_eq!(opened.carried, part.carried);
            assert_eq!((&opened.model, opened.created_at), (&part.model, part.created_at));
            assert_eq!((opened.kind, opened.status), (part.kind, part.status));
        }
        let times = contents.messages.iter().map(|part| part.created_at);
        let newest = times.chain([contents.session.created_at]).max();
        assert_eq!(Some(contents.exported_at), newest);
        assert_eq!((contents.export_id.as_str(), contents.session.status.as_str()), ("", "idle"));
        assert_eq!(contents.label, conversation.title);
    }
    found
}

fn report(found: &Found) -> Vec<String> {
    found.report.iter().map(|line| format!("{}: {}", line.place, line.what)).collect()
}

fn messages(contents: &Contents) -> Vec<&str> {
    contents.messages.iter().map(|part| part.message.as_json()).collect()
}

/// What is carried under a path, as text.
fn carried(text: &Option<String>, path: &[&str]) -> String {
    let value = Value::parse(text.as_deref().unwrap()).unwrap();
    let found = path.iter().try_fold(&value, |value, step| match step.parse::<usize>() {
        Ok(place) => value.as_array()?.get(place),
        Err(_) => value.get(step),
    });
    found.map(Value::to_json).unwrap_or_default()
}

fn beside(part: &MessagePart, path: &[&str]) -> String {
    carried(&part.carried, path)
}

fn refused(text: &str) -> String {
    let sentence = read(text, now()).unwrap_err().to_string();
    let begin = "it is neither an SBP bundle, a ChatGPT export, OpenAI-style messages nor a Letta \
                 agent file, but ";
    sentence.strip_prefix(begin).unwrap().to_owned()
}

#[test]
fn a_bundle_is_known_and_left_alone() {
    let text = r#"{"sbp_version":"1.0","messages":[],"session":{}}"#;
    let found = found(text);
    assert_eq!((found.format, found.sessions.len(), found.report.len()), (Format::Bundle, 0, 0));
    // Deeper than the limit of other files, but a bundle.
    let deep = format!("{}{}", "[".repeat(DEFAULT_DEPTH - 1), "]".repeat(DEFAULT_DEPTH - 1));
    let deep = format!(r#"{{"sbp_version":"1.0","messages":[],"deep":{deep}}}"#);
    assert_eq!(read(&deep, now()).unwrap().format, Format::Bundle);
}

#[test]
fn a_conversation_without_an_id_is_named_by_what_it_says() {
    let id = |text: &str| found(text).sessions[0].contents.session.id.clone();
    let hi = id(r#"[{"role":"user","content":"hi"}]"#);
    assert_eq!(hi, "file:786299bd9a4c27f6");
    // However it is spelled, wherever it stands.
    assert_eq!(id(r#"[ {"role" : "user", "content":"\u0068i"} ]"#), hi);
    assert_eq!(id(r#"{"messages":[{"role":"user","content":"hi"}]}"#), hi);
    let two = found(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"ho\"}]}\n\
         {\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
    );
    assert_eq!(two.sessions[1].contents.session.id, hi);
    // Another text, title or time is another conversation.
    for other in [
        r#"[{"role":"user","content":"ho"}]"#,
        r#"[{"role":"assistant","content":"hi"}]"#,
        r#"[{"role":"user","content":"hi","created_at":1}]"#,
        r#"{"title":"t","messages":[{"role":"user","content":"hi"}]}"#,
    ] {
        assert_ne!(id(other), hi, "{other}");
    }
}

#[test]
fn what_says_its_times_reads_the_same_at_any_time() {
    let (sooner, later) = (now(), at("2027-01-01T00:00:00Z"));
    for file in [
        include_str!("../tests/data/chatgpt.json"),
        include_str!("../tests/data/messages.json"),
        include_str!("../tests/data/dialogue.json"),
        include_str!("../tests/data/agent.af"),
    ] {
        let read = |now| read(file, now).unwrap().sessions;
        for (one, other) in read(sooner).iter().zip(read(later)) {
            assert_eq!(one.contents.seal(), other.contents.seal());
        }
    }
}

#[test]
fn formats_have_names() {
    let formats = [Format::Bundle, Format::ChatGpt, Format::Messages, Format::Letta];
    let names = formats.map(|format| format.to_string());
    let expected =
        ["an SBP bundle", "a ChatGPT export", "OpenAI-style messages", "a Letta agent file"];
    assert_eq!(names, expected);
}

#[test]
fn what_is_not_understood_is_described() {
    for (text, found) in [
        ("", "empty"),
        ("\u{feff} \r\n", "empty"),
        ("[]", "an empty JSON array"),
        ("{}", "an empty JSON object"),
        ("7", "a JSON number"),
        ("\"hello\"", "a JSON string"),
        ("[[{}]]", "a list that begins with a JSON array"),
        (r#"[{"a":1}]"#, "a list that begins with a JSON object with the members a"),
        (r#"{"a":1,"b\u0007":2,"c":3}"#, "a JSON object with the members a, b , c"),
        ("{\"a\":1}\n{\"b\":2}", "a list that begins with a JSON object with the members a"),
        ("<html>", "not JSON at byte 0: a value is missing"),
        ("\u{feff}[1,]", "not JSON at byte 6: a value is missing"),
        ("[{\"role\":\"user\"},\n{\"role\":", "not JSON at byte 26: a value is missing"),
        (r#"{"messages":{}}"#, "a JSON object with the members messages"),
    ] {
        assert_eq!(refused(text), found, "{text}");
    }
    let many: Vec<_> = (0..20).map(|n| format!("\"m{n}\":0")).collect();
    let sentence = refused(&format!("{{{}}}", many.join(",")));
    assert_eq!(
        sentence,
        "a JSON object with the members m0, m1, m2, m3, m4, m5, m6, m7 and 12 more"
    );
    assert!(refused(&"[".repeat(1 << 20)).contains("nest deeper than"));
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_text() {
    let text = format!("\u{feff}{}", include_str!("../tests/data/dialogue.json"));
    assert_eq!(found(&text).sessions.len(), 1);
    let text = format!("\u{feff}{}", include_str!("../tests/data/messages.jsonl"));
    assert_eq!(found(&text).sessions[0].contents.messages.len(), 3);
}

#[test]
fn what_nests_as_deep_as_can_be_read_still_fits_into_a_bundle() {
    // A carried message is nested deeper than all other carried data.
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let aside = |n: usize| {
        format!(
            r#"[{{"current_node":"b","mapping":{{
                "a":{{"parent":null,"message":{{"content":{{"content_type":"thoughts","x":{}}}}}}},
                "b":{{"parent":"a","message":{{"author":{{"role":"user"}},
                    "content":{{"content_type":"text","parts":["hi"]}}}}}}}}}}]"#,
            deep(n)
        )
    };
    assert!(refused(&aside(DEPTH - 5)).contains("nest deeper than"));
    let read = found(&aside(DEPTH - 6));
    let kept = beside(&read.sessions[0].contents.messages[0], &["chatgpt", "before", "0"]);
    assert!(kept.contains(&deep(DEPTH - 6)));
    let field = |n: usize| format!(r#"{{"role":"user","content":"hi","x":{}}}"#, deep(n));
    let read = found(&field(DEPTH - 1));
    let kept = beside(&read.sessions[0].contents.messages[0], &["openai", "x"]);
    assert_eq!(kept, deep(DEPTH - 1));
}

#[test]
fn no_damage_to_a_file_makes_anything_worse_than_a_report() {
    let files = [
        include_str!("../tests/data/chatgpt.json"),
        include_str!("../tests/data/chatgpt-torn.json"),
        include_str!("../tests/data/messages.json"),
        include_str!("../tests/data/messages.jsonl"),
        include_str!("../tests/data/fine-tuning.jsonl"),
        include_str!("../tests/data/agent.af"),
        include_str!("../tests/data/agents.af"),
    ];
    let mut understood = 0;
    for file in files {
        // A value of another kind in the place of each that there is.
        let values = file.match_indices(": ").map(|(at, _)| at + 2);
        for (n, at) in values.enumerate() {
            let end = at + file[at..].find([',', '}', '\n']).unwrap_or(file.len() - at);
            let value = ["null", "[7]", "{\"a\": \"\\ud800\"}", "\"x\"", "-1e999", "{}"][n % 6];
            let changed = format!("{}{value}{}", &file[..at], &file[end..]);
            understood += usize::from(
                read(&changed, now()).is_ok_and(|_| !found(&changed).report.is_empty()),
            );
        }
        for at in (0..file.len()).step_by(31).filter(|at| file.is_char_boundary(*at)) {
            if read(&file[..at], now()).is_ok() {
                found(&file[..at]);
            }
        }
    }
    assert!(understood > 30, "{understood}");
}

#[test]
fn texts_are_cut_at_the_ends_of_lines_and_never_within_a_character() {
    let text = format!("{}\n{}", "a".repeat(70), "é".repeat(100));
    let pieces = words::pieces(&text, 101);
    assert_eq!(pieces.concat(), text);
    assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [71, 100, 100]);
    assert!(words::pieces("", 10).is_empty());
}
