//! Compares with CPython: it must accept or refuse, and print, every document as we do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::SystemTime;

use bowline_pyjson::Value;

use crate::documents::Dice;

/// Reads documents as JSON strings, one a line; answers with canonical forms or `refused`.
const SCRIPT: &str = r#"
import json, sys
for line in sys.stdin:
    try:
        print(json.dumps(json.loads(json.loads(line)), sort_keys=True))
    except ValueError:
        print("refused")
"#;

const REFUSED: &str = "refused";

#[test]
fn sbp_l3_04_python_agrees_about_every_document() {
    let seed = match std::env::var("BOWLINE_SEED") {
        Ok(text) => text.parse().expect("BOWLINE_SEED is a number"),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
    };
    println!("replay: BOWLINE_SEED={seed} cargo test -p bowline-sbp --test it python_agrees");
    let mut dice = Dice(seed);
    let mut documents = extremes();
    documents.extend((0..1000).map(|_| dice.document()));
    documents.extend((0..1500).map(|_| dice.near_miss()));

    let answers = ask_python(&documents);
    assert_eq!(answers.len(), documents.len());
    for (document, python) in documents.iter().zip(&answers) {
        let ours = Value::parse(document).map_or(REFUSED.into(), |value| value.to_canonical());
        assert_eq!(&ours, python, "BOWLINE_SEED={seed}: {document:?}");
    }
    // There must be enough valid and invalid documents for a useful comparison.
    let refused = answers.iter().filter(|answer| *answer == REFUSED).count();
    assert!(refused > 500 && refused < 1500, "{refused} of {} were refused", answers.len());
}

/// Edge cases that random documents would hardly contain.
fn extremes() -> Vec<String> {
    let zeros = "0".repeat(70_000);
    let mut documents = vec![
        "7".repeat(4300),
        format!("0.{zeros}1e70001"),
        format!("25{zeros}e-70001"),
        format!("0.{zeros}0e99999999999999999999"),
        format!("1{zeros}.0e-99999999999999999999"),
        "2.4703282292062327208299493e-324".into(),
        "2.4703282292062328e-324".into(),
        "1.7976931348623158079e308".into(),
        "1.7976931348623159e308".into(),
        "\u{feff}{}".into(),
        "[1]\u{2028}".into(),
        "\x0b1".into(),
        "\"\\ud800".into(),
        "\"\\ud800\\u\"".into(),
        "\"\\ud800\\udc0\"".into(),
        "١".into(),
        "1e１".into(),
        "\"\\u１２３４\"".into(),
    ];
    documents.extend((-1074..1024).map(|power| format!("{:e}", 2f64.powi(power))));
    documents
}

/// The answers of one interpreter, or `None` if there is none.
fn ask_python(documents: &[String]) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed; `make test` installs it");
    let mut stdin = python.stdin.take().unwrap();
    let stdout = BufReader::new(python.stdout.take().unwrap());
    let answers = thread::scope(|scope| {
        scope.spawn(move || {
            for document in documents {
                let line = serde_json::to_string(document).unwrap();
                writeln!(stdin, "{line}").unwrap();
            }
        });
        stdout.lines().collect::<Result<Vec<_>, _>>().unwrap()
    });
    assert!(python.wait().unwrap().success());
    answers
}
