//! Budgets of users and keys: looked up, counted, and checked before every model call.
//!
//! The rules are in [`bowline_sbp::budget`]. What was spent today is read from the store each time, and
//! only for who has a limit on it: so it is right whoever wrote it, but for what another replica's store
//! still holds, a second's worth at most. Requests of this minute and turns that run are counted in memory.
//! Replicas tell each other their counts once a second ([`Budgets::exchange`]), so that a limit can be
//! exceeded by what others let in during that second.
//!
//! An answer that runs is not cut, so a budget can be exceeded by the answers that ran when it was used
//! up.

mod exchange;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_sbp::access::{CredentialKind, Role};
use bowline_sbp::budget::{
    Budget, BudgetLimits, Day, Exceeded, LimitOf, Spender, Spent, Used, check, usd_micros,
};
use bowline_sbp::completion::Usage;
use bowline_sbp::error::{Code, Failure};
use bowline_sbp::id::UserId;
use bowline_store::{Counted, IdempotencyKey};
use jiff::Timestamp;

use self::exchange::OfOthers;
pub(super) use self::exchange::Reported;
use super::{Engine, Identity};
use crate::auth::{Credentials, Denied};
use crate::clock;
use crate::config::BudgetsConfig;
use crate::session::RoundJob;

/// The most users and keys whose requests are counted; beyond it, those of earlier minutes go.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Budgets {
    member: BudgetLimits,
    member_key: BudgetLimits,
    minute: Mutex<Minute>,
    running: Arc<Mutex<HashMap<Counted, u64>>>,
    others: Mutex<OfOthers>,
}

/// The requests of one minute of the clock.
#[derive(Debug, Default)]
struct Minute {
    number: i64,
    requests: HashMap<Counted, u64>,
}

/// The limits that count for a spender.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    user: BudgetLimits,
    key: BudgetLimits,
}

impl Limits {
    fn bound(&self, budgets: &[Budget]) -> bool {
        self.user.has_any(budgets) || self.key.has_any(budgets)
    }

    fn check(
        &self,
        budgets: &[Budget],
        user: &Used,
        key: &Used,
        now: Timestamp,
    ) -> Result<(), Exceeded> {
        check(LimitOf::User, &self.user, budgets, user, now)?;
        check(LimitOf::Key, &self.key, budgets, key, now)
    }
}

/// A turn that counts as running until this is dropped.
#[derive(Debug)]
struct Running {
    who: Vec<Counted>,
    all: Arc<Mutex<HashMap<Counted, u64>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = locked(&self.all);
        for who in &self.who {
            if let Some(turns) = all.get_mut(who) {
                *turns -= 1;
                if *turns == 0 {
                    all.remove(who);
                }
            }
        }
    }
}

impl Budgets {
    pub(super) fn new(config: &BudgetsConfig) -> Self {
        Self {
            member: config.user.limits(),
            member_key: config.key.limits(),
            minute: Mutex::default(),
            running: Arc::default(),
            others: Mutex::default(),
        }
    }

    /// Counts a request, if there may be another one in this minute.
    fn request(&self, limits: &Limits, spender: &Spender, now: Timestamp) -> Result<(), Exceeded> {
        if !limits.bound(&[Budget::Requests]) {
            return Ok(());
        }
        let number = minute_of(now);
        let elsewhere = |who: &Counted| locked(&self.others).requests(who, number);
        let elsewhere = Elsewhere::of(spender, elsewhere);
        let mut minute = locked(&self.minute);
        if minute.number != number || minute.requests.len() >= MOST {
            *minute = Minute { number, requests: HashMap::new() };
        }
        count(&mut minute.requests, &elsewhere, limits, spender, Budget::Requests, now)?;
        Ok(())
    }

    /// A turn begins to run, if another one may.
    fn run(
        &self,
        limits: &Limits,
        spender: &Spender,
        now: Timestamp,
    ) -> Result<Option<Running>, Exceeded> {
        if !limits.bound(&[Budget::Turns]) {
            return Ok(None);
        }
        let elsewhere = Elsewhere::of(spender, |who| locked(&self.others).turns(who));
        let mut running = locked(&self.running);
        let who = count(&mut running, &elsewhere, limits, spender, Budget::Turns, now)?;
        drop(running);
        Ok(Some(Running { who, all: Arc::clone(&self.running) }))
    }
}

/// What other replicas count of a user and its key.
#[derive(Debug, Default)]
struct Elsewhere {
    user: u64,
    key: u64,
}

