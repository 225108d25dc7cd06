//! Permission prompts of a chat: may this command run, may this tool be called?
//!
//! Shown one at a time, oldest first. Only yes, no and always answer a prompt. To a person at a
//! terminal it is shown again after anything else; other lines of a program that writes to a chat
//! are messages to the agent.
//!
//! Invariants
//! - Only a prompt that is on the screen can be answered. If another surface has answered it, it
//!   stays in front as [`Question::Gone`], so that a late yes cannot approve the next prompt.
//! - A yes after the timeout of the tool call has no effect.

use std::collections::VecDeque;
use std::time::Instant;

use bowline_sbp::id::ApprovalId;
use bowline_sbp::surface::is_unseen;
use serde_json::Value;

/// The most characters of a prompt that are shown.
const SHOWN: usize = 2000;

/// Something that needs the user's permission.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// A call of a tool on this machine. `until` is when the call times out.
    Call { call_id: String, tool: String, input: Value, until: Option<Instant> },
    /// An approval request of the gateway; any surface can answer it.
    Approval(ApprovalId),
    /// A prompt that is on the screen, but was answered on another surface.
    Gone,
}

/// What the user says to a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Yes,
    No,
    /// Yes, and yes to what is the same: see [`Questions::next_words`].
    Always,
}

/// How a line of input was interpreted.
#[derive(Debug, PartialEq)]
pub(super) enum InputLine {
    Answer(Question, Permission),
    /// It answers nothing: the prompt is shown again.
    Again,
    Message,
}

#[derive(Debug)]
struct Put {
    question: Question,
    words: String,
    shown: bool,
}

/// The queue of permission prompts.
#[derive(Debug, Default)]
pub(super) struct Questions(VecDeque<Put>);

impl Questions {
    /// Adds a prompt, unless the same one is already in the queue.
    pub(super) fn ask(&mut self, question: Question, words: &str) {
        if self.0.iter().any(|put| put.question == question) {
            return;
        }
        self.0.push_back(Put { question, words: plainly(words), shown: false });
    }

    /// The text of the first prompt, if it has not been shown yet.
    pub(super) fn next_words(&mut self) -> Option<String> {
        let front = self.0.front_mut().filter(|put| !put.shown)?;
        front.shown = true;
        let always = match front.question {
            Question::Approval(_) => "always (this tool, in this session)",
            _ => "always (the same call, until you leave)",
        };
        Some(format!("{}\nallow it? yes, no, or {always}", front.words))
    }

    /// Whether a prompt is on the screen.
    pub(super) fn is_asking(&self) -> bool {
        self.0.front().is_some_and(|put| put.shown)
    }

    /// Interprets a line; `by_person` if it was typed at a terminal.
    pub(super) fn typed(&mut self, line: &str, by_person: bool) -> InputLine {
        let verdict = match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(Permission::Yes),
            "n" | "no" => Some(Permission::No),
            "a" | "always" | "always here" => Some(Permission::Always),
            _ => None,
        };
        let Some(front) = self.0.front_mut().filter(|put| put.shown) else {
            return InputLine::Message;
        };
        match (verdict, front.question == Question::Gone) {
            (None, false) if by_person => {
                front.shown = false;
                InputLine::Again
            }
            (None, false) => InputLine::Message,
            (verdict, _) => {
                let answered = self.0.pop_front().map(|put| put.question);
                match (answered, verdict) {
                    (Some(question), Some(verdict)) => InputLine::Answer(question, verdict),
                    (Some(_), None) if by_person => InputLine::Again,
                    _ => InputLine::Message,
                }
            }
        }
    }

    /// Another surface answered this approval. Returns whether its prompt was on the screen.
    pub(super) fn answered_elsewhere(&mut self, approval: ApprovalId) -> bool {
        self.forget(|question| *question == Question::Approval(approval))
    }

    /// Drops approvals after a reconnect: the gateway sends those that are still open again.
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

/// Makes untrusted text safe to show in a prompt: control characters and bidirectional overrides
/// are escaped, line breaks are made visible, and a cut is announced.
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
        assert_eq!(questions.typed("what is it for?", false), InputLine::Message);
        assert_eq!(questions.typed("n", false), InputLine::Answer(approval(1), Permission::No));
        assert_eq!(questions.typed("y", false), InputLine::Message, "the second was not shown yet");
        assert!(questions.next_words().unwrap().starts_with("second?"));
        assert_eq!(
            questions.typed(" Always ", false),
            InputLine::Answer(approval(2), Permission::Always)
        );
        questions.next_words().unwrap();
        assert_eq!(questions.typed("YES", false), InputLine::Answer(approval(3), Permission::Yes));
        assert_eq!(questions.typed("y", false), InputLine::Message);
    }

    #[test]
    fn a_person_who_says_anything_else_is_asked_again() {
        let mut questions = three();
        for line in ["", "ok", "yes please", "why?"] {
            assert_eq!(questions.typed(line, true), InputLine::Again, "{line}");
            assert!(questions.next_words().unwrap().starts_with("first?"), "{line}");
        }
        assert_eq!(questions.typed("yes", true), InputLine::Answer(approval(1), Permission::Yes));
    }

    #[test]
    fn a_yes_never_falls_to_a_question_that_was_not_shown() {
        for between in ["y", "hello"] {
            let mut questions = three();
            assert!(questions.answered_elsewhere(id(1)));
            assert!(!questions.answered_elsewhere(id(3)), "one that waited is just gone");
            let line = questions.typed(between, false);
            assert!(matches!(
                line,
                InputLine::Message | InputLine::Answer(Question::Gone, Permission::Yes)
            ));
            assert_eq!(questions.typed("y", false), InputLine::Message);
            assert!(questions.next_words().unwrap().starts_with("second?"));
        }
    }

    #[test]
    fn a_new_connection_asks_anew() {
        let mut questions = three();
        questions.reconnected();
        assert_eq!(questions.typed("y", false), InputLine::Answer(Question::Gone, Permission::Yes));
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
