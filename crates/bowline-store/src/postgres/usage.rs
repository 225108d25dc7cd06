//! What users and keys have used: a row for each day, written with what it counts.

use std::collections::BTreeMap;

use bowline_sbp::budget::{Day, Spender, Spent};
use bowline_sbp::id::UserId;
use bowline_sbp::session::ReplicaId;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Attempt;
use super::pool::Connection;
use super::rows::{self, corrupt};
use super::{Postgres, counts};
use crate::size::whole;
use crate::{DayOfUse, LiveCount, Result, SpentToday, Usage};

/// The most rows that wait to be added to.
const MOST_ROWS: usize = 100_000;
/// The most rows of old days that are deleted at once.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;

#[async_trait::async_trait]
impl Usage for Postgres {
    fn spend(&self, spender: Spender, spent: Spent, at: Timestamp) {
        self.later.add(|waiting| waiting.usages.add(at, &spender, spent));
    }

    async fn spent_on(&self, day: Day, spender: Spender) -> Result<SpentToday> {
        let spender = &spender;
        self.pool.read(move |db| async move { spent_on(&db, day, spender).await }).await
    }

    async fn report_counts(&self, me: ReplicaId, counts: Vec<LiveCount>) -> Result<()> {
        let all = &counts;
        self.pool.write(move |tx| async move { counts::report(&tx, me, all).await }).await
    }

    async fn counts_of_others(&self, me: ReplicaId, minute: i64) -> Result<Vec<LiveCount>> {
        self.pool.read(move |db| async move { counts::of_others(&db, me, minute).await }).await
    }

    async fn stored_bytes(&self, user: UserId) -> Result<u64> {
        self.pool.read(move |db| async move { stored_bytes(&db, user).await }).await
    }

    async fn days_of_use(&self, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>> {
        self.pool.read(move |db| async move { days(&db, since, user).await }).await
    }
}

/// What is to be added to the rows of days, users and keys. Each row once, and in order: one
/// statement cannot add to a row twice, and two that lock rows in different orders would wait for
/// each other.
#[derive(Debug, Default, Clone)]
pub(super) struct Usages(BTreeMap<(i64, Uuid, String), Spent>);

impl Usages {
    pub(super) fn of(at: Timestamp, spender: &Spender, spent: Spent) -> Self {
        let mut usages = Self::default();
        usages.add(at, spender, spent);
        usages
    }

    /// Adds to the day's row of the user, and to that of the key.
    pub(super) fn add(&mut self, at: Timestamp, spender: &Spender, spent: Spent) {
        for key in std::iter::once("").chain(spender.key.as_ref().map(|key| key.as_str())) {
            self.add_to((Day::of(at).0, spender.user.0, key.to_owned()), spent);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(row, spent)| self.add_to(row, spent));
    }

