//! What `bowline conformance` sees of each requirement: the suite's own tables say it.

use bowline_conformance::{Kind, checks, relay_checks, unseen, unseen_of_relays};

use super::spec::requirements;

/// The third column of a row: by how many checks a server or relay is looked at from outside, or why it
/// cannot be.
pub(super) fn seen(id: &str) -> String {
    let of: Vec<_> =
        checks().chain(relay_checks()).filter(|check| check.requirement() == id).collect();
    let counted =
        |(kind, word): (Kind, &str)| match of.iter().filter(|one| one.kind == kind).count() {
            0 => None,
            _ if of.len() == 1 => Some(format!("*{word}*")),
            count => Some(format!("{count} *{word}*")),
        };
    let kinds = [(Kind::Should, "recommended"), (Kind::May, "optional"), (Kind::Ours, "ours")];
    let marks: Vec<_> = kinds.into_iter().filter_map(counted).collect();
    let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    match of.len() {
        0 => unseen_by(id),
        1 => format!("yes{marks}"),
        all => format!("yes, {all} checks{marks}"),
    }
}

/// Why no check is about it. Relays have reasons for whole groups, such as `SBRP-CLIENT`.
fn unseen_by(id: &str) -> String {
    let group = id.rsplit_once('-').map_or(id, |(group, _)| group);
    let all: Vec<_> = unseen().chain(unseen_of_relays()).collect();
    let of = |name: &str| all.iter().filter(|one| one.id == name).map(|one| one.why).collect();
    let (own, of_group): (Vec<_>, Vec<_>) = (of(id), of(group));
    match (&own[..], &of_group[..]) {
        ([why], _) | ([], [why]) => format!("no: {why}"),
        ([], []) => "\u{2013}".into(),
        _ => "no".into(),
    }
}

#[test]
fn the_suite_looks_at_each_requirement_of_a_level_or_says_why_not() {
    let groups = ["SBP-L", "SBRP-RELAY", "SBRP-TOKEN"];
    let is_seen = |id: &String| groups.iter().any(|group| id.starts_with(group));
    for id in requirements().into_iter().map(|one| one.id).filter(is_seen) {
        assert_ne!(seen(&id), "\u{2013}", "{id}: there is no check, and `unseen` does not name it");
    }
    let known: Vec<_> = requirements().into_iter().map(|one| one.id).collect();
    for check in checks().chain(relay_checks()) {
        assert!(known.contains(&check.requirement().to_owned()), "{} is of nothing", check.id);
    }
    for one in unseen() {
        let looked_at = checks().any(|check| check.requirement() == one.id);
        assert!(!looked_at && known.contains(&one.id.to_owned()), "{} is seen, or nothing", one.id);
    }
}
