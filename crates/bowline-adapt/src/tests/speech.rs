//! Prose to be read aloud.

use super::*;

#[test]
fn sbp_l4_03_speech_is_prose_without_marks() {
    assert_each(
        speech(Language::English),
        [
            ("# Title\n\nSome *text*\nhere.", "Title.\nSome text here."),
            ("## Why?\n\n> Because.", "Why?\nBecause."),
            ("Buy:\n\n- apples\n- pears;\n- *plums*!", "Buy:\napples. pears. plums!"),
            (
                "1. Mix\n2. Bake:\n   - hot\n   - long\n3. Eat",
                "1: Mix. 2: Bake: hot. long. 3: Eat.",
            ),
            ("1. a\n\n1. b\n\n   c", "1: a.\n2: b. c."),
            ("- [x] a\n- [ ] b", "Done: a. Open: b."),
            ("a\n\n---\n\nb", "a\nb"),
            ("a ![b](c.png) d<br>e", "a b d e"),
            ("a[^1]\n\n[^1]: b", "a\nFootnote 1: b"),
            ("Use Vec<String>.", "Use Vec String."),
            ("- He said \"yes.\"\n- (no)", "He said \"yes.\" (no)."),
        ],
    );
}

#[test]
fn sbp_l4_03_speech_names_links_instead_of_spelling_addresses() {
    assert_each(
        speech(Language::English),
        [
            ("See [the docs](https://a.com/b).", "See the docs."),
            ("See [the docs][1].\n\n[1]: https://a.com", "See the docs."),
            ("See https://www.example.com/a_b?c=d.", "See example dot com."),
            ("(<https://a.b.org/>)", "(a dot b dot org)"),
            ("[](https://a.com)", "a dot com"),
            ("[https://a.com/x](https://a.com/x), ok", "a dot com, ok"),
            ("Go to www.a.com/b!", "Go to a dot com!"),
            ("file:///etc/hosts is", " is".trim_start()),
        ],
    );
    assert_eq!(speech(Language::German)("Siehe https://a.de/x."), "Siehe a Punkt de.");
    assert_eq!(speech(Language::Other)("Voir https://a.fr/x."), "Voir a.fr.");
}

#[test]
fn sbp_l4_03_speech_reads_tables_row_by_row() {
    let table = "|Name|Age|Ok|\n|-|-|-|\n|Ada|5|✅|\n|Bo.|6|❌|\n|Cy||-|";
    assert_each(
        speech(Language::English),
        [
            (table, "Name Ada, Age 5, Ok yes. Name Bo, Age 6, Ok no. Name Cy, Ok -."),
            ("|a|b|\n|-|-|", "a, b."),
        ],
    );
    let table = "|Name|Ok|\n|-|-|\n|Ada|✓|";
    assert_eq!(speech(Language::German)(table), "Name Ada, Ok ja.");
    assert_eq!(speech(Language::Other)(table), "Name Ada, Ok.");
}

#[test]
fn sbp_l4_03_speech_announces_code() {
    let (short, long) = ("```sh\ncargo test\n```", "```\na\n\nb\n```\n\nThen.");
    let line = format!("    {}", "x".repeat(61));
    let english = speech(Language::English);
    assert_eq!(english(short), "Code: cargo test.");
    assert_eq!(english(long), "A code block of 3 lines is in the written answer.\nThen.");
    assert_eq!(english(&line), "A line of code is in the written answer.");
    let german = speech(Language::German);
    assert_eq!(german(short), "Code: cargo test.");
    assert_eq!(
        german(long),
        "Ein Codeblock mit 3 Zeilen steht in der schriftlichen Antwort.\nThen."
    );
    assert_eq!(german(&line), "Eine Zeile Code steht in der schriftlichen Antwort.");
    assert_eq!(speech(Language::Other)(long), "…\nThen.");
}

#[test]
fn sbp_l4_03_speech_says_numbers_and_symbols_in_english() {
    assert_each(
        speech(Language::English),
        [
            ("1,234,567.89 and 0.125", "1234567.89 and 0.125"),
            ("12,34 or 1,2345 or 10.0.0.1", "12,34 or 1,2345 or 10.0.0.1"),
            ("5% of 1 %", "5 percent of 1 percent"),
            ("$5, €1, 3 €, £2.50", "5 dollars, 1 euro, 3 euros, 2.50 pounds"),
            ("$3 million, $1.5M, US$1", "3 million dollars, 1.5M dollars, US 1 dollar"),
            ("-5 °C, 70°F, 90°", "minus 5 degrees Celsius, 70 degrees Fahrenheit, 90 degrees"),
            (
                "50 km/h, 1 km, 20 m², 3 kmh",
                "50 kilometers per hour, 1 kilometer, 20 square meters, 3 kmh",
            ),
            ("5–10 or 5 – 10, ~7, ≈ 8, #9", "5 to 10 or 5 to 10, about 7, about 8, number 9"),
            ("salt & pepper, R&D", "salt and pepper, R&D"),
            ("2024-05-01 10:30, COVID-19, B2B", "2024-05-01 10:30, COVID-19, B2B"),
        ],
    );
}

#[test]
fn sbp_l4_03_speech_says_numbers_and_symbols_in_german() {
    assert_each(
        speech(Language::German),
        [
            ("1.234.567,89 und 12.03.2024", "1234567,89 und 12.03.2024"),
            ("3,5 % von 5 €", "3,5 Prozent von 5 Euro"),
            ("$5, £1", "5 Dollar, 1 Pfund"),
            ("€ 3 Millionen", "3 Millionen Euro"),
            ("-5 °C bei 50 km/h", "minus 5 Grad Celsius bei 50 Kilometer pro Stunde"),
            ("1 kWh, 2 kWh", "1 Kilowattstunde, 2 Kilowattstunden"),
            ("5–10, ~7, Salz & Pfeffer", "5 bis 10, etwa 7, Salz und Pfeffer"),
            ("- [x] a\n- [ ] b\n\n[^1]: c", "Erledigt: a. Offen: b.\nFußnote 1: c"),
        ],
    );
}

#[test]
fn sbp_l4_03_speech_leaves_symbols_in_languages_it_does_not_speak() {
    assert_each(
        speech(Language::Other),
        [
            ("1,234 € et 5 % à -3 °C, #1", "1,234 € et 5 % à -3 °C, #1"),
            ("- [x] un\n- deux 🎉", "un. deux."),
        ],
    );
}

#[test]
fn sbp_l4_03_speech_drops_emoji_and_tidies_punctuation() {
    assert_each(
        speech(Language::English),
        [
            ("Great 🎉! Go 👩‍💻 on ⭐️", "Great! Go on"),
            ("# 🚀 Start", "Start."),
            ("1️⃣ one", "1 one"),
            ("wait... what.. now", "wait… what… now"),
            ("- etc.\n- and so on...", "etc. and so on…"),
            ("a   b\tc\u{a0}d", "a b c d"),
            ("🎉", ""),
            ("a\n\n🎉\n\nb", "a\nb"),
        ],
    );
}
