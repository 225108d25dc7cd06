//! The statements for several commits of live sessions in one transaction, and only under their leases (G19).
//!
//! One statement for each kind of row, whatever the number of commits. The first ones write the rows of the
//! sessions, if their owner, fence and version are those of the commit, and mark them with the number of the
//! transaction. Each other statement writes only what belongs to a session with that mark: a fenced commit
//! writes nothing.

use std::sync::Arc;

use bowline_sbp::session::{Commit, Write};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::Attempt;
use super::fold::Rows;
use super::rows::{context_text, corrupt, kind_number, millis, uuid};
use super::text::stored;
use super::{blobs, statements as sql};
use crate::about::AboutApproval;
use crate::size::{added_text, whole};

/// A value of a statement: one column of all rows.
type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement, and its columns.
pub(super) struct Step<'a> {
    pub(super) sql: &'static str,
    columns: Vec<Column<'a>>,
}

impl Step<'_> {
    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
    }
}

/// One vector for each expression, with its value for each row.
macro_rules! columns {
    ($rows:expr, $row:ident => $($value:expr),+ $(,)?) => {
        vec![$(Box::new($rows.iter().map(|$row| $value).collect::<Vec<_>>()) as Column<'_>),+]
    };
}

/// The statements for commits of different sessions, in order. The last one tells which were applied.
/// `release`: also delete blobs that only ended turns used; those of a commit with blobs of its own are
/// deleted later.
pub(super) fn steps<'a>(
    commits: &'a [Arc<Commit>],
    rows: &'a Rows<'a>,
    writer: Uuid,
    release: bool,
) -> Attempt<Vec<Step<'a>>> {
    let mut steps = Vec::new();
    let (made, known): (Vec<&Commit>, Vec<&Commit>) =
        commits.iter().map(|commit| &**commit).partition(|commit| commit.make.is_some());
    if !made.is_empty() {
        let mut columns = head(&made);
        columns.extend(new_sessions(&made));
        steps.push(Step { sql: sql::MAKE, columns });
    }
    if !known.is_empty() {
        steps.push(Step { sql: sql::HEAD, columns: head(&known) });
    }
    turns_and_keys(&mut steps, rows);
    log(&mut steps, rows);
    approvals(&mut steps, rows)?;
    surfaces(&mut steps, rows)?;
    if release && !rows.ended.is_empty() {
        steps.push(Step { sql: blobs::RELEASE, columns: columns!(rows.ended, row => row.0) });
    }
    if !rows.spent.is_empty() {
        // Last, because sessions of one user meet in these rows.
        let mut columns = columns!(rows.spent, row =>
            row.0.0, row.0.1, row.0.2, row.0.3.as_str(), whole(row.1.turns),
            whole(row.1.model_calls), whole(row.1.prompt_tokens),
            whole(row.1.completion_tokens), whole(row.1.usd_micros), whole(row.1.exports));
        columns.push(Box::new(vec![writer]));
        steps.push(Step { sql: sql::SPEND, columns });
    }
    steps.push(Step {
        sql: sql::APPLIED,
        columns: columns!(commits, commit => uuid(commit.session.as_bytes()), commit.id),
    });
    Ok(steps)
}

/// The columns of [`sql::HEAD`].
fn head<'a>(commits: &[&'a Commit]) -> Vec<Column<'a>> {
    columns!(commits, c =>
        uuid(c.session.as_bytes()),
        c.id,
        c.lease.owner.0,
        c.lease.take,
        c.lease.fence as i64,
        c.version as i64,
        c.head.status.as_str(),
        c.head.step_count as i64,
        c.head.last_seq as i64,
        c.head.delivered_seq as i64,
        c.head.tethered_turns as i64,
        c.head.cost_usd,
        c.head.spent_usd,
        c.head.tokens.prompt as i64,
        c.head.tokens.completion as i64,
        c.head.attach_epoch as i64,
        c.head.turns_accepted as i64,
        c.head.snapshot.as_ref().map(|snapshot| uuid(snapshot.id.as_bytes())),
        c.head.snapshot.as_ref().map(|snapshot| snapshot.seq as i64),
        c.head.snapshot.as_ref().map(|snapshot| millis(snapshot.at)),
        c.head.snapshot.as_ref().map(|snapshot| snapshot.kind.as_str()),
        c.head.handed_to.as_ref().map(|(id, _)| uuid(id.as_bytes())),
        millis(c.head.updated_at),
        c.head.titles.given.as_deref().map(stored),
        c.head.titles.automatic.as_deref().map(stored),
        whole(added_text(&c.writes)),
        confirmed(c).map(|seq| seq as i64),
        confirmed_here(c) as i64,
    )
}

