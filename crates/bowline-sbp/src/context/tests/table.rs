//! One test per rule.

use super::*;

#[test]
fn sbp_l1_11_new_messages_get_the_history_and_the_instruction_prepended() {
    let mut world = World::default();
    world.say(&[system("s"), user("a")], "A");
    let took = world.say(&[user("b"), user("c")], "B");
    assert_eq!(took.prompt, ["s s", "u a", "a A", "u b", "u c"]);
    assert_eq!(took.stored, ["u b", "u c"]);
    // The same words again are new words.
    assert_eq!(world.say(&[user("b")], "C").stored, ["u b"]);
}

#[test]
fn sbp_l1_11_a_changed_system_message_is_the_instruction_and_no_new_entry() {
    let mut world = World::default();
    world.say(&[system("at 1"), user("a")], "A");
    let took = world.say(&[system("at 2"), user("a"), assistant("A"), user("b")], "B");
    assert_eq!(took.prompt, ["s at 2", "u a", "a A", "u b"]);
    assert_eq!(world.stored(), ["s at 1", "u a", "a A", "u b", "a B"]);
    // Whoever sends none gets the current one.
    assert_eq!(world.say(&[user("c")], "C").prompt[..2], ["s at 2", "u a"]);
    let developer = raw(r#"{"role":"developer","content":"at 3"}"#);
    let took = world.say(&[developer, user("d")], "D");
    assert_eq!((took.prompt[0].as_str(), took.stored), ("d at 3", vec!["u d".to_owned()]));
}

#[test]
fn sbp_l1_11_pairs_that_are_not_in_the_log_are_examples() {
    let mut world = World::default();
    let examples = [system("s"), user("2+2"), assistant("4")];
    let ask = |text: &str| [examples.to_vec(), vec![user(text)]].concat();
    let took = world.say(&ask("a"), "A");
    assert_eq!(took.prompt, ["s s", "u 2+2", "a 4", "u a"]);
    assert_eq!(took.stored, ["s s", "u a"]);
    let took = world.say(&ask("b"), "B");
    assert_eq!(took.prompt, ["s s", "u 2+2", "a 4", "u a", "a A", "u b"]);
    assert_eq!(took.stored, ["u b"]);
    // Beside a resent history they stay where the caller puts them.
    let all = [ask("a"), vec![assistant("A"), user("b"), assistant("B"), user("c")]].concat();
    let took = world.say(&all, "C");
    assert_eq!(took.prompt, ["s s", "u 2+2", "a 4", "u a", "a A", "u b", "a B", "u c"]);
    assert_eq!(took.stored, ["u c"]);
}

#[test]
fn sbp_l1_11_what_the_caller_never_saw_is_put_in_its_place() {
    let mut world = World::default();
    world.phone("p0", "P0");
    world.say(&[user("a")], "A");
    world.phone("p1", "P1");
    let mut mine = vec![user("a"), assistant("A"), user("b")];
    let took = world.say(&mine, "B");
    assert_eq!(took.prompt, ["u p0", "a P0", "u a", "a A", "u p1", "a P1", "u b"]);
    assert_eq!(took.stored, ["u b"]);
    mine.extend([assistant("B"), user("c")]);
    let took = world.say(&mine, "C");
    assert_eq!(took.prompt[4..], ["u p1", "a P1", "u b", "a B", "u c"]);
    // A window that begins after the phone's turns leaves them out.
    let took = world.say(&[user("c"), assistant("C"), user("d")], "D");
    assert_eq!(took.prompt, ["u c", "a C", "u d"]);
}

#[test]
fn sbp_l1_11_another_caller_of_the_session_is_not_this_one() {
    let mut world = World::default();
    let other = CallerTag(2);
    world.say(&[user("a")], "A");
    world.take(other, None, &[user("x")], assistant("X"));
    let took = world.say(&[user("a"), assistant("A"), user("b")], "B");
    assert_eq!(took.prompt, ["u a", "a A", "u x", "a X", "u b"]);
}

#[test]
fn sbp_l1_11_nothing_new_means_regenerate() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    world.say(&[user("a"), assistant("A"), user("b")], "B");
    let took = world.say(&[user("a"), assistant("A"), user("b")], "B2");
    assert_eq!((took.stored.len(), took.replaces), (0, Some(4)));
    assert_eq!(took.prompt, ["u a", "a A", "u b"]);
    assert_eq!(world.stored(), ["u a", "a A", "u b", "a B", "a B2"], "both stay in the log");
    // The answer itself sent again asks for another one, too.
    let took = world.say(&[user("a"), assistant("A"), user("b"), assistant("B2")], "B3");
    assert_eq!((took.stored.len(), took.replaces), (0, Some(5)));
    assert_eq!(took.prompt, ["u a", "a A", "u b"]);
    // Whoever gets the stored history is sent the newest answer, in the place of the first.
    world.phone("p", "P");
    assert_eq!(
        world.say(&[user("c")], "C").prompt,
        ["u a", "a A", "u b", "a B3", "u p", "a P", "u c"]
    );
    // And its caller may go on from any of them.
    let took = world.say(&[user("a"), assistant("A"), user("b"), assistant("B"), user("d")], "D");
    assert_eq!(took.stored, ["u d"]);
}

