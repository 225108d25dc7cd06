//! Text without marks.

use super::*;

#[test]
fn sbp_l4_03_plain_text_has_no_marks() {
    assert_each(
        plain,
        [
            ("# Title\n\nText\n", "Title\n\nText\n"),
            ("## Title ##\nText", "Title\nText"),
            ("Title\n=====\n\nText", "Title\n\nText"),
            ("*a* **b** _c_ ~~d~~ `e` ***f***", "a b c d e f"),
            ("a\\*b \\# &amp; &eacute; &#8364;", "a*b # & é €"),
            ("`` a`b ``", "a`b"),
            ("a  \nb\\\nc", "a\nb\nc"),
            ("a\n\n---\n\nb", "a\n\nb"),
            ("a\n\n***\n\n\n\nb", "a\n\n\n\nb"),
            ("> a\n> b\n\nc", "a\nb\n\nc"),
            ("> a\n>\n> > b", "a\n\nb"),
        ],
    );
}

#[test]
fn sbp_l4_03_plain_lists_keep_their_order_and_depth() {
    assert_each(
        plain,
        [
            ("* a\n+ b", "- a\n- b"),
            ("Items:\n- a\n  - b\n    c\n- d", "Items:\n- a\n  - b\n    c\n- d"),
            ("3. a\n3. b\n   1) c", "3. a\n4. b\n   1. c"),
            ("1. a\n\n1. b\n\n1. c", "1. a\n\n2. b\n\n3. c"),
            ("1. a\n\n- b\n\n1. c", "1. a\n\n- b\n\n1. c"),
            ("- a\n\n  b\n\n- c", "- a\n\n  b\n\n- c"),
            ("- [x] a\n- [ ] b", "- [x] a\n- [ ] b"),
            ("-\n- a", "- \n- a"),
            ("1. a\n   ```sh\n   b\n\n     c\n   ```\n2. d", "1. a\n   b\n\n     c\n2. d"),
        ],
    );
}

#[test]
fn sbp_l4_03_plain_links_show_where_they_lead() {
    assert_each(
        plain,
        [
            ("[a](https://b.com)", "a (https://b.com)"),
            ("[**a** b](https://c.com \"d\")", "a b (https://c.com)"),
            ("[https://b.com](https://b.com)", "https://b.com"),
            ("<https://b.com> <a@b.com>", "https://b.com a@b.com"),
            ("[](https://b.com)", "https://b.com"),
            ("[a](#b)", "a"),
            ("https://b.com/c_d_e", "https://b.com/c_d_e"),
        ],
    );
}

#[test]
fn sbp_l4_03_references_are_read_as_they_stand_unless_defined_beside() {
    assert_each(
        plain,
        [
            ("[a][1], [b]\n\n[1]: https://c.com", "[a][1], [b]\n\n[1]: https://c.com"),
            ("[1]: https://c.com\n[a][1]", "a (https://c.com)\n[1]: https://c.com"),
            ("x[0][1]", "x[0][1]"),
            ("a[^1]\n\n[^1]: b **c**", "a[1]\n\n[1]: b c"),
            ("[^1]: a\n[^2]: b", "[1]: a\n[2]: b"),
            ("[^a-z]", "[^a-z]"),
        ],
    );
}

#[test]
fn sbp_l4_03_plain_images_are_described() {
    assert_each(
        plain,
        [
            ("a ![b *c*](d.png) e", "a b c e"),
            ("[![b](d.png)](https://e.com)", "b (https://e.com)"),
            ("![b][c]", "b"),
            ("<img src='d' alt='b &amp; c'>", "b & c"),
        ],
    );
    let shows = Form { kind: Kind::Plain { images: true }, limit: None };
    assert_eq!(shows.whole("![b](https://d.com/e.png)"), "b (https://d.com/e.png)");
}

#[test]
fn sbp_l4_03_plain_tables_become_named_values() {
    assert_each(
        plain,
        [
            (
                "| Name | Age |\n|---|--:|\n| Ada | 36 |\n| *Bo* | `a\\|b` |\n",
                "Name: Ada; Age: 36\nName: Bo; Age: a|b\n",
            ),
            ("a | b\n-|-\n1 |\n| | 2", "a: 1\nb: 2"),
            ("| | b: |\n|-|-|\n| x | y |", "x; b: y"),
            ("|a|b|\n|-|-|", "a; b"),
            ("Look:\n|a|\n|-|\n|x<br>y|\n\nb", "Look:\na: x y\n\nb"),
            ("- |a|\n  |-|\n  |b|\n  |c|", "- a: b\n  a: c"),
        ],
    );
}

#[test]
fn sbp_l4_03_plain_code_is_what_was_in_the_fences() {
    assert_each(
        plain,
        [
            ("a:\n\n```rust\nfn b() {\n\n    *c\n}\n```\n\nd", "a:\n\nfn b() {\n\n    *c\n}\n\nd"),
            ("~~~\n| a | b |\n~~~", "| a | b |"),
            ("    a\n      b\n\n    c", "a\n  b\n\nc"),
            ("```\nnever closed\n\n# a", "never closed\n\n# a"),
        ],
    );
}

#[test]
fn sbp_l4_03_plain_text_loses_html_but_nothing_that_only_looks_like_it() {
    assert_each(
        plain,
        [
            ("a <b>c</b><br/>d<!-- e -->", "a c\nd"),
            ("<div class=\"a\">\n<p>b &lt; c</p>\n<p>d</p>\n</div>", "b < c\nd"),
            ("<details><summary>a</summary>\n\n*b*\n\n</details>\n\nc", "a\n\nb\n\nc"),
            ("<!-- a\n\nb -->\n\nc", "c"),
            ("<style>\n\na { }\n</style>\nb", "b"),
            ("Vec<String>, Map<K, V> and Box<T>", "Vec<String>, Map<K, V> and Box<T>"),
            ("git push <remote> <branch>", "git push <remote> <branch>"),
            ("<name>\n\na", "<name>\n\na"),
            ("1 < 2 && 3 > 2", "1 < 2 && 3 > 2"),
        ],
    );
}

#[test]
fn plain_text_is_left_alone() {
    for text in [
        "",
        "\n\n  a\n",
        "One.\r\n\r\nTwo.\r\n",
        "2 * 3 * 4, snake_case_name, C#, ~5 to ~6, 10 > 9, a|b, R&D, 50% - 60%",
        "日本語。\n\n\n\nمرحبا",
    ] {
        assert_eq!(plain(text), text);
    }
}