/// What [`sql::MAKE`] has besides.
fn new_sessions<'a>(commits: &[&'a Commit]) -> Vec<Column<'a>> {
    let new: Vec<_> = commits.iter().filter_map(|commit| commit.make.as_ref()).collect();
    columns!(new, new =>
        &new.token_hash.0[..],
        new.listed,
        new.agent_id.as_str(),
        stored(&new.metadata),
        millis(new.at),
        uuid(new.user.as_bytes()),
    )
}

/// Up to where surfaces have confirmed the log, if the commit says so.
fn confirmed(commit: &Commit) -> Option<u64> {
    let seqs = commit.writes.iter().filter_map(|write| match write {
        Write::Delivered { seq } => Some(*seq),
        _ => None,
    });
    seqs.max()
}

/// The number of the last confirmed Tether turn among those that the commit itself appends.
fn confirmed_here(commit: &Commit) -> u64 {
    let upto = confirmed(commit).unwrap_or(0);
    let appended = commit.writes.iter().flat_map(|write| match write {
        Write::Append { entries, .. } => &entries[..],
        _ => &[],
    });
    appended
        .filter(|placed| placed.seq <= upto)
        .filter_map(|placed| placed.tether_no)
        .max()
        .unwrap_or(0)
}

/// Deletions first: a turn may free the key that another one of the same commit takes.
fn turns_and_keys<'a>(steps: &mut Vec<Step<'a>>, rows: &'a Rows<'a>) {
    if !rows.ended.is_empty() {
        steps.push(Step {
            sql: sql::DELETE_TURNS,
            columns: columns!(rows.ended, row => row.0, row.1),
        });
    }
    if !rows.freed.is_empty() {
        steps.push(Step {
            sql: sql::DELETE_KEYS,
            columns: columns!(rows.freed, row => row.0, row.1),
        });
    }
    if !rows.results.is_empty() {
        let columns = columns!(rows.results, row => row.0, row.1, stored(row.2));
        steps.push(Step { sql: sql::RESULTS, columns });
    }
    if !rows.started.is_empty() {
        let columns = columns!(rows.started, row => row.0, row.1, row.2);
        steps.push(Step { sql: sql::START_TURNS, columns });
    }
    if !rows.left_open.is_empty() {
        let columns = columns!(rows.left_open, row => row.0, row.1, stored(&row.2));
        steps.push(Step { sql: sql::LEAVE_OPEN, columns });
    }
    if !rows.advanced.is_empty() {
        let columns = columns!(rows.advanced, row => row.0, row.1);
        steps.push(Step { sql: sql::ADVANCE_TURNS, columns });
    }
    if !rows.turns.is_empty() {
        let columns = columns!(rows.turns, new =>
            new.session, new.row.place as i64, uuid(new.row.id.as_bytes()),
            new.row.found.map(|status| status.as_str()), stored(&new.row.request), new.started,
            new.attempt, new.advanced, new.row.keyed, new.at);
        steps.push(Step { sql: sql::INSERT_TURNS, columns });
    }
    if !rows.keys.is_empty() {
        let columns = columns!(rows.keys, new =>
            new.session, new.turn, stored(&new.key.scope), stored(&new.key.key),
            &new.key.body_hash[..], new.result.map(stored), new.at);
        steps.push(Step { sql: sql::INSERT_KEYS, columns });
    }
}

