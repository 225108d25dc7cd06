//! The network between clients and replicas: delays, loses, duplicates and reorders messages.

use bowline_sbp::session::{Command, Refusal, Reply};

use super::World;
use super::replica::{State, Waiting};
use super::request::{Request, Travel};

impl World {
    /// A client sends a new request. Returns its index.
    pub(super) fn ask(&mut self, client: usize, command: Command) -> usize {
        self.requests.push(Request {
            client,
            command,
            sent_at: self.step,
            copies: 0,
            sent: 0,
            lost: false,
            answered_at: None,
            told_not_stored: false,
        });
        let request = self.requests.len() - 1;
        let text = format!("client {client} asks {request}: {:?}", self.requests[request].command);
        self.say(|| text.chars().take(200).collect());
        self.send(request);
        request
    }

    /// Sends a copy of a request to the replica that the client takes for the owner.
    pub(super) fn send(&mut self, request: usize) {
        let owner = self.store.owner();
        let owner = self.replicas.iter().position(|replica| Some(replica.id) == owner);
        let other = self.random.below(self.replicas.len());
        let to = owner.filter(|_| self.calm || self.random.percent(70)).unwrap_or(other);
        let asked = &mut self.requests[request];
        asked.copies += 1;
        asked.sent += 1;
        asked.lost = false;
        self.travels.push(Travel::Command { request, to });
    }

    /// A copy of a request, or of its reply, is lost. The client retries when none is left.
    pub(super) fn lose(&mut self, request: usize) {
        let asked = &mut self.requests[request];
        asked.copies -= 1;
        asked.lost = asked.copies == 0 && asked.answered_at.is_none();
        // No client waits for these: a device sees its open call again, and answers it again.
        let alone =
            matches!(asked.command, Command::ToolResult { .. } | Command::GiveUpCall { .. });
        if asked.lost && alone {
            asked.answered_at = Some(self.step);
        }
    }

    /// A random message arrives.
    pub(super) fn arrive(&mut self) {
        let Some(travel) = self.random.draw(&mut self.travels) else { return };
        let paused = match &travel {
            Travel::Command { to, .. } | Travel::Fact { to, .. } => {
                self.replicas[*to].state == State::Paused
            }
            Travel::Reply { from, .. } => self.replicas[from.0].state == State::Paused,
        };
        if paused {
            return self.travels.push(travel);
        }
        let lost = !self.calm && self.random.percent(5);
        match travel {
            Travel::Fact { to, fact } => {
                if let Some(running) = &mut self.replicas[to].running {
                    running.inbox.push_back(Waiting::Fact(fact));
                }
            }
            Travel::Command { request, .. } if lost => self.lose(request),
            Travel::Command { request, to } => self.command_arrives(request, to),
            // The client has its answer, but still handles further replies: an attachment that it
            // does not know must be closed.
            Travel::Reply { request, .. }
                if lost && self.requests[request].answered_at.is_none() =>
            {
                self.lose(request);
            }
            Travel::Reply { request, from, reply } => {
                self.requests[request].copies -= 1;
                self.answered(request, from, reply);
            }
        }
    }

    fn command_arrives(&mut self, request: usize, to: usize) {
        let replica = &self.replicas[to];
        if replica.state == State::Down {
            return self.lose(request);
        }
        if replica.running.is_none() {
            // The session cannot be read now.
            if self.store.paused {
                return self.travels.push(Travel::Command { request, to });
            }
            let other = self.store.owner().filter(|owner| *owner != replica.id);
            if let Some(owner) = other {
                // To the owner in the store, even if its process has ended: that is not known yet.
                let at = self.replicas.iter().position(|replica| replica.id == owner);
                return match at {
                    Some(to) => self.travels.push(Travel::Command { request, to }),
                    None => self.lose(request),
                };
            }
            if self.store.rows.is_none() && !self.store.is_new() {
                let (from, reply) = ((to, 0), Reply::Refused(Refusal::NoSession));
                return self.travels.push(Travel::Reply { request, from, reply });
            }
            self.start_actor(to);
        }
        let client = self.requests[request].client;
        let Some(running) = &mut self.replicas[to].running else { return };
        // An old copy of a request that was already answered.
        let newest = running.newest.entry(client).or_insert(request);
        if *newest > request && self.requests[request].answered_at.is_some() {
            self.requests[request].copies -= 1;
            return;
        }
        *newest = request.max(*newest);
        running.inbox.push_back(Waiting::Request(request));
    }
}
