use super::*;

const LIST: &str = include_str!("../../tests/data/messages.json");
const DIALOGUE: &str = include_str!("../../tests/data/dialogue.json");
const LINES: &str = include_str!("../../tests/data/messages.jsonl");
const TRAINING: &str = include_str!("../../tests/data/fine-tuning.jsonl");

#[test]
fn a_list_of_messages_is_one_session() {
    let found = found(LIST);
    assert_eq!(found.format, Format::Messages);
    let [session] = &found.sessions[..] else { panic!("{}", found.sessions.len()) };
    let contents = &session.contents;
    assert_eq!(session.title, None);
    assert!(contents.session.id.starts_with("file:"), "{}", contents.session.id);
    assert_eq!(contents.session.step_count, 3);
    assert_eq!(contents.carried, None);
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"system","content":"You book tables."}"#,
            r#"{"role":"user","content":[{"type":"text","text":"For two, \ud83d tonight."},{"type":"image_url","image_url":{"url":"https://menu.example/today.png"}}],"name":"ada"}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"book","arguments":"{\"seats\": 2}"}}]}"#,
            r#"{"role":"tool","tool_call_id":"call_1","content":"booked"}"#,
            r#"{"role":"user","content":"[weather] rain"}"#,
            r#"{"role":"assistant","content":"Done. \udc00","refusal":null}"#,
            r#"{"role":"assistant","tool_calls":[{"id":"call_2","type":"function","function":{"name":"book","arguments":"{}"}}]}"#,
            r#"{"role":"user","content":"Thanks."}"#,
        ]
    );
}

#[test]
fn fields_that_no_model_takes_are_carried() {
    let found = found(LIST);
    let messages = &found.sessions[0].contents.messages;
    assert_eq!(messages[0].carried, None);
    assert_eq!(beside(&messages[1], &["openai"]), r#"{"created_at":1742000000.5}"#);
    assert_eq!(messages[2].model.as_deref(), Some("gpt-4o-mini"));
    assert_eq!(
        beside(&messages[2], &["openai"]),
        r#"{"annotations":[],"usage":{"total_tokens":98765432109876543210}}"#
    );
    assert_eq!(
        beside(&messages[4], &["openai", "result"]),
        r#"{"role":"tool","tool_call_id":"call_9","name":"weather"}"#
    );
    assert_eq!(beside(&messages[6], &["openai", "content"]), "[NaN]");
}

#[test]
fn messages_without_a_time_have_that_of_the_one_before() {
    let found = found(LIST);
    let contents = &found.sessions[0].contents;
    let (asked, done) = (at("2025-03-15T00:53:20.5Z"), at("2025-03-15T01:00:00Z"));
    let times: Vec<_> = contents.messages.iter().map(|part| part.created_at).collect();
    assert_eq!(times, [asked, asked, asked, asked, asked, done, done, done]);
    assert_eq!(contents.session.created_at, asked);
}

#[test]
fn what_is_not_a_message_is_named_with_its_place() {
    assert_eq!(
        report(&found(LIST)),
        [
            "message 5: is a result of `weather` without its call; it is imported as text",
            "message 7: is not a message but a JSON string, and was left out",
            "message 8: is not a message, and was left out: each message needs a `role` of 1 to 64 characters",
            "message 9: its `content` holds NaN or an infinity, which no upstream accepts; it is kept but not sent",
            "message 9: calls a tool whose result is missing; an upstream may reject it",
        ]
    );
}

#[test]
fn an_object_with_messages_names_its_session() {
    let found = found(DIALOGUE);
    let session = &found.sessions[0];
    assert_eq!(session.title.as_deref(), Some("A table for two"));
    let contents = &session.contents;
    assert_eq!(contents.session.id, "chat-42");
    assert_eq!(contents.session.agent, "concierge");
    assert_eq!(contents.session.created_at, at("2025-03-15T00:53:20Z"));
    assert_eq!(messages(contents).len(), 2);
    assert_eq!(
        carried(&contents.carried, &["bundle", "openai"]),
        r#"{"id":"chat-42","agent":"concierge","created":1742000000,"model":"gpt-4o-mini","temperature":0.2,"seed":340282366920938463463374607431768211456}"#
    );
    assert!(found.report.is_empty());
}

#[test]
fn messages_one_a_line_are_one_session() {
    let found = found(LINES);
    assert_eq!(found.format, Format::Messages);
    let contents = &found.sessions[0].contents;
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"user","content":"one"}"#,
            r#"{"role":"assistant","content":"two"}"#,
            r#"{"role":"user","content":"three"}"#,
        ]
    );
    assert_eq!(contents.messages[2].created_at, at("2025-03-15T08:30:00Z"));
    assert_eq!(
        report(&found),
        [
            "line 4: is not JSON and was left out: a value is missing at byte 0 of the line",
            "line 5: is not a message but a JSON array, and was left out",
        ]
    );
}

