//! Quoting for commands that are printed to be copied into a shell.

use std::path::Path;

/// The text as one word of a POSIX shell; unchanged if it needs no quotes.
pub(crate) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A path that means the same in another directory, as one word of a POSIX shell.
pub(crate) fn quote_path(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    quote(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["plain", "/tmp/a.b-c_d", "two words", "it's", "$HOME `x` \"y\" \\ *", ""] {
            let echo = format!("printf %s {}", quote(text));
            let output = std::process::Command::new("sh").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
        assert_eq!(quote("/tmp/plain"), "/tmp/plain");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_path_means_the_same_in_another_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            quote_path(Path::new("./data")),
            quote(&here.join("data").display().to_string())
        );
        assert_eq!(quote_path(Path::new("/a b")), "'/a b'");
    }
}