    fn add_to(&mut self, row: (i64, Uuid, String), spent: Spent) {
        if self.0.len() < MOST_ROWS || self.0.contains_key(&row) {
            *self.0.entry(row).or_default() += spent;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Adds to rows of days. Each process has rows of its own, so that it waits for no other.
pub(super) async fn add(db: &Connection, usages: &Usages, writer: Uuid) -> Attempt<()> {
    if usages.is_empty() {
        return Ok(());
    }
    let (mut days, mut users, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    let mut numbers = [const { Vec::new() }; 6];
    for ((day, user, key), spent) in &usages.0 {
        days.push(*day);
        users.push(*user);
        keys.push(key.as_str());
        for (column, number) in numbers.iter_mut().zip(numbers_of(spent)) {
            column.push(whole(number));
        }
    }
    let [turns, calls, prompt, completion, usd, exports] = &numbers;
    db.execute(
        "INSERT INTO spending AS s (day, user_id, user_key, turns, model_calls, prompt_tokens,
                                    completion_tokens, usd_micros, exports, writer)
         SELECT n.*, $10::uuid
         FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[],
                     $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) n
         ON CONFLICT (day, user_id, user_key, writer) DO UPDATE SET
             turns = least(s.turns + excluded.turns, 1::bigint << 60),
             model_calls = least(s.model_calls + excluded.model_calls, 1::bigint << 60),
             prompt_tokens = least(s.prompt_tokens + excluded.prompt_tokens, 1::bigint << 60),
             completion_tokens =
                 least(s.completion_tokens + excluded.completion_tokens, 1::bigint << 60),
             usd_micros = least(s.usd_micros + excluded.usd_micros, 1::bigint << 60),
             exports = least(s.exports + excluded.exports, 1::bigint << 60)",
        &[&days, &users, &keys, turns, calls, prompt, completion, usd, exports, &writer],
    )
    .await?;
    Ok(())
}

fn numbers_of(spent: &Spent) -> [u64; 6] {
    let Spent { turns, model_calls, prompt_tokens, completion_tokens, usd_micros, exports } =
        *spent;
    [turns, model_calls, prompt_tokens, completion_tokens, usd_micros, exports]
}

/// The sums of what the processes have written. Each column ends at `1 << 60`.
const SUMS: &str = "
    SELECT day, user_id, user_key,
           least(sum(turns), 1::bigint << 60)::bigint AS turns,
           least(sum(model_calls), 1::bigint << 60)::bigint AS model_calls,
           least(sum(prompt_tokens), 1::bigint << 60)::bigint AS prompt_tokens,
           least(sum(completion_tokens), 1::bigint << 60)::bigint AS completion_tokens,
           least(sum(usd_micros), 1::bigint << 60)::bigint AS usd_micros,
           least(sum(exports), 1::bigint << 60)::bigint AS exports
    FROM spending";

/// What a user and one of its keys have used on a day.
async fn spent_on(db: &Connection, day: Day, spender: &Spender) -> Attempt<SpentToday> {
    let key = spender.key.as_ref().map_or("", |key| key.as_str());
    let sql = format!(
        "{SUMS} WHERE day = $1 AND user_id = $2 AND user_key IN ('', $3)
         GROUP BY day, user_id, user_key"
    );
    let mut today = SpentToday::default();
    for row in db.query(&sql, &[&day.0, &spender.user.0, &key]).await? {
        match rows::column(&row, "user_key")? {
            "" => today.user = spent_of(&row)?,
            _ => today.key = spent_of(&row)?,
        }
    }
    Ok(today)
}

/// The days from `since` on, of one user or of all, the newest first.
async fn days(db: &Connection, since: Day, user: Option<UserId>) -> Attempt<Vec<DayOfUse>> {
    let sql = format!(
        "{SUMS} WHERE day >= $1 AND ($2::uuid IS NULL OR user_id = $2)
         GROUP BY day, user_id, user_key ORDER BY day DESC, user_id, user_key"
    );
    let day = |row: &Row| -> Attempt<DayOfUse> {
        let key = Some(rows::column::<&str>(row, "user_key")?).filter(|key| !key.is_empty());
        let key = key.map(|key| key.parse().map_err(|_| corrupt("the id of a key")));
        Ok(DayOfUse {
            day: Day(rows::column(row, "day")?),
            user: UserId(rows::column(row, "user_id")?),
            key: key.transpose()?,
            spent: spent_of(row)?,
        })
    };
    db.query(&sql, &[&since.0, &user.map(|user| user.0)]).await?.iter().map(day).collect()
}

/// The bytes that the sessions of a user hold.
async fn stored_bytes(db: &Connection, user: UserId) -> Attempt<u64> {
    // The sum is a numeric, and does not overflow.
    let sql = "SELECT least(coalesce(sum(stored_bytes), 0), 9223372036854775807)::bigint
               FROM sessions WHERE user_id = $1";
    Ok(db.query_one(sql, &[&user.0]).await?.try_get::<_, i64>(0)?.max(0) as u64)
}

/// Deletes days before that one; returns the number of rows.
pub(super) async fn forget(db: &Connection, before: Day) -> Attempt<u64> {
    db.execute(
        "DELETE FROM spending WHERE (day, user_id, user_key, writer) IN
         (SELECT day, user_id, user_key, writer FROM spending WHERE day < $1 LIMIT $2
          FOR UPDATE SKIP LOCKED)",
        &[&before.0, &(FORGOTTEN_AT_ONCE as i64)],
    )
    .await
}

fn spent_of(row: &Row) -> Attempt<Spent> {
    Ok(Spent {
        turns: rows::number(row, "turns")?,
        model_calls: rows::number(row, "model_calls")?,
        prompt_tokens: rows::number(row, "prompt_tokens")?,
        completion_tokens: rows::number(row, "completion_tokens")?,
        usd_micros: rows::number(row, "usd_micros")?,
        exports: rows::number(row, "exports")?,
    })
}
