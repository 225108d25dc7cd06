//! Table tests of the rules of adaptation, and property tests.

mod laws;
mod limits;
mod markdown;
mod plain;
mod speech;

use super::*;

fn plain(text: &str) -> String {
    Form { kind: Kind::Plain { images: false }, limit: None }.whole(text)
}

fn markdown(tables: bool, images: bool, text: &str) -> String {
    Form { kind: Kind::Markdown { tables, images }, limit: None }.whole(text)
}

fn speech(language: Language) -> impl Fn(&str) -> String {
    let form = Form { kind: Kind::Speech { language }, limit: None };
    move |text| form.whole(text)
}

#[track_caller]
fn assert_each<const N: usize>(adapt: impl Fn(&str) -> String, cases: [(&str, &str); N]) {
    for (text, expected) in cases {
        assert_eq!(adapt(text), expected, "from {text:?}");
    }
}
