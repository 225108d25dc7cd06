//! The signals that stop a server, a daemon or a chat.
//!
//! SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed) ask for a graceful stop. A second
//! Ctrl-C asks to stop at once.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The exit code of a stop by a second Ctrl-C: 128 and the number of SIGINT.
pub(crate) const STOPPED_AT_ONCE: u8 = 130;

/// Which signal came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or SIGHUP.
    Terminate,
}

impl StopSignal {
    /// The exit code of a process that it killed.
    pub(crate) fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Installed handlers. A signal between [`StopSignals::install`] and the first wait is not lost.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// To be called before a server reports ready: a supervisor may send SIGTERM right after, and
    /// without a handler that would skip the graceful shutdown.
    pub(crate) fn install() -> Result<Self, Failure> {
        HANDLED.store(true, Ordering::Relaxed);
        Self::beside_the_command()
    }

    /// For a part of the program that has something to finish when a signal comes. It has to end the
    /// process then, unless the command handles signals itself ([`is_handled`]).
    pub(crate) fn beside_the_command() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
        };
        let hangup = (!is_hangup_ignored()).then(|| listen(SignalKind::hangup())).transpose()?;
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup })
    }

    /// Waits until a graceful stop is asked for. Cancel safe.
    pub(crate) async fn stop(&mut self) {
        self.next().await;
    }

    /// Waits for the next signal; returns which. Cancel safe.
    pub(crate) async fn next(&mut self) -> StopSignal {
        let Self { terminate, interrupt, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => StopSignal::Terminate,
            _ = interrupt.recv() => StopSignal::Interrupt,
            _ = hung_up => StopSignal::Terminate,
        }
    }

    /// Waits for the next Ctrl-C: the graceful stop takes too long for the user.
    pub(crate) async fn at_once(&mut self) {
        self.interrupt.recv().await;
    }
}

/// Whether the command stops by itself when a signal comes.
pub(crate) fn is_handled() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

static HANDLED: AtomicBool = AtomicBool::new(false);

/// Whether the parent has set SIGHUP to be ignored, as `nohup` does. A handler would undo that.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_recognised() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hangup(""));
    }
}
