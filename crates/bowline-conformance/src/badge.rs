//! A badge of what is passed, as SVG: no script, no link, and no font but the reader's own.

use crate::report::Report;

/// The badge: green for what is passed, amber and with their number if some checks were not run, red if nothing is
/// passed.
pub fn to_badge(report: &Report) -> String {
    let name = report.about.protocol();
    // A level says which; a relay passes or does not.
    let passed = report.passed().map(|level| match level == name {
        true => "conformant".to_owned(),
        false => level,
    });
    let (word, colour) = match (passed, report.not_run()) {
        (Some(passed), 0) => (passed, GREEN),
        (Some(passed), count) => (format!("{passed}, {count} not run"), AMBER),
        (None, _) => ("not passed".to_owned(), RED),
    };
    let (left, right) = (width(name), width(&word));
    let (all, middle, end) = (left + right, left / 2, left + right / 2);
    format!(
        "\
<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all}\" height=\"20\" role=\"img\" aria-label=\"{name}: {word}\">
  <title>{name}: {word}</title>
  <rect width=\"{left}\" height=\"20\" fill=\"#555\"/>
  <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{colour}\"/>
  <g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\" text-anchor=\"middle\">
    <text x=\"{middle}\" y=\"14\">{name}</text>
    <text x=\"{end}\" y=\"14\">{word}</text>
  </g>
</svg>
"
    )
}

/// How wide a text is, about, with some space around it.
fn width(text: &str) -> usize {
    text.chars().count() * 7 + 12
}

const GREEN: &str = "#2e7d32";
const AMBER: &str = "#b26a00";
const RED: &str = "#b71c1c";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::About;
    use crate::report::tests::report;

    #[test]
    fn a_badge_names_what_is_passed_and_nothing_from_elsewhere() {
        let expected = "\
<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"136\" height=\"20\" role=\"img\" aria-label=\"SBP: L1, 1 not run\">
  <title>SBP: L1, 1 not run</title>
  <rect width=\"33\" height=\"20\" fill=\"#555\"/>
  <rect x=\"33\" width=\"103\" height=\"20\" fill=\"#b26a00\"/>
  <g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\" text-anchor=\"middle\">
    <text x=\"16\" y=\"14\">SBP</text>
    <text x=\"84\" y=\"14\">L1, 1 not run</text>
  </g>
</svg>
";
        assert_eq!(to_badge(&report()), expected);
    }

    #[test]
    fn only_a_run_of_all_checks_is_green() {
        let mut report = report();
        report.outcomes.retain(|outcome| outcome.check.id != "SBP-L1-02");
        let badge = to_badge(&report);
        assert!(badge.contains("<title>SBP: L1</title>") && badge.contains(GREEN), "{badge}");
    }

    #[test]
    fn what_has_failed_is_red() {
        let mut report = report();
        report.about = About::Relay;
        let badge = to_badge(&report);
        assert!(badge.contains("SBRP: not passed") && badge.contains(RED), "{badge}");
    }
}
