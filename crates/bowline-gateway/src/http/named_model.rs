//! Finds the model that a request names, in the beginning of its body.
//!
//! Apart, because bodies with images and sound are large and are not read whole: only as far as the
//! model's name.

use std::cell::RefCell;

use axum::http::{HeaderMap, header};
use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};

use crate::model::LONGEST_NAME;

/// What the beginning of a body says about the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelField {
    Model(String),
    /// Not yet: it may follow.
    NotYet,
    /// The body names none.
    Nothing,
    /// The body cannot be read.
    Unreadable,
}

/// How a body is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    /// A form, with its boundary.
    Multipart(String),
}

impl Format {
    /// By the content type. What is not a form counts as JSON.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let mut parts = kind.unwrap_or_default().split(';').map(str::trim);
        let is_form = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(FORM));
        let boundary = parts.find_map(|part| parameter(part, "boundary"));
        match boundary {
            Some(boundary) if is_form => Self::Multipart(boundary.to_owned()),
            _ => Self::Json,
        }
    }

    /// Looks for the model. `whole`: nothing follows these bytes.
    pub(super) fn find(&self, bytes: &[u8], whole: bool) -> ModelField {
        let found = match self {
            Self::Json => in_json(bytes),
            Self::Multipart(boundary) => in_form(bytes, boundary),
        };
        match found {
            ModelField::NotYet if whole => ModelField::Unreadable,
            ModelField::Model(model) if model.is_empty() || model.len() > LONGEST_NAME => {
                ModelField::Nothing
            }
            found => found,
        }
    }
}

const FORM: &str = "multipart/form-data";

/// The value of `name="value"` or `name=value`.
fn parameter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = text.split_once('=')?;
    let value = value.trim().trim_matches('"');
    (found.trim().eq_ignore_ascii_case(name) && !value.is_empty()).then_some(value)
}

/// The first field `model` of a JSON object.
fn in_json(bytes: &[u8]) -> ModelField {
    /// Stops at the field: what follows is not parsed, and may not have arrived.
    struct Fields<'a>(&'a RefCell<Option<ModelField>>);
    impl<'de> Visitor<'de> for Fields<'_> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(name) = map.next_key::<String>()? {
                if name == "model" {
                    let model: serde_json::Value = map.next_value()?;
                    let model = model.as_str().map(|model| ModelField::Model(model.to_owned()));
                    *self.0.borrow_mut() = Some(model.unwrap_or(ModelField::Nothing));
                    return Err(A::Error::custom("found"));
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let found = RefCell::new(None);
    let read = serde_json::Deserializer::from_slice(bytes).deserialize_map(Fields(&found));
    match (found.into_inner(), read) {
        (Some(found), _) => found,
        (None, Ok(())) => ModelField::Nothing,
        (None, Err(error)) if error.is_eof() => ModelField::NotYet,
        (None, Err(_)) => ModelField::Unreadable,
    }
}

/// The part `model` of a form.
fn in_form(bytes: &[u8], boundary: &str) -> ModelField {
    let delimiter = format!("--{boundary}");
    // What stands before the first delimiter is ignored.
    let Some(mut rest) = after(bytes, delimiter.as_bytes()) else { return ModelField::NotYet };
    let end = format!("\r\n{delimiter}");
    loop {
        match rest {
            [b'-', b'-', ..] => return ModelField::Nothing,
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] | [b'-'] => return ModelField::NotYet,
            _ => return ModelField::Unreadable,
        }
        let Some((head, body)) = cut(&rest[2..], b"\r\n\r\n") else { return ModelField::NotYet };
        let Some((value, next)) = cut(body, end.as_bytes()) else { return ModelField::NotYet };
        if is_model(head) {
            let model = std::str::from_utf8(value).map(|model| model.trim().to_owned());
            return model.map_or(ModelField::Unreadable, ModelField::Model);
        }
        rest = next;
    }
}

