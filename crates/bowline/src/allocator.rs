//! The allocator, and how memory that was freed goes back to the system.
//!
//! mimalloc gives each thread a heap of its own. A block that another thread frees waits there until the
//! owner allocates again, and a worker that has nothing to do never does: after many connections
//! have gone, up to half of their memory would stay with an idle process. So a server that had many
//! connections asks for a collection when they have gone.
//!
//! The library's function for that can only be called by unsafe code, of which this project has none. But an
//! allocation that cannot be served makes mimalloc collect the thread's whole heap before it gives up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memory of a turn is allocated on one thread and freed on another, many times a second. Measured,
/// the system's allocator costs 10 to 20 % of the turns per second.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// More than any machine can give: the address space has 2^48 bytes, or 2^57.
const IMPOSSIBLE: usize = 1 << 60;
/// How often the number of connections is looked at.
const EVERY: Duration = Duration::from_secs(2);
/// Fewer are not worth it: their memory is used again by the next ones.
const MANY: usize = 256;
/// How long a worker is held, so that the others take the other tasks.
const HOLD: Duration = Duration::from_micros(200);
const ATTEMPTS: usize = 20;

/// Collections so far, and how many workers have done the last one.
static ROUND: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LAST_ROUND: Cell<u64> = const { Cell::new(0) };
}

/// Returns memory to the system whenever many connections have gone, and again when what is kept of them
/// for `grace` has gone, too. Never ends. Polled on the thread that accepts connections, whose heap
/// counts as well.
pub(crate) async fn return_freed(connections: impl Fn() -> usize, grace: Duration) {
    let (mut most, mut again) = (0, None);
    loop {
        tokio::time::sleep(EVERY).await;
        let (open, now) = (connections(), Instant::now());
        most = most.max(open);
        let fell = most - open >= MANY;
        if fell {
            most = open;
            again = Some(now + grace + EVERY);
        }
        if fell || again.take_if(|at| now >= *at).is_some() {
            collect();
            collect_on_workers().await;
        }
    }
}

/// Has each worker of the runtime collect its heap once.
async fn collect_on_workers() {
    let round = ROUND.fetch_add(1, Ordering::Relaxed) + 1;
    DONE.store(0, Ordering::Relaxed);
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    for _ in 0..ATTEMPTS {
        let tasks: Vec<_> = (0..workers)
            .map(|_| {
                tokio::spawn(async move {
                    if LAST_ROUND.replace(round) != round {
                        collect();
                        DONE.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(HOLD);
                })
            })
            .collect();
        for task in tasks {
            let _ = task.await;
        }
        if DONE.load(Ordering::Relaxed) >= workers {
            return;
        }
    }
}

/// Frees what this thread's heap has and nobody uses, and returns it to the system.
fn collect() {
    let refused = Vec::<u8>::new().try_reserve_exact(IMPOSSIBLE);
    debug_assert!(refused.is_err(), "nobody has that much");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn each_worker_collects_once() {
        // A busy machine may leave one worker without a task for a whole round.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            collect_on_workers().await;
            let done = DONE.load(Ordering::Relaxed);
            assert!(done <= 3, "{done} workers of three");
            if done == 3 {
                return;
            }
            assert!(Instant::now() < deadline, "only {done} of three workers collect");
        }
    }
}
