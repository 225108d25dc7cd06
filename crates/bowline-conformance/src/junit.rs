//! A report as JUnit XML, for the programs that show results of builds.

use std::fmt::Write as _;

use crate::check::Kind;
use crate::report::{Outcome, Report, parts};
use crate::verdict::Verdict;

/// The report, with one test suite for each group one for what is left to the server, and one for our additions.
pub fn to_junit(report: &Report) -> String {
    let mut suites: Vec<(String, Vec<&Outcome>)> = (report.about.groups().into_iter())
        .map(|group| {
            let of = report.outcomes.iter();
            let of = of.filter(|o| o.check.group() == group && o.check.kind.counts());
            (format!("{} {group} {}", group.protocol(), group.title()), of.collect())
        })
        .collect();
    for (kind, title) in [(Kind::May, "Left to the server"), (Kind::Ours, "Additions of Bowline")] {
        let of = report.outcomes.iter().filter(|o| o.check.kind == kind);
        suites.push((title.into(), of.collect()));
    }

    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for (name, outcomes) in suites.iter().filter(|(_, outcomes)| !outcomes.is_empty()) {
        suite(&mut xml, name, outcomes);
    }
    xml + "</testsuites>\n"
}

fn suite(xml: &mut String, name: &str, outcomes: &[&Outcome]) {
    let count = |word| outcomes.iter().filter(|o| o.verdict.word() == word).count();
    let seconds: f64 = outcomes.iter().map(|o| o.took.as_secs_f64()).sum();
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" \
         time=\"{seconds:.3}\">",
        escaped(name),
        outcomes.len(),
        count("failed"),
        count("not_run"),
    );
    for outcome in outcomes {
        let check = outcome.check;
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            check.id,
            escaped(check.what),
            outcome.took.as_secs_f64(),
        );
        let _ = match &outcome.verdict {
            Verdict::Passed => writeln!(xml, "/>"),
            Verdict::NotRun(why) => {
                writeln!(xml, "><skipped message=\"{}\"/></testcase>", escaped(why))
            }
            Verdict::Failed(finding) => {
                let lines = parts(check, finding).map(|(name, said)| format!("{name}: {said}"));
                let expected = escaped(&finding.expected);
                let text = escaped(&lines.join("\n"));
                writeln!(
                    xml,
                    "><failure message=\"expected {expected}\">{text}</failure></testcase>"
                )
            }
            Verdict::Warning(finding) => {
                let lines = parts(check, finding).map(|(name, said)| format!("{name}: {said}"));
                let text = escaped(&format!("warning\n{}", lines.join("\n")));
                writeln!(xml, "><system-out>{text}</system-out></testcase>")
            }
        };
    }
    *xml += "  </testsuite>\n";
}

/// Text as XML 1.0 takes it. Control characters have no place there, not even escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_xml_is_what_it_should_be() {
        let expected = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
  <testsuite name=\"SBP L1 stateful proxy\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\" time=\"3.000\">
    <testcase classname=\"SBP-L1-01\" name=\"makes a session\" time=\"1.500\"/>
    <testcase classname=\"SBP-L1-02\" name=\"takes a turn\" time=\"1.500\"><skipped message=\"no model\"/></testcase>
  </testsuite>
  <testsuite name=\"SBP L2 Tether and resume\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\" time=\"3.000\">
    <testcase classname=\"SBP-L2-06\" name=\"keeps &lt;turns&gt; &amp; more\" time=\"1.500\"><failure message=\"expected status 200\">clause: keeps &quot;them&quot;&#10;sent: POST &lt;x&gt;&#10;expected: status 200&#10;came: 500 {&quot;a&quot;:\u{fffd}1}</failure></testcase>
    <testcase classname=\"SBP-L2-14\" name=\"has snapshots\" time=\"1.500\"><system-out>warning&#10;clause: has them&#10;sent: POST &lt;x&gt;&#10;expected: status 200&#10;came: 500 {&quot;a&quot;:\u{fffd}1}</system-out></testcase>
  </testsuite>
  <testsuite name=\"Additions of Bowline\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"1\" time=\"1.500\">
    <testcase classname=\"SBP-L2-20\" name=\"lets surfaces join\" time=\"1.500\"><skipped message=\"not offered\"/></testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(to_junit(&report()), expected);
    }
}
