//! What tools need of their client and the gateway does not offer: tasks, sampling, elicitation,
//! roots.
//!
//! A tool list says so only of tasks (`tasks`); the rest shows when the tool is called: the server
//! then asks for it, or refuses the call. From then on the tool is not offered on this connection,
//! and the health report says why.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{ErrorCode, ErrorData, InputRequest, InputRequiredResult, ProtocolVersion};

/// Something that the gateway does not offer to MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Tasks,
    Sampling,
    Elicitation,
    Roots,
    /// Input of a kind that is not known.
    Input,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Need::Tasks => "to run as an MCP task",
            Need::Sampling => "sampling (a model of its client)",
            Need::Elicitation => "elicitation (an answer of a person)",
            Need::Roots => "the roots of its client",
            Need::Input => "input of its client",
        };
        write!(f, "it needs {what}, which this gateway does not offer")
    }
}

impl Need {
    /// What a refused call needs, if the error is about that.
    pub(super) fn of_error(error: &ErrorData, version: Option<&ProtocolVersion>) -> Option<Self> {
        match error.code {
            // In that revision: a tool that must run as a task was called without one.
            ErrorCode::METHOD_NOT_FOUND if version == Some(&ProtocolVersion::V_2025_11_25) => {
                Some(Need::Tasks)
            }
            ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => {
                let wanted = error.data.as_ref().and_then(|data| data.get("requiredCapabilities"));
                let has = |name: &str| wanted.is_some_and(|wanted| wanted.get(name).is_some());
                Some(match () {
                    () if has("sampling") => Need::Sampling,
                    () if has("elicitation") => Need::Elicitation,
                    () if has("roots") => Need::Roots,
                    () if has("extensions") || has("tasks") => Need::Tasks,
                    () => Need::Input,
                })
            }
            _ => None,
        }
    }

    /// What a call that stopped half-way asks for.
    pub(super) fn of_input(asked: &InputRequiredResult) -> Self {
        let first = asked.input_requests.as_ref().and_then(|all| all.values().next());
        match first {
            Some(InputRequest::CreateMessage(_)) => Need::Sampling,
            Some(InputRequest::Elicitation(_)) => Need::Elicitation,
            Some(InputRequest::ListRoots(_)) => Need::Roots,
            _ => Need::Input,
        }
    }
}

/// The calls in flight on one connection, and what its tools were found to need.
#[derive(Debug, Default)]
pub(super) struct Needs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of the call, and what the server asked for during it.
    calls: BTreeMap<u64, Option<Need>>,
    next: u64,
    tools: BTreeMap<String, Need>,
}

impl Needs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins; dropping the guard ends it.
    pub(super) fn begin(&self) -> InFlight<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.calls.insert(number, None);
        InFlight { needs: self, number }
    }

    /// The server asked for something. It belongs to the call in flight; with several, nobody can
    /// tell to which.
    pub(super) fn asked(&self, need: Need) {
        let mut state = self.state();
        if state.calls.len() == 1 {
            state.calls.values_mut().for_each(|asked| *asked = Some(need));
        }
    }

    /// From now on the tool is not offered.
    pub(super) fn found(&self, tool: &str, need: Need) {
        self.state().tools.insert(tool.to_owned(), need);
    }

    pub(super) fn of(&self, tool: &str) -> Option<Need> {
        self.state().tools.get(tool).copied()
    }
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    needs: &'a Needs,
    number: u64,
}

impl InFlight<'_> {
    /// What the server asked for during this call.
    pub(super) fn asked(&self) -> Option<Need> {
        self.needs.state().calls.get(&self.number).copied().flatten()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.needs.state().calls.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_servers_request_belongs_to_the_only_call_and_to_none_of_several() {
        let needs = Needs::default();
        let first = needs.begin();
        needs.asked(Need::Sampling);
        let second = needs.begin();
        needs.asked(Need::Elicitation);
        assert_eq!((first.asked(), second.asked()), (Some(Need::Sampling), None));
        drop(first);
        needs.asked(Need::Elicitation);
        assert_eq!(second.asked(), Some(Need::Elicitation));
    }

    #[test]
    fn an_error_says_what_its_tool_needs() {
        let version = ProtocolVersion::V_2025_11_25;
        let error =
            |code, data| Need::of_error(&ErrorData::new(code, "no", Some(data)), Some(&version));
        let missing = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
        assert_eq!(error(ErrorCode::METHOD_NOT_FOUND, json!(null)), Some(Need::Tasks));
        let wanted = |name: &str| json!({ "requiredCapabilities": { name: {} } });
        assert_eq!(error(missing, wanted("sampling")), Some(Need::Sampling));
        assert_eq!(error(missing, wanted("elicitation")), Some(Need::Elicitation));
        assert_eq!(error(missing, wanted("extensions")), Some(Need::Tasks));
        assert_eq!(error(missing, json!({})), Some(Need::Input));
        assert_eq!(error(ErrorCode::INVALID_PARAMS, json!({})), None);
        let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no", None);
        assert_eq!(Need::of_error(&unknown, Some(&ProtocolVersion::V_2025_06_18)), None);
    }
}
