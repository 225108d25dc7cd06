//! `bowline control rotate`: the next key signs from now on; or, in an emergency, two new ones.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::{now, registry, undone, when};
use crate::failure::Failure;
use crate::terminal::{note, say};

/// How long relays may go without asking for the key set again, in seconds.
const KEY_SET_AGE: u64 = 300;

pub(super) fn run(data: &Path, compromised: bool, json: bool) -> Result<ExitCode, Failure> {
    let now = now();
    if compromised {
        return replace(data, now, json);
    }
    let rotated = registry(data)?.rotate(now).map_err(|error| undone(error, data))?;
    if json {
        say!(
            "{}",
            json!({ "current": rotated.current, "next": rotated.next, "retired": rotated.retired,
                    "retiredPublishedUntil": rotated.published_until })
        );
        return Ok(ExitCode::SUCCESS);
    }
    say!("signs now        {}", rotated.current);
    say!("published ahead  {}", rotated.next);
    say!(
        "signs no more    {}  (published until {}, when all it signed has expired)",
        rotated.retired,
        when(rotated.published_until)
    );
    if now < rotated.published_since + KEY_SET_AGE {
        note!(
            "\nnote: the key that signs now was published less than {} minutes ago; relays that \
             asked before fetch the key set again when they meet it",
            KEY_SET_AGE / 60
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn replace(data: &Path, now: u64, json: bool) -> Result<ExitCode, Failure> {
    let replaced = registry(data)?.replace_keys(now).map_err(|error| undone(error, data))?;
    if json {
        say!("{}", json!({ "current": replaced.current, "next": replaced.next }));
    } else {
        say!("signs now        {}", replaced.current);
        say!("published ahead  {}", replaced.next);
        note!(
            "\nAll other keys are given up. Relays refuse what they signed once they have asked for \
             the key set again, within {} minutes; restart them if that is too long. Daemons \
             need new tokens, which they get when they renew.",
            KEY_SET_AGE / 60
        );
    }
    Ok(ExitCode::SUCCESS)
}
