//! What a check is given: calls, sockets, sessions, and the model.
//!
//! Everything that a check sends and receives goes through here, so that the transcript is whole
//! and nothing waits without a deadline.

mod call;
mod sessions;
mod tether;

use std::sync::Arc;

use crate::federation::Peer;
use crate::issuer::Issuer;
use crate::model::{Act, Model, Script};
use crate::restart::{End, Restart};
use crate::target::Target;
use crate::verdict::{Ended, Stop};
use crate::wire::Wire;

pub(crate) use crate::way::Way;

pub(crate) use call::{Answer, As, SESSION_TOKEN};
pub(crate) use sessions::{
    Begun, COMPLETIONS, GIVEN_UP, PENDING, Session, attach_frame, desktop, has_status,
};

/// One run of one check.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) wire: Wire,
    model: Option<Arc<Model>>,
    /// The model that is named in requests.
    model_name: String,
    restart: Option<Restart>,
    /// The suite's own control plane, for a relay.
    pub(crate) issuer: Option<Arc<Issuer>>,
    peer: Option<Arc<Peer>>,
}

impl Trial {
    pub(crate) fn new(
        target: Arc<Target>,
        model: Option<Arc<Model>>,
        model_name: String,
        restart: Option<Restart>,
        issuer: Option<Arc<Issuer>>,
        peer: Option<Arc<Peer>>,
    ) -> Self {
        Self { wire: Wire::new(target), model, model_name, restart, issuer, peer }
    }

    /// The suite's gateway.
    pub(crate) fn peer(&self) -> Result<&Peer, Stop> {
        self.peer.as_deref().ok_or_else(|| Stop::unable("the suite's gateway does not run"))
    }

    /// What the model will do when it is asked with the script's prompt: one list for each time that
    /// it is asked in the same turn.
    pub(crate) fn rounds(&self, rounds: Vec<Vec<Act>>) -> Result<Script, Stop> {
        let no_model = "the server's own model answers, which says what it wants";
        let model = self.model.as_ref().ok_or_else(|| Stop::unable(no_model))?;
        Ok(model.script(rounds))
    }

    /// What the model will do in a turn without tools.
    pub(crate) fn script(&self, acts: Vec<Act>) -> Result<Script, Stop> {
        self.rounds(vec![acts])
    }

    /// A script whose answer is one text.
    pub(crate) fn saying(&self, text: &str) -> Result<Script, Stop> {
        self.script(vec![Act::say(text)])
    }

    /// Ends the server and starts it again.
    pub(crate) async fn restart(&self, end: End) -> Ended {
        let restart = self.restart.as_ref().ok_or_else(|| Stop::unable("no --restart-command"))?;
        self.wire.transcript.sent(&format!("restart: {end:?}"));
        restart.run(end, &self.wire.target).await.map_err(Stop::Unable)
    }

    /// Fails the check unless it is so.
    pub(crate) fn holds(&self, is: bool, sent: &str, expected: &str, came: &str) -> Ended {
        match is {
            true => Ok(()),
            false => Err(Stop::broken(self.wire.clean(sent), expected, self.wire.clean(came))),
        }
    }
}
