//! What `import` and `inspect` were given: a roaming token, or the text of a file.

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

use crate::failure::{Failure, FailureKind};
use crate::secrets;
use crate::terminal::note;

/// What the command was given: a token, or the text of a file.
#[derive(Debug)]
pub(super) enum Given {
    Token(String),
    /// Without a byte order mark. `written` is the file's modification time: unlike the present
    /// time, it is the same when the file is imported again, and so is the idempotency key.
    Text {
        text: String,
        written: Timestamp,
    },
}

/// Reads a file or standard input (`-`), or the file of a token. A file that holds only a token is
/// the same. What is not a file but looks like a token is a token: an old spelling.
pub(super) fn given(source: Option<&str>, token_file: Option<&Path>) -> Result<Given, Failure> {
    if let Some(file) = token_file {
        return secrets::from_file(file, "--token-file").map(Given::Token);
    }
    let source = source.unwrap_or("-");
    let unreadable = |error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => FailureKind::NotFound,
            _ => FailureKind::Failed,
        };
        Failure::new(format!("cannot read {source}: {error}")).kind(kind)
    };
    let mut text = String::new();
    if source == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        return Ok(Given::text(text, Timestamp::now()));
    }
    if !Path::new(source).exists() && is_token(source) {
        note!(
            "hint: other users of this machine can see a token on the command line, which goes away \
             with the next release: use --token-file FILE, or `-` and standard input"
        );
        return Ok(Given::Token(source.to_owned()));
    }
    let read = |text: &mut String| {
        let mut file = std::fs::File::open(source)?;
        file.read_to_string(text)?;
        file.metadata()?.modified()
    };
    let written = read(&mut text).map_err(|error| {
        unreadable(error).hint("give a file, `-`, or a roaming token with --token-file")
    })?;
    Ok(Given::text(text, written.try_into().unwrap_or_else(|_| Timestamp::now())))
}

impl Given {
    fn text(text: String, written: Timestamp) -> Self {
        let text = match text.strip_prefix('\u{feff}') {
            Some(bare) => bare.to_owned(),
            None => text,
        };
        match is_token(text.trim()) {
            true => Self::Token(text.trim().to_owned()),
            false => Self::Text { text, written },
        }
    }
}

/// Whether the text is a JWT: three parts, the first of which is a header with `alg`. The header is
/// checked since a file name can have two dots, too.
fn is_token(text: &str) -> bool {
    let mut parts = text.split('.');
    let header = parts.next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let header = header.and_then(|header| serde_json::from_slice::<Value>(&header).ok());
    parts.count() == 2 && header.is_some_and(|header| header["alg"].is_string())
}
