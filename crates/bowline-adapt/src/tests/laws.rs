//! What holds for every text.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn forms() -> impl Strategy<Value = Form> {
    let kind = prop_oneof![
        (any::<bool>(), any::<bool>())
            .prop_map(|(tables, images)| Kind::Markdown { tables, images }),
        any::<bool>().prop_map(|images| Kind::Plain { images }),
        prop_oneof![Just(Language::English), Just(Language::German), Just(Language::Other)]
            .prop_map(|language| Kind::Speech { language }),
    ];
    let limit = prop_oneof![3 => Just(None), 1 => (1u32..80).prop_map(Some)];
    (kind, limit).prop_map(|(kind, limit)| Form { kind, limit })
}

/// Pieces of Markdown that mean something to each other, in any order.
fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zé ]{1,8}",
        4 => Just("\n".to_owned()),
        3 => Just("\n\n".to_owned()),
        6 => proptest::sample::select(vec![
            "# ", "- ", "* ", "1. ", "2) ", "> ", "  ", "    ", "\t", "```", "~~~", "`", "*", "**",
            "_", "~", "[", "]", "(", ")", "![", "](", "][", "[^1]", "[^1]: ", "[a]: b\n", "|",
            "|a|b|\n|-|-|\n", "---", "===", "<b>", "</b>", "<!--", "-->", "<pre>", "</pre>", "<br>",
            "<img alt='x'>", "<div>", "&amp;", "\\", "https://a.b/c", "://", "www.", "1,234.5",
            "5%", "$", "€ 3", "…", "..", ". ", "! ", "🎉", "\u{200d}", "\u{fe0f}", "中。", "\r\n",
            "\r", "\u{a0}", "[x] ", "\0", "–", ":", "/",
        ]).prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![3 => markup(), 1 => any::<String>()]
}

/// The text in pieces that begin at the cuts, as far as characters begin there.
fn pieces<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    cuts.retain(|cut| text.is_char_boundary(*cut));
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn sbp_l4_03_a_stream_gives_what_the_whole_gives(
        form in forms(),
        text in texts(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut stream = form.stream();
        let mut given: String = pieces(&text, &cuts).into_iter().map(|p| stream.push(p)).collect();
        given += &stream.finish();
        prop_assert_eq!(given, form.whole(&text));
    }

    #[test]
    fn sbp_l4_03_a_stream_of_single_characters_gives_what_the_whole_gives(
        form in forms(), text in markup(),
    ) {
        let mut stream = form.stream();
        let mut given = String::new();
        for c in text.chars() {
            given += &stream.push(c.encode_utf8(&mut [0; 4]));
        }
        given += &stream.finish();
        prop_assert_eq!(given, form.whole(&text));
    }

    #[test]
    fn sbp_l4_03_no_text_is_too_long_for_its_limit(text in texts(), tokens in 1u32..80) {
        let quarter = |c: char| if c < '\u{2e80}' { 1 } else { 4 };
        let quarters = |text: &str| text.chars().map(quarter).sum::<u32>();
        for kind in [Kind::Plain { images: true }, Kind::Speech { language: Language::German }] {
            let whole = Form { kind, limit: None }.whole(&text);
            let short = Form { kind, limit: Some(tokens) }.whole(&text);
            if quarters(whole.trim_end()) <= tokens * 4 {
                prop_assert_eq!(short.trim_end(), whole.trim_end());
            } else {
                let kept = short.strip_suffix('…').map(str::trim_end);
                let is_beginning = kept.is_some_and(|kept| whole.starts_with(kept));
                prop_assert!(is_beginning, "{:?} of {:?}", short, whole);
                prop_assert!(quarters(short.trim()) <= tokens * 4);
            }
        }
    }

    #[test]
    fn sbp_l4_04_plain_prose_is_kept_byte_for_byte(
        text in "( ?[A-ZÄa-zß中][a-zäöüé0-9,;:'\"()%€$中。-]{0,9}[.!?]?){1,9}\
                 (\n{1,3} {0,3}[A-Z][a-z .,]{0,20}){0,5}\n{0,2}",
    ) {
        prop_assert_eq!(plain(&text), &text[..]);
        prop_assert_eq!(markdown(false, false, &text), text);
    }

    #[test]
    fn sbp_l4_03_no_pipe_of_a_table_is_left(
        rows in proptest::collection::vec(("[a-z]{1,5}", "[a-z]{0,5}", "[A-Z ]{0,5}"), 1..6),
        before in "[a-z]{0,5}",
    ) {
        let mut text = format!("{before}\n\n| x | y | z |\n|---|:-:|--:|\n");
        for (a, b, c) in &rows {
            text += &format!("| **{a}** | `{b}` | {c} |\n");
        }
        let spoken = speech(Language::English)(&text);
        for adapted in [plain(&text), markdown(false, true, &text), spoken] {
            prop_assert!(!adapted.contains('|') && !adapted.contains("---"), "{}", adapted);
            prop_assert_eq!(rows.iter().filter(|(a, ..)| !adapted.contains(&a[..])).count(), 0);
        }
    }

    #[test]
    fn sbp_l4_03_speech_has_no_address_and_no_untidy_punctuation(text in texts()) {
        for language in [Language::English, Language::German, Language::Other] {
            let spoken = speech(language)(&text);
            for untidy in ["://", "  ", ".."] {
                prop_assert!(!spoken.contains(untidy), "{:?} in {:?}", untidy, spoken);
            }
        }
    }

    #[test]
    fn sbp_l4_03_speech_has_no_marks_of_syntax(
        lines in proptest::collection::vec(
            ("(# |## |- |\\* |1\\. |> |- \\[x\\] )?", "[a-z]{1,6}", 0..6usize), 1..8),
    ) {
        let mut text = String::new();
        for (mark, word, style) in &lines {
            let word = match style {
                0 => format!("*{word}*"),
                1 => format!("**{word}**"),
                2 => format!("_{word}_"),
                3 => format!("[{word}](https://{word}.com/a_b)"),
                4 => format!("![{word}](a_b.png)"),
                _ => format!("`{word}`"),
            };
            text += &format!("{mark}{word}\n\n");
        }
        let spoken = speech(Language::English)(&text);
        prop_assert!(!spoken.contains(['*', '_', '#', '|', '[', ']', '>', '`', '/']), "{}", spoken);
        for (_, word, _) in &lines {
            prop_assert!(spoken.contains(&word[..]));
        }
    }
}

