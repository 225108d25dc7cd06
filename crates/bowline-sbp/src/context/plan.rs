//! From a log and a request to a prompt and the new entries.

use super::request::Request;
use super::{CallerTag, ContextEntry, HistoryMode, Key, SessionLog, is_system};
use crate::id::{Seq, TurnId};
use crate::message::Message;

/// A request's messages, and who sent them.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub messages: &'a [Message],
    pub caller: Option<CallerTag>,
    pub mode: Option<HistoryMode>,
}

/// What a turn sends to the model and adds to the log.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The conversation for the model.
    pub prompt: Vec<&'a Message>,
    /// The messages that are not in the log yet.
    pub new: Vec<&'a Message>,
    /// The log position of the answer that the turn's answer supersedes.
    pub replaces: Option<Seq>,
    /// The session's instruction, if it becomes another one.
    pub instruction: Option<Vec<&'a Message>>,
}

/// Plans a turn. `running`: the turn has entries in the log already, at its end, because the gateway
/// ran tools for it.
pub fn plan<'a>(log: &'a SessionLog, asked: Asked<'a>, running: Option<TurnId>) -> Plan<'a> {
    let is_own = |entry: &&ContextEntry| Some(entry.turn) == running;
    let end = log.entries.len() - log.entries.iter().rev().take_while(is_own).count();
    let request = Request::new(log, end, asked);
    let known = request.known();
    let mut plan = Plan { replaces: known.replaces, ..Plan::default() };
    let systems: Vec<_> = asked.messages.iter().filter(|message| is_system(message)).collect();
    match systems.is_empty() {
        true => plan.prompt = request.view.instruction(),
        false => plan.instruct(request.view.instruction(), systems),
    }
    plan.new.extend(&request.rest[known.new.clone()]);
    match request.is_managed() {
        true => request.as_sent(&known, &mut plan.prompt),
        false => request.as_stored(&known, &mut plan.prompt),
    }
    let actions = log.entries[end..].iter().map(|entry| &entry.message);
    plan.prompt.extend(actions.filter(|message| message.is_hidden()));
    plan
}

impl<'a> Plan<'a> {
    /// The caller's system messages, wherever it puts them, are the instruction. The first ones are
    /// also entries of the log.
    fn instruct(&mut self, before: Vec<&'a Message>, systems: Vec<&'a Message>) {
        let same = before.len() == systems.len()
            && before.iter().zip(&systems).all(|(a, b)| Key::of(a) == Key::of(b));
        if before.is_empty() {
            self.new = systems;
        } else if !same {
            self.instruction = Some(systems);
        }
    }
}
