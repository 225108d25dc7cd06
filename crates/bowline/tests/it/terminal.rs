//! Test fixture: a program on a pseudo-terminal, and what its screen shows.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::DEADLINE;

pub(crate) struct Terminal {
    child: Child,
    master: std::fs::File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub(crate) fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        resize(&master, rows, columns);
        let side = || {
            let file = std::fs::File::options().read(true).write(true).open(&name).unwrap();
            Stdio::from(file)
        };
        // setsid makes the terminal the program's own, so that resizing it sends a signal.
        let mut setsid = Command::new("setsid");
        setsid.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => setsid.env(name, value),
                None => setsid.env_remove(name),
            };
        }
        setsid.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        for (name, value) in command.get_envs().filter(|(name, _)| *name == "NO_COLOR") {
            setsid.env(name, value.unwrap());
        }
        let child = setsid.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let master = std::fs::File::from(master);
        let (send, output) = channel();
        let mut reader = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, master, output, screen: vt100::Parser::new(rows, columns, 1000) }
    }

    /// Types text; `\r` is Enter.
    pub(crate) fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Pastes text, as a terminal does that was asked for bracketed paste.
    pub(crate) fn pastes(&mut self, text: &str) {
        assert!(self.screen.screen().bracketed_paste());
        self.types(&format!("\x1b[200~{text}\x1b[201~"));
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        resize(&self.master, rows, columns);
    }

    /// Waits until the screen, without empty rows at its end, is as expected.
    pub(crate) fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let text = self.text();
            if is(&text) {
                return text;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left.min(Duration::from_secs(1))) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(_) => panic!("no {what} on the screen:\n{text}"),
            }
        }
    }

    pub(crate) fn until_shows(&mut self, part: &str) -> String {
        self.until(part, |text| text.contains(part))
    }

    /// The screen without empty rows at its end.
    pub(crate) fn text(&self) -> String {
        let rows = self.screen.screen().rows(0, u16::MAX);
        let rows: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// The text of a row, if it is bold from its first column on.
    pub(crate) fn is_bold(&self, row: &str) -> bool {
        let number = self.text().lines().position(|line| line == row).unwrap();
        self.screen.screen().cell(number as u16, 0).unwrap().bold()
    }

    /// Waits for the program's end and all that it has printed; returns its exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        let end = Instant::now() + DEADLINE;
        // The terminal reports an error to its reader when no program has it open any more.
        loop {
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.text()),
            }
        }
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(master: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master, size).unwrap();
}
