//! `bowline help`: about a command, from its definition; about a topic, from the documentation,
//! which is part of the binary.

mod render;
mod topics;

use std::process::ExitCode;

use clap::CommandFactory as _;

use self::topics::{TOPICS, Topic};
use crate::cli::Cli;
use crate::failure::{Failure, FailureKind};
use crate::terminal::{self, columns, show};

pub(crate) fn run(about: &[String]) -> Result<ExitCode, Failure> {
    if about.is_empty() {
        show!("{}", overview());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(help) = of_command(about) {
        show!("{help}");
        return Ok(ExitCode::SUCCESS);
    }
    let topic = TOPICS.iter().find(|topic| [topic.name] == *about).ok_or_else(|| {
        Failure::new(format!("there is no command and no topic `{}`", about.join(" ")))
            .hint("`bowline help` lists both")
            .kind(FailureKind::Usage)
    })?;
    show!("{}", text(topic));
    Ok(ExitCode::SUCCESS)
}

/// The commands and the topics.
fn overview() -> String {
    let rows: Vec<_> =
        TOPICS.iter().map(|topic| [format!("  {}", topic.name), topic.about.to_owned()]).collect();
    let commands = Cli::command().render_long_help();
    format!("{commands}\nTopics, shown by `bowline help TOPIC`:\n{}", columns(&rows))
}

/// The help of a command, by its name and verbs.
fn of_command(about: &[String]) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in about {
        command = command.find_subcommand_mut(name)?;
    }
    Some(command.render_long_help().to_string())
}

/// The topic's text without markup, in lines that fit the terminal.
fn text(topic: &Topic) -> String {
    render::render(topic.text(), terminal::width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_name_of_its_own_and_a_text() {
        let root = Cli::command();
        for topic in TOPICS {
            assert!(root.find_subcommand(topic.name).is_none(), "{} is a command", topic.name);
            assert!(text(topic).len() > 200, "{}", topic.name);
            let same = TOPICS.iter().filter(|other| other.name == topic.name).count();
            assert_eq!(same, 1, "{}", topic.name);
        }
    }

    #[test]
    fn every_document_is_a_topic() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                let is_topic = TOPICS.iter().any(|topic| topic.document == text);
                assert!(is_topic, "{} is not shown by `bowline help`", path.display());
            }
        }
    }

    #[test]
    fn commands_are_found_with_their_verbs() {
        let about = |words: &[&str]| {
            of_command(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
        };
        assert!(about(&["chat"]).unwrap().contains("bowline chat"));
        assert!(about(&["sessions", "list"]).unwrap().contains("bowline sessions list"));
        assert_eq!(about(&["sessions", "none"]), None);
        assert_eq!(about(&["exit-codes"]), None);
    }

    #[test]
    fn a_topic_can_be_one_section() {
        let topic = TOPICS.iter().find(|topic| topic.name == "exit-codes").unwrap();
        let text = text(topic);
        assert!(text.contains("unreachable") && !text.contains("| 5"), "{text}");
        assert!(!text.contains("SBP_SESSION_NOT_FOUND"), "only the section: {text}");
    }
}
