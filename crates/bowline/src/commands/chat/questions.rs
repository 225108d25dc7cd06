//! What the person at a chat is asked: may this command run, may that tool be called?
//!
//! One at a time, oldest first. Only a yes or a no answers it, an empty line being a no; anything else
//! is a message as ever.
//!
//! Invariants
//! - Only a question that is on the screen can be answered. One that was answered elsewhere meanwhile
//!   takes a late yes with it, so that it cannot fall to the next.
//! - A yes that comes after the agent has given up waiting makes nothing happen.

use std::collections::VecDeque;
use std::time::Instant;

use bowline_sbp::id::ApprovalId;
use bowline_sbp::surface::is_unseen;
use serde_json::Value;

/// The most of a question that is shown, in characters.
const SHOWN: usize = 2000;

/// Something that waits for a yes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// A call of a tool on this machine. The agent waits until then.
    Call { call_id: String, tool: String, input: Value, until: Option<Instant> },
    /// A tool that the gateway asks about, here or elsewhere.
    Approval(ApprovalId),
    /// One that was on the screen and has been answered elsewhere.
    Gone,
}

/// What a line is to the questions.
#[derive(Debug, PartialEq)]
pub(super) enum InputLine {
    Answer(Question, bool),
    Message,
}

#[derive(Debug)]
struct Put {
    question: Question,
    words: String,
    shown: bool,
}

/// The questions, and how each is put.
#[derive(Debug, Default)]
pub(super) struct Questions(VecDeque<Put>);

impl Questions {
    /// Adds one. What is asked already is not asked twice.
    pub(super) fn ask(&mut self, question: Question, words: &str) {
        if self.0.iter().any(|put| put.question == question) {
            return;
        }
        self.0.push_back(Put { question, words: plainly(words), shown: false });
    }

    /// The words to be put on the screen now, if any.
    pub(super) fn next_words(&mut self) -> Option<String> {
        let front = self.0.front_mut().filter(|put| !put.shown)?;
        front.shown = true;
        Some(format!("{}\n  allow it? [y/N]", front.words))
    }

    pub(super) fn typed(&mut self, line: &str) -> InputLine {
        let verdict = match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(true),
            "" | "n" | "no" => Some(false),
            _ => None,
        };
        let Some(front) = self.0.front().filter(|put| put.shown) else { return InputLine::Message };
        if verdict.is_none() && front.question != Question::Gone {
            return InputLine::Message;
        }
        match (self.0.pop_front(), verdict) {
            (Some(put), Some(yes)) => InputLine::Answer(put.question, yes),
            _ => InputLine::Message,
        }
    }

    /// Someone else answered it. Whether it was on the screen.
    pub(super) fn answered_elsewhere(&mut self, approval: ApprovalId) -> bool {
        self.forget(|question| *question == Question::Approval(approval))
    }

    /// The connection is new: what the gateway still asks, it asks again.
    pub(super) fn reconnected(&mut self) {
        self.forget(|question| matches!(question, Question::Approval(_)));
    }

    fn forget(&mut self, which: impl Fn(&Question) -> bool) -> bool {
        let mut was_shown = false;
        self.0.retain_mut(|put| {
            if !which(&put.question) {
                return true;
            }
            if put.shown {
                put.question = Question::Gone;
                was_shown = true;
            }
            put.shown
        });
        was_shown
    }
}

/// Words of strangers as they are: nothing in them moves the cursor, turns the direction of the text,
/// looks like the end of a line, or is cut off without a word.
fn plainly(words: &str) -> String {
    let mut plain = String::new();
    for c in words.chars().take(SHOWN) {
        match c {
            '\n' => plain.push_str(" ⏎ "),
            c if is_unseen(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    match words.chars().count().saturating_sub(SHOWN) {
        0 => plain,
        more => format!("{plain} … and {more} more characters that are NOT shown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> ApprovalId {
        ApprovalId(uuid::Uuid::from_u128(n))
    }

    fn approval(n: u128) -> Question {
        Question::Approval(id(n))
    }

    fn three() -> Questions {
        let mut questions = Questions::default();
        for (n, words) in [(1, "first?"), (2, "second?"), (3, "third?"), (2, "second?")] {
            questions.ask(approval(n), words);
        }
        assert!(questions.next_words().unwrap().starts_with("first?"));
        assert_eq!(questions.next_words(), None, "once");
        questions
    }

    #[test]
    fn questions_are_put_one_at_a_time_and_only_yes_is_yes() {
        let mut questions = three();
        assert_eq!(questions.typed("what is it for?"), InputLine::Message);
        assert_eq!(questions.typed(""), InputLine::Answer(approval(1), false));
        assert_eq!(questions.typed("y"), InputLine::Message, "the second was not shown yet");
        assert!(questions.next_words().unwrap().starts_with("second?"));
        assert_eq!(questions.typed(" No "), InputLine::Answer(approval(2), false));
        questions.next_words().unwrap();
        assert_eq!(questions.typed("YES"), InputLine::Answer(approval(3), true));
        assert_eq!(questions.typed("y"), InputLine::Message);
    }

    #[test]
    fn a_yes_never_falls_to_a_question_that_was_not_shown() {
        for between in ["y", "hello"] {
            let mut questions = three();
            assert!(questions.answered_elsewhere(id(1)));
            assert!(!questions.answered_elsewhere(id(3)), "one that waited is just gone");
            let line = questions.typed(between);
            assert!(matches!(line, InputLine::Message | InputLine::Answer(Question::Gone, true)));
            assert_eq!(questions.typed("y"), InputLine::Message);
            assert!(questions.next_words().unwrap().starts_with("second?"));
        }
    }

    #[test]
    fn a_new_connection_asks_anew() {
        let mut questions = three();
        questions.reconnected();
        assert_eq!(questions.typed("y"), InputLine::Answer(Question::Gone, true));
        questions.ask(approval(2), "second?");
        assert!(questions.next_words().unwrap().starts_with("second?"));
    }

    #[test]
    fn a_question_shows_all_there_is_or_says_that_it_does_not() {
        assert_eq!(plainly("echo ok #\nrm -rf ~"), "echo ok # ⏎ rm -rf ~");
        assert_eq!(plainly("a\u{202e}b\u{1b}[2J"), "a\\u{202e}b\\u{1b}[2J");
        let long = plainly(&"x".repeat(SHOWN + 7));
        assert!(long.ends_with("and 7 more characters that are NOT shown"), "{long}");
    }
}
