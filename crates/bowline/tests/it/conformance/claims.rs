//! What the texts claim is what the table shows.
//!
//! The level claimed is the highest one such that no requirement of it, or of a level before it, is open.
//! A requirement that is wholly ours is no part of a level of the protocol; the claim names it while it is
//! open. What is shown in part is named beside the claim.

use std::collections::BTreeMap;

use super::spec::{Requirement, requirements};
use super::{partial, root, row};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Whole,
    InPart,
    Open,
}

type Rows = Vec<(Requirement, Shown)>;

/// Every requirement of the specifications, with what the table says of it.
fn rows(table: &str) -> Rows {
    let cells: BTreeMap<_, _> =
        table.lines().filter_map(row).map(|row| (row.id, row.tests)).collect();
    let shown = |id: &str| match cells[id] {
        "open" => Shown::Open,
        tests if !partial(tests).0.is_empty() => Shown::InPart,
        _ => Shown::Whole,
    };
    requirements().into_iter().map(|one| (one.clone(), shown(&one.id))).collect()
}

/// The level that a requirement belongs to; those of SBRP and of certification have none.
fn level(requirement: &Requirement) -> Option<u8> {
    requirement.id.strip_prefix("SBP-L")?.split('-').next()?.parse().ok()
}

#[derive(Debug, PartialEq, Eq)]
struct Claim {
    but_for: Vec<String>,
    in_part: Vec<String>,
}

impl Claim {
    fn of(rows: &Rows, belongs: impl Fn(&Requirement) -> bool) -> Self {
        let with = |wanted| {
            let these = rows.iter().filter(|(one, shown)| *shown == wanted && belongs(one));
            these.map(|(one, _)| one.id.clone()).collect()
        };
        Self { but_for: with(Shown::Open), in_part: with(Shown::InPart) }
    }

    fn sbp(rows: &Rows) -> (u8, Self) {
        let is_open = |at: u8| {
            let own = |one: &Requirement| level(one) == Some(at) && !one.ours;
            rows.iter().any(|(one, shown)| *shown == Shown::Open && own(one))
        };
        let exists = |at: u8| rows.iter().any(|(one, _)| level(one) == Some(at));
        let reached = (1..).take_while(|at| exists(*at) && !is_open(*at)).last().unwrap_or(0);
        (reached, Self::of(rows, |one| level(one).is_some_and(|at| at <= reached)))
    }

    fn sbrp(rows: &Rows) -> Self {
        Self::of(rows, |one| one.id.starts_with("SBRP-"))
    }

    /// `, but for A, B and C`, or nothing.
    fn exceptions(&self) -> String {
        match &self.but_for[..] {
            [] => String::new(),
            [one] => format!(", but for {one}"),
            [most @ .., last] => format!(", but for {} and {last}", most.join(", ")),
        }
    }

    /// The line of `docs/conformance.md` that begins with these words.
    fn line(&self, begins: &str, claimed: &str) -> String {
        let in_part = match &self.in_part[..] {
            [] => String::new(),
            ids => format!(" In part: {}.", ids.join(", ")),
        };
        format!("{begins}{claimed}{}.**{in_part}", self.exceptions())
    }
}

const SBP: &str = "**Level claimed today: ";
const SBRP: &str = "**Claimed of SBRP today: ";

/// `docs/conformance.md` with the claims that its table allows.
pub(super) fn claimed(text: &str) -> String {
    let rows = rows(text);
    let (reached, sbp) = Claim::sbp(&rows);
    let lines = text.lines().map(|line| match line {
        line if line.starts_with(SBP) => sbp.line(SBP, &format!("L{reached}")),
        line if line.starts_with(SBRP) => Claim::sbrp(&rows).line(SBRP, "all of it"),
        line => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn an_open_requirement_of_the_protocol_ends_the_levels_and_one_of_ours_is_named() {
    use Shown::{InPart, Open, Whole};
    let rows = |these: &[(&str, Shown)]| -> Rows {
        let one = |(text, shown): &(&str, Shown)| {
            let id = text.trim_end_matches('*').to_owned();
            (Requirement { id, short: "x".into(), ours: text.ends_with('*') }, *shown)
        };
        these.iter().map(one).collect()
    };
    let claim = |these: &[(&str, Shown)]| {
        let (reached, claim) = Claim::sbp(&rows(these));
        claim.line("", &format!("L{reached}"))
    };
    let first = ("SBP-L1-01", Whole);
    assert_eq!(claim(&[first, ("SBP-L2-01", Whole)]), "L2.**");
    assert_eq!(claim(&[first, ("SBP-L2-01", Open), ("SBP-L3-01", Whole)]), "L1.**");
    assert_eq!(claim(&[("SBP-L1-01", Open), ("SBP-L2-01", Whole)]), "L0.**");
    assert_eq!(claim(&[first, ("SBP-L2-01", Whole), ("SBP-CERT-01", Open)]), "L2.**");
    let ours = [first, ("SBP-L1-02*", Open), ("SBP-L2-01", InPart), ("SBP-L2-02*", Open)];
    assert_eq!(claim(&ours), "L2, but for SBP-L1-02 and SBP-L2-02.** In part: SBP-L2-01.");
    // What is above the level is neither claimed nor an exception.
    let above = [first, ("SBP-L2-01", Open), ("SBP-L2-02*", Open), ("SBP-L2-03", InPart)];
    assert_eq!(claim(&above), "L1.**");
    let sbrp = Claim::sbrp(&rows(&[("SBRP-A-01", Open), ("SBRP-B-01*", Open), first]));
    assert_eq!(sbrp.line("", "all"), "all, but for SBRP-A-01 and SBRP-B-01.**");
}

#[test]
fn what_is_claimed_is_what_the_table_shows() {
    if std::env::var_os("BLESS").is_some() {
        return; // The table is being written.
    }
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let table = read("docs/conformance.md");
    for begins in [SBP, SBRP] {
        assert_eq!(table.lines().filter(|line| line.starts_with(begins)).count(), 1, "{begins}");
    }
    for (line, allowed) in table.lines().zip(claimed(&table).lines()) {
        assert_eq!(line, allowed, "run with BLESS=1 to write the claims anew");
    }
    let rows = rows(&table);
    let ((reached, sbp), sbrp) = (Claim::sbp(&rows), Claim::sbrp(&rows));
    let (sbp, sbrp) = (sbp.exceptions(), sbrp.exceptions());
    assert_eq!(bowline_sbp::SBP_LEVEL, format!("L{reached}"));
    let unreleased = read("CHANGELOG.md").split("\n## ").nth(1).unwrap().to_owned();
    for (file, text, claim) in [
        ("README.md", read("README.md"), format!("**SBP L{reached}{sbp}**")),
        ("README.md", read("README.md"), format!("**SBRP{sbrp}**")),
        ("CHANGELOG.md", unreleased.clone(), format!("SBP L1 to L{reached}{sbp}.")),
        ("CHANGELOG.md", unreleased, format!("SBRP{sbrp}.")),
        ("docs/guarantees.md", read("docs/guarantees.md"), format!("(SBP L1 to L{reached}{sbp})")),
        ("docs/guarantees.md", read("docs/guarantees.md"), format!("(SBRP{sbrp})")),
        ("docs/frames.md", read("docs/frames.md"), format!("\"sbp_level\": \"L{reached}\"")),
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&claim), "{file} does not say: {claim}");
    }
}