#[test]
fn sbp_l1_11_an_answer_in_the_middle_is_regenerated_in_its_place() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    world.phone("p", "P");
    let took = world.take(ME, Some(HistoryMode::Mine), &[user("a")], assistant("A2"));
    // The phone's turn came later, so this caller says it again instead.
    assert_eq!((took.replaces, took.stored), (None, vec!["u a".to_owned()]));
    let mut world = World::default();
    world.say(&[user("a")], "A");
    world.say(&[user("a"), assistant("A"), user("b")], "B");
    world.phone("p", "P");
    let took = world.say(&[user("a"), assistant("A"), user("b")], "B2");
    assert_eq!(
        (took.prompt, took.replaces),
        (vec!["u a".into(), "a A".into(), "u b".into()], Some(4))
    );
    let took = world.say(&[user("c")], "C");
    assert_eq!(took.prompt, ["u a", "a A", "u b", "a B2", "u p", "a P", "u c"]);
}

#[test]
fn sbp_l1_11_the_caller_decides_explicitly() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    let (mine, stored) = (Some(HistoryMode::Mine), Some(HistoryMode::Stored));
    let took = world.take(ME, mine, &[user("a")], assistant("A2"));
    assert_eq!((took.stored.len(), took.replaces), (0, Some(2)));
    let took = world.take(ME, mine, &[user("b")], assistant("B"));
    assert_eq!((took.prompt, took.stored), (vec!["u b".to_owned()], vec!["u b".to_owned()]));
    let took = world.take(ME, stored, &[user("b"), assistant("B"), user("c")], assistant("C"));
    assert_eq!(took.prompt, ["u a", "a A2", "u b", "a B", "u c"]);
    assert_eq!(took.stored, ["u c"]);
    let took = world.take(ME, stored, &[user("b"), assistant("B"), user("c")], assistant("C2"));
    assert_eq!((took.stored.len(), took.replaces), (0, Some(7)));
    assert_eq!(took.prompt, ["u a", "a A2", "u b", "a B", "u c"]);
}

#[test]
fn sbp_l1_11_an_unanswered_message_is_asked_again_without_a_copy() {
    let mut world = World::default();
    let turn = world.turn();
    world.append(turn, Some(ME), None, user("a"));
    let took = world.say(&[user("a")], "A");
    assert_eq!((took.stored.len(), took.replaces), (0, None));
    assert_eq!(took.prompt, ["u a"]);
    let turn = world.turn();
    world.append(turn, Some(ME), None, user("b"));
    let took = world.say(&[user("a"), assistant("A"), user("b")], "B");
    assert_eq!((took.prompt.len(), took.stored.len(), took.replaces), (3, 0, None));
}

#[test]
fn sbp_l1_11_an_edited_question_is_new_and_the_old_one_is_not_sent() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    world.say(&[user("a"), assistant("A"), user("b")], "B");
    let took = world.say(&[user("a"), assistant("A"), user("b, please")], "B2");
    assert_eq!(took.prompt, ["u a", "a A", "u b, please"]);
    assert_eq!((took.stored, took.replaces), (vec!["u b, please".to_owned()], None));
}

#[test]
fn sbp_l1_11_repeated_words_stay_apart() {
    let mut world = World::default();
    for n in 1..=4 {
        let pair = || [user("continue"), assistant("ok")];
        let mut sent: Vec<_> = (1..n).flat_map(|_| pair()).collect();
        sent.push(user("continue"));
        let took = world.say(&sent, "ok");
        assert_eq!((took.prompt.len(), took.stored.len()), (2 * n - 1, 1));
    }
    // A window of such a conversation, and one more.
    let took = world.say(&[user("continue"), assistant("ok"), user("continue")], "ok");
    assert_eq!((took.prompt.len(), took.stored.len()), (3, 1));
}