#[test]
fn a_block_goes_out_when_the_next_cannot_belong_to_it() {
    let mut stream = Form { kind: Kind::Plain { images: false }, limit: None }.stream();
    assert_eq!(stream.push("# On"), "");
    assert_eq!(stream.push("e\n\n"), "One");
    assert_eq!(stream.push("- a\n\n"), "");
    assert_eq!(stream.push("- b\n"), "\n\n- a");
    assert_eq!(stream.push("\nEnd"), "");
    assert_eq!(stream.push("\n"), "\n\n- b");
    assert_eq!(stream.finish(), "\n\nEnd\n");
}

#[test]
fn hostile_text_is_read_in_linear_time_and_without_deep_recursion() {
    let mut texts: Vec<String> = [
        "[", "*", ">", "|", "_", "`", "<", "- ", "> - ", "1. ", "![", "](", "[](", "&", "<!--",
        "<a ", "[^", "*_", "://", "www.", "- a\n\n", "> a\n", "<b", "\n", "    ", "```\n",
        "[a]: b\n", "a|b\n",
    ]
    .iter()
    .map(|unit| unit.repeat(300_000 / unit.len()))
    .collect();
    for deep in ["- ", ">", "1. ", "> * "] {
        texts.push(deep.repeat(50_000) + "a\n" + &"b\n".repeat(50_000));
    }
    texts.push("<div>".to_owned() + &"<a ".repeat(100_000));
    let columns = 20_000;
    texts
        .push("|a".repeat(columns) + "\n" + &"|-".repeat(columns) + "\n" + &"|b\n".repeat(columns));
    for text in texts {
        for kind in [
            Kind::Plain { images: false },
            Kind::Markdown { tables: false, images: false },
            Kind::Speech { language: Language::English },
        ] {
            let begun = Instant::now();
            let adapted = Form { kind, limit: None }.whole(&text);
            assert!(adapted.len() < 30 * text.len());
            // Generous, for unoptimised builds and parallel tests; quadratic time would be minutes.
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{:?} took {took:?}", &text[..8]);
        }
    }
}
