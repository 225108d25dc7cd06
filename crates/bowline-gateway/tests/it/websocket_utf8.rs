//! UTF-8 on a surface's socket: section 6 of the Autobahn suite, see [`crate::websocket`].

use crate::bench::Bench;
use crate::raw_socket::{Cut, Frame, RawSocket};
use crate::websocket::{Case, Ends, not_json, run, said};

const NOT_UTF8: Ends = Ends::With(1007);

/// Greek text with letters of two and three bytes: some splits are inside a letter.
const GREEK: &str = "κόσμε";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// What can be told apart only here, beyond whole messages: where the cuts are.
#[tokio::test]
async fn ws_autobahn_6_1_to_6_4_fragments_and_where_they_are_cut() {
    let words = "Grüße, –µ– and 🪢 at the end";
    let (valid, wrong) = (GREEK.as_bytes(), bytes("f4908080"));
    let with_wrong = || Frame::text([valid, &wrong, b"the rest"].concat());
    let frames = |pieces: [&[u8]; 3]| {
        let [first, second, third] = pieces;
        vec![Frame::text(first).unfinished(), Frame::next(second).unfinished(), Frame::next(third)]
    };
    let greek_and_half = [valid, &wrong[..1]].concat();
    run([
        ("6.1.1", vec![Frame::text("")], vec![not_json()], Ends::Open),
        ("6.1.2", frames([b"", b"", b""]), vec![not_json()], Ends::Open),
        ("6.1.3", frames([b"", b"middle", b""]), vec![not_json()], Ends::Open),
        ("6.2.1", vec![Frame::text(words)], vec![not_json()], Ends::Open),
        ("6.2.2", Frame::text(words).pieces(5), vec![not_json()], Ends::Open),
        ("6.2.3", Frame::text(words).pieces(1), vec![not_json()], Ends::Open),
        ("6.2.4", Frame::text(GREEK).pieces(1), vec![not_json()], Ends::Open),
        ("6.3.1 6.4.3 6.4.4", vec![with_wrong()], vec![], NOT_UTF8),
        ("6.3.2", with_wrong().pieces(1), vec![], NOT_UTF8),
        ("6.4.1", frames([valid, &wrong, b"the rest"]), vec![], NOT_UTF8),
        ("6.4.2", frames([&greek_and_half, &wrong[1..], b"the rest"]), vec![], NOT_UTF8),
    ])
    .await;
}

/// Stricter than the suite requires: invalid text closes the socket before its message is complete.
#[tokio::test]
async fn ws_autobahn_6_4_a_wrong_fragment_is_not_waited_out() {
    let unfinished = vec![Frame::text(GREEK).unfinished(), Frame::next(bytes("ff")).unfinished()];
    run([("6.4.1", unfinished, vec![], NOT_UTF8)]).await;
}

fn valid() -> Vec<(&'static str, Vec<u8>)> {
    let mut valid = Vec::new();
    for letter in ['$', '¢', '€', '𤭢'] {
        valid.push(("6.5", format!("one{letter}two").into_bytes()));
    }
    valid.push(("6.5", GREEK.into()));
    let ends = GREEK.char_indices().map(|(at, letter)| at + letter.len_utf8());
    valid.extend(ends.map(|end| ("6.6", GREEK.as_bytes()[..end].to_vec())));
    let edges = [
        ("6.7", ["00", "c280", "e0a080", "f0908080"].as_slice()),
        ("6.9", &["7f", "dfbf", "efbfbf", "f48fbfbf"]),
        ("6.11", &["ed9fbf", "ee8080", "efbfbd", "f48fbfbf"]),
    ];
    for (id, texts) in edges {
        valid.extend(texts.iter().map(|hex| (id, bytes(hex))));
    }
    // The last two of each plane are no characters, and still valid.
    let planes = (0..=16).flat_map(|plane| [plane << 16 | 0xfffe, plane << 16 | 0xffff]);
    let special = 0xfff9..=0xffff;
    for (id, code) in planes.map(|code| ("6.22", code)).chain(special.map(|code| ("6.23", code))) {
        valid.push((id, char::from_u32(code).unwrap().to_string().into_bytes()));
    }
    valid
}

fn invalid() -> Vec<(&'static str, Vec<u8>)> {
    let mut invalid = Vec::new();
    let whole = |end: &usize| GREEK.is_char_boundary(*end);
    let cut = (1..GREEK.len()).filter(|end| !whole(end));
    invalid.extend(cut.map(|end| ("6.6", GREEK.as_bytes()[..end].to_vec())));
    let missing = [
        "c0",
        "e080",
        "f08080",
        "f8808080",
        "fc80808080",
        "df",
        "efbf",
        "f7bfbf",
        "fbbfbfbf",
        "fdbfbfbfbf",
    ];
    let tables = [
        ("6.8", ["f888808080", "fc8480808080"].as_slice()),
        ("6.10", &["f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"]),
        ("6.11", &["f4908080"]),
        ("6.12", &["80", "bf", "80bf", "80bf80", "80bf80bf", "80bf80bf80", "80bf80bf80bf"]),
        ("6.14", &missing),
        ("6.16", &["fe", "ff", "fefeffff"]),
        ("6.17", &["c0af", "e080af", "f08080af", "f8808080af", "fc80808080af"]),
        ("6.18", &["c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"]),
        ("6.19", &["c080", "e08080", "f0808080", "f880808080", "fc8080808080"]),
        ("6.20", &["eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf"]),
    ];
    for (id, texts) in tables {
        invalid.extend(texts.iter().map(|hex| (id, bytes(hex))));
    }
    invalid.push(("6.12", (0x80..=0xbf).collect()));
    for starts in [0xc0..=0xdf, 0xe0..=0xef, 0xf0..=0xf7, 0xf8..=0xfb, 0xfc..=0xfdu8] {
        invalid.push(("6.13", starts.flat_map(|start| [start, b' ']).collect()));
    }
    invalid.push(("6.15", bytes(&missing.concat())));
    for high in ["eda080", "edadbf", "edae80", "edafbf"] {
        for low in ["edb080", "edbfbf"] {
            invalid.push(("6.21", bytes(&format!("{high}{low}"))));
        }
    }
    invalid
}

#[tokio::test]
async fn ws_autobahn_6_5_to_6_23_valid_text_is_taken_and_other_text_is_1007() {
    let taken =
        |(id, text)| -> Case<'_> { (id, vec![Frame::text(text)], vec![not_json()], Ends::Open) };
    let refused = |(id, text)| -> Case<'_> { (id, vec![Frame::text(text)], vec![], NOT_UTF8) };
    let cases: Vec<_> =
        valid().into_iter().map(taken).chain(invalid().into_iter().map(refused)).collect();
    run(cases).await;
}

#[tokio::test]
async fn ws_autobahn_6_text_comes_through_unchanged_however_it_is_cut() {
    let texts = valid().into_iter().map(|(_, text)| String::from_utf8(text).unwrap());
    // Marked off, so that nobody takes an end of it for blanks.
    let all = texts.map(|text| format!("<{text}>")).collect::<String>();
    let bench = Bench::start().await;
    for (size, cut) in [(1, Cut::BetweenFrames), (2, Cut::Nowhere), (3, Cut::Every(5))] {
        let session = bench.session().await;
        let mut socket = RawSocket::attach(&bench, &session).await;
        socket.write(&said(&all).pieces(size), cut).await;
        assert_eq!(socket.turn().await, all);
    }
}
