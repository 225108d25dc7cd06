//! Rules that hold for every command. A new command that breaks one fails here.

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Leaves that print no data of their own: a script has the exit code.
const NO_DATA: [&str; 4] = [
    // Speaks MCP on stdout.
    "bowline mcp serve",
    // Print text that is made for one reader: a shell, man, a person.
    "bowline completions",
    "bowline man",
    "bowline help",
];

/// Visits every command that is not hidden, with its path.
fn visit(look: &mut dyn FnMut(&str, &Command)) {
    fn below(path: &str, command: &Command, look: &mut dyn FnMut(&str, &Command)) {
        look(path, command);
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        for sub in shown.filter(|sub| sub.get_name() != "help" || path == "bowline") {
            below(&format!("{path} {}", sub.get_name()), sub, look);
        }
    }
    let mut root = Cli::command();
    root.build();
    below("bowline", &root, look);
}

fn is_leaf(command: &Command) -> bool {
    command.get_subcommands().all(|sub| sub.get_name() == "help")
}

fn flag<'c>(command: &'c Command, long: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(long))
}

/// The visible flags that take a value, and their values' names.
fn flags_with_values(command: &Command) -> impl Iterator<Item = (&str, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let values = shown.filter(|arg| arg.get_action().takes_values());
    values.filter_map(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        Some((arg.get_long()?, names.join(" ")))
    })
}

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_says_what_it_does_and_every_leaf_has_an_example() {
    let mut leaves = 0;
    visit(&mut |path, command| {
        assert!(command.get_about().is_some(), "{path} has no help");
        if !is_leaf(command) {
            return;
        }
        leaves += 1;
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{path} has no example");
        assert!(help.contains(path), "{path} is not in its own examples:\n{help}");
        for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
            assert!(arg.get_help().is_some(), "{path}: {arg} has no help");
        }
    });
    assert!(leaves > 30, "{leaves} leaves were seen");
}

#[test]
fn every_leaf_that_prints_data_prints_json() {
    let mut exempt = NO_DATA.to_vec();
    visit(&mut |path, command| {
        if is_leaf(command) && flag(command, "json").is_none() {
            let known = exempt.iter().position(|exempt| *exempt == path);
            exempt.remove(known.unwrap_or_else(|| panic!("{path} has no --json")));
        }
    });
    assert_eq!(exempt, [""; 0], "these have --json, or do not exist");
}

#[test]
fn no_flag_takes_a_secret_visibly() {
    // What such flags take instead: a file, the name of a variable, what is public, a time.
    let harmless = ["FILE", "NAME", "FINGERPRINT", "PUBLIC_KEY", "TIME"];
    let mut seen = 0;
    visit(&mut |path, command| {
        for (name, value) in flags_with_values(command) {
            let sounds_secret =
                ["key", "token", "secret", "password"].iter().any(|word| name.contains(word));
            seen += usize::from(sounds_secret);
            let fits = !sounds_secret || harmless.contains(&value.as_str());
            assert!(fits, "{path} --{name} {value} takes a secret");
        }
    });
    assert!(seen > 10, "{seen} flags were seen");
}

#[test]
fn names_are_in_kebab_case() {
    let is_kebab = |name: &str| {
        name.split('-').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
    };
    assert!(is_kebab("a-b2") && !is_kebab("aB") && !is_kebab("a_b") && !is_kebab("a--b"));
    visit(&mut |path, command| {
        assert!(is_kebab(command.get_name()), "{path}");
        for name in command.get_arguments().filter_map(Arg::get_long) {
            assert!(is_kebab(name), "{path} --{name}");
        }
    });
}

#[test]
fn commands_of_a_gateway_name_it_in_the_same_way() {
    let mut seen = 0;
    visit(&mut |path, command| {
        let of_gateway = flag(command, "url")
            .and_then(Arg::get_env)
            .is_some_and(|variable| variable == "BOWLINE_URL");
        if of_gateway {
            seen += 1;
            for name in ["key-file", "data"] {
                assert!(flag(command, name).is_some(), "{path} has no --{name}");
            }
        }
    });
    assert!(seen > 10, "{seen} commands of a gateway were seen");
}

#[test]
fn every_command_can_be_quiet() {
    visit(&mut |path, command| {
        assert!(flag(command, "quiet").is_some(), "{path} has no --quiet");
    });
}
