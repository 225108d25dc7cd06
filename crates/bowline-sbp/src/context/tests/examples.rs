//! Examples that look like the conversation.

use super::*;

/// Sends the examples and a question each turn; the log gets the questions only, and the examples
/// stay before the history.
fn few_shots(examples: &[(&str, &str)], turns: &[(&str, &str)]) {
    let mut world = World::default();
    let pair = |(question, answer): &(&str, &str)| [user(question), assistant(answer)];
    let examples: Vec<_> = examples.iter().flat_map(pair).collect();
    let mut history = Vec::new();
    for (question, answer) in turns {
        let sent = [examples.clone(), vec![user(question)]].concat();
        let took = world.say(&sent, answer);
        let expected = [examples.clone(), history.clone(), vec![user(question)]].concat();
        assert_eq!(took.prompt, expected.iter().map(show).collect::<Vec<_>>());
        assert_eq!((took.stored, took.replaces), (vec![format!("u {question}")], None));
        history.extend(pair(&(question, answer)));
    }
}

#[test]
fn sbp_l1_11_an_example_like_an_answer_is_no_edited_answer() {
    few_shots(
        &[("France?", "The capital of France is Paris.")],
        &[
            ("Germany?", "The capital of Germany is Berlin."),
            ("Spain?", "The capital of Spain is Madrid."),
            ("Italy?", "The capital of Italy is Rome."),
        ],
    );
}

#[test]
fn sbp_l1_11_an_example_with_the_same_label_is_not_the_answer() {
    few_shots(
        &[("great movie", "positive"), ("bad movie", "negative")],
        &[("I loved it", "positive"), ("never again", "negative"), ("so good", "positive")],
    );
}

#[test]
fn sbp_l1_11_examples_made_from_a_template_are_no_edited_questions() {
    few_shots(
        &[("What is the capital city of France?", "The capital city of France is Paris.")],
        &[
            ("What is the capital city of Germany?", "The capital city of Germany is Berlin."),
            ("What is the capital city of Spain?", "The capital city of Spain is Madrid."),
        ],
    );
    few_shots(
        &[
            ("Classify the mood of this text: great movie", "positive"),
            ("Classify the mood of this text: awful movie", "negative"),
        ],
        &[
            ("Classify the mood of this text: a nice day", "positive"),
            ("Classify the mood of this text: a sad day", "negative"),
            ("Classify the mood of this text: a long day", "negative"),
        ],
    );
}

#[test]
fn sbp_l1_11_a_window_may_begin_with_a_short_answer() {
    let mut world = World::default();
    world.say(&[user("is it so?")], "yes");
    let took = world.say(&[assistant("yes"), user("why?")], "because");
    assert_eq!((took.prompt, took.stored.len()), (vec!["a yes".into(), "u why?".to_owned()], 1));
}

#[test]
fn sbp_l1_11_short_answers_of_edited_questions_are_known_by_their_question_or_place() {
    let mut world = World::default();
    world.say(&[user("Context: rain.\nIs it wet?")], "yes");
    let sent = [user("Is it wet?"), assistant("Yes."), user("why?")];
    let took = world.say(&sent, "because of the rain");
    assert_eq!((took.prompt.len(), took.stored), (3, vec!["u why?".to_owned()]));
    let sent = [
        user("a question"),
        assistant("yes"),
        sent[2].clone(),
        assistant("because of the rain"),
        user("so?"),
    ];
    let took = world.say(&sent, "so");
    assert_eq!((took.prompt.len(), took.stored), (5, vec!["u so?".to_owned()]));
}
