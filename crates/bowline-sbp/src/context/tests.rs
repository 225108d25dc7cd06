//! Client styles against a log: what is stored, and what the model is sent.

mod bounds;
mod calls;
mod examples;
mod instruction;
mod regenerate;
mod styles;
mod table;

use serde_json::value::RawValue;
use uuid::Uuid;

use super::*;

const ME: CallerTag = CallerTag(1);

fn raw(json: &str) -> Message {
    Message::read(RawValue::from_string(json.into()).unwrap()).unwrap()
}

fn user(text: &str) -> Message {
    Message::text("user", text)
}

fn assistant(text: &str) -> Message {
    Message::text("assistant", text)
}

fn system(text: &str) -> Message {
    Message::text("system", text)
}

/// A session log that takes turns as the gateway does.
#[derive(Default)]
struct World {
    log: SessionLog,
    turns: u128,
}

/// What one turn did.
struct Took {
    prompt: Vec<String>,
    stored: Vec<String>,
    replaces: Option<Seq>,
}

impl World {
    fn turn(&mut self) -> TurnId {
        self.turns += 1;
        TurnId(Uuid::from_u128(self.turns))
    }

    fn append(&mut self, turn: TurnId, by: Option<CallerTag>, replaces: Option<Seq>, m: Message) {
        let seq = self.log.entries.len() as Seq + 1;
        self.log.entries.push(ContextEntry::new(seq, turn, by, replaces, m));
    }

    /// The last answer ended so.
    fn status(&mut self, status: TurnStatus) {
        let last = self.log.entries.pop().unwrap();
        self.log.entries.push(last.with_status(status));
    }

    /// A turn over a surface.
    fn phone(&mut self, question: &str, answer: &str) {
        let turn = self.turn();
        self.append(turn, None, None, user(question));
        self.append(turn, None, None, assistant(answer));
    }

    /// A turn over HTTP with this answer.
    fn take(
        &mut self,
        by: CallerTag,
        mode: Option<HistoryMode>,
        sent: &[Message],
        answer: Message,
    ) -> Took {
        let asked = Asked { messages: sent, caller: Some(by), mode };
        let planned = plan(&self.log, asked, None);
        let prompt = planned.prompt.iter().map(|m| show(m)).collect();
        let stored: Vec<_> = planned.new.iter().map(|m| show(m)).collect();
        let new: Vec<Message> = planned.new.iter().map(|m| (*m).clone()).collect();
        let instruction: Option<Vec<Message>> =
            planned.instruction.map(|list| list.into_iter().cloned().collect());
        let mut replaces = planned.replaces;
        let took = Took { prompt, stored, replaces };
        if instruction.is_some() {
            self.log.instruction = instruction;
        }
        let turn = self.turn();
        for message in new.into_iter().chain([answer]) {
            self.append(turn, Some(by), replaces.take(), message);
        }
        took
    }

    fn say(&mut self, sent: &[Message], answer: &str) -> Took {
        self.take(ME, None, sent, assistant(answer))
    }

    /// What a surface is sent for its next question, but for the question.
    fn history(&self) -> Vec<String> {
        let question = [user("?")];
        let asked = Asked { messages: &question, caller: None, mode: None };
        let prompt = plan(&self.log, asked, None).prompt;
        prompt[..prompt.len() - 1].iter().map(|message| show(message)).collect()
    }

    /// The log position of the newest entry with that text.
    fn newest(&self, text: &str) -> Seq {
        let mut entries = self.log.entries.iter().rev();
        entries.find(|entry| entry.message.content() == text).unwrap().seq
    }

    fn stored(&self) -> Vec<String> {
        self.log.entries.iter().map(|entry| show(&entry.message)).collect()
    }
}

fn show(message: &Message) -> String {
    let content = message.content();
    let calls = if message.may_call() && content.is_empty() { "calls" } else { "" };
    format!("{} {content}{calls}", message.role().chars().next().unwrap())
}
