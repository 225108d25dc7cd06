//! Calls of tools on devices: by the model of a turn, which the log tells, and by hosts.
//!
//! Invariant, to be kept by the recorder: no two calls have the same input. It identifies the call at its
//! host, in the log and at its device.

use super::{Event, History};

/// One call by a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostCall(pub usize);

/// What an entry of the log says of tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolStep {
    /// The model called a tool. `id` is the model's name for the call, which others may have, too.
    Called { id: String, input: String },
    /// What came of the call.
    Ended { id: String, result: ToolResult },
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolResult {
    /// The device answered.
    Said(String),
    /// An error, by the device or by the gateway: too late, lost, no such device.
    Failed,
}

impl History {
    /// A host is about to call a tool of a device.
    pub fn calling(&mut self, session: &str, input: &str) -> HostCall {
        let call = HostCall(self.host_calls);
        self.host_calls += 1;
        let (session, input) = (session.to_owned(), input.to_owned());
        self.events.push(Event::Calling { call, session, input });
        call
    }

    /// The host's call has ended. `None`: the connection broke.
    pub fn call_ended(&mut self, call: HostCall, result: Option<ToolResult>) {
        self.events.push(Event::CallEnded { call, result });
    }

    /// A device was asked to run a tool.
    pub fn ran(&mut self, session: &str, input: &str) {
        let (session, input) = (session.to_owned(), input.to_owned());
        self.events.push(Event::Ran { session, input });
    }

    /// A device is about to answer a call.
    pub fn returning(&mut self, session: &str, input: &str, said: &str) {
        let (session, input, said) = (session.to_owned(), input.to_owned(), said.to_owned());
        self.events.push(Event::Returning { session, input, said });
    }
}