/// Whether the head of a part names the field `model`.
fn is_model(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let disposition = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let mut parameters = disposition.unwrap_or_default().split(';');
    parameters.any(|part| parameter(part, "name") == Some("model"))
}

fn cut<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..start], &bytes[start + at.len()..]))
}

fn after<'a>(bytes: &'a [u8], at: &[u8]) -> Option<&'a [u8]> {
    cut(bytes, at).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(name: &str) -> ModelField {
        ModelField::Model(name.into())
    }

    #[test]
    fn the_model_of_a_json_body_is_found_before_the_body_ends() {
        for (text, found) in [
            (r#"{"model":"m"}"#, model("m")),
            (r#"{"input":["a",{"model":"no"}],"model":"m","x":[1,"#, model("m")),
            (r#"{"m\u006fdel":"m","#, model("m")),
            (r#"{"input":"x","mod"#, ModelField::NotYet),
            (r#"{"model":"m"#, ModelField::NotYet),
            ("", ModelField::NotYet),
            (r#"{"input":"x"}"#, ModelField::Nothing),
            (r#"{"model":5}"#, ModelField::Nothing),
            (r#"{"model":""}"#, ModelField::Nothing),
            ("[1]", ModelField::Unreadable),
            ("{x", ModelField::Unreadable),
        ] {
            assert_eq!(Format::Json.find(text.as_bytes(), false), found, "{text}");
        }
        assert_eq!(Format::Json.find(b"{\"a\":1", true), ModelField::Unreadable);
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(LONGEST_NAME + 1));
        assert_eq!(Format::Json.find(long.as_bytes(), true), ModelField::Nothing);
    }

    fn form(parts: &[(&str, &str)]) -> String {
        let part = |(head, body): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n")
        };
        parts.iter().map(part).collect::<String>() + "--b--\r\n"
    }

    #[test]
    fn the_model_of_a_form_is_found_wherever_it_stands() {
        let file = (r#"name="file"; filename="name=model""#, "\r\n--x\r\n\r\nname=\"model\"");
        let named = (r#"name="model""#, "whisper-1");
        let multipart = Format::Multipart("b".into());
        let find = |parts: &[_]| multipart.find(form(parts).as_bytes(), true);
        assert_eq!(find(&[named, file]), model("whisper-1"));
        assert_eq!(find(&[file, named]), model("whisper-1"));
        assert_eq!(find(&[("name=model", "m")]), model("m"));
        assert_eq!(find(&[file]), ModelField::Nothing);
        let text = form(&[named, file]);
        assert_eq!(multipart.find(&text.as_bytes()[..40], false), ModelField::NotYet);
        assert_eq!(multipart.find(&text.as_bytes()[..80], false), model("whisper-1"));
        assert_eq!(multipart.find(b"--bad", false), ModelField::Unreadable);
        assert_eq!(multipart.find(b"no form at all", true), ModelField::Unreadable);
    }

    #[test]
    fn the_content_type_says_how_to_read() {
        for (kind, format) in [
            ("multipart/form-data; boundary=b", Format::Multipart("b".into())),
            ("Multipart/Form-Data; charset=x; boundary=\"a b\"", Format::Multipart("a b".into())),
            ("multipart/form-data", Format::Json),
            ("application/json; boundary=b", Format::Json),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(Format::of(&headers), format, "{kind}");
        }
        assert_eq!(Format::of(&HeaderMap::new()), Format::Json);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, whole: bool) {
            Format::Json.find(&bytes, whole);
            Format::Multipart("b".into()).find(&bytes, whole);
        }

        #[test]
        fn a_cut_form_never_names_another_model(at in 0..200usize) {
            let text = form(&[("name=\"file\"", "xx\r\n-- b"), ("name=\"model\"", "whisper-1")]);
            let bytes = &text.as_bytes()[..at.min(text.len())];
            let found = Format::Multipart("b".into()).find(bytes, false);
            prop_assert!(found == ModelField::NotYet || found == model("whisper-1"), "{:?}", found);
        }
    }
}
