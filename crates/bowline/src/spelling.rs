//! Old spellings of commands. They keep working for one release, with a hint on stderr.
//!
//! Rewrites the arguments before they are parsed, so that the parser and its help know only the
//! present grammar: a noun, then a verb.

use std::ffi::OsString;

/// Arguments in the present spelling.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spelled {
    pub(crate) args: Vec<OsString>,
    /// What to tell the user, if they used an old spelling.
    pub(crate) hint: Option<String>,
}

/// The nouns that were complete commands, and their verbs.
const NOUNS: [(&str, &[&str]); 5] = [
    ("gateway", &["run"]),
    ("relay", &["run"]),
    ("daemon", &["run"]),
    ("control", &["run", "user", "daemon", "relay", "rotate", "audit"]),
    ("daemons", &["list", "revoke", "rename"]),
];

/// `args` begins with the program's name.
pub(crate) fn modern(args: Vec<OsString>) -> Spelled {
    let is_flag = |arg: &OsString| arg.to_string_lossy().starts_with('-');
    let noun = args.iter().skip(1).position(|arg| !is_flag(arg)).map(|at| at + 1);
    let Some(at) = noun else { return Spelled { args, hint: None } };
    let Some((noun, verbs)) = NOUNS.iter().find(|(noun, _)| args[at] == **noun) else {
        return Spelled { args, hint: None };
    };
    let rest = &args[at + 1..];
    if is_modern(noun, verbs, rest) {
        return Spelled { args, hint: None };
    }
    let (verb, rest) = match *noun {
        "daemons" => of_daemons(rest),
        _ => (vec!["run".into()], rest.to_vec()),
    };
    let spelled = verb[0].to_string_lossy();
    let hint = format!(
        "hint: `bowline {noun}` without a verb is an old spelling that goes away with the next \
         release: write `bowline {noun} {spelled}`"
    );
    let args = args[..=at].iter().cloned().chain(verb).chain(rest).collect();
    Spelled { args, hint: Some(hint) }
}

fn is_modern(noun: &str, verbs: &[&str], rest: &[OsString]) -> bool {
    let asks_help = |arg: &OsString| ["help", "--help", "-h"].iter().any(|help| arg == help);
    let is_verb = |arg: &OsString| verbs.iter().any(|verb| arg == verb);
    if rest.iter().any(asks_help) {
        return true;
    }
    match noun {
        // Its flags --data and --json may stand before the verb.
        "control" => rest.is_empty() || rest.iter().any(is_verb),
        // Alone it was never complete.
        "relay" => rest.first().is_none_or(is_verb),
        _ => rest.iter().find(|arg| *arg != "--quiet" && *arg != "-q").is_some_and(is_verb),
    }
}

/// `daemons --revoke NAME` and `daemons`, as a verb with its object and the other arguments.
fn of_daemons(rest: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let mut rest = rest.to_vec();
    let flag = rest.iter().position(|arg| arg.to_string_lossy().starts_with("--revoke"));
    let Some(at) = flag else { return (vec!["list".into()], rest) };
    let flag = rest.remove(at);
    let flag = flag.to_string_lossy();
    let name = match flag.strip_prefix("--revoke=") {
        Some(name) => Some(name.into()),
        None if at < rest.len() => Some(rest.remove(at)),
        None => None,
    };
    (std::iter::once("revoke".into()).chain(name).collect(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> (String, bool) {
        let args = line.split(' ').map(OsString::from).collect();
        let Spelled { args, hint } = modern(args);
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        (args.join(" "), hint.is_some())
    }

    #[test]
    fn old_spellings_become_a_noun_and_a_verb() {
        for (old, new) in [
            ("bowline gateway", "bowline gateway run"),
            ("bowline gateway --listen :1", "bowline gateway run --listen :1"),
            ("bowline -q daemon --tcp h:1", "bowline -q daemon run --tcp h:1"),
            ("bowline daemon --name run", "bowline daemon run --name run"),
            ("bowline relay --with-control", "bowline relay run --with-control"),
            ("bowline control --relay-url ws://h", "bowline control run --relay-url ws://h"),
            ("bowline daemons", "bowline daemons list"),
            ("bowline daemons --json", "bowline daemons list --json"),
            ("bowline daemons --json --revoke x", "bowline daemons revoke x --json"),
            ("bowline daemons --revoke=x", "bowline daemons revoke x"),
        ] {
            assert_eq!(spelled(old), (new.to_owned(), true), "{old}");
        }
    }

    #[test]
    fn present_spellings_are_left_alone() {
        for line in [
            "bowline",
            "bowline up",
            "bowline --quiet",
            "bowline gateway run --listen :1",
            "bowline gateway --help",
            "bowline help gateway",
            "bowline daemon -q run",
            "bowline relay",
            "bowline control",
            "bowline control --data x user list",
            "bowline daemons revoke x",
            "bowline chat --message gateway",
        ] {
            assert_eq!(spelled(line), (line.to_owned(), false));
        }
    }
}
