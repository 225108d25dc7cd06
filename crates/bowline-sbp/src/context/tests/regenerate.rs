//! Answers that supersede others.

use super::*;

const MINE: Option<HistoryMode> = Some(HistoryMode::Mine);
const STORED: Option<HistoryMode> = Some(HistoryMode::Stored);

fn calls(id: &str) -> Message {
    raw(&format!(r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}"}}]}}"#))
}

fn result(id: &str, text: &str) -> Message {
    raw(&format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#))
}

/// `a A b B`
fn two_turns() -> World {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    world.say(&[user("a"), assistant("A"), user("b")], "B");
    world
}

#[test]
fn sbp_l1_11_regenerating_again_and_again_supersedes_the_newest_answer() {
    for phone in [false, true] {
        let mut world = two_turns();
        if phone {
            world.phone("p", "P");
        }
        let sent = [user("a"), assistant("A"), user("b")];
        for n in 2..6 {
            let newest = if n == 2 { "B".into() } else { format!("B{}", n - 1) };
            let newest = world.newest(&newest);
            let took = world.say(&sent, &format!("B{n}"));
            assert_eq!((took.stored.len(), took.replaces), (0, Some(newest)));
            assert_eq!(took.prompt, ["u a", "a A", "u b"]);
            let mut expected = vec!["u a".into(), "a A".into(), "u b".into(), format!("a B{n}")];
            if phone {
                expected.extend(["u p".into(), "a P".into()]);
            }
            assert_eq!(world.history(), expected);
        }
        // The oldest answer itself, sent again, is a request for another one, too.
        let newest = world.log.entries.len() as Seq;
        let took = world.say(&[sent.to_vec(), vec![assistant("B")]].concat(), "B6");
        assert_eq!((took.stored.len(), took.replaces), (0, Some(newest)));
    }
}

#[test]
fn sbp_l1_11_a_first_question_regenerated_twice_is_stored_once() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    for n in 2..5 {
        let took = world.take(ME, MINE, &[user("a")], assistant(&format!("A{n}")));
        assert_eq!((took.stored.len(), took.replaces), (0, Some(n)));
        assert_eq!(took.prompt, ["u a"]);
    }
    assert_eq!(world.history(), ["u a", "a A4"]);
}

#[test]
fn sbp_l1_11_a_stored_history_ends_with_the_question_whose_answer_is_regenerated() {
    let mut world = two_turns();
    world.phone("p", "P");
    let sent = [user("a"), assistant("A"), user("b")];
    for n in 2..5 {
        let took = world.take(ME, STORED, &sent, assistant(&format!("B{n}")));
        assert_eq!(took.prompt, ["u a", "a A", "u b"], "{n}");
        assert_eq!(took.stored.len(), 0);
    }
    // The position of the newest answer in the log says nothing: the question is before the phone's.
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B4", "u p", "a P"]);
}

#[test]
fn sbp_l1_11_answers_before_and_after_are_regenerated_in_their_places() {
    let mut world = two_turns();
    world.say(&[user("a"), assistant("A"), user("b")], "B2");
    // The first answer, when the second was regenerated already.
    let took = world.take(ME, STORED, &[user("a"), assistant("A")], assistant("A2"));
    assert_eq!((took.prompt, took.replaces), (vec!["u a".to_owned()], Some(2)));
    assert_eq!(world.history(), ["u a", "a A2", "u b", "a B2"]);
    // The client goes on with the second of each; the order of the log is another one.
    let mut mine = vec![user("a"), assistant("A2"), user("b"), assistant("B2"), user("c")];
    let took = world.say(&mine, "C");
    assert_eq!((took.prompt.len(), took.stored), (5, vec!["u c".to_owned()]));
    // Or with the first of each.
    mine[1] = assistant("A");
    mine[3] = assistant("B");
    let took = world.say(&mine, "C2");
    assert_eq!((took.stored.len(), took.replaces), (0, Some(8)));
    assert_eq!(world.history(), ["u a", "a A2", "u b", "a B2", "u c", "a C2"]);
}

#[test]
fn sbp_l1_11_a_superseded_answer_is_not_sent_to_other_callers() {
    let other = CallerTag(2);
    let mut world = two_turns();
    world.take(other, None, &[user("x")], assistant("X"));
    let sent = [user("a"), assistant("A"), user("b")];
    world.say(&sent, "B2");
    world.say(&sent, "B3");
    let took = world.take(other, None, &[user("x"), assistant("X"), user("y")], assistant("Y"));
    assert_eq!(took.prompt, ["u a", "a A", "u b", "a B3", "u x", "a X", "u y"]);
    // Nor is another version of an answer that the caller sends itself.
    let mine = [&sent[..], &[assistant("B2"), user("z")]].concat();
    let took = world.take(other, None, &mine, assistant("Z"));
    assert_eq!(took.prompt, ["u a", "a A", "u b", "a B2", "u z"]);
}

#[test]
fn sbp_l1_11_an_answer_that_another_caller_regenerated_is_regenerated_by_its_own_caller() {
    let other = CallerTag(2);
    let mut world = two_turns();
    let sent = [user("a"), assistant("A"), user("b"), assistant("B")];
    let took = world.take(other, None, &sent, assistant("B2"));
    assert_eq!(took.replaces, Some(4));
    let took = world.say(&sent[..3], "B3");
    assert_eq!((took.stored.len(), took.replaces), (0, Some(5)));
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B3"]);
}

#[test]
fn sbp_l1_11_a_log_whose_answer_was_superseded_twice_has_the_newest_in_its_place() {
    // As logs were written before: both name the first answer.
    let mut world = two_turns();
    world.phone("p", "P");
    for text in ["B2", "B3"] {
        let turn = world.turn();
        world.append(turn, Some(ME), Some(4), assistant(text));
    }
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B3", "u p", "a P"]);
}

#[test]
fn sbp_l1_11_an_attempt_that_failed_after_its_tools_leaves_the_answer() {
    let mut world = two_turns();
    let failed = world.turn();
    world.append(failed, Some(ME), Some(4), calls("g").hidden());
    world.append(failed, Some(ME), None, result("g", "r").hidden());
    world.phone("p", "P");
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B", "u p", "a P"]);
    // The next attempt has an answer, and its tools.
    let next = world.turn();
    world.append(next, Some(ME), Some(4), calls("h").hidden());
    world.append(next, Some(ME), None, result("h", "r2").hidden());
    world.append(next, Some(ME), None, assistant("B2"));
    let expected = ["u a", "a A", "u b", "a calls", "t r2", "a B2", "u p", "a P"];
    assert_eq!(world.history(), expected);
    // While it runs, the model is sent its tool calls, and not those of the failed attempt.
    let sent = [user("a"), assistant("A"), user("b")];
    let asked = Asked { messages: &sent, caller: Some(ME), mode: None };
    let running = plan(&world.log, asked, Some(next));
    let prompt: Vec<_> = running.prompt.iter().map(|message| show(message)).collect();
    assert_eq!(prompt[..5], ["u a", "a A", "u b", "a calls", "t r2"]);
    assert_eq!(running.replaces, Some(4));
}

#[test]
fn sbp_l1_11_an_interrupted_answer_does_not_supersede_a_complete_one() {
    let sent = [user("a"), assistant("A"), user("b")];
    for status in [TurnStatus::Cancelled, TurnStatus::Interrupted, TurnStatus::Failed] {
        let mut world = two_turns();
        world.say(&sent, "B2, cut");
        world.status(status);
        world.phone("p", "P");
        assert_eq!(world.history(), ["u a", "a A", "u b", "a B", "u p", "a P"]);
        // The next attempt supersedes both.
        assert_eq!(world.say(&sent, "B3").replaces, Some(4));
        assert_eq!(world.history(), ["u a", "a A", "u b", "a B3", "u p", "a P"]);
        // Its caller may go on from the interrupted one.
        let took = world.say(&[&sent[..], &[assistant("B2, cut"), user("c")]].concat(), "C");
        assert_eq!(took.prompt[3..], ["a B2, cut", "u p", "a P", "u c"]);
        assert_eq!(took.stored, ["u c"]);
    }
    // Of interrupted answers, the newest counts.
    let mut world = two_turns();
    world.status(TurnStatus::Cancelled);
    world.say(&sent, "B2");
    world.status(TurnStatus::Cancelled);
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B2"]);
}

#[test]
fn sbp_l1_11_an_instruction_that_comes_with_a_regenerated_answer_changes_nothing_else() {
    let mut world = two_turns();
    let took = world.say(&[system("s"), user("a"), assistant("A"), user("b")], "B2");
    assert_eq!((took.stored, took.replaces), (vec!["s s".to_owned()], Some(4)));
    assert_eq!(world.history(), ["s s", "u a", "a A", "u b", "a B2"]);
}

#[test]
fn sbp_l1_12_a_superseded_call_of_the_callers_tool_takes_its_result_and_answer_along() {
    let mut world = World::default();
    world.say(&[user("a")], "A");
    let mut sent = vec![user("a"), assistant("A"), user("b")];
    world.take(ME, None, &sent, calls("c1"));
    world.phone("p", "P");
    sent.extend([calls("c1"), result("c1", "r")]);
    world.say(&sent, "B");
    assert_eq!(world.say(&sent[..3], "B2").replaces, Some(4));
    world.phone("q", "Q");
    assert_eq!(world.history(), ["u a", "a A", "u b", "a B2", "u p", "a P", "u q", "a Q"]);
}
