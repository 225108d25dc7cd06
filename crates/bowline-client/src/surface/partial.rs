//! The text of one turn in flight: what the program shows, and what the gateway says.
//!
//! Apart, because the two differ after a reconnect: the gateway begins again at offset 0, with
//! the same text (SBP-L2-08) or, if the turn is run again, with another. The program must see
//! neither the same words twice nor the words of a run that is void.
//!
//! Invariants
//! - `said <= shown.len()`, and the text the gateway has said of this run is `shown[..said]`.
//! - What the program has, put together from [`Joined`], is `shown`.

use bowline_sbp::id::TurnId;

/// A turn partly shown.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) turn_id: TurnId,
    shown: String,
    said: usize,
}

/// What a chunk changes for the program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// All of it was shown before.
    Nothing,
    /// This follows what is shown.
    More(String),
    /// What is shown is void; this is the whole text.
    Over(String),
}

/// The chunk does not begin where text is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skipped;

impl Partial {
    pub(super) fn new(turn_id: TurnId) -> Self {
        Self { turn_id, shown: String::new(), said: 0 }
    }

    /// `delta` stands at byte `offset` of the turn's text.
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

    /// The turn is complete: what the gateway said is all of it, though more may be shown from
    /// an earlier run.
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
        /// Runs of one turn, each cut into chunks and possibly broken off and said again.
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
