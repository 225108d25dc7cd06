//! Throughput of adapting answers to a device's form (SBP-L4-03).

use std::time::{Duration, Instant};

use bowline_adapt::{Form, Kind, Language};

use crate::report::Report;

/// Typical answers of models: prose, lists, tables, code, links, other languages.
const ANSWERS: &str = include_str!("answers.md");
/// Separates two answers.
const BREAK: &str = "\n\n=====\n\n";
/// How long each form is measured.
const LENGTH: Duration = Duration::from_millis(500);

pub(crate) fn run(report: &mut Report) {
    report.doing("adaptation");
    let form = |kind| Form { kind, limit: None };
    let whole = [
        ("plain", form(Kind::Plain { images: false })),
        ("speech", form(Kind::Speech { language: Language::English })),
        ("markdown", form(Kind::Markdown { tables: false, images: false })),
    ];
    let (mut bytes, mut time) = (0.0, 0.0);
    let mut figures = Vec::new();
    for (name, form) in whole {
        let (read, took) = adapted(&form);
        figures.push((name, read / took));
        bytes += read;
        // Every form processes the same text.
        time += took;
    }
    report.figure("adapt_mb_per_s", bytes / time / 1e6);
    // A form with a limit stops reading when it is full: a figure of its own.
    let short = Form { kind: Kind::Plain { images: false }, limit: Some(60) };
    let (read, took) = adapted(&short);
    figures.push(("short", read / took));
    for (name, rate) in figures {
        report.figure(&format!("adapt_{name}_mb_per_s"), rate / 1e6);
    }
}

/// The size of all answers in bytes, and the seconds to adapt them: the best of many runs.
fn adapted(form: &Form) -> (f64, f64) {
    let answers: Vec<_> = ANSWERS.split(BREAK).collect();
    let mut best = Duration::MAX;
    let begun = Instant::now();
    while begun.elapsed() < LENGTH {
        let one = Instant::now();
        // Repeated, so that reading the clock does not matter.
        for _ in 0..20 {
            for answer in &answers {
                std::hint::black_box(form.whole(std::hint::black_box(answer)));
            }
        }
        best = best.min(one.elapsed() / 20);
    }
    let bytes: usize = answers.iter().map(|answer| answer.len()).sum();
    (bytes as f64, best.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_have_what_the_forms_have_to_deal_with() {
        let answers: Vec<_> = ANSWERS.split(BREAK).collect();
        assert!(answers.len() >= 8, "{}", answers.len());
        for mark in ["\n| ", "```", "](http", "![", "**", "\n- ", "\n1. ", "\n> ", "\n## "] {
            assert!(ANSWERS.contains(mark), "no {mark:?}");
        }
        assert!(!ANSWERS.is_ascii());
    }
}
