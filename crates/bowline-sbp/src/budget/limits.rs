//! Limits by budget, as people write them: `tokens=2M/d`, and as JSON: `{"tokens_per_day": 2000000}`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

use super::{Budget, usd_micros};

/// The limits in force; what has none is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetLimits([Option<u64>; Budget::ALL.len()]);

impl BudgetLimits {
    pub fn of(&self, budget: Budget) -> Option<u64> {
        self.0[budget as usize]
    }

    #[must_use]
    pub fn with(mut self, budget: Budget, limit: Option<u64>) -> Self {
        self.0[budget as usize] = limit;
        self
    }

    pub fn has_any(&self, budgets: &[Budget]) -> bool {
        budgets.iter().any(|budget| self.of(*budget).is_some())
    }
}

/// The limits that a user or key was given. What is not named is as the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnLimits(BTreeMap<Budget, Option<u64>>);

impl OwnLimits {
    /// With these in place of the default ones.
    pub fn over(&self, mut limits: BudgetLimits) -> BudgetLimits {
        for (budget, limit) in &self.0 {
            limits = limits.with(*budget, *limit);
        }
        limits
    }

    /// With those of the other in place of its own.
    pub fn extend(&mut self, other: OwnLimits) {
        self.0.extend(other.0);
    }

    /// Back to what the configuration says.
    pub fn forget(&mut self, budget: Budget) {
        self.0.remove(&budget);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<OwnLimits> for OwnLimits {
    fn from_iter<I: IntoIterator<Item = OwnLimits>>(all: I) -> Self {
        let mut limits = Self::default();
        all.into_iter().for_each(|one| limits.extend(one));
        limits
    }
}

/// Text that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no limit; write it like requests=60/m, turns=4, tokens=2M/d, usd=5/d, stored=500MB, \
     exports=10/d, or tokens=none"
)]
pub struct BadLimit(String);

/// One limit: `tokens=2M/d`, `usd=2.50/d`, `stored=500MB`, `turns=none`.
impl FromStr for OwnLimits {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let bad = || BadLimit(text.chars().take(64).collect());
        let (name, limit) = text.trim().split_once('=').ok_or_else(bad)?;
        let budget = Budget::ALL.into_iter().find(|budget| budget.as_str() == name.trim());
        let budget = budget.ok_or_else(bad)?;
        let limit = match limit.trim() {
            "none" => None,
            limit => Some(read(budget, limit).ok_or_else(bad)?),
        };
        Ok(Self(BTreeMap::from([(budget, limit)])))
    }
}

/// An amount and its period, which may be left out.
fn read(budget: Budget, text: &str) -> Option<u64> {
    let (amount, period) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let periods: &[&str] = match budget {
        Budget::Requests => &["m", "min", "minute"],
        Budget::Tokens | Budget::Usd | Budget::Exports => &["d", "day"],
        Budget::Turns | Budget::Stored => &[],
    };
    if period.is_some_and(|period| !periods.contains(&period.trim())) {
        return None;
    }
    let amount = amount.trim();
    if budget == Budget::Usd {
        let usd: f64 = amount.strip_prefix('$').unwrap_or(amount).parse().ok()?;
        return (usd.is_finite() && usd >= 0.0).then(|| usd_micros(usd));
    }
    let amount = match budget {
        Budget::Stored => amount.strip_suffix('B').unwrap_or(amount),
        _ => amount,
    };
    let (digits, unit) = match amount.strip_suffix(['k', 'K', 'M', 'G']) {
        Some(digits) => (digits, amount.chars().next_back()),
        None => (amount, None),
    };
    let unit = match unit {
        Some('G') => 1_000_000_000,
        Some('M') => 1_000_000,
        Some(_) => 1000,
        None => 1,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// An amount as people read it.
pub(super) fn amount(budget: Budget, amount: u64) -> String {
    match budget {
        Budget::Usd => format!("{}", amount as f64 / 1e6),
        Budget::Stored => {
            let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
            let whole = units.iter().find(|(unit, _)| amount > 0 && amount.is_multiple_of(*unit));
            whole.map_or_else(
                || format!("{amount}B"),
                |(unit, name)| format!("{}{name}", amount / unit),
            )
        }
        _ => amount.to_string(),
    }
}

/// Written as `requests=60/m, tokens=none`.
impl fmt::Display for OwnLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(budget, limit): (&Budget, &Option<u64>)| {
            let period = match (budget, limit) {
                (Budget::Requests, Some(_)) => "/m",
                (Budget::Tokens | Budget::Usd | Budget::Exports, Some(_)) => "/d",
                _ => "",
            };
            let limit = limit.map_or_else(|| "none".into(), |limit| amount(*budget, limit));
            format!("{}={limit}{period}", budget.as_str())
        };
        f.write_str(&self.0.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

/// As JSON: numbers, and `"none"` for what is not bounded.
impl Serialize for OwnLimits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(budget, limit)| {
            let value = match (budget, limit) {
                (_, None) => Value::from("none"),
                (Budget::Usd, Some(micros)) => {
                    Number::from_f64(*micros as f64 / 1e6).map_or(Value::Null, Value::from)
                }
                (_, Some(limit)) => Value::from(*limit),
            };
            (budget.field(), value)
        }))
    }
}

impl<'de> Deserialize<'de> for OwnLimits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let asked = LimitChanges::deserialize(from)?;
        match asked.forgotten.first() {
            Some(budget) => Err(bad_value(*budget)),
            None => Ok(asked.set),
        }
    }
}

