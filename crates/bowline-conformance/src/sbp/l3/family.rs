//! Where sessions come from, and what came of them.

use serde_json::{Value, json};

use super::export::{export, path, roaming_token};
use super::fork::forked;
use super::handoff::handed_off;
use super::import::imported;
use crate::came::Came;
use crate::check::{Check, run, should};
use crate::trial::{As, Session, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[should(
    "SBP-L3-12",
    "the lineage names exports, forks, handoffs and the origin",
    "GET .../{id}/lineage -> {session_id, exports[{export_id, created_at, expires_at, imported_at, \
     import_session_id}], outgoing_handoffs[], incoming_handoffs[], forks[], origin}; GET \
     .../{id}/exports lists exports",
    run!(lineage),
)];

/// By the key, or without any: a session's token may see less of its family.
async fn family(t: &Trial, session: &Session) -> Result<Came, Stop> {
    let mut answer = t.get(&path(session, "lineage"), As::Caller).await?;
    if answer.status == 401 || answer.status == 403 {
        answer = t.get(&path(session, "lineage"), As::Session(session)).await?;
    }
    let came = answer.offered("lineages")?.is(&[200])?.body;
    came.is(&["/session_id"], session.id.as_str())?;
    Ok(came)
}

/// Whether the id is anywhere in the value.
fn names(value: &Value, id: &str) -> bool {
    value.to_string().contains(id)
}

async fn lineage(t: &Trial) -> Ended {
    let session = t.session().await?;
    t.say(&session, "Hello.").await?;
    let made = export(t, &session, 3600).await?;
    let body = json!({ "roaming_token": roaming_token(&made)?, "target_agent_id": "conformance" });
    let (import, _) = imported(t, body).await?;
    // Whether a server has these calls, other checks look at.
    let fork = Stop::if_offered(forked(t, &session).await)?.map(|(fork, _)| fork);
    let next = Stop::if_offered(handed_off(t, &session).await)?.map(|(next, _)| next);
    let id = made.text(&["/export_id"])?;

    let seen = family(t, &session).await?;
    let exports = seen.list(&["/exports"])?;
    let Some(export) = exports.iter().find(|export| export["export_id"] == id) else {
        return Err(seen.wrong("the export in `exports`"));
    };
    let is = export["import_session_id"] == import.id && export["imported_at"].is_string();
    seen.holds(is, "the export with the session that was imported from it, and when")?;
    if let Some(fork) = &fork {
        seen.holds(names(seen.field(&["/forks"])?, &fork.id), "the fork in `forks`")?;
    }
    if let Some(next) = &next {
        let handoffs = seen.field(&["/outgoing_handoffs"])?;
        seen.holds(names(handoffs, &next.id), "the next session in `outgoing_handoffs`")?;
        let seen = family(t, next).await?;
        let handoffs = seen.field(&["/incoming_handoffs"])?;
        seen.holds(names(handoffs, &session.id), "the source in `incoming_handoffs`")?;
    }
    for child in fork.iter().chain([&import]) {
        let seen = family(t, child).await?;
        seen.holds(names(seen.field(&["/origin"])?, &session.id), "the first session in `origin`")?;
    }
    let listed = t.get(&path(&session, "exports"), As::Caller).await?;
    let listed = listed.is(&[200])?.body;
    listed.holds(names(&listed.json, id), "the export in the list")
}
