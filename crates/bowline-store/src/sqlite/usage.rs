//! What users and keys have used: a row for each day, written with what it counts.

use bowline_sbp::budget::{Day, Spender, Spent};
use bowline_sbp::id::UserId;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::rows::corrupt;
use crate::size::whole;
use crate::{DayOfUse, Result, SpentToday};

/// The most rows of old days that are deleted at once.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;

/// Adds to the day's row of the user, and to that of the key.
pub(super) fn spend(
    conn: &Connection,
    at: Timestamp,
    spender: &Spender,
    spent: &Spent,
) -> Result<()> {
    let mut add = conn.prepare_cached(
        "INSERT INTO spending (day, user, user_key, turns, model_calls, prompt_tokens,
                               completion_tokens, usd_micros, exports)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (day, user, user_key) DO UPDATE SET
             turns = min(turns + ?4, 1 << 60),
             model_calls = min(model_calls + ?5, 1 << 60),
             prompt_tokens = min(prompt_tokens + ?6, 1 << 60),
             completion_tokens = min(completion_tokens + ?7, 1 << 60),
             usd_micros = min(usd_micros + ?8, 1 << 60),
             exports = min(exports + ?9, 1 << 60)",
    )?;
    for key in std::iter::once("").chain(spender.key.as_ref().map(|key| key.as_str())) {
        add.execute(params![
            Day::of(at).0,
            spender.user.as_bytes(),
            key,
            whole(spent.turns),
            whole(spent.model_calls),
            whole(spent.prompt_tokens),
            whole(spent.completion_tokens),
            whole(spent.usd_micros),
            whole(spent.exports),
        ])?;
    }
    Ok(())
}

/// What a user and one of its keys have used on a day.
pub(super) fn spent_on(conn: &Connection, day: Day, spender: &Spender) -> Result<SpentToday> {
    let mut of = conn.prepare_cached(
        "SELECT turns, model_calls, prompt_tokens, completion_tokens, usd_micros, exports
         FROM spending WHERE day = ?1 AND user = ?2 AND user_key = ?3",
    )?;
    let mut of = |key: &str| -> Result<Spent> {
        let mut rows = of.query(params![day.0, spender.user.as_bytes(), key])?;
        Ok(rows.next()?.map(|row| spent_of(row, 0)).transpose()?.unwrap_or_default())
    };
    let key = spender.key.as_ref().map(|key| of(key.as_str())).transpose()?;
    Ok(SpentToday { user: of("")?, key: key.unwrap_or_default() })
}

/// The days from `since` on, of one user or of all, the newest first.
pub(super) fn days(conn: &Connection, since: Day, user: Option<UserId>) -> Result<Vec<DayOfUse>> {
    let mut statement = conn.prepare_cached(
        "SELECT turns, model_calls, prompt_tokens, completion_tokens, usd_micros, exports,
                day, user, user_key
         FROM spending WHERE day >= ?1 AND (?2 IS NULL OR user = ?2)
         ORDER BY day DESC, user, user_key",
    )?;
    let mut rows = statement.query(params![since.0, user.as_ref().map(UserId::as_bytes)])?;
    let mut days = Vec::new();
    while let Some(row) = rows.next()? {
        let key: String = row.get(8)?;
        let key = Some(key).filter(|key| !key.is_empty());
        let key = key.map(|key| key.parse().map_err(|_| corrupt("the id of a key")));
        days.push(DayOfUse {
            day: Day(row.get(6)?),
            user: UserId::from_bytes(row.get(7)?),
            key: key.transpose()?,
            spent: spent_of(row, 0)?,
        });
    }
    Ok(days)
}

/// The bytes that the sessions of a user hold.
pub(super) fn stored_bytes(conn: &Connection, user: UserId) -> Result<u64> {
    // Most sessions are the owner's, who is not in the index. `sum` would fail if it overflowed.
    let mut sum = conn.prepare_cached(
        "SELECT CAST(total(stored_bytes) AS INTEGER) FROM sessions WHERE user = ?1",
    )?;
    Ok(sum.query_row([user.as_bytes()], |row| row.get::<_, i64>(0))?.max(0) as u64)
}

/// Deletes days before that one; returns the number of rows.
pub(super) fn forget(conn: &Connection, before: Day) -> Result<u64> {
    let deleted = conn
        .prepare_cached(
            "DELETE FROM spending WHERE (day, user, user_key) IN
             (SELECT day, user, user_key FROM spending WHERE day < ?1 LIMIT ?2)",
        )?
        .execute(params![before.0, FORGOTTEN_AT_ONCE as i64])?;
    Ok(deleted as u64)
}

fn spent_of(row: &Row<'_>, from: usize) -> Result<Spent> {
    let number = |at: usize| -> Result<u64> { Ok(row.get::<_, i64>(from + at)?.max(0) as u64) };
    Ok(Spent {
        turns: number(0)?,
        model_calls: number(1)?,
        prompt_tokens: number(2)?,
        completion_tokens: number(3)?,
        usd_micros: number(4)?,
        exports: number(5)?,
    })
}

#[cfg(test)]
mod tests {
    use bowline_sbp::access::OWNER;

    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn g11_counters_end_at_a_bound_instead_of_failing() {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, "db").unwrap();
        let (at, spender) = (Timestamp::UNIX_EPOCH, Spender::user(OWNER));
        let much = u64::MAX;
        let spent = Spent {
            turns: much,
            model_calls: much,
            prompt_tokens: much,
            completion_tokens: much,
            usd_micros: much,
            exports: much,
        };
        spend(&conn, at, &spender, &spent).unwrap();
        conn.execute(
            "UPDATE spending SET turns = ?1, model_calls = ?1, prompt_tokens = ?1,
                 completion_tokens = ?1, usd_micros = ?1, exports = ?1",
            [i64::MAX],
        )
        .unwrap();
        spend(&conn, at, &spender, &spent).unwrap();
        let user = spent_on(&conn, Day::of(at), &spender).unwrap().user;
        let bound = 1u64 << 60;
        assert_eq!((user.turns, user.model_calls, user.exports), (bound, bound, bound));
        assert_eq!((user.prompt_tokens, user.completion_tokens), (bound, bound));
        assert_eq!(user.usd_micros, bound);
    }

    #[test]
    fn g11_the_sum_over_sessions_does_not_overflow() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE sessions (user BLOB, stored_bytes INTEGER)").unwrap();
        assert_eq!(stored_bytes(&conn, OWNER).unwrap(), 0);
        for stored in [7, i64::MAX, i64::MAX] {
            conn.execute("INSERT INTO sessions VALUES (?1, ?2)", params![OWNER.as_bytes(), stored])
                .unwrap();
        }
        assert_eq!(stored_bytes(&conn, OWNER).unwrap(), i64::MAX as u64);
    }
}
