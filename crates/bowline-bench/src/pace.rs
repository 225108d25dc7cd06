//! Load at fixed moments, whatever the answers take.
//!
//! A generator that asks again as soon as it was answered finds the machine's limit, and at the limit
//! latency says nothing but how many are in the queue. Here each caller has its moments, spread evenly
//! over those of the others.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What comes before the measurement, so that connections, caches and processors are awake.
const WARM_UP: Duration = Duration::from_secs(1);

/// How many ask, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Callers at once.
    pub parallel: u32,
    /// Calls a second, of all together.
    pub rate: u32,
    pub length: Duration,
}

impl Pace {
    /// Has each caller make its calls, one after the other; gives what those after the warm-up
    /// measured.
    pub(crate) async fn run<C, T>(&self, callers: Vec<C>) -> Result<Vec<T>>
    where
        C: AsyncCall<T> + Send + 'static,
        T: Send + 'static,
    {
        let between = Duration::from_secs(1) * self.parallel / self.rate;
        let begun = Instant::now() + Duration::from_millis(10);
        let end = begun + WARM_UP + self.length;
        let mut tasks = JoinSet::new();
        for (n, mut caller) in (0..).zip(callers) {
            let mut next = begun + between * n / self.parallel;
            tasks.spawn(async move {
                let mut measured = Vec::new();
                while next < end {
                    tokio::time::sleep_until(next).await;
                    let result = caller.call().await?;
                    if next >= begun + WARM_UP {
                        measured.push(result);
                    }
                    next += between;
                }
                Ok::<_, anyhow::Error>(measured)
            });
        }
        let mut measured = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            measured.extend(ended??);
        }
        Ok(measured)
    }
}

/// One who makes a call and says what it measured.
pub(crate) trait AsyncCall<T> {
    fn call(&mut self) -> impl Future<Output = Result<T>> + Send;
}
