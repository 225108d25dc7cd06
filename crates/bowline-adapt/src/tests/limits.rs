//! Where a text ends that is too long.

use super::*;

fn short(tokens: u32) -> impl Fn(&str) -> String {
    let form = Form { kind: Kind::Plain { images: false }, limit: Some(tokens) };
    move |text| form.whole(text)
}

#[test]
fn sbp_l4_03_a_text_that_fits_comes_whole() {
    assert_each(
        short(3),
        [("Hello there!", "Hello there!"), ("Hello there!\n\n", "Hello there!"), ("", "")],
    );
    assert_eq!(short(u32::MAX)("**a**\n\nb"), "a\n\nb");
}

#[test]
fn sbp_l4_03_a_limit_cuts_at_the_end_of_a_sentence() {
    assert_each(
        short(6),
        [
            ("One two. Three four five six.", "One two. …"),
            ("One. Two! Three? Four five six.", "One. Two! Three? …"),
            ("He (she.) \"ok.\" and many more", "He (she.) \"ok.\" …"),
            ("- one\n- two\n- three\n- four", "- one\n- two\n- three …"),
            ("1. one\n2. two\n3. three four", "1. one\n2. two …"),
            ("一二。三四五六七", "一二。 …"),
        ],
    );
}

#[test]
fn sbp_l4_03_if_no_sentence_fits_a_limit_cuts_at_a_word() {
    assert_each(
        short(4),
        [
            ("One two three four five.", "One two three…"),
            ("On 3. May e. g. nothing", "On 3. May e.…"),
            ("Unbreakablewordsarewhole", "…"),
            ("日本語日本語", "日本語…"),
            ("# Title\n\nText that is long", "Title\n\nText…"),
        ],
    );
    assert_eq!(short(1)("abcd"), "abcd");
    assert_eq!(short(1)("abcde"), "…");
}

#[test]
fn sbp_l4_03_limited_markdown_does_not_end_inside_a_code_block_or_a_row() {
    let form = Form { kind: Kind::Markdown { tables: true, images: true }, limit: Some(7) };
    assert_each(
        |text| form.whole(text),
        [
            ("**Do** it.\n\n```\na. b. c. d\n```\n\nAnd more.", "**Do** it. …"),
            ("Do:\n\n```\na. b. c\n```\n\nAnd then.", "Do:\n\n```\na. b. c\n```\n\n…"),
            ("Do.\n\n|a|b|\n|-|-|\n|Long. |Longer. |", "Do. …"),
            ("|a|b|\n|-|-|\n|c|d.|\n\nAnd then more.", "|a|b|\n|-|-|\n|c|d.|\n\n…"),
        ],
    );
}

#[test]
fn nothing_comes_after_the_limit() {
    let form = Form { kind: Kind::Plain { images: false }, limit: Some(3) };
    let mut stream = form.stream();
    assert_eq!(stream.push("One two.\n\n"), "");
    assert_eq!(stream.push("Three four five.\n\n"), "One two. …");
    assert_eq!(stream.push("Six.\n\n"), "");
    assert_eq!(stream.unread, "", "nothing is kept that will never be said");
    assert_eq!(stream.finish(), "");
}
