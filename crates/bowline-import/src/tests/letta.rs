use super::*;

const AGENT: &str = include_str!("../../tests/data/agent.af");
const AGENTS: &str = include_str!("../../tests/data/agents.af");

fn memories(contents: &Contents) -> Vec<(&str, Timestamp)> {
    let memory = contents.memory.as_deref().unwrap_or_default();
    assert!(memory.iter().all(|part| part.kind == "semantic" && part.text.len() <= 4096));
    memory.iter().map(|part| (part.text.as_str(), part.created_at)).collect()
}

#[test]
fn a_letta_agent_brings_its_messages_and_its_memory() {
    let found = found(AGENT);
    assert_eq!(found.format, Format::Letta);
    let [session] = &found.sessions[..] else { panic!("{}", found.sessions.len()) };
    assert_eq!(session.title.as_deref(), Some("knotty"));
    let contents = &session.contents;
    assert_eq!(contents.session.agent, "knotty");
    assert!(contents.session.id.starts_with("file:"), "{}", contents.session.id);
    assert_eq!(contents.session.created_at, at("2025-04-01T03:47:27Z"));
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"system","content":"You tie knots."}"#,
            r#"{"role":"user","content":"{\"type\": \"login\", \"last_login\": \"Never\", \"time\": \"2025-04-01 03:47:28 AM UTC+0000\"}"}"#,
            r#"{"role":"assistant","content":"First boot.","tool_calls":[{"id":"call-a","type":"function","function":{"name":"send_message","arguments":"{\"message\": \"Ahoy!\"}"}}]}"#,
            r#"{"role":"tool","content":"{\"status\": \"OK\", \"message\": \"None\"}","tool_call_id":"call-a"}"#,
            r#"{"role":"user","content":"{\"type\": \"heartbeat\", \"reason\": \"[This is an automated system message hidden from the user]\"}"}"#,
        ]
    );
    assert_eq!(
        memories(contents),
        [
            ("persona: I am Sam.\nI like ropes.", at("2025-04-01T03:47:27.501Z")),
            ("human: Name: Ada", at("2025-04-01T03:47:27Z")),
        ]
    );
    assert_eq!(contents.messages[2].model.as_deref(), Some("gpt-4o"));
    assert_eq!(contents.messages[2].created_at, at("2025-04-01T03:47:30Z"));
}

#[test]
fn what_a_letta_agent_has_besides_is_carried_and_told() {
    let found = found(AGENT);
    let contents = &found.sessions[0].contents;
    let agent =
        |path: &[&str]| carried(&contents.carried, &[&["bundle", "letta", "agent"], path].concat());
    assert_eq!(agent(&["tools", "2", "name"]), "\"tie\"");
    assert_eq!(agent(&["tool_rules", "0", "type"]), "\"exit_loop\"");
    assert_eq!(agent(&["in_context_message_indices"]), "[0,1,2,3,4]");
    assert_eq!(agent(&["core_memory", "0", "limit"]), "5000");
    // Imported messages and memories are not carried as well.
    for placed in [&["core_memory", "0", "value"][..], &["messages"], &["system"]] {
        assert_eq!(agent(placed), "");
    }
    let reasoning = beside(&contents.messages[2], &["letta", "content", "0", "reasoning"]);
    assert_eq!(reasoning, "\"A greeting is due.\"");
    assert_eq!(beside(&contents.messages[2], &["letta", "name"]), "\"knotty\"");
    assert_eq!(beside(&contents.messages[1], &["letta", "content"]), "");
    let aside =
        carried(&contents.carried, &["bundle", "letta", "aside", "0", "content", "0", "data"]);
    assert_eq!(aside, "\"b3BhcXVl\"");
    let kept = "was kept; the gateway's own settings apply here";
    assert_eq!(
        report(&found),
        [
            "agent \"knotty\": 3 tools were kept but cannot run here".to_owned(),
            "agent \"knotty\": 1 rule for tools was kept but without effect here".into(),
            "agent \"knotty\": 1 environment variable was kept with the value, which is part of every export".into(),
            format!("agent \"knotty\": its llm_config {kept}"),
            format!("agent \"knotty\": its embedding_config {kept}"),
            "agent \"knotty\", message 5: has no content for a model; it is kept but not sent to models".into(),
        ]
    );
}

