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
    use tokio::sync::oneshot;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn short_work_shows_nothing() {
        let mut shown = Vec::new();
        let work = tokio::task::yield_now();
        drawn("asking", work, (HOUR, HOUR), &mut shown).await;
        assert_eq!(shown, b"");
    }

    /// Ends the work when something is drawn.
    struct EndsWork(Vec<u8>, Option<oneshot::Sender<()>>);

    impl io::Write for EndsWork {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            let _ = self.1.take().map(|end| end.send(()));
            Ok(())
        }
    }

    #[tokio::test]
    async fn long_work_shows_a_line_and_leaves_nothing_of_it() {
        let (end, work) = oneshot::channel();
        let mut screen = EndsWork(Vec::new(), Some(end));
        drawn("asking", work, (Duration::ZERO, HOUR), &mut screen).await.unwrap();
        let shown = String::from_utf8(screen.0).unwrap();
        assert!(shown.starts_with("\r\u{1b}[K| asking ("), "{shown:?}");
        assert!(shown.ends_with(" s)\r\u{1b}[K"), "{shown:?}");
    }
}
