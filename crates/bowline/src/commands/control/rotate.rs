//! `bowline control rotate`: signs tokens with the next key; with --compromised, replaces all
//! signing keys.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::{now, registry, undone, when};
use crate::failure::Failure;
use crate::terminal::{note, say};

/// How long relays may cache the key set, in seconds.
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
                    "retired_published_until": rotated.published_until })
        );
        return Ok(ExitCode::SUCCESS);
    }
    say!("signs now        {}", rotated.current);
    say!("published ahead  {}", rotated.next);
    say!(
        "retired          {}  (published until {}, when every token it signed has expired)",
        rotated.retired,
        when(rotated.published_until)
    );
    if now < rotated.published_since + KEY_SET_AGE {
        note!(
            "\nnote: the key that signs now was published less than {} minutes ago; relays with an \
             older key set fetch it again when they see a token with this key",
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
            "\nAll other keys are removed. Relays refuse tokens signed with them once they have \
             fetched the key set again, within {} minutes; restart them if that is too long. \
             Daemons need new tokens, which they get when they renew.",
            KEY_SET_AGE / 60
        );
    }
    Ok(ExitCode::SUCCESS)
}
