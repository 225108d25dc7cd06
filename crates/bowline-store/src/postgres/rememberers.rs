//! Which agents have memories at all: every turn asks, and for most the answer is no.
//!
//! One question is asked at a time, for all turns that wait: what gathers meanwhile is the next one. So the
//! database is asked a few hundred times a second at most, however many turns begin.
//!
//! Invariant: the answer is read after the question came. What was remembered before a turn is known to it,
//! whichever replica stored it.

use std::collections::HashSet;

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::error::Attempt;
use super::pool::{Connection, Pool};
use super::rows::column;
use crate::{Error, MemoryOwner, Result};

/// The most turns whose question is asked at once.
const AT_ONCE: usize = 256;
/// The most that wait; more wait for a free slot.
const WAITING: usize = 1024;

/// A user, and the name of an agent.
type Owner = (Uuid, String);

#[derive(Debug)]
struct Question {
    owner: Owner,
    answer: oneshot::Sender<Result<bool>>,
}

#[derive(Debug)]
pub(super) struct Rememberers(mpsc::Sender<Question>);

impl Rememberers {
    /// The task ends when this is dropped.
    pub(super) fn start(pool: Pool) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        tokio::spawn(answer_all(pool, asked));
        Self(questions)
    }

    /// Whether the agent has memories.
    pub(super) async fn has(&self, of: &MemoryOwner) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        let owner = (of.user.0, of.agent.as_str().to_owned());
        self.0.send(Question { owner, answer }).await.map_err(|_| Error::Closed)?;
        answered.await.unwrap_or(Err(Error::Closed))
    }
}

async fn answer_all(pool: Pool, mut asked: mpsc::Receiver<Question>) {
    let mut questions = Vec::new();
    while asked.recv_many(&mut questions, AT_ONCE).await > 0 {
        let owners: HashSet<_> = questions.iter().map(|question| question.owner.clone()).collect();
        let owners: Vec<_> = owners.into_iter().collect();
        let asking = &owners;
        let found =
            pool.read(move |db| async move { those_with_memories(&db, asking).await }).await;
        for Question { owner, answer } in questions.drain(..) {
            // Its turn may have been given up.
            let _ =
                answer.send(found.as_ref().map(|some| some.contains(&owner)).map_err(Error::clone));
        }
    }
}

async fn those_with_memories(db: &Connection, owners: &[Owner]) -> Attempt<HashSet<Owner>> {
    let (users, agents): (Vec<Uuid>, Vec<&str>) =
        owners.iter().map(|(user, agent)| (*user, agent.as_str())).unzip();
    let rows = db
        .query(
            "SELECT o.user_id, o.agent_id FROM unnest($1::uuid[], $2::text[]) AS o (user_id, agent_id)
             WHERE EXISTS (SELECT 1 FROM memories m
                           WHERE m.user_id = o.user_id AND m.agent_id = o.agent_id)",
            &[&users, &agents],
        )
        .await?;
    rows.iter()
        .map(|row| Ok((column(row, "user_id")?, column::<&str>(row, "agent_id")?.to_owned())))
        .collect()
}
