//! Markdown without what cannot be shown.

use super::*;

const TABLE: &str = "| Name | Likes |\n|---|---|\n| **Ada** | `a\\|b` |\n| Bo | |";

#[test]
fn sbp_l4_03_tables_become_lists_inside_markdown() {
    assert_each(
        |text| markdown(false, true, text),
        [
            (TABLE, "- Name: **Ada**; Likes: `a|b`\n- Name: Bo"),
            ("*a*:\n|b|\n|-|\n|c|\n\n# d\n", "*a*:\n- b: c\n\n# d\n"),
            ("- a\n  |b|\n  |-|\n  |c|\n  |d|\n- e", "- a\n  - b: c\n  - b: d\n- e"),
            ("> |b|\n> |-|\n> |c|\n> |d|", "> - b: c\n> - b: d"),
            ("|a|b|\n|-|-|\n\nc", "a; b\n\nc"),
            ("|a|\n|-|\n|![b](c)|", "- a: ![b](c)"),
            ("```\n|a|\n|-|\n```", "```\n|a|\n|-|\n```"),
        ],
    );
    assert_eq!(markdown(true, false, TABLE), TABLE);
}

#[test]
fn sbp_l4_03_images_become_their_descriptions_inside_markdown() {
    assert_each(
        |text| markdown(true, false, text),
        [
            ("a ![b *c* \\[d](e \"f\") **g**", "a b c \\[d **g**"),
            ("[![b](c)](https://d.com)", "[b](https://d.com)"),
            ("![b][c]\n\n[c]: d", "b\n\n[c]: d"),
            ("![](c)\n\nd", "d"),
            ("<p><img src=\"a\" alt=\"b\"></p>\n\nc <img alt='d'>", "<p>b</p>\n\nc d"),
            ("`![a](b)`", "`![a](b)`"),
        ],
    );
    assert_eq!(markdown(false, true, "![a](b)"), "![a](b)");
    assert_eq!(markdown(false, false, "|a|\n|-|\n|![b](c) d|"), "- a: b d");
}

#[test]
fn sbp_l4_04_all_other_markdown_is_kept_byte_for_byte() {
    let text =
        "# a\n\n* b\n    * c | d\n\n```\n![x](y) | z\n```\n\n<b>e</b> &amp; [f]\n\n[f]: g\n \n";
    assert_eq!(markdown(false, false, text), text);
}
