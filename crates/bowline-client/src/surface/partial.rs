//! The text of one turn that is being received: what the program has, and what the gateway sent.
//!
//! Apart, because the two differ after a reconnect: the gateway starts again at offset 0, with the
//! same text (SBP-L2-08) or, if the turn is run again, with another. The program must get neither
//! the same text twice nor keep text of an earlier run.
//!
//! Invariants
//! - `said <= shown.len()`, and the text that the gateway sent in this run is `shown[..said]`.
//! - The text that the program assembles from [`Joined`] is `shown`.

use bowline_sbp::id::TurnId;

/// A partly received turn.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) turn_id: TurnId,
    shown: String,
    said: usize,
}

/// What a chunk changes for the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The program has all of it.
    Nothing,
    /// Append this.
    More(String),
    /// Discard the text so far; this is the whole text.
    Over(String),
}

/// The chunk begins after a gap, or inside a character.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skipped;

impl Partial {
    pub(super) fn new(turn_id: TurnId) -> Self {
        Self { turn_id, shown: String::new(), said: 0 }
    }

    /// Joins a chunk: `delta` is at byte `offset` of the turn's text.
    pub(super) fn join(&mut self, offset: u64, delta: &str) -> Result<Joined, Skipped> {
        let offset = usize::try_from(offset).ok().filter(|at| *at <= self.said).ok_or(Skipped)?;
        let ahead = self.shown.get(offset..).ok_or(Skipped)?;
        self.said = offset + delta.len();
        if ahead.starts_with(delta) {
            return Ok(Joined::Nothing);
        }
        if let Some(more) = delta.strip_prefix(ahead) {
            self.shown.push_str(more);
            return Ok(Joined::More(more.to_owned()));
        }
        self.shown.truncate(offset);
        self.shown.push_str(delta);
        Ok(Joined::Over(self.shown.clone()))
    }

    /// The turn is complete: its text is what the gateway sent in this run; the program may have
    /// more from an earlier run.
    pub(super) fn finish(mut self) -> Joined {
        if self.said == self.shown.len() {
            return Joined::Nothing;
        }
        self.shown.truncate(self.said);
        Joined::Over(self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn partial() -> Partial {
        Partial::new(TurnId(Uuid::nil()))
    }

    fn more(text: &str) -> Result<Joined, Skipped> {
        Ok(Joined::More(text.into()))
    }

    fn over(text: &str) -> Result<Joined, Skipped> {
        Ok(Joined::Over(text.into()))
    }

    #[test]
    fn sbp_l2_08_text_said_again_shows_only_what_is_new() {
        let mut p = partial();
        assert_eq!(p.join(0, "Hé"), more("Hé"));
        assert_eq!(p.join(3, "llo"), more("llo"));
        assert_eq!(p.join(0, "Héllo, wor"), more(", wor"), "after a reconnect");
        assert_eq!(p.join(0, "Héllo, wor"), Ok(Joined::Nothing));
        assert_eq!(p.join(11, "ld"), more("ld"));
        assert_eq!(p.finish(), Joined::Nothing);
    }

    #[test]
    fn a_run_that_says_otherwise_voids_what_is_shown() {
        let mut p = partial();
        assert_eq!(p.join(0, "Hello"), more("Hello"));
        assert_eq!(p.join(0, "Hel"), Ok(Joined::Nothing), "so far the same");
        assert_eq!(p.join(3, "p me"), over("Help me"));
        assert_eq!(p.join(7, "!"), more("!"));
        assert_eq!(p.finish(), Joined::Nothing);
    }

    #[test]
    fn a_run_that_ends_sooner_voids_the_rest() {
        for (second, end) in [("Hel", Joined::Over("Hel".into())), ("", Joined::Over("".into()))] {
            let mut p = partial();
            assert_eq!(p.join(0, "Hello"), more("Hello"));
            assert_eq!(p.join(0, second), Ok(Joined::Nothing));
            assert_eq!(p.finish(), end);
        }
    }

    #[test]
    fn text_that_is_missing_is_noticed() {
        let mut p = partial();
        assert_eq!(p.join(1, "x"), Err(Skipped));
        assert_eq!(p.join(0, "é"), more("é"));
        assert_eq!(p.join(1, "x"), Err(Skipped), "inside a character");
        assert_eq!(p.join(u64::MAX, "x"), Err(Skipped));
        assert_eq!(p.join(0, "é–é"), more("–é"));
        assert_eq!(p.join(0, "é"), Ok(Joined::Nothing));
        assert_eq!(p.join(5, "é"), Err(Skipped), "shown once, but not said in this run");
    }

    proptest! {
        /// Runs of one turn, each cut into chunks, possibly interrupted and sent again.
        #[test]
        fn what_the_program_has_is_in_the_end_what_the_gateway_said(
            runs in proptest::collection::vec(
                proptest::collection::vec("[ab–]{0,3}", 0..6), 1..6),
        ) {
            let (mut p, mut program) = (partial(), String::new());
            let mut apply = |joined: Joined| match joined {
                Joined::Nothing => {}
                Joined::More(text) => program.push_str(&text),
                Joined::Over(text) => program = text,
            };
            let mut last = String::new();
            for chunks in runs {
                last.clear();
                apply(p.join(0, "").unwrap());
                for chunk in chunks {
                    apply(p.join(last.len() as u64, &chunk).unwrap());
                    last.push_str(&chunk);
                }
            }
            apply(p.finish());
            prop_assert_eq!(program, last);
        }
    }
}
