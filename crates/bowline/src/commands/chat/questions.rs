//! What the person at a chat is asked: may this command run, may that tool be called?
//!
//! One at a time, oldest first. Only a yes or a no answers it, an empty line being a no; anything else
//! is a message as ever. A yes counts for the question that was on the screen when it was typed: one
//! that was answered elsewhere meanwhile takes the yes with it, so that it cannot fall to the next.

use std::collections::VecDeque;

use bowline_sbp::id::ApprovalId;
use serde_json::Value;

/// Something that waits for a yes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// A call of a tool on this machine.
    Call { call_id: String, tool: String, input: Value },
    /// A tool that the gateway asks about, here or elsewhere.
    Approval(ApprovalId),
    /// One that was on the screen and has been answered elsewhere.
    Gone,
}

/// What a line is to the questions.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Answer(Question, bool),
    Message,
}

/// The questions, and how each is put.
#[derive(Debug, Default)]
pub(super) struct Questions(VecDeque<(Question, String)>);

impl Questions {
    /// Adds one. Gives the words to be shown now, if it is the only one.
    pub(super) fn ask(&mut self, question: Question, words: String) -> Option<String> {
        self.0.push_back((question, words));
        (self.0.len() == 1).then(|| self.current()).flatten()
    }

    /// The oldest question's words.
    pub(super) fn current(&self) -> Option<String> {
        let open = self.0.front().filter(|(question, _)| *question != Question::Gone);
        open.map(|(_, words)| format!("{words}\n  allow it? [y/N]"))
    }

    pub(super) fn typed(&mut self, line: &str) -> Line {
        let verdict = match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(true),
            "" | "n" | "no" => Some(false),
            _ => None,
        };
        match (self.0.front(), verdict) {
            (None, _) => Line::Message,
            (Some((Question::Gone, _)), None) => {
                self.0.pop_front();
                Line::Message
            }
            (Some(_), None) => Line::Message,
            (Some(_), Some(yes)) => {
                let question = self.0.pop_front().map(|(question, _)| question);
                Line::Answer(question.unwrap_or(Question::Gone), yes)
            }
        }
    }

    /// Someone else answered it. Whether it was on the screen.
    pub(super) fn answered_elsewhere(&mut self, approval: ApprovalId) -> bool {
        let theirs = Question::Approval(approval);
        let shown = self.0.front_mut().filter(|(question, _)| *question == theirs);
        if let Some((question, _)) = shown {
            *question = Question::Gone;
            return true;
        }
        self.0.retain(|(question, _)| *question != theirs);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> ApprovalId {
        ApprovalId(uuid::Uuid::from_u128(n))
    }

    fn three() -> Questions {
        let mut questions = Questions::default();
        let approval = |n| Question::Approval(id(n));
        assert!(questions.ask(approval(1), "first?".into()).unwrap().starts_with("first?"));
        assert_eq!(questions.ask(approval(2), "second?".into()), None);
        assert_eq!(questions.ask(approval(3), "third?".into()), None);
        questions
    }

    #[test]
    fn questions_are_put_one_at_a_time_and_only_yes_is_yes() {
        let mut questions = three();
        assert_eq!(questions.typed("what is it for?"), Line::Message);
        assert_eq!(questions.typed(""), Line::Answer(Question::Approval(id(1)), false));
        assert_eq!(questions.current(), Some("second?\n  allow it? [y/N]".into()));
        assert_eq!(questions.typed(" No "), Line::Answer(Question::Approval(id(2)), false));
        assert_eq!(questions.typed("y"), Line::Answer(Question::Approval(id(3)), true));
        assert_eq!(questions.typed("y"), Line::Message);
    }

    #[test]
    fn a_yes_never_falls_to_a_question_that_was_not_shown() {
        let mut questions = three();
        assert!(questions.answered_elsewhere(id(1)));
        assert_eq!(questions.current(), None);
        assert_eq!(questions.typed("y"), Line::Answer(Question::Gone, true));
        assert!(questions.current().unwrap().starts_with("second?"));
        assert!(!questions.answered_elsewhere(id(3)), "one that waited is just gone");
    }
}