impl Elsewhere {
    fn of(spender: &Spender, count: impl Fn(&Counted) -> u64) -> Self {
        let key = spender.key.clone().map(Counted::Key);
        let key = key.as_ref().map(&count).unwrap_or_default();
        Self { user: count(&Counted::User(spender.user)), key }
    }
}

/// The number of a minute of the clock.
fn minute_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

/// Counts one more for the user and the key, if both may have it.
fn count(
    all: &mut HashMap<Counted, u64>,
    elsewhere: &Elsewhere,
    limits: &Limits,
    spender: &Spender,
    budget: Budget,
    now: Timestamp,
) -> Result<Vec<Counted>, Exceeded> {
    let used = |who: &Counted, elsewhere: u64| {
        let number = all.get(who).copied().unwrap_or_default().saturating_add(elsewhere);
        Used { requests: number, turns: number, ..Used::default() }
    };
    let user = Counted::User(spender.user);
    let key = spender.key.clone().map(Counted::Key);
    let of_key = key.as_ref().map(|key| used(key, elsewhere.key)).unwrap_or_default();
    limits.check(&[budget], &used(&user, elsewhere.user), &of_key, now)?;
    let who: Vec<_> = std::iter::once(user).chain(key).collect();
    for who in &who {
        *all.entry(who.clone()).or_default() += 1;
    }
    Ok(who)
}

impl Identity {
    /// Whose budgets count for what it does.
    pub(crate) fn spender(&self) -> Spender {
        let key = match &self.credential.kind {
            CredentialKind::Key(id) => Some(id.clone()),
            _ => None,
        };
        Spender { user: self.user(), key }
    }
}

impl Engine {
    async fn limits_of(&self, spender: &Spender) -> Result<Limits, Denied> {
        let known = self.users.user(&*self.store, spender.user).await?;
        let (role, own) = known.unwrap_or((Role::Member, Arc::default()));
        let (user, key) = match role {
            Role::Owner => Default::default(),
            Role::Member => (self.budgets.member, self.budgets.member_key),
        };
        let user = own.over(user);
        let Some(id) = &spender.key else { return Ok(Limits { user, ..Limits::default() }) };
        let own = self.users.limits_of_key(&*self.store, id).await?;
        Ok(Limits { user, key: own.over(key) })
    }

    /// Whether the key that was shown has budgets.
    pub(super) async fn has_key_budgets(&self, spender: &Spender) -> Result<bool, Denied> {
        Ok(self.limits_of(spender).await?.key.has_any(&Budget::ALL))
    }

    /// Counts a request of somebody, once however often they are identified for it.
    pub(crate) async fn count_request(
        &self,
        shown: &Credentials,
        identity: &Identity,
    ) -> Result<(), Denied> {
        if shown.note.counted.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let _ = shown.note.credential.set(identity.credential.clone());
        let spender = identity.spender();
        let limits = self.limits_of(&spender).await?;
        let counted = self.budgets.request(&limits, &spender, clock::now());
        counted.map_err(|exceeded| Denied::Exceeded(Box::new(exceeded)))
    }

    /// Counts a message of a surface, which comes without a request of its own.
    pub(crate) async fn count_message(&self, spender: &Spender) -> Result<(), Failure> {
        let limits = self.limits_of(spender).await.map_err(failure)?;
        Ok(self.budgets.request(&limits, spender, clock::now())?)
    }

    /// Whether a model may be asked. To be asked before every call of a model.
    pub(crate) async fn check_model_call(&self, spender: &Spender) -> Result<(), Failure> {
        self.check_budgets(spender, &Budget::OF_A_MODEL_CALL).await
    }

    /// Whether a turn may be submitted, before anything of it is stored. One that was submitted before
    /// under the same key is found again, whatever was spent since (G3).
    pub(crate) async fn check_turn(
        &self,
        spender: &Spender,
        key: Option<&IdempotencyKey>,
    ) -> Result<(), Failure> {
        let Err(failure) = self.check_model_call(spender).await else { return Ok(()) };
        let is_known = match key {
            Some(key) => matches!(self.store.known(key.clone()).await, Ok(Some(_))),
            None => false,
        };
        if is_known { Ok(()) } else { Err(failure) }
    }

    /// Whether there may be another export.
    pub(crate) async fn check_export(&self, spender: &Spender) -> Result<(), Failure> {
        self.check_budgets(spender, &[Budget::Exports]).await
    }

    /// Whether a session may be imported.
    pub(crate) async fn check_import(&self, spender: &Spender) -> Result<(), Failure> {
        self.check_budgets(spender, &[Budget::Stored]).await
    }