#[test]
fn each_agent_of_a_letta_file_is_a_session() {
    let found = found(AGENTS);
    let [captain, cook] = &found.sessions[..] else { panic!("{}", found.sessions.len()) };
    assert_eq!(captain.contents.session.id, "agent-0");
    assert_eq!(captain.contents.session.agent, "captain");
    // Not a valid agent id here.
    assert_eq!(
        (cook.title.as_deref(), cook.contents.session.agent.as_str()),
        (Some("cook\0"), "default")
    );
    assert_eq!(messages(&cook.contents), [r#"{"role":"system","content":"You cook."}"#]);
    let shared =
        |contents| memories(contents).into_iter().map(|(text, _)| text).collect::<Vec<_>>();
    assert_eq!(
        shared(&captain.contents),
        ["persona: Captain of the Bowline.", "ship: Sails at dawn."]
    );
    assert_eq!(shared(&cook.contents), ["ship: Sails at dawn."]);
    let file = |session: &Conversation, path: &[&str]| {
        carried(&session.contents.carried, &[&["bundle", "letta", "file"], path].concat())
    };
    assert_eq!(file(captain, &["tools", "0", "name"]), "\"sextant\"");
    assert_eq!(
        file(captain, &["blocks", "1"]),
        r#"{"id":"block-1","label":"ship","limit":20000,"read_only":true}"#
    );
    assert_eq!(file(captain, &["blocks", "2", "value"]), "\"Nobody knows.\"");
    assert_eq!(file(cook, &[]), "");
}

#[test]
fn letta_messages_become_what_models_take() {
    let found = found(AGENTS);
    let contents = &found.sessions[0].contents;
    assert_eq!(
        messages(contents),
        [
            r#"{"role":"system","content":"You command a ship.\n\n<memory_blocks>\u2026</memory_blocks>"}"#,
            r#"{"role":"user","content":"[radio] old news"}"#,
            r#"{"role":"user","content":[{"type":"text","text":"Where are we?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},{"type":"text","text":"[image: file-9]"}]}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call-1","type":"function","function":{"name":"sextant","arguments":"{}"}},{"id":"call-2","type":"function","function":{"name":"log","arguments":"{}"}}]}"#,
            r#"{"role":"tool","content":"38N 9W","tool_call_id":"call-1"}"#,
            r#"{"role":"tool","content":"calm","tool_call_id":"call-2"}"#,
            r#"{"role":"assistant","content":"Off Lisbon."}"#,
        ]
    );
    assert_eq!(beside(&contents.messages[3], &["letta", "role"]), "\"approval\"");
    // One message became two; the original is carried with the first.
    assert_eq!(beside(&contents.messages[4], &["letta", "content", "0", "text"]), "\"38N 9W\"");
    assert_eq!(contents.messages[5].carried, None);
    assert_eq!(
        report(&found),
        [
            "the whole file: the memory block `stowaway` belongs to no agent; it is kept but not imported",
            "the whole file: 1 tool was kept but cannot run here",
            "the whole file: 1 group of agents was kept but without effect here",
            "agent \"captain\": 1 secret was kept with the value, which is part of every export",
            "agent \"captain\": its llm_config was kept; the gateway's own settings apply here",
            "agent \"captain\", message 2: is a result of `radio` without its call; it is imported as text",
            "agent \"captain\", message 3: the image file-9 is not in the file; a note replaces it",
            "agent \"captain\", message 5: is an approval of a tool call; it is kept but not sent to models",
            "agent \"captain\", message 8: has no role; it is kept but not sent to models",
            "agent 3: is not an agent but a JSON null, and was left out",
        ]
    );
}

#[test]
fn a_long_memory_block_is_remembered_in_pieces() {
    let value = "A line about ropes.\\n".repeat(500);
    let text = format!(
        r#"{{"agent_type":"x","messages":[],"core_memory":[{{"label":"persona","value":"{value}"}},
            {{"label":"half","value":"\ud800"}}]}}"#
    );
    let found = found(&text);
    let contents = &found.sessions[0].contents;
    let pieces = memories(contents);
    assert_eq!(pieces.len(), 3);
    let whole = pieces.iter().map(|(text, _)| text.strip_prefix("persona: ").unwrap());
    let whole = whole.collect::<Vec<_>>().join("\n");
    assert_eq!(whole, "A line about ropes.\n".repeat(500).trim_end());
    // A value that cannot be a memory stays in place.
    let path = ["bundle", "letta", "agent", "core_memory", "1", "value"];
    assert_eq!(carried(&contents.carried, &path), r#""\ud800""#);
    assert_eq!(
        report(&found),
        ["agent 1: the memory block `half` is not text; it is kept but not imported"]
    );
}

#[test]
fn a_block_that_a_thousand_agents_share_is_not_repeated_without_end() {
    let agents = vec![r#"{"block_ids":["b"],"messages":[]}"#; 1000].join(",");
    let value = "x".repeat(100_000);
    let text =
        format!(r#"{{"agents":[{agents}],"blocks":[{{"id":"b","label":"l","value":"{value}"}}]}}"#);
    let found = read(&text, now()).unwrap();
    let remembering = found.sessions.iter().filter(|one| one.contents.memory.is_some()).count();
    assert_eq!((found.sessions.len(), remembering), (1000, 2));
    assert_eq!(found.report.len(), 998);
}

#[test]
fn a_letta_tool_result_keeps_its_call() {
    let found = found(AGENT);
    let result = &found.sessions[0].contents.messages[3];
    assert_eq!(beside(result, &["letta", "tool_call_id"]), "");
    assert_eq!(beside(result, &["letta", "tool_returns", "0", "status"]), "\"success\"");
}

#[test]
fn objects_that_only_look_like_an_agent_file_are_refused() {
    let config = r#"{"agents":[{"model":"m"}],"tools":[]}"#;
    assert_eq!(refused(config), "a JSON object with the members agents, tools");
    let found = found(r#"{"agents":[],"tools":[]}"#);
    assert_eq!((found.format, found.sessions.len()), (Format::Letta, 0));
    let line = "the whole file: holds no agent, so nothing can be imported";
    assert_eq!(report(&found), [line]);
}
