//! Random clients: each keeps its own version of the conversation and resends it in its own style.
//! Whatever the style, a turn adds one question and one answer, and nothing is sent twice.

use proptest::prelude::*;

use super::*;

/// What a client does to the conversation that it keeps before it sends it.
#[derive(Debug, Clone, Copy)]
struct Style {
    /// Sends a system prompt; with the time in it.
    system: Option<bool>,
    /// Sends at most this many messages before the question.
    window: Option<usize>,
    edits: Edit,
    /// Writes contents as parts.
    parts: bool,
    /// Puts context into the newest question only.
    folds: bool,
    /// Sends examples first.
    examples: bool,
    /// The phone takes a turn after every turn of the client.
    phone: bool,
    /// Asks for other answers to each question but the first, so often.
    again: usize,
    /// The phone takes its turn before the last of them.
    between: bool,
    /// All answers are the same word, the phone's, too.
    labels: bool,
    /// Questions have two words.
    brief: bool,
}

#[derive(Debug, Clone, Copy)]
enum Edit {
    Nothing,
    /// Removes Markdown and spaces.
    Format,
    /// Cuts answers short.
    Short,
    /// Rewrites answers.
    Rewrite,
}

fn style() -> impl Strategy<Value = Style> {
    let edits = prop_oneof![
        Just(Edit::Nothing),
        Just(Edit::Format),
        Just(Edit::Short),
        Just(Edit::Rewrite)
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let window = proptest::option::of(2..7usize);
    let again = (0..4usize, any::<bool>(), any::<bool>(), any::<bool>());
    (proptest::option::of(any::<bool>()), window, edits, flags, again).prop_map(
        |(system, window, edits, (parts, folds, examples, phone), again)| Style {
            system,
            window,
            edits,
            parts,
            folds,
            examples,
            phone,
            again: again.0,
            between: again.1,
            labels: again.2,
            brief: again.3,
        },
    )
}

/// A question or answer that is unlike all others.
fn text(what: &str, n: usize) -> String {
    words(what, n, 8)
}

fn words(what: &str, n: usize, count: usize) -> String {
    let word = |k: usize| format!("{what}{}x{}", n * 7 + k, (n * 31 + k * 17) % 97);
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

impl Style {
    fn question(&self, what: &str, n: usize) -> String {
        words(what, n, if self.brief { 2 } else { 8 })
    }

    fn answer(&self, what: &str, n: usize) -> String {
        if self.labels { "Done.".to_owned() } else { format!("**{}**", text(what, n)) }
    }

    /// Whether what is sent begins with a question.
    fn begins_with_a_question(&self) -> bool {
        self.window.is_none_or(|window| window % 2 == 0)
    }

    fn version(&self, message: &(bool, String), n: usize) -> Message {
        let (is_answer, text) = message;
        let text = match (self.edits, is_answer) {
            (Edit::Nothing, _) | (_, false) => text.clone(),
            (Edit::Format, true) => text.replace(' ', "  ").replace("**", ""),
            (Edit::Short, true) => text.chars().take(40).collect::<String>() + "…",
            (Edit::Rewrite, true) => format!("(rewritten {n})"),
        };
        let role = if *is_answer { "assistant" } else { "user" };
        match self.parts {
            false => Message::text(role, &text),
            true => {
                let parts = serde_json::json!([{ "type": "text", "text": text }]);
                raw(&serde_json::json!({ "content": parts, "role": role }).to_string())
            }
        }
    }

    /// How often another answer is asked for. A first question that is sent again is a new one.
    fn again_after(&self, turn: usize) -> usize {
        if turn == 0 { 0 } else { self.again }
    }

    fn request(&self, kept: &[(bool, String)], question: &str, n: usize) -> Vec<Message> {
        let mut sent = Vec::new();
        match self.system {
            Some(true) => sent.push(system(&format!("It is {n} o'clock."))),
            Some(false) => sent.push(system("Be brief.")),
            None => {}
        }
        if self.examples {
            sent.extend([user("example question"), assistant("example answer")]);
        }
        let from = self.window.map_or(0, |window| kept.len().saturating_sub(window));
        let versions = kept.iter().enumerate().skip(from);
        sent.extend(versions.map(|(n, message)| self.version(message, n)));
        let folded = format!("Context of {n}: {}\n{question}", text("context", n));
        sent.push(user(if self.folds { &folded } else { question }));
        sent
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sbp_l1_11_each_style_stores_a_turn_once_and_sends_nothing_twice(style in style(), turns in 4..9usize) {
        let mut world = World::default();
        let mut kept: Vec<(bool, String)> = Vec::new();
        for n in 0..turns {
            let (question, answer) = (style.question("q", n), style.answer("a", n));
            let sent = style.request(&kept, &question, n);
            let before = world.stored().len();
            let took = world.say(&sent, &answer);
            let mut replaced = world.log.entries.len() as Seq;
            let first_system = usize::from(n == 0 && style.system.is_some());
            prop_assert_eq!(world.stored().len(), before + 2 + first_system, "turn {}: {:?}", n, took.stored);
            prop_assert_eq!(took.replaces, None);
            let asks = took.prompt.last().is_some_and(|last| last.contains(&question));
            prop_assert!(asks, "the question comes last: {:?}", took.prompt);
            // Every question and answer, whatever version of it, at most once.
            for (what, upto) in
                [("q", n + 1), ("a", n), ("b", n), ("c", n), ("d", n), ("p", n), ("P", n)]
            {
                for k in 0..upto {
                    let mark = text(what, k);
                    let mark = mark.split(' ').next().unwrap();
                    let times = took.prompt.iter().filter(|said| said.contains(mark)).count();
                    prop_assert!(times <= 1, "{} {} times: {:?}", mark, times, took.prompt);
                    let new = took.prompt.iter().filter(|said| said.starts_with('a')).count();
                    prop_assert!(new <= 2 * n + usize::from(style.examples));
                }
            }
            // Every question is followed by its answer, whoever asked.
            if style.begins_with_a_question() {
                let said: Vec<_> = took.prompt.iter().filter(|said| !said.starts_with('s')).collect();
                let apart = said.windows(2).all(|pair| pair[0][..1] != pair[1][..1]);
                prop_assert!(apart && said[0].starts_with('u'), "turn {}: {:?}", n, said);
            }
            // Superseded answers are not sent.
            let superseded = if style.labels { 0 } else { style.again };
            for (k, what) in ["a", "b", "c"].iter().enumerate().take(superseded) {
                for turn in 1..n {
                    let mark = text(what, turn);
                    let mark = mark.split(' ').next().unwrap();
                    let sent = took.prompt.iter().any(|said| said.contains(mark));
                    prop_assert!(!sent, "version {} of {}: {:?}", k, turn, took.prompt);
                }
            }
            // What the phone said since the client's last turn is there.
            if style.phone && n > 0 {
                let mark = style.question("p", n - 1);
                let there = took.prompt.iter().any(|said| said.contains(mark.as_str()));
                prop_assert!(there, "turn {}: {:?}", n, took.prompt);
            }
            let mut answer = answer;
            for k in 0..style.again_after(n) {
                if style.phone && style.between && k + 1 == style.again {
                    world.phone(&style.question("p", n), &style.answer("P", n));
                }
                answer = style.answer(["b", "c", "d"][k], n);
                let before = world.stored().len();
                let took = world.say(&sent, &answer);
                prop_assert_eq!(took.stored.len(), 0, "turn {}, again {}: {:?}", n, k, took.stored);
                prop_assert_eq!(took.replaces, Some(replaced), "turn {}, again {}", n, k);
                replaced = world.log.entries.len() as Seq;
                prop_assert_eq!(world.stored().len(), before + 1);
                let asks = took.prompt.last().is_some_and(|last| last.contains(&question));
                prop_assert!(asks, "the question comes last: {:?}", took.prompt);
            }
            kept.extend([(false, question), (true, answer)]);
            if style.phone && !(style.between && style.again_after(n) > 0) {
                world.phone(&style.question("p", n), &style.answer("P", n));
            }
        }
        // Others are sent each question once, with its newest answer, in order.
        let mut expected = Vec::new();
        for (n, pair) in kept.chunks(2).enumerate() {
            expected.extend([format!("u {}", pair[0].1), format!("a {}", pair[1].1)]);
            if style.phone {
                let (asked, said) = (style.question("p", n), style.answer("P", n));
                expected.extend([format!("u {asked}"), format!("a {said}")]);
            }
        }
        let history: Vec<_> = world.history().into_iter().filter(|said| !said.starts_with('s')).collect();
        prop_assert_eq!(history.len(), expected.len(), "{:?}", history);
        for (said, expected) in history.iter().zip(&expected) {
            let question = &expected[2..];
            prop_assert!(said == expected || said.ends_with(question), "{} for {}", said, expected);
        }
    }
}
