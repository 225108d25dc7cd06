//! A handoff: a fork for another agent, and an export that is created as used (G8).

use bowline_sbp::id::SessionId;
use bowline_sbp::session::HandedOff;

use super::error::Attempt;
use super::pool::Connection;
use crate::Error;

pub(super) async fn write(_: &Connection, _: SessionId, _: &HandedOff) -> Attempt<()> {
    Err(Error::Unavailable("not built yet".into()).into())
}
