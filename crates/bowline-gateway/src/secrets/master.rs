//! The master secret: 32 bytes as base64url, from a file or from what a command prints.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_net::private_file;
use zeroize::Zeroizing;

use super::{BYTES, BadSecrets};

/// The largest file or output that can hold a master secret.
const LARGEST: u64 = 1024;
/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn of_file(path: &Path, needed: bool) -> Result<[u8; BYTES], BadSecrets> {
    if let Some(text) = private_file::read(path, LARGEST)? {
        return parse(&text, &path.display().to_string());
    }
    // A new one would not open what is sealed with the one that is missing.
    if needed {
        return Err(BadSecrets::Missing(path.to_owned()));
    }
    let fresh: [u8; BYTES] = crate::auth::random();
    let text = format!("{}\n", URL_SAFE_NO_PAD.encode(fresh));
    if private_file::create(path, text.as_bytes())? {
        return Ok(fresh);
    }
    let text = private_file::read(path, LARGEST)?;
    let text = text.ok_or_else(|| BadSecrets::Missing(path.to_owned()))?;
    parse(&text, &path.display().to_string())
}

pub(super) async fn of_command(command: &[String]) -> Result<[u8; BYTES], BadSecrets> {
    let output = printed_by(command).await.map_err(BadSecrets::Command)?;
    parse(&output, "the output of secrets.command")
}

/// What a command prints that gives a secret: a program and its arguments, without a shell. The error says
/// why it did not.
pub async fn printed_by(command: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, args) = command.split_first().ok_or("it is empty")?;
    let mut child = tokio::process::Command::new(program);
    child.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, child.output()).await;
    let late = format!("it did not end within {} s", COMMAND_TIMEOUT.as_secs());
    let output = output.map_err(|_| late)?.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(Zeroizing::new(output.stdout)),
        false => Err(output.status.to_string()),
    }
}

pub(super) fn parse(text: &[u8], from: &str) -> Result<[u8; BYTES], BadSecrets> {
    let decoded = URL_SAFE_NO_PAD.decode(text.trim_ascii());
    let bytes = decoded.ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| BadSecrets::Malformed(from.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_prints_the_secret() {
        let text = URL_SAFE_NO_PAD.encode([9; 32]);
        let echo = |text: &str| vec!["echo".to_owned(), text.to_owned()];
        assert_eq!(of_command(&echo(&text)).await, Ok([9; 32]));
        assert!(matches!(of_command(&echo("short")).await, Err(BadSecrets::Malformed(_))));
        let fails = of_command(&["false".to_owned()]).await.unwrap_err();
        assert!(fails.to_string().contains("exit status: 1"), "{fails}");
        let missing = of_command(&["/no/such/program".to_owned()]).await;
        assert!(matches!(missing, Err(BadSecrets::Command(_))));
    }

    #[test]
    fn a_file_is_made_once_and_not_where_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.key");
        assert_eq!(of_file(&path, true), Err(BadSecrets::Missing(path.clone())));
        let made = of_file(&path, false).unwrap();
        assert_eq!(of_file(&path, true), Ok(made));
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
