//! Budgets: how much a user, or one of their keys, may use.
//!
//! Six things are bounded: requests a minute, turns at once, tokens and US dollars a day, stored
//! bytes, and exports a day. A day is a UTC day. What was used is looked up by the caller; [`check`]
//! compares. An answer that runs is never cut: what is spent is checked before the model is asked.
//!
//! Pure: the time is an argument.

mod limits;

pub use self::limits::{BadLimit, BudgetLimits, LimitChanges, OwnLimits};

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::CredentialId;
use crate::error::{Code, Failure};
use crate::id::UserId;

const SECONDS_OF_A_DAY: i64 = 24 * 3600;

/// Something that is bounded. Amounts are whole numbers; dollars are counted in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Budget {
    Requests,
    Turns,
    Tokens,
    Usd,
    Stored,
    Exports,
}

impl Budget {
    pub const ALL: [Budget; 6] = [
        Budget::Requests,
        Budget::Turns,
        Budget::Tokens,
        Budget::Usd,
        Budget::Stored,
        Budget::Exports,
    ];

    /// What is checked before a model is asked. Requests were counted when they came.
    pub const OF_A_MODEL_CALL: [Budget; 3] = [Budget::Tokens, Budget::Usd, Budget::Stored];

    /// The name on the command line, and in JSON and the configuration.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Budget::Requests => ("requests", "requests_per_minute"),
            Budget::Turns => ("turns", "turns_at_once"),
            Budget::Tokens => ("tokens", "tokens_per_day"),
            Budget::Usd => ("usd", "usd_per_day"),
            Budget::Stored => ("stored", "stored_bytes"),
            Budget::Exports => ("exports", "exports_per_day"),
        }
    }

    /// The name on the command line: `tokens`.
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The name in JSON: `tokens_per_day`.
    pub fn field(self) -> &'static str {
        self.names().1
    }

    /// When what was used is forgotten. `None`: it is not by time.
    fn resets(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Budget::Requests => {
                let second = now.as_second();
                Timestamp::from_second(second - second.rem_euclid(60) + 60).ok()
            }
            Budget::Tokens | Budget::Usd | Budget::Exports => Day::of(now).next().begins(),
            Budget::Turns | Budget::Stored => None,
        }
    }
}

/// A UTC day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Day(pub i64);

impl Day {
    pub fn of(at: Timestamp) -> Self {
        Self(at.as_second().div_euclid(SECONDS_OF_A_DAY))
    }

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// That many days earlier.
    pub fn before(self, days: u32) -> Self {
        Self(self.0 - i64::from(days))
    }

    pub fn begins(self) -> Option<Timestamp> {
        Timestamp::from_second(self.0.checked_mul(SECONDS_OF_A_DAY)?).ok()
    }
}

/// Written as `2026-11-18`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.begins().map(|at| at.to_string()).unwrap_or_default();
        f.write_str(text.split('T').next().unwrap_or_default())
    }
}

/// Whose budgets count for something: the user's, and those of the key that was shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spender {
    pub user: UserId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CredentialId>,
}

impl Spender {
    pub fn user(user: UserId) -> Self {
        Self { user, key: None }
    }
}

/// What was used on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Turns whose answer is stored.
    pub turns: u64,
    /// How often a model was asked.
    pub model_calls: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// US dollars, in millionths. Models without a known price cost nothing.
    pub usd_micros: u64,
    pub exports: u64,
}

impl Spent {
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        let Self { turns, model_calls, prompt_tokens, completion_tokens, usd_micros, exports } =
            other;
        for (to, add) in [
            (&mut self.turns, turns),
            (&mut self.model_calls, model_calls),
            (&mut self.prompt_tokens, prompt_tokens),
            (&mut self.completion_tokens, completion_tokens),
            (&mut self.usd_micros, usd_micros),
            (&mut self.exports, exports),
        ] {
            *to = to.saturating_add(add);
        }
    }
}

/// US dollars in millionths; what is negative or no number is nothing.
pub fn usd_micros(usd: f64) -> u64 {
    // A conversion of floats saturates, and turns NaN into 0.
    (usd * 1e6).round() as u64
}

/// What a user or key has used, as of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// In this minute, and the turns that run.
    pub requests: u64,
    pub turns: u64,
    pub today: Spent,
    pub stored_bytes: u64,
}

