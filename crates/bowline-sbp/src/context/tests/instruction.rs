//! System messages, wherever a request has them.

use super::*;

#[test]
fn sbp_l1_11_system_messages_between_others_leave_no_entry_a_turn() {
    let mut world = World::default();
    world.say(&[system("S"), user("u1")], "a1");
    let mut kept = vec![user("u1"), assistant("a1")];
    for n in 2..6 {
        let mut sent = vec![system("S")];
        sent.extend(kept.clone());
        sent.push(system(&format!("10:0{n}")));
        sent.push(user(&format!("u{n}")));
        let took = world.say(&sent, &format!("a{n}"));
        assert_eq!(took.stored, [format!("u u{n}")]);
        assert_eq!(took.prompt, sent.iter().map(show).collect::<Vec<_>>(), "in their places");
        // The same again is a request for another answer.
        let newest = world.log.entries.len() as Seq;
        let took = world.say(&sent, &format!("a{n}"));
        assert_eq!((took.stored.len(), took.replaces), (0, Some(newest)));
        assert_eq!(took.prompt, sent.iter().map(show).collect::<Vec<_>>());
        kept.extend([user(&format!("u{n}")), assistant(&format!("a{n}"))]);
    }
    assert_eq!(world.stored().iter().filter(|said| said.starts_with('s')).count(), 1);
    // All of them are the session's instruction.
    let took = world.take(CallerTag(2), None, &[user("x")], assistant("X"));
    assert_eq!(took.prompt[..3], ["s S", "s 10:05", "u u1"]);
    assert_eq!(took.prompt.len(), 2 + 10 + 1);
}

#[test]
fn sbp_l1_11_the_first_system_messages_are_entries_wherever_they_are() {
    let mut world = World::default();
    world.say(&[user("u1")], "a1");
    let sent = [user("u1"), assistant("a1"), system("10:01"), user("u2")];
    let took = world.say(&sent, "a2");
    assert_eq!(took.stored, ["s 10:01", "u u2"]);
    assert_eq!(took.prompt, ["u u1", "a a1", "s 10:01", "u u2"]);
    let developer = raw(r#"{"role":"developer","content":"10:02"}"#);
    let took = world.say(&[user("u3"), developer], "a3");
    assert_eq!(took.stored, ["u u3"]);
    assert_eq!(took.prompt, ["u u1", "a a1", "u u2", "a a2", "u u3", "d 10:02"]);
    assert_eq!(world.say(&[user("u4")], "a4").prompt[..2], ["d 10:02", "u u1"]);
}

#[test]
fn sbp_l1_11_a_first_request_is_sent_as_it_is() {
    let mut world = World::default();
    let sent = [system("S"), user("e"), system("T"), assistant("E"), system("U"), user("u1")];
    let took = world.say(&sent, "a1");
    assert_eq!(took.prompt, sent.iter().map(show).collect::<Vec<_>>());
    assert_eq!(took.stored, ["s S", "s T", "s U", "u u1"]);
}

#[test]
fn sbp_l1_11_a_stored_history_has_the_system_messages_before_it_or_with_what_is_new() {
    let mut world = World::default();
    world.say(&[system("S"), user("u1")], "a1");
    let sent = [system("S"), user("u1"), system("T"), assistant("a1"), system("U"), user("u2")];
    let took = world.take(ME, Some(HistoryMode::Stored), &sent, assistant("a2"));
    assert_eq!(took.prompt, ["s S", "s T", "u u1", "a a1", "s U", "u u2"]);
    let took = world.take(ME, Some(HistoryMode::Stored), &sent, assistant("a3"));
    assert_eq!(took.prompt, ["s S", "s T", "s U", "u u1", "a a1", "u u2"]);
    assert_eq!(took.stored.len(), 0);
}

#[test]
fn sbp_l1_11_what_the_caller_never_saw_comes_before_the_system_message_of_its_question() {
    let mut world = World::default();
    world.say(&[system("S"), user("u1")], "a1");
    world.phone("p", "P");
    let sent = [system("S"), user("u1"), assistant("a1"), system("10:01"), user("u2")];
    let took = world.say(&sent, "a2");
    assert_eq!(took.prompt, ["s S", "u u1", "a a1", "u p", "a P", "s 10:01", "u u2"]);
}
