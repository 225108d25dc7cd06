//! A line on stderr for work that takes more than a second: what is done, and for how long.
//!
//! Only on a terminal, and not with --quiet. The line is drawn over itself and removed at the end,
//! so that nothing of it stays between the lines of the result.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, interval_at};

/// How long work may take before the line appears.
const SOON: Duration = Duration::from_secs(1);
/// The pause between two drawings.
const EVERY: Duration = Duration::from_millis(200);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// A command draws its own lines.
static OFF: AtomicBool = AtomicBool::new(false);

/// For commands that draw their own lines: [`waiting`] shows nothing any more.
pub(crate) fn no_waiting_line() {
    OFF.store(true, Ordering::Relaxed);
}

/// Does the work. Shows what is done if it takes long.
pub(crate) async fn waiting<T>(doing: impl Display, work: impl Future<Output = T>) -> T {
    let shows = io::stderr().is_terminal() && !super::is_quiet() && !OFF.load(Ordering::Relaxed);
    if !shows {
        return work.await;
    }
    drawn(doing, work, (SOON, EVERY), &mut io::stderr()).await
}

async fn drawn<T>(
    doing: impl Display,
    work: impl Future<Output = T>,
    (soon, every): (Duration, Duration),
    to: &mut impl io::Write,
) -> T {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + soon, every);
    let mut work = pin!(work);
    let mut frames = FRAMES.iter().cycle();
    let mut is_drawn = false;
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                if is_drawn {
                    let _ = write!(to, "\r\x1b[K").and_then(|()| to.flush());
                }
                return done;
            }
            _ = ticks.tick() => {
                let (frame, seconds) = (frames.next().unwrap_or(&' '), begun.elapsed().as_secs());
                let _ = write!(to, "\r\x1b[K{frame} {doing} ({seconds} s)")
                    .and_then(|()| to.flush());
                is_drawn = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn short_work_shows_nothing() {
        let mut shown = Vec::new();
        let work = tokio::time::sleep(Duration::from_millis(1));
        drawn("asking", work, (HOUR, HOUR), &mut shown).await;
        assert_eq!(shown, b"");
    }

    #[tokio::test]
    async fn long_work_shows_a_line_and_leaves_nothing_of_it() {
        let mut shown = Vec::new();
        let work = tokio::time::sleep(Duration::from_millis(300));
        drawn("asking", work, (Duration::from_millis(1), HOUR), &mut shown).await;
        let shown = String::from_utf8(shown).unwrap();
        assert_eq!(shown, "\r\u{1b}[K| asking (0 s)\r\u{1b}[K");
    }
}
