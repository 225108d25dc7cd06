use std::fmt::Write;
use std::time::Instant;

use bowline_sbp::frame::TurnStatus;
use bowline_sbp::message::EntryKind;

use super::*;

const EXPORT: &str = include_str!("../../tests/data/chatgpt.json");
const TORN: &str = include_str!("../../tests/data/chatgpt-torn.json");

#[test]
fn a_chatgpt_export_follows_the_current_branch() {
    let found = found(EXPORT);
    assert_eq!(found.format, Format::ChatGpt);
    assert_eq!(found.sessions.len(), 2);
    let trip = &found.sessions[0];
    assert_eq!(trip.title.as_deref(), Some("Trip to Lisbon"));
    let contents = &trip.contents;
    assert_eq!(contents.session.id, "67d3f1d0-1111-8012-9abc-000000000001");
    assert_eq!(contents.session.agent, "default");
    assert_eq!(contents.session.created_at, at("2025-03-14T09:00:00.251Z"));
    assert_eq!(contents.session.step_count, 2);
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"system","content":"I travel by train.\nAnswer briefly."}"#,
            r#"{"role":"user","content":"Which trains go from Madrid to Lisbon?"}"#,
            r#"{"role":"assistant","content":"[to browser] search(\"train Madrid Lisbon\")"}"#,
            r#"{"role":"user","content":"[browser] 0: Rail guide"}"#,
            r#"{"role":"user","content":"[browser] Rail guide\nhttps://rail.example/lisbon\nChange at Badajoz and Entroncamento."}"#,
            r#"{"role":"assistant","content":"Two changes,\nabout ten hours."}"#,
        ]
    );
    let report = report(&found);
    let place = "conversation \"Trip to Lisbon\"";
    assert!(report.contains(&format!(
        "{place}: 2 messages on other branches of the conversation were left out"
    )));
    // Its system message is empty, so there is no line about it.
    assert_eq!(report.iter().filter(|line| line.starts_with(place)).count(), 1);
}

#[test]
fn a_chatgpt_message_keeps_time_model_and_all_that_is_said_about_it() {
    let found = found(EXPORT);
    let messages = &found.sessions[0].contents.messages;
    // The context has no time; it gets that of the first message with one.
    assert_eq!(messages[0].created_at, at("2025-03-14T09:01:00.123Z"));
    assert_eq!(messages[1].created_at, at("2025-03-14T09:01:00.123Z"));
    assert_eq!(messages[1].model, None);
    assert_eq!(messages[5].model.as_deref(), Some("o3"));
    assert_eq!(messages[5].kind, EntryKind::Turn);
    let ask = |path: &[&str]| beside(&messages[1], &[&["chatgpt", "message"], path].concat());
    assert_eq!(ask(&["metadata", "serial"]), "123456789012345678901234567890");
    assert_eq!(ask(&["create_time"]), "1741942860.123456");
    // The content is fully represented by the message; that of the answer had two parts.
    assert_eq!(ask(&["content"]), "");
    let answer = beside(&messages[5], &["chatgpt", "message", "content", "parts"]);
    assert_eq!(answer, r#"["Two changes,","about ten hours."]"#);
}

#[test]
fn chatgpts_reasoning_travels_with_the_answer_and_out_of_models_sight() {
    let found = found(EXPORT);
    let contents = &found.sessions[0].contents;
    let before = |n: usize, path: &[&str]| {
        beside(&contents.messages[n], &[&["chatgpt", "before"], path].concat())
    };
    assert_eq!(
        before(2, &["0", "content", "thoughts", "0", "content"]),
        "\"There is no direct night train.\""
    );
    assert_eq!(before(5, &["0", "content", "content"]), "\"Thought for 4 seconds\"");
    assert!(!messages(contents).concat().contains("night train"));
    // No message follows the last reasoning of the other conversation.
    let contents = &found.sessions[1].contents;
    let after = carried(&contents.carried, &["bundle", "chatgpt", "after", "0", "id"]);
    assert_eq!(after, "\"last-thought\"");
    let line =
        "the whole file: 3 messages of reasoning were kept with the answers but not sent to models";
    assert!(report(&found).contains(&line.to_owned()));
}

#[test]
fn what_chatgpt_kept_elsewhere_leaves_a_note_and_a_line() {
    let found = found(EXPORT);
    let contents = &found.sessions[1].contents;
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"system","content":"1. Has a cat named Pixel."}"#,
            r#"{"role":"system","content":"Describe pictures in full."}"#,
            r#"{"role":"user","content":[{"type":"text","text":"[image: file-Pixel1]"},{"type":"text","text":"What is this? \udc00"},{"type":"text","text":"It sat on my keyboard."},{"type":"text","text":"[audio: file_0a1b]"},{"type":"text","text":"[hologram]"},{"type":"text","text":"[file: notes.pdf]"}]}"#,
            r#"{"role":"assistant","content":"[to python] print(2 + 2)"}"#,
            r#"{"role":"user","content":"[python] 4\n"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"[dalle.text2im] [image: file_0c2d]"}]}"#,
            r#"{"role":"user","content":"[python] took too long"}"#,
            r#"{"role":"assistant","content":"A cat, and"}"#,
        ]
    );
    let shape = beside(&contents.messages[2], &["chatgpt", "message", "content", "parts", "4"]);
    assert_eq!(shape, r#"{"content_type":"hologram","shape":[1,2.5]}"#);
    let show = "conversation \"Broken \u{fffd}\u{fffd}\u{fffd} pictures\", message 3";
    let elsewhere = "is not in the export; a note replaces it";
    let lines = report(&found);
    let of_show: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(show)).collect();
    assert_eq!(
        of_show,
        [
            format!(": the image file-Pixel1 {elsewhere}"),
            format!(": the audio file_0a1b {elsewhere}"),
            ": a part of the unknown kind hologram is kept but not sent; a note replaces it".into(),
            format!(": the file notes.pdf {elsewhere}"),
        ]
    );
}