impl Used {
    fn of(&self, budget: Budget) -> u64 {
        match budget {
            Budget::Requests => self.requests,
            Budget::Turns => self.turns,
            Budget::Tokens => self.today.tokens(),
            Budget::Usd => self.today.usd_micros,
            Budget::Stored => self.stored_bytes,
            Budget::Exports => self.today.exports,
        }
    }
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOf {
    User,
    Key,
}

/// A budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    pub budget: Budget,
    pub of: LimitOf,
    pub limit: u64,
    /// Seconds until a retry may succeed.
    pub retry_after: Option<u64>,
    /// When it begins anew; `None`: when something ends or is deleted.
    pub resets: Option<Timestamp>,
}

/// Whether one more of these may be begun: all that is bounded is below its limit.
pub fn check(
    of: LimitOf,
    limits: &BudgetLimits,
    budgets: &[Budget],
    used: &Used,
    now: Timestamp,
) -> Result<(), Exceeded> {
    for &budget in budgets {
        let Some(limit) = limits.of(budget) else { continue };
        if used.of(budget) < limit {
            continue;
        }
        let resets = budget.resets(now);
        let wait = resets.map(|at| at.duration_since(now).as_secs().unsigned_abs() + 1);
        let wait = wait.or((budget == Budget::Turns).then_some(1));
        return Err(Exceeded { budget, of, limit, retry_after: wait, resets });
    }
    Ok(())
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whose, ask) = match self.of {
            LimitOf::User => ("your", "ask the gateway's owner for more (`bowline users limit`)"),
            LimitOf::Key => ("this key's", "use another key, or ask for one with a higher limit"),
        };
        let limit = limits::amount(self.budget, self.limit);
        let what = match self.budget {
            Budget::Requests => format!("{whose} {limit} requests a minute are used up"),
            Budget::Turns => format!("{whose} limit of {limit} turns at once is reached"),
            Budget::Tokens => format!("{whose} {limit} tokens a day are used up"),
            Budget::Usd => format!("{whose} {limit} US dollars a day are used up"),
            Budget::Stored => format!("{whose} limit of {limit} of stored sessions is reached"),
            Budget::Exports => format!("{whose} {limit} exports a day are used up"),
        };
        match (self.budget, self.resets) {
            (Budget::Turns, _) => write!(f, "{what}; send it again when one has ended"),
            (Budget::Stored, _) => write!(f, "{what}; delete sessions, or {ask}"),
            (_, Some(at)) => write!(f, "{what} until {at}; wait, or {ask}"),
            (_, None) => write!(f, "{what}; {ask}"),
        }
    }
}

impl Exceeded {
    /// Whether a client that retries by itself after a moment does right.
    pub fn passes_soon(&self) -> bool {
        matches!(self.budget, Budget::Requests | Budget::Turns)
    }
}