#[test]
fn sbp_l1_12_tool_results_are_new_and_the_gateways_calls_are_put_back() {
    let mut world = World::default();
    let calls = raw(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#);
    let result = raw(r#"{"role":"tool","tool_call_id":"c1","content":"r"}"#);
    world.take(ME, None, &[user("a")], calls.clone());
    let took = world.say(&[user("a"), calls.clone(), result.clone()], "A");
    assert_eq!(took.stored, ["t r"]);
    // The client leaves its tools out later.
    let took = world.say(&[user("a"), assistant("A"), user("b")], "B");
    assert_eq!(took.prompt, ["u a", "a A", "u b"]);
    // Calls of the gateway's own tools were never seen.
    let turn = world.turn();
    world.append(turn, Some(ME), None, user("c"));
    world.append(turn, Some(ME), None, calls.hidden());
    world.append(turn, Some(ME), None, result.hidden());
    world.append(turn, Some(ME), None, assistant("C"));
    let sent = [
        user("a"),
        assistant("A"),
        user("b"),
        assistant("B"),
        user("c"),
        assistant("C"),
        user("d"),
    ];
    let took = world.say(&sent, "D");
    assert_eq!(took.prompt[4..], ["u c", "a calls", "t r", "a C", "u d"]);
}

#[test]
fn a_turn_that_goes_on_after_its_tools_is_sent_the_same_and_its_calls() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    let sent = [user("a"), assistant("A"), user("b")];
    let turn = world.turn();
    let calls = raw(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#);
    world.append(turn, Some(ME), None, user("b"));
    world.append(turn, Some(ME), None, calls.hidden());
    let asked = Asked { messages: &sent, caller: Some(ME), mode: None };
    let prompt = plan(&world.log, asked, Some(turn)).prompt;
    let prompt: Vec<_> = prompt.iter().map(|m| show(m)).collect();
    assert_eq!(prompt, ["u a", "a A", "u b", "a calls"]);
}

#[test]
fn the_beginning_of_an_answer_is_sent_and_not_stored() {
    let mut world = World::default();
    let took = world.say(&[user("a"), assistant("Sure,")], "A");
    assert_eq!((took.prompt.len(), took.stored), (2, vec!["u a".to_owned()]));
    let took = world.say(&[user("a"), assistant("A"), user("b"), assistant("Sure,")], "B");
    assert_eq!((took.prompt.len(), took.stored), (4, vec!["u b".to_owned()]));
}

#[test]
fn sbp_l1_11_equal_answers_belong_to_their_own_questions() {
    let mut world = World::default();
    world.say(&[user("one")], "ok");
    world.phone("p", "ok");
    let took = world.say(&[user("one"), assistant("ok"), user("two")], "ok");
    assert_eq!(took.prompt, ["u one", "a ok", "u p", "a ok", "u two"]);
    assert_eq!(took.stored, ["u two"]);
    // The same request again regenerates the answer to its own question.
    let took = world.say(&[user("one"), assistant("ok"), user("two")], "ok");
    assert_eq!((took.stored.len(), took.replaces), (0, Some(6)));
    assert_eq!(took.prompt, ["u one", "a ok", "u p", "a ok", "u two"]);
    // Also with the words that somebody else used.
    let mut world = World::default();
    world.say(&[user("go on")], "ok");
    world.phone("go on", "ok");
    let took = world.say(&[user("go on"), assistant("ok"), user("two")], "ok");
    assert_eq!(took.prompt, ["u go on", "a ok", "u go on", "a ok", "u two"]);
}

#[test]
fn sbp_l1_11_a_client_that_has_seen_all_turns_sends_all() {
    let mut world = World::default();
    world.say(&[user("go on")], "ok");
    world.phone("go on", "ok");
    // It loaded the session before.
    let all = [user("go on"), assistant("ok"), user("go on"), assistant("ok"), user("two")];
    let took = world.say(&all, "ok");
    assert_eq!((took.prompt.len(), took.stored), (5, vec!["u two".to_owned()]));
}

#[test]
fn sbp_l1_11_a_question_whose_answer_was_lost_is_not_stored_again() {
    let mut world = World::default();
    world.say(&[user("one")], "A1");
    world.say(&[user("one"), assistant("A1"), user("two")], "A2");
    let sent = [user("one"), assistant("A1"), user("two"), user("three")];
    let took = world.say(&sent, "A3");
    assert_eq!(took.prompt, ["u one", "a A1", "u two", "u three"]);
    assert_eq!((took.stored, took.replaces), (vec!["u three".to_owned()], None));
}

#[test]
fn sbp_l1_11_context_around_a_question_with_a_short_answer() {
    let mut world = World::default();
    world.say(&[user("Context: Anna is 7. How old is Anna?")], "Seven.");
    let next = user("Context: Bob is 9. How old is Anna's brother?");
    let took = world.say(&[user("How old is Anna?"), assistant("Seven."), next], "Nine.");
    assert_eq!((took.prompt.len(), took.stored.len()), (3, 1));
}

#[test]
fn the_beginning_of_an_answer_to_a_changed_question_is_no_edited_answer() {
    let mut world = World::default();
    world.say(&[user("one")], "A1");
    world.say(&[user("one"), assistant("A1"), user("two")], "A2");
    let sent = [user("one"), assistant("A1"), user("something else"), assistant("Sure,")];
    let took = world.say(&sent, "A3");
    assert_eq!(took.prompt, ["u one", "a A1", "u something else", "a Sure,"]);
    assert_eq!((took.stored, took.replaces), (vec!["u something else".to_owned()], None));
    // Of a question that is asked again, it goes with the question.
    let mut world = World::default();
    world.say(&[user("one")], "A1");
    world.say(&[user("one"), assistant("A1"), user("two")], "A2");
    let took = world.say(&[user("one"), assistant("A1"), user("two"), assistant("Sure,")], "A3");
    assert_eq!(took.prompt, ["u one", "a A1", "u two", "a Sure,"]);
    assert_eq!((took.stored.len(), took.replaces), (0, Some(4)));
}