#[test]
fn dialogues_one_a_line_are_a_session_each() {
    let found = found(TRAINING);
    let [first, second] = &found.sessions[..] else { panic!() };
    assert_ne!(first.contents.session.id, second.contents.session.id);
    assert_eq!(messages(&first.contents).len(), 3);
    assert_eq!(beside(&first.contents.messages[2], &["openai"]), r#"{"weight":1}"#);
    assert_eq!(messages(&second.contents).len(), 2);
    let tools = carried(&second.contents.carried, &["bundle", "openai", "tools", "0", "type"]);
    assert_eq!(tools, "\"function\"");
    assert_eq!(
        report(&found),
        [
            "line 2, message 2: is not a message but a JSON number, and was left out",
            "line 3: is not a conversation but a JSON object with the members prompt, completion, and was left out",
        ]
    );
}

#[test]
fn one_message_alone_is_a_session() {
    let found = found(r#"{"role":"user","content":"hi"}"#);
    assert_eq!(messages(&found.sessions[0].contents), [r#"{"role":"user","content":"hi"}"#]);
}

#[test]
fn a_call_that_still_waits_for_its_result_is_no_problem() {
    let waiting = r#"[{"role":"user","content":"go"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}]"#;
    assert!(found(waiting).report.is_empty());
    // A second result of the same call would be refused like one without any.
    let twice = r#"[{"role":"assistant","tool_calls":[{"id":"c"}]},
        {"role":"tool","tool_call_id":"c","content":"1"},
        {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"2"}]},
        {"role":"tool","content":null}]"#;
    let found = found(twice);
    assert_eq!(found.report.len(), 2);
    let last = messages(&found.sessions[0].contents)[2..].join("\n");
    assert_eq!(
        last,
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"[tool]\"},{\"type\":\"text\",\"text\":\"2\"}]}\n\
         {\"role\":\"user\",\"content\":\"[tool]\"}"
    );
}

#[test]
fn a_message_with_very_many_fields_takes_no_quadratic_time() {
    let fields: Vec<_> = (0..100_000).map(|n| format!("\"f{n}\":{n}")).collect();
    let text = format!(r#"{{"role":"user","content":"hi",{}}}"#, fields.join(","));
    let found = read(&text, now()).unwrap();
    let kept = beside(&found.sessions[0].contents.messages[0], &["openai", "f99999"]);
    assert_eq!(kept, "99999");
}

#[test]
fn messages_of_another_kind_are_refused() {
    let slack = r#"{"messages":[{"type":"message","user":"U1","text":"hi"}]}"#;
    assert_eq!(refused(slack), "a JSON object with the members messages");
}

#[test]
fn every_field_that_goes_to_models_is_one_that_stays_when_a_bundle_is_opened() {
    let text = r#"{"role":"assistant","content":"a","name":"n","tool_calls":[],"tool_call_id":"t",
        "function_call":null,"refusal":"no","audio":{"id":"x"},"reasoning":"r",
        "reasoning_content":"c"}"#;
    let found = found(&format!("[{text}]"));
    let part = &found.sessions[0].contents.messages[0];
    assert_eq!(part.message.as_json(), Value::parse(text).unwrap().to_json());
    assert_eq!(part.carried, None);
}