impl From<Exceeded> for Failure {
    fn from(exceeded: Exceeded) -> Self {
        let code = if exceeded.passes_soon() { Code::RateLimited } else { Code::QuotaSpent };
        let retry_after = exceeded.retry_after;
        Failure { retry_after, ..Failure::new(code, exceeded.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn limits(text: &str) -> BudgetLimits {
        let own: OwnLimits = text.split(' ').map(str::parse).collect::<Result<_, _>>().unwrap();
        own.over(BudgetLimits::default())
    }

    fn used(tokens: u64) -> Used {
        let today = Spent {
            prompt_tokens: tokens / 2,
            completion_tokens: tokens - tokens / 2,
            ..Spent::default()
        };
        Used { today, requests: tokens, turns: tokens, stored_bytes: tokens }
    }

    #[test]
    fn a_day_begins_and_ends_at_midnight_utc() {
        for (now, day, left) in [
            ("2026-11-18T00:00:00Z", "2026-11-18", 86_400),
            ("2026-11-18T23:59:59Z", "2026-11-18", 1),
            ("2026-11-18T23:59:59.999Z", "2026-11-18", 0),
            ("2026-11-19T00:00:00Z", "2026-11-19", 86_400),
            ("2028-02-29T12:00:00+01:00", "2028-02-29", 46_800),
            ("1969-12-31T23:00:00Z", "1969-12-31", 3600),
        ] {
            let now = at(now);
            assert_eq!(Day::of(now).to_string(), day, "{now}");
            let refused =
                check(LimitOf::User, &limits("tokens=10/d"), &Budget::ALL, &used(10), now);
            let refused = refused.unwrap_err();
            assert_eq!(refused.resets, Day::of(now).next().begins());
            // Never a second too early.
            assert_eq!(refused.retry_after, Some(left + 1), "{now}");
        }
        assert_eq!(Day::of(at("2026-03-01T00:00:00Z")).before(1).to_string(), "2026-02-28");
    }

    #[test]
    fn what_is_below_its_limit_may_begin_and_nothing_at_it() {
        let now = at("2026-11-18T10:00:30Z");
        for (text, budget, passes_soon) in [
            ("requests=10/m", Budget::Requests, true),
            ("turns=10", Budget::Turns, true),
            ("tokens=10/d", Budget::Tokens, false),
            ("stored=10", Budget::Stored, false),
        ] {
            let check = |n| check(LimitOf::Key, &limits(text), &Budget::ALL, &used(n), now);
            assert_eq!(check(0), Ok(()), "{text}");
            assert_eq!(check(9), Ok(()), "{text}");
            let refused = check(10).unwrap_err();
            assert_eq!((refused.budget, refused.limit), (budget, 10));
            assert_eq!(refused.passes_soon(), passes_soon, "{text}");
            assert!(check(11).is_err() && check(u64::MAX).is_err());
        }
        let spent = |usd: f64, exports| Used {
            today: Spent { usd_micros: usd_micros(usd), exports, ..Spent::default() },
            ..Used::default()
        };
        let check = |text, used| check(LimitOf::User, &limits(text), &Budget::ALL, &used, now);
        assert_eq!(check("usd=2.50/d", spent(2.499_999, 0)), Ok(()));
        assert_eq!(check("usd=2.50/d", spent(2.5, 0)).unwrap_err().budget, Budget::Usd);
        assert_eq!(check("exports=0/d", spent(0.0, 0)).unwrap_err().budget, Budget::Exports);
        // What is not asked about, and what has no limit, is not checked.
        assert_eq!(check("exports=none", spent(9e9, 99)), Ok(()));
        let model = |used| {
            super::check(LimitOf::User, &limits("exports=1"), &Budget::OF_A_MODEL_CALL, &used, now)
        };
        assert_eq!(model(spent(0.0, 7)), Ok(()));
    }

    #[test]
    fn a_minute_resets_with_the_clock() {
        for (now, left) in [("10:00:00Z", 60), ("10:00:30Z", 30), ("10:00:59Z", 1)] {
            let now = at(&format!("2026-11-18T{now}"));
            let refused = check(LimitOf::User, &limits("requests=1"), &Budget::ALL, &used(1), now)
                .unwrap_err();
            assert_eq!(refused.retry_after, Some(left + 1));
        }
    }

    #[test]
    fn a_refusal_says_which_budget_when_it_resets_and_what_to_do() {
        let now = at("2026-11-18T10:00:30Z");
        let text = |of, text, used: Used| {
            Failure::from(check(of, &limits(text), &Budget::ALL, &used, now).unwrap_err())
        };
        let failure = text(LimitOf::User, "tokens=5000/d", used(5000));
        assert_eq!(failure.code, Code::QuotaSpent);
        assert_eq!(
            failure.message,
            "your 5000 tokens a day are used up until 2026-11-19T00:00:00Z; wait, or ask the \
             gateway's owner for more (`bowline users limit`)"
        );
        let failure = text(LimitOf::Key, "stored=3MB", used(3_000_000));
        assert_eq!(
            failure.message,
            "this key's limit of 3MB of stored sessions is reached; delete sessions, or use another \
             key, or ask for one with a higher limit"
        );
        assert_eq!(failure.retry_after, None);
        let failure = text(LimitOf::Key, "turns=2", used(2));
        assert_eq!((failure.code, failure.retry_after), (Code::RateLimited, Some(1)));
    }

    #[test]
    fn dollars_are_counted_exactly_and_nonsense_costs_nothing() {
        assert_eq!(usd_micros(0.1) + usd_micros(0.2), usd_micros(0.3));
        for nothing in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(usd_micros(nothing), 0);
        }
        let mut spent = Spent { usd_micros: u64::MAX, ..Spent::default() };
        spent += Spent { usd_micros: 5, ..Spent::default() };
        assert_eq!(spent.usd_micros, u64::MAX);
    }
}