    async fn check_budgets(&self, spender: &Spender, budgets: &[Budget]) -> Result<(), Failure> {
        let limits = self.limits_of(spender).await.map_err(failure)?;
        if !limits.bound(budgets) {
            return Ok(());
        }
        // What passed through is counted with the next commit.
        self.store.settle().await?;
        let now = clock::now();
        let spent = self.store.spent_on(Day::of(now), spender.clone()).await?;
        let is_stored = budgets.contains(&Budget::Stored) && limits.bound(&[Budget::Stored]);
        let stored_bytes = match is_stored {
            true => self.store.stored_bytes(spender.user).await?,
            false => 0,
        };
        let used = |today| Used { today, stored_bytes, ..Used::default() };
        Ok(limits.check(budgets, &used(spent.user), &used(spent.key), now)?)
    }

    /// Counts an answer of a model that no commit counts.
    pub(crate) fn count_call(&self, spender: Spender, model: &str, usage: &Usage) {
        let spent = Spent {
            model_calls: 1,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            usd_micros: usd_micros(self.models.cost(model, usage)),
            ..Spent::default()
        };
        self.store.spend(spender, spent, clock::now());
    }

    /// Whether a round of a turn may ask its model. From its first round on, the turn counts as
    /// running.
    pub(super) async fn check_round(&self, job: &RoundJob) -> Result<(), Failure> {
        let spender = spender(job);
        if !job.slot.is_taken() {
            let limits = self.limits_of(&spender).await.map_err(failure)?;
            if let Some(running) = self.budgets.run(&limits, &spender, clock::now())? {
                job.slot.take(running);
            }
        }
        self.check_model_call(&spender).await?;
        match spender.user == job.user {
            true => Ok(()),
            false => self.check_room(job.user).await,
        }
    }

    /// Whether the user of a shared session has room for what a guest says: it is stored there.
    async fn check_room(&self, user: UserId) -> Result<(), Failure> {
        let checked = self.check_budgets(&Spender::user(user), &[Budget::Stored]).await;
        checked.map_err(|failure| match failure.code {
            // Their limits are no business of the guest's.
            Code::QuotaSpent => Failure::new(
                Code::QuotaSpent,
                "the limit of stored sessions of this session's user is reached; ask them to \
                 delete sessions",
            ),
            _ => failure,
        })
    }
}

/// Whose budgets count for a turn.
fn spender(job: &RoundJob) -> Spender {
    job.request.spender.clone().unwrap_or(Spender::user(job.user))
}

fn failure(denied: Denied) -> Failure {
    match denied {
        Denied::Store(error) => error.into(),
        _ => super::internal(),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::access::CredentialId;
    use bowline_sbp::budget::OwnLimits;
    use uuid::Uuid;

    fn limits(user: &str, key: &str) -> Limits {
        let read = |text: &str| {
            let own: OwnLimits = text.split(' ').map(str::parse).collect::<Result<_, _>>().unwrap();
            own.over(BudgetLimits::default())
        };
        Limits { user: read(user), key: read(key) }
    }

    fn spender(key: u8) -> Spender {
        let key = Some(CredentialId::from_bytes([key; 8]));
        Spender { user: UserId(Uuid::from_u128(1)), key }
    }

    #[test]
    fn requests_of_a_minute_are_counted_for_the_user_and_the_key() {
        let budgets = Budgets::new(&BudgetsConfig::default());
        let limits = limits("requests=3", "requests=2");
        let at = |second: i64| Timestamp::from_second(600 + second).unwrap();
        let request =
            |key, second| budgets.request(&limits, &spender(key), at(second)).map_err(|e| e.of);
        assert_eq!(request(1, 0), Ok(()));
        assert_eq!(request(1, 1), Ok(()));
        assert_eq!(request(1, 2), Err(LimitOf::Key));
        assert_eq!(request(2, 3), Ok(()), "what was refused is not counted");
        assert_eq!(request(2, 59), Err(LimitOf::User));
        assert_eq!(request(2, 60), Ok(()), "the next minute");
    }

    #[test]
    fn turns_count_as_running_until_they_end() {
        let budgets = Budgets::new(&BudgetsConfig::default());
        let limits = limits("turns=2", "turns=1");
        let run =
            |key| budgets.run(&limits, &spender(key), Timestamp::UNIX_EPOCH).map_err(|e| e.of);
        let first = run(1).unwrap();
        assert_eq!(run(1).map(|_| ()), Err(LimitOf::Key));
        let second = run(2).unwrap();
        assert_eq!(run(3).map(|_| ()), Err(LimitOf::User));
        drop(first);
        let third = run(1).unwrap();
        drop((second, third));
        assert!(locked(&budgets.running).is_empty());
    }
}