fn log<'a>(steps: &mut Vec<Step<'a>>, rows: &'a Rows<'a>) {
    if !rows.entries.is_empty() {
        let columns = columns!(rows.entries, row =>
            row.0,
            row.1.seq as i64,
            kind_number(row.1.entry.kind),
            uuid(row.1.turn_id.as_bytes()),
            row.1.entry.message.as_json(),
            row.1.entry.model.as_deref().map(stored),
            row.1.entry.cost_usd,
            row.1.entry.status.as_str(),
            row.1.step as i64,
            row.1.tether_no.map(|number| number as i64),
            millis(row.1.at),
            row.1.entry.agent_id.as_ref().map(|agent| agent.as_str()),
            row.1.entry.carried.as_deref().map(stored),
            row.1.entry.caller.map(|caller| caller.0 as i64),
            row.1.entry.replaces.map(|seq| seq as i64),
            row.1.entry.author.as_deref().map(stored),
        );
        steps.push(Step { sql: sql::INSERT_ENTRIES, columns });
    }
    if !rows.instructions.is_empty() {
        let columns = columns!(rows.instructions, row => row.0, row.1.as_str());
        steps.push(Step { sql: sql::INSTRUCT, columns });
    }
}

fn approvals<'a>(steps: &mut Vec<Step<'a>>, rows: &'a Rows<'a>) -> Attempt<()> {
    if !rows.asked.is_empty() {
        let about = |approval| serde_json::to_string(&AboutApproval::of(approval));
        let about = rows.asked.iter().map(|new| about(&new.row.approval));
        let about: Result<Vec<String>, _> = about.collect();
        let about = about.map_err(|_| corrupt("an approval that is not JSON"))?;
        let all: Vec<_> = rows.asked.iter().zip(&about).collect();
        let columns = columns!(all, row =>
            row.0.session,
            uuid(row.0.row.approval.approval_id.as_bytes()),
            uuid(row.0.row.approval.turn_id.as_bytes()),
            row.0.row.place.0 as i64,
            i64::from(row.0.row.place.1),
            stored(&row.0.row.approval.tool_name),
            row.0.row.approval.tool_input.to_string(),
            row.0.state,
            millis(row.0.row.approval.created_at),
            millis(row.0.row.approval.expires_at),
            row.1.clone(),
            stored(&row.0.row.definition),
            row.0.decision.as_deref(),
        );
        steps.push(Step { sql: sql::ASK, columns });
    }
    if !rows.steps.is_empty() {
        let columns = columns!(rows.steps, row =>
            row.session, row.id, row.state, row.decision.as_deref());
        steps.push(Step { sql: sql::STEP_APPROVALS, columns });
    }
    if !rows.grants.is_empty() {
        let columns = columns!(rows.grants, row =>
            row.0, stored(&row.1.tool), stored(&row.1.device), stored(&row.1.definition),
            millis(row.1.at));
        steps.push(Step { sql: sql::GRANT, columns });
    }
    Ok(())
}

fn surfaces<'a>(steps: &mut Vec<Step<'a>>, rows: &'a Rows<'a>) -> Attempt<()> {
    if !rows.detached.is_empty() {
        let columns = columns!(rows.detached, row => row.0, row.1);
        steps.push(Step { sql: sql::DETACH, columns });
    }
    if !rows.attached.is_empty() {
        let contexts: Attempt<Vec<String>> =
            rows.attached.iter().map(|(_, row)| context_text(&row.context)).collect();
        let mut columns = columns!(rows.attached, row =>
            row.0, row.1.epoch as i64, row.1.edge.0, row.1.joined, row.1.guest);
        columns.insert(4, Box::new(contexts?));
        steps.push(Step { sql: sql::ATTACH, columns });
    }
    if !rows.forgotten.is_empty() {
        let columns = columns!(rows.forgotten, row => row.0, stored(row.1));
        steps.push(Step { sql: sql::FORGET_DEVICES, columns });
    }
    if !rows.devices.is_empty() {
        let contexts: Attempt<Vec<String>> =
            rows.devices.iter().map(|(_, row)| context_text(&row.context)).collect();
        let mut columns = columns!(rows.devices, row =>
            row.0,
            stored(&row.1.surface_id),
            millis(row.1.first_seen),
            row.1.last_seen.map_or(0, millis),
            row.1.token.as_ref().map(|(hash, _)| &hash.0[..]),
            row.1.token.map(|(_, expires)| millis(expires)),
            row.1.delivered_seq.map(|seq| seq as i64),
        );
        columns.insert(2, Box::new(contexts?));
        steps.push(Step { sql: sql::DEVICES, columns });
    }
    Ok(())
}