/// Changes of own limits, as JSON: a number sets one, `"none"` lifts it, `null` goes back to what the
/// configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitChanges {
    set: OwnLimits,
    forgotten: Vec<Budget>,
}

impl LimitChanges {
    pub fn apply(self, to: &mut OwnLimits) {
        self.forgotten.into_iter().for_each(|budget| to.forget(budget));
        to.extend(self.set);
    }
}

impl<'de> Deserialize<'de> for LimitChanges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut changes = Self::default();
        for (name, value) in BTreeMap::<String, Value>::deserialize(from)? {
            let budget = Budget::ALL.into_iter().find(|budget| budget.field() == name);
            let Some(budget) = budget else {
                let names = Budget::ALL.map(Budget::field).join(", ");
                let name: String = name.chars().take(64).collect();
                let what = format!("there is no limit `{name}`; limits are {names}");
                return Err(serde::de::Error::custom(what));
            };
            let limit = match (&value, budget) {
                (Value::Null, _) => {
                    changes.forgotten.push(budget);
                    continue;
                }
                (Value::String(text), _) if text == "none" => None,
                (Value::Number(number), Budget::Usd) => {
                    let usd = number.as_f64().filter(|usd| usd.is_finite() && *usd >= 0.0);
                    Some(usd.map(usd_micros).ok_or_else(|| bad_value(budget))?)
                }
                (value, _) => Some(value.as_u64().ok_or_else(|| bad_value(budget))?),
            };
            changes.set.0.insert(budget, limit);
        }
        Ok(changes)
    }
}

fn bad_value<E: serde::de::Error>(budget: Budget) -> E {
    E::custom(format!("`{}` is a number from 0 up, or \"none\"", budget.field()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> OwnLimits {
        text.parse().unwrap()
    }

    #[test]
    fn limits_are_read_and_written_as_people_write_them() {
        for (text, budget, limit, written) in [
            ("requests=60/m", Budget::Requests, Some(60), "requests=60/m"),
            ("requests=60", Budget::Requests, Some(60), "requests=60/m"),
            ("turns=4", Budget::Turns, Some(4), "turns=4"),
            ("tokens=2M/day", Budget::Tokens, Some(2_000_000), "tokens=2000000/d"),
            ("tokens=0", Budget::Tokens, Some(0), "tokens=0/d"),
            ("usd=2.50/d", Budget::Usd, Some(2_500_000), "usd=2.5/d"),
            ("usd=$5", Budget::Usd, Some(5_000_000), "usd=5/d"),
            ("stored=500MB", Budget::Stored, Some(500_000_000), "stored=500MB"),
            ("stored=1234", Budget::Stored, Some(1234), "stored=1234B"),
            ("exports=10/d", Budget::Exports, Some(10), "exports=10/d"),
            (" tokens = none ", Budget::Tokens, None, "tokens=none"),
        ] {
            let limits = own(text);
            assert_eq!(limits.0.get(&budget), Some(&limit), "{text}");
            assert_eq!(limits.to_string(), written);
            assert_eq!(own(written), limits, "and read again");
        }
        for wrong in [
            "",
            "tokens",
            "tokens=",
            "words=1",
            "tokens=1/m",
            "requests=1/d",
            "turns=1/m",
            "tokens=-1",
            "usd=-1",
            "usd=NaN",
            "usd=inf",
            "stored=1TB",
            "tokens=99999999999999999999",
            "tokens=9G9",
            "tokens=99999999999G",
        ] {
            assert!(wrong.parse::<OwnLimits>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_json_by_name_and_changes_may_go_back_to_the_default() {
        let limits: OwnLimits =
            [own("tokens=5"), own("usd=1.5"), own("turns=none")].into_iter().collect();
        let json = r#"{"turns_at_once":"none","tokens_per_day":5,"usd_per_day":1.5}"#;
        assert_eq!(serde_json::to_string(&limits).unwrap(), json);
        assert_eq!(serde_json::from_str::<OwnLimits>(json).unwrap(), limits);
        let mut changed = limits;
        let changes = r#"{"tokens_per_day":null,"usd_per_day":"none","exports_per_day":3}"#;
        serde_json::from_str::<LimitChanges>(changes).unwrap().apply(&mut changed);
        assert_eq!(changed.to_string(), "turns=none, usd=none, exports=3/d");
        for wrong in [
            r#"{"tokens":5}"#,
            r#"{"tokens_per_day":-1}"#,
            r#"{"tokens_per_day":1.5}"#,
            r#"{"tokens_per_day":"many"}"#,
            r#"{"usd_per_day":-0.5}"#,
        ] {
            assert!(serde_json::from_str::<LimitChanges>(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<OwnLimits>(r#"{"usd_per_day":null}"#).is_err());
    }

    #[test]
    fn own_limits_stand_in_place_of_the_default_ones() {
        let default =
            BudgetLimits::default().with(Budget::Tokens, Some(100)).with(Budget::Exports, Some(2));
        let limits = [own("tokens=none"), own("turns=1")].into_iter().collect::<OwnLimits>();
        let limits = limits.over(default);
        assert_eq!(limits.of(Budget::Tokens), None);
        assert_eq!(limits.of(Budget::Turns), Some(1));
        assert_eq!(limits.of(Budget::Exports), Some(2));
        assert!(limits.has_any(&[Budget::Turns]) && !limits.has_any(&[Budget::Usd]));
    }
}
