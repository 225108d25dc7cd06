//! Requests made to be slow, or to overflow the stack.

use super::*;

#[test]
fn sbp_l1_11_a_request_that_divides_badly_is_planned_on_a_small_stack() {
    // Each division of these lists finds one anchor.
    let plan = || {
        let n = 10_000;
        let mut world = World::default();
        let turn = world.turn();
        for k in (1..=n).rev() {
            world.append(turn, Some(ME), None, user(&format!("{k}")));
            world.append(turn, Some(ME), None, user(&format!("{}", k + 1)));
        }
        let mut sent: Vec<_> = (1..=n).rev().map(|k| user(&format!("{k}"))).collect();
        sent.push(assistant("that is all of it"));
        sent.push(user("new"));
        assert_eq!(world.say(&sent, "A").stored.last().unwrap(), "u new");
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(plan).unwrap().join().unwrap();
}

/// Runs what must not take long: it would take hours if each message were compared with each.
fn soon(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let minutes = std::time::Duration::from_secs(300);
    ended.recv_timeout(minutes).expect("a plan takes seconds at most, unoptimised");
}

#[test]
fn sbp_l1_11_a_long_question_is_not_read_again_for_each_short_answer() {
    soon(|| {
        let n = 5_000;
        let mut world = World::default();
        for k in 0..n {
            let turn = world.turn();
            world.append(turn, Some(ME), None, user(&format!("question {k}")));
            world.append(turn, Some(ME), None, assistant("ok"));
        }
        let long: Vec<_> = (0..300_000).map(|k| format!("w{k}")).collect();
        let mut sent = vec![user(&long.join(" "))];
        sent.extend((0..n).map(|_| assistant("ok")));
        sent.push(user("new"));
        assert_eq!(world.say(&sent, "A").stored.last().unwrap(), "u new");
    });
}

#[test]
fn sbp_l1_12_many_results_of_one_call_are_put_behind_it_with_bounded_work() {
    soon(|| {
        let mut world = World::default();
        let calls = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}"#;
        let turn = world.turn();
        world.append(turn, Some(ME), None, user("a"));
        world.append(turn, Some(ME), None, raw(calls));
        world.phone("p", "P");
        let turn = world.turn();
        for k in 0..60_000 {
            let result = format!(r#"{{"role":"tool","tool_call_id":"c1","content":"{k}"}}"#);
            world.append(turn, Some(ME), None, raw(&result));
        }
        assert_eq!(world.say(&[user("new")], "A").stored, ["u new"]);
    });
}
