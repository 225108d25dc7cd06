//! Load at a fixed rate, independent of the response times (open loop).
//!
//! A closed-loop generator, which sends the next request after each answer, finds the machine's
//! limit, and at the limit latency only measures the length of the queue. Here each caller has
//! fixed send times, spread evenly between those of the others.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Warm-up before the measurement: opens connections, fills caches, wakes processors.
const WARM_UP: Duration = Duration::from_secs(1);

/// The number of callers, and their rate.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Concurrent callers.
    pub parallel: u32,
    /// Calls per second, of all callers together.
    pub rate: u32,
    pub length: Duration,
}

impl Pace {
    /// Lets each caller make its calls, one after the other; returns the results of those after the
    /// warm-up.
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

/// Makes one call and returns its measurement.
pub(crate) trait AsyncCall<T> {
    fn call(&mut self) -> impl Future<Output = Result<T>> + Send;
}
