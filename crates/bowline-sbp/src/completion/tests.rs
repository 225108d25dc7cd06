use super::*;

fn chunk(delta: Value) -> String {
    json!({"id":"c1","object":"chat.completion.chunk","created":7,"model":"m",
           "choices":[{"index":0,"delta":delta,"finish_reason":null}]})
    .to_string()
}

#[test]
fn text_chunks_become_one_message() {
    let mut assembly = Assembly::default();
    assembly.push(&chunk(json!({"role":"assistant","content":""}))).unwrap();
    let added = assembly.push(&chunk(json!({"content":"Hé"}))).unwrap();
    assert_eq!(added, Added { text: "Hé".into(), speaks: true, calls: false });
    assembly.push(&chunk(json!({"content":"llo"}))).unwrap();
    assembly.push(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#).unwrap();
    assert!(assembly.has_finished() && !assembly.ended_well(), "stopped at a length");
    let count = r#"{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":5}}"#;
    assert!(!assembly.push(count).unwrap().speaks);
    let answer = assembly.finish();
    assert_eq!(answer.message.as_json(), r#"{"role":"assistant","content":"Héllo"}"#);
    assert_eq!(answer.usage.total_tokens, 5);
    let completion: Value = serde_json::from_str(&answer.completion).unwrap();
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
    assert_eq!(completion["id"], "c1");
}

#[test]
fn tool_calls_and_unknown_fields_are_put_together() {
    let mut assembly = Assembly::default();
    for delta in [
        json!({"reasoning_content":"hm"}),
        json!({"reasoning_content":"m."}),
        json!({"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}),
        json!({"tool_calls":[{"index":0,"id":"t1","function":{"arguments":"{\"a\""}}]}),
        json!({"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}),
        json!({"tool_calls":[{"index":4000000000u32,"id":"t2","function":{"name":"g"}}]}),
    ] {
        assembly.push(&chunk(delta)).unwrap();
    }
    let message: Value = serde_json::from_str(assembly.finish().message.as_json()).unwrap();
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["reasoning_content"], "hmm.");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"a":1}"#);
    assert_eq!(message["tool_calls"][0]["id"], "t1");
    assert_eq!(message["tool_calls"][1]["function"]["name"], "g");
}

fn calls_of(deltas: &[Value]) -> Vec<(String, String, String)> {
    let mut assembly = Assembly::default();
    for calls in deltas {
        assembly.push(&chunk(json!({ "tool_calls": calls }))).unwrap();
    }
    let calls = assembly.take_calls(|_| true);
    calls.into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
}

fn three(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.into(), name.into(), arguments.into())
}

#[test]
fn sbp_l5_02_fragments_find_their_call_whatever_its_index() {
    let begin = |index: u64, id: &str, name: &str| {
        json!([{ "index": index, "id": id, "type": "function",
                 "function": { "name": name, "arguments": "" } }])
    };
    let more =
        |index: u64, text: &str| json!([{ "index": index, "function": { "arguments": text } }]);
    // Counted from 1, interleaved, and with an index too large to allocate for.
    for (one, two) in [(1, 2), (0, 1), (2, 1), (7, u64::MAX)] {
        let calls = calls_of(&[
            begin(one, "a", "f"),
            begin(two, "b", "g"),
            more(one, "{\"x\""),
            more(two, "{}"),
            more(one, ":1}"),
        ]);
        assert_eq!(calls, [three("a", "f", "{\"x\":1}"), three("b", "g", "{}")]);
    }
}

#[test]
fn sbp_l5_02_fragments_without_an_index_go_by_id_or_to_the_last_call() {
    let calls = calls_of(&[
        json!([{ "id": "a", "function": { "name": "f", "arguments": "{\"x\"" } }]),
        json!([{ "function": { "arguments": ":1" } }]),
        json!([{ "id": "b", "function": { "name": "g", "arguments": "{" } }]),
        json!([{ "id": "a", "function": { "arguments": "}" } }]),
        json!([{ "id": "", "function": { "name": "", "arguments": "}" } }]),
        json!([{ "function": { "name": "h", "arguments": "{}" } }]),
    ]);
    let expected = [three("a", "f", "{\"x\":1}"), three("b", "g", "{}"), three("", "h", "{}")];
    assert_eq!(calls, expected);
}

#[test]
fn sbp_l5_02_an_id_or_name_that_comes_late_is_the_calls() {
    let calls = calls_of(&[
        json!([{ "index": 1, "id": null, "function": { "arguments": "{" } }]),
        json!([{ "index": 1, "id": "a", "function": { "name": "f" } }]),
        json!([{ "index": 1, "id": "a", "function": { "arguments": "}" } }]),
    ]);
    assert_eq!(calls, [three("a", "f", "{}")]);
}

#[test]
fn sbp_l5_02_indexes_of_an_earlier_round_mean_nothing_in_the_next() {
    let mut assembly = Assembly::default();
    for name in ["f", "g"] {
        let call = json!({"tool_calls":[{"index":1,"id":name,"function":{"name":name}}]});
        assembly.push(&chunk(call)).unwrap();
        let taken = assembly.take_calls(|_| true);
        assert_eq!((taken.len(), taken[0].name.as_str()), (1, name));
        assembly.next_round();
    }
}

#[test]
fn rounds_with_tools_between_them_are_one_answer() {
    let mut assembly = Assembly::default();
    assembly.push(&chunk(json!({"content":"One moment. "}))).unwrap();
    let call = |name: &str| json!({"id":name,"function":{"name":name,"arguments":"{}"}});
    let calls = json!({"tool_calls":[call("mine"), call("theirs")]});
    assert!(assembly.push(&chunk(calls)).unwrap().calls);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":5}}"#;
    assembly.push(usage).unwrap();
    let taken = assembly.take_calls(|name| name == "mine");
    assert_eq!((taken.len(), taken[0].id.as_str()), (1, "mine"));
    assert!(assembly.has_calls());
    assert_eq!(assembly.take_calls(|_| true).len(), 1);
    assert_eq!(assembly.next_round().total_tokens, 5);
    assert!(!assembly.has_finished());
    assembly.push(&chunk(json!({"content":"Done."}))).unwrap();
    assembly.push(usage).unwrap();
    let answer = assembly.finish();
    assert_eq!(answer.message.content(), "One moment. Done.");
    assert_eq!(answer.usage.total_tokens, 5, "the last round's own");
    let completion: Value = serde_json::from_str(&answer.completion).unwrap();
    assert_eq!(completion["usage"]["total_tokens"], 10);
}

#[test]
fn calls_survive_the_log() {
    let call = ToolCall { id: "c".into(), name: "f".into(), arguments: r#"{"a":"é"}"#.into() };
    let message = ToolCall::message(std::slice::from_ref(&call));
    assert_eq!(ToolCall::all_of(&message), std::slice::from_ref(&call));
    assert_eq!(call.result("ok").content(), "ok");
    assert!(ToolCall::all_of(&Message::text("assistant", "x")).is_empty());
}

#[test]
fn a_whole_completion_keeps_its_text() {
    let text = r#"{"id":"x", "choices":[{"message":{"role":"assistant","content":"a"}}],"model":"m","usage":{"prompt_tokens":1}}"#;
    let answer = Answer::read(text.into()).unwrap();
    assert_eq!(answer.completion, text);
    assert_eq!(answer.message.content(), "a");
    assert_eq!(answer.model.as_deref(), Some("m"));
    assert!(Answer::read("{}".into()).is_err());
    assert!(Answer::read(r#"{"choices":[]}"#.into()).is_err());
    assert!(Answer::read("<html>".into()).is_err());
}

#[test]
fn a_whole_completion_can_be_read_as_a_stream() {
    let whole = json!({"id":"x","object":"chat.completion","model":"m","usage":{},
        "choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant",
        "content":"a","tool_calls":[{"id":"t","function":{"name":"f","arguments":"{}"}}]}}]});
    let chunk = as_chunk(&whole.to_string()).unwrap();
    let mut assembly = Assembly::default();
    assert_eq!(assembly.push(&chunk).unwrap().text, "a");
    assert!(assembly.has_finished());
    let message: Value = serde_json::from_str(assembly.finish().message.as_json()).unwrap();
    assert_eq!(message["tool_calls"][0]["id"], "t");
    assert_eq!(as_chunk("[]"), None);
}

#[test]
fn a_field_is_added_without_touching_the_rest() {
    assert_eq!(with_field("{\"a\": 1e400 }\n", "b", "2").unwrap(), "{\"a\": 1e400 ,\"b\":2}");
    assert_eq!(with_field("{}", "b", "2").unwrap(), "{\"b\":2}");
    assert_eq!(with_field("[]", "b", "2"), None);
}
