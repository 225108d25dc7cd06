//! How clients handle replies: done, retry or give up.

use bowline_sbp::error::Failure;
use bowline_sbp::id::TurnId;
use bowline_sbp::session::{Command, Done, Origin, Refusal, Reply, Submit};

use super::World;
use super::clients::Intent;

impl World {
    /// A client receives a reply.
    pub(super) fn answered(&mut self, request: usize, from: (usize, u64), reply: Reply) {
        let client = self.requests[request].client;
        if self.requests[request].answered_at.is_some() {
            return self.answered_before(from, &reply);
        }
        let text = format!("client {client} has the answer to {request}: {reply:?}");
        self.say(|| text.chars().take(200).collect());
        let command = self.requests[request].command.clone();
        let for_now = [Refusal::NotStored, Refusal::Stopping];
        if matches!(&reply, Reply::Refused(refusal) if for_now.contains(refusal))
            || matches!(reply, Reply::Refused(Refusal::Full(_)))
        {
            self.tally.add("refused for now");
            let waits = self.clients[client].waits_for == Some(request);
            if waits && !self.gives_up(request, &command, &reply) {
                return self.wants_again(request);
            }
        }
        match (command, reply) {
            (Command::Submit(submit), reply) => {
                let content = self.submit_answered(client, request, submit, reply);
                if !content {
                    return;
                }
            }
            (Command::Await { turn }, Reply::Ended { .. }) => {
                let is_its = |intent: &Intent| matches!(intent, Intent::Repeat(submit) if submit.turn == turn);
                self.clients[client].script.retain(|intent| !is_its(intent));
            }
            (Command::Attach(_), Reply::Attached(attached)) => {
                self.attached(client, from, attached.epoch);
            }
            // The next owner is asked to go on with it. Some callers do not ask again.
            (
                Command::CallDevice { call } | Command::ResumeCall { call, .. },
                Reply::CallLeftOpen(sent),
            ) => {
                self.tally.add("calls of programs left open");
                self.requests[request].command = Command::ResumeCall { call, sent };
                return self.wants_again(request);
            }
            // A replica that is no longer the owner may not know that the socket is attached.
            (Command::Attach(_), Reply::Refused(refusal))
                if refusal != Refusal::NoSession
                    && self
                        .store
                        .owner()
                        .is_some_and(|owner| owner != self.replicas[from.0].id) =>
            {
                return self.wants_again(request);
            }
            _ => {}
        }
        self.finished(client, request);
    }

    /// The client retries, once no copy of its request is left.
    fn wants_again(&mut self, request: usize) {
        self.requests[request].lost = self.requests[request].copies == 0;
    }

    /// Some clients do not retry if the reply says that nothing was stored.
    fn gives_up(&mut self, request: usize, command: &Command, reply: &Reply) -> bool {
        let told = matches!(reply, Reply::Refused(Refusal::NotStored));
        let asks_once = matches!(command, Command::Submit(submit) if !submit.wait)
            && self.requests[request].sent == 1;
        let gives_up = told && asks_once && !self.calm && self.random.percent(40);
        self.requests[request].told_not_stored = gives_up;
        gives_up
    }

    /// Whether the client accepts the reply as final.
    fn submit_answered(
        &mut self,
        client: usize,
        request: usize,
        submit: Submit,
        reply: Reply,
    ) -> bool {
        match reply {
            Reply::Suspended => {
                if let Command::Submit(again) = &mut self.requests[request].command {
                    again.resume = true;
                }
                self.wants_again(request);
                return false;
            }
            // The turn failed and its key is free again: a retry is a new turn.
            Reply::Refused(Refusal::TurnUnknown) if submit.key.is_some() => {
                let turn = TurnId(self.random.uuid());
                let again = Intent::Repeat(Box::new(Submit { turn, ..submit }));
                self.clients[client].script.push_front(again);
            }
            Reply::Refused(Refusal::KeyReused) => {
                let key = submit.key.as_ref().unwrap();
                let other = |known: &Submit| {
                    known.key.as_ref().is_some_and(|other| {
                        other.key == key.key && other.body_hash != key.body_hash
                    })
                };
                if !self.requests.iter().filter_map(|request| request.submit()).any(other) {
                    self.breaks(format!("{key:?} was used for nothing else"));
                }
            }
            Reply::Ended { turn, outcome } => self.ended(turn, &submit, &outcome),
            Reply::Accepted { turn } if submit.request.origin == Origin::Http => {
                let submit = Box::new(Submit { turn, wait: true, ..submit });
                self.clients[client].script.push_front(Intent::Await(submit));
            }
            _ => {}
        }
        true
    }

    /// All requests with one idempotency key get the same answer (G3).
    fn ended(&mut self, turn: TurnId, submit: &Submit, outcome: &Result<Done, Failure>) {
        self.tally.add(if outcome.is_ok() { "answers" } else { "failures" });
        match (&submit.key, outcome) {
            (Some(key), Ok(done)) => {
                let kept = self.store.past.results.get(&key.key);
                let kept = kept.and_then(|kept| Done::from_json(kept));
                if kept.as_ref().is_none_or(|kept| kept != done) {
                    self.breaks(format!("{} is answered {done:?}, but {kept:?}", key.key));
                }
            }
            (None, _) if turn != submit.turn => {
                self.breaks(format!("{} is answered with {turn}", submit.turn));
            }
            _ => {}
        }
    }

    pub(super) fn finished(&mut self, client: usize, request: usize) {
        let asked = &mut self.requests[request];
        (asked.lost, asked.answered_at) = (false, Some(self.step));
        if self.clients[client].waits_for == Some(request) {
            self.clients[client].waits_for = None;
        }
    }
}
