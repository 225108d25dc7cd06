//! Calls of a client's own tools, with turns of others between a call and its result.

use super::*;

fn calls(ids: &[&str]) -> Message {
    let ids: Vec<_> = ids.iter().map(|id| serde_json::json!({ "id": id })).collect();
    let body = serde_json::json!({ "role": "assistant", "content": null, "tool_calls": ids });
    raw(&body.to_string())
}

fn result(id: &str, text: &str) -> Message {
    raw(&format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#))
}

#[test]
fn sbp_l1_12_a_result_stays_behind_its_call_when_the_phone_took_a_turn_meanwhile() {
    let mut world = World::default();
    world.take(ME, None, &[user("u1")], calls(&["c1", "c2"]));
    world.phone("p", "P");
    let mut sent = vec![user("u1"), calls(&["c1", "c2"]), result("c1", "r1"), result("c2", "r2")];
    let took = world.say(&sent, "A");
    assert_eq!(took.prompt, ["u p", "a P", "u u1", "a calls", "t r1", "t r2"]);
    assert_eq!(took.stored, ["t r1", "t r2"]);
    // The same in the next turns of both.
    sent.extend([assistant("A"), user("u2")]);
    let took = world.say(&sent, "B");
    let first = ["u p", "a P", "u u1", "a calls", "t r1", "t r2", "a A"];
    assert_eq!(took.prompt[..7], first);
    assert_eq!(took.prompt[7..], ["u u2"]);
    let asked = Asked { messages: &[user("q")], caller: None, mode: None };
    let prompt: Vec<_> = plan(&world.log, asked, None).prompt.into_iter().map(show).collect();
    assert_eq!(prompt[..7], first);
    assert_eq!(prompt[7..], ["u u2", "a B", "u q"]);
}

#[test]
fn sbp_l1_12_a_result_that_is_sent_alone_goes_behind_its_call() {
    let mut world = World::default();
    world.take(ME, None, &[user("u1")], calls(&["c1"]));
    world.phone("p", "P");
    let took = world.say(&[result("c1", "r1"), user("and?")], "A");
    assert_eq!(took.prompt, ["u p", "a P", "u u1", "a calls", "t r1", "u and?"]);
    assert_eq!(took.stored, ["t r1", "u and?"]);
}

#[test]
fn sbp_l1_12_call_ids_that_are_used_again_belong_to_the_latest_call() {
    let mut world = World::default();
    for n in 1..4 {
        world.take(ME, None, &[user(&format!("u{n}"))], calls(&["call_0"]));
        world.phone(&format!("p{n}"), "P");
        world.say(&[result("call_0", &format!("r{n}"))], &format!("A{n}"));
    }
    let took = world.say(&[user("end")], "E");
    let expected = |n: usize| {
        [format!("u p{n}"), "a P".into(), format!("u u{n}"), "a calls".into(), format!("t r{n}")]
            .into_iter()
            .chain([format!("a A{n}")])
    };
    let expected: Vec<_> = (1..4).flat_map(expected).chain(["u end".into()]).collect();
    assert_eq!(took.prompt, expected);
}

#[test]
fn sbp_l1_11_a_call_is_known_by_its_id_whatever_its_question_became() {
    let mut world = World::default();
    let calls = raw(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#);
    let result = raw(r#"{"role":"tool","tool_call_id":"c1","content":"r"}"#);
    world.take(ME, None, &[user("now it is eight, what is the weather?")], calls.clone());
    let took = world.say(&[user("it became nine and windy: weather?"), calls, result], "A");
    assert_eq!((took.prompt.len(), took.stored), (3, vec!["t r".to_owned()]));
}

#[test]
fn sbp_l1_12_an_empty_list_of_calls_is_no_call() {
    let mut world = World::default();
    let said = raw(r#"{"role":"assistant","content":"A1","tool_calls":[]}"#);
    let calls = raw(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#);
    let result = raw(r#"{"role":"tool","tool_call_id":"c1","content":"r"}"#);
    world.take(ME, None, &[user("u1")], said.clone());
    world.take(ME, None, &[user("u1"), said.clone(), user("u2")], calls.clone());
    world.phone("p", "P");
    let took = world.say(&[user("u1"), said, user("u2"), calls, result], "A2");
    assert_eq!(took.prompt, ["u u1", "a A1", "u p", "a P", "u u2", "a calls", "t r"]);
}
