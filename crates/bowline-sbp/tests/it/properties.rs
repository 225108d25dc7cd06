//! Round trips of arbitrary values.

use bowline_pyjson::{Object, Value};
use bowline_sbp::cid::{BUNDLE_CID, Cid};
use proptest::prelude::*;

use crate::documents::Dice;

/// A string of any UTF-16 units, so that pairs and halves of them occur.
fn string() -> impl Strategy<Value = Value<'static>> {
    let unit = prop_oneof![0x20u16..0x7f, 0xd7f0u16..0xe010, any::<u16>()];
    prop::collection::vec(unit, 0..12).prop_map(|units| {
        let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
        Value::parse(&format!("\"{escapes}\"")).unwrap().into_owned()
    })
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<u64>().prop_map(|bits| Value::from(f64::from_bits(bits))),
        string(),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let members = prop::collection::vec((string(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            members.prop_map(|members| {
                let keyed = members
                    .into_iter()
                    .map(|(key, value)| (key.as_text().cloned().unwrap(), value));
                Value::from(keyed.collect::<Object>())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn sbp_l3_04_the_canonical_form_is_a_fixed_point(value in value()) {
        let canonical = value.to_canonical();
        prop_assert!(canonical.bytes().all(|byte| (b' '..0x7f).contains(&byte)));
        prop_assert_eq!(Value::parse(&canonical).unwrap().to_canonical(), canonical);
    }

    #[test]
    fn stored_text_reads_back_as_the_same_value(value in value()) {
        let json = value.to_json();
        let back = Value::parse(&json).unwrap();
        prop_assert_eq!(&back.to_json(), &json);
        prop_assert_eq!(&back.clone().into_owned().to_json(), &json);
        prop_assert_eq!(Cid::of(&back), Cid::of(&value));
    }

    #[test]
    fn sbp_l3_04_members_in_any_order_have_one_cid(value in value()) {
        let Value::Object(object) = value else { return Ok(()) };
        let mut members: Vec<_> = object.clone().into_iter().collect();
        members.reverse();
        let reversed = Value::from(members.into_iter().collect::<Object>());
        prop_assert_eq!(Cid::of(&reversed), Cid::of(&Value::from(object)));
    }

    #[test]
    fn sbp_l3_04_only_the_top_level_cid_is_left_out(mut value in value()) {
        let bare = Cid::of(&value);
        if let Some(object) = value.as_object_mut() {
            object.insert(BUNDLE_CID, bare.to_string());
        }
        prop_assert_eq!(Cid::of_bundle(&value), bare);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), seed in any::<u64>()) {
        let _ = Value::parse(&text);
        let near_miss = Dice(seed).near_miss();
        if let Ok(value) = Value::parse(&near_miss) {
            let canonical = value.to_canonical();
            prop_assert_eq!(Value::parse(&canonical).unwrap().to_canonical(), canonical);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in any::<Vec<u8>>()) {
        let _ = Value::parse_bytes(&bytes);
    }
}