#[test]
fn what_happens_everywhere_in_an_export_is_told_once() {
    let found = found(EXPORT);
    let lines = report(&found);
    let told: Vec<_> =
        lines.iter().filter_map(|line| line.strip_prefix("the whole file: ")).collect();
    let tool = "imported as text, because models accept no tool results without a call id";
    assert_eq!(
        told,
        [
            format!("3 messages from or to the tool `browser` were {tool}"),
            format!("1 message from or to the tool `dalle.text2im` was {tool}"),
            format!("3 messages from or to the tool `python` were {tool}"),
            "3 messages of reasoning were kept with the answers but not sent to models".into(),
            "1 message without text was kept but not sent to models".into(),
            "1 message not shown by ChatGPT was imported with the others".into(),
            "2 messages of custom instructions or memory were imported as a system message".into(),
        ]
    );
    let silent = &found.sessions[1].contents.messages[3];
    assert_eq!(beside(silent, &["chatgpt", "before", "0", "id"]), "\"silent\"");
}

#[test]
fn a_chatgpt_answer_that_was_stopped_says_so() {
    let stopped = found(EXPORT).sessions.pop().unwrap().contents.messages.pop().unwrap();
    assert_eq!(stopped.status, TurnStatus::Cancelled);
    let broken_off = found(TORN).sessions.remove(1).contents.messages.pop().unwrap();
    assert_eq!(broken_off.status, TurnStatus::Interrupted);
}

#[test]
fn what_is_said_about_a_chatgpt_conversation_comes_back_with_an_export() {
    let found = found(EXPORT);
    let bundle = found.sessions[0].contents.seal().text;
    let bundle = Value::parse(&bundle).unwrap();
    let about = bundle.get("chatgpt").unwrap().get("conversation").unwrap();
    assert_eq!(about.get("default_model_slug").and_then(Value::as_str), Some("o3"));
    assert_eq!(about.get("create_time").and_then(Value::as_f64), Some(1741942800.251377));
    assert!(about.get("mapping").is_none());
    // A title with a lone surrogate stays in place, and so does what only Python can parse.
    let about = &found.sessions[1].contents.carried;
    let about =
        |path: &[&str]| carried(about, &[&["bundle", "chatgpt", "conversation"], path].concat());
    assert_eq!(about(&["title"]), r#""Broken \ud83d pictures""#);
    assert_eq!(about(&["owner", "score"]), "Infinity");
}

#[test]
fn torn_chatgpt_trees_are_read_as_far_as_they_go() {
    let found = found(TORN);
    let texts = |n: usize| -> Vec<_> {
        found.sessions[n].contents.messages.iter().map(|part| part.message.content()).collect()
    };
    assert_eq!(found.sessions.len(), 3);
    assert_eq!(texts(0), ["one", "two"]);
    assert_eq!(texts(1), ["still here?", "yes"]);
    assert!(texts(2).is_empty());
    let [circle, orphan, empty] = [0, 1, 2].map(|n| found.sessions[n].contents.session.id.as_str());
    assert_eq!(circle, "circle");
    assert!(orphan.starts_with("file:") && empty.starts_with("file:") && orphan != empty);
    assert_eq!(found.sessions[2].contents.session.created_at, now());
    assert_eq!(found.sessions[0].contents.messages[0].created_at, now());
    assert_eq!(
        report(&found),
        [
            "conversation 1: its messages form a cycle, which was cut",
            "conversation \"Orphan s\": it has no current message; the newest one was used",
            "conversation \"Orphan s\": its beginning is missing",
            "conversation \"Orphan s\": 1 message on other branches of the conversation was left out",
            "element 3: is not a conversation but a JSON object with the members unrelated, and was left out",
        ]
    );
}

#[test]
fn a_single_chatgpt_conversation_is_an_export_too() {
    let text = r#"{"mapping":{"a":{"parent":null,"message":{"author":{"role":"critic"},
        "content":{"content_type":"text","parts":["hm"]}}}},"current_node":"a"}"#;
    let found = found(text);
    assert_eq!(found.format, Format::ChatGpt);
    let contents = &found.sessions[0].contents;
    assert_eq!(messages(contents), [r#"{"role":"user","content":"[critic] hm"}"#]);
    assert_eq!(contents.label, None);
}

#[test]
fn long_conversations_and_many_conversations_take_linear_time() {
    let started = Instant::now();
    let mut nodes = String::new();
    for n in 0..50_000 {
        let parent = if n == 0 { "null".into() } else { format!("\"n{}\"", n - 1) };
        let content = r#"{"content_type":"text","parts":["x"]}"#;
        let message = format!(r#"{{"author":{{"role":"user"}},"content":{content}}}"#);
        write!(nodes, r#""n{n}":{{"parent":{parent},"message":{message}}},"#).unwrap();
    }
    let long = format!(r#"{{"mapping":{{{nodes}"end":{{}}}},"current_node":"n49999"}}"#);
    assert_eq!(read(&long, now()).unwrap().sessions[0].contents.messages.len(), 50_000);
    let many = vec![r#"{"mapping":{},"current_node":null}"#; 100_000].join(",");
    assert_eq!(read(&format!("[{many}]"), now()).unwrap().sessions.len(), 100_000);
    // A quadratic walk would take minutes.
    assert!(started.elapsed().as_secs() < 60);
}
