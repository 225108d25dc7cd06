//! A JSON value that keeps everything that Python keeps.

use super::{Int, Object, Text};

/// Any JSON value; its strings may borrow from the document.
///
/// Equality is strict: `1` is not `1.0`, the order of members counts, and NaN differs from itself.
/// Compare canonical forms to ignore the order.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value<'t> {
    #[default]
    Null,
    Bool(bool),
    Int(Int),
    Float(f64),
    String(Text<'t>),
    Array(Vec<Value<'t>>),
    Object(Object<'t>),
}

impl<'t> Value<'t> {
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The integer, if it is one and fits. `1.0` is not an integer.
    pub fn as_i64(&self) -> Option<i64> {
        if let Self::Int(value) = self { value.as_i64() } else { None }
    }

    /// Any number, rounded if necessary.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Int(value) => Some(value.to_f64()),
            _ => None,
        }
    }

    /// The string, unless it contains lone surrogates; see [`Value::as_text`].
    pub fn as_str(&self) -> Option<&str> {
        self.as_text()?.as_str()
    }

    pub fn as_text(&self) -> Option<&Text<'t>> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub fn as_array(&self) -> Option<&[Value<'t>]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value<'t>>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_object(&self) -> Option<&Object<'t>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object<'t>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// The member `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Value<'t>> {
        self.as_object()?.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value<'t>> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Takes the value; null remains.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The same value, without borrowing from the document.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Float(value) => Value::Float(value),
            Self::String(text) => Value::String(text.into_owned()),
            Self::Array(items) => Value::Array(items.into_iter().map(Value::into_owned).collect()),
            Self::Object(object) => Value::Object(object.into_owned()),
        }
    }
}

macro_rules! value_from {
    ($($source:ty => $variant:ident),* $(,)?) => {$(
        impl<'t> From<$source> for Value<'t> {
            fn from(value: $source) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

value_from!(
    bool => Bool,
    i64 => Int,
    u64 => Int,
    Int => Int,
    f64 => Float,
    &'t str => String,
    String => String,
    Text<'t> => String,
    Vec<Value<'t>> => Array,
    Object<'t> => Object,
);

impl<'t, T: Into<Value<'t>>> From<Option<T>> for Value<'t> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'t, T: Into<Value<'t>>> FromIterator<T> for Value<'t> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_answer_only_as_what_they_are() {
        let value = Value::parse("[7, 7.0, 18446744073709551616, \"7\"]").unwrap();
        let items = value.as_array().unwrap();
        assert_eq!((items[0].as_i64(), items[0].as_f64()), (Some(7), Some(7.0)));
        assert_eq!((items[1].as_i64(), items[1].as_f64()), (None, Some(7.0)));
        assert_eq!((items[2].as_i64(), items[2].as_f64()), (None, Some(2f64.powi(64))));
        assert_eq!((items[3].as_i64(), items[3].as_f64()), (None, None));
        assert_ne!(items[0], items[1]);
    }

    #[test]
    fn a_bundle_is_built_and_taken_apart() {
        let mut bundle = Value::from(Object::from_iter([
            ("sbp_version", Value::from("1.0")),
            ("label", Value::from(None::<&str>)),
            ("messages", Value::from_iter([1i64, 2])),
            ("total_cost_usd", Value::from(0.25)),
            ("step_count", Value::from(u64::MAX)),
        ]));
        assert_eq!(bundle.get("sbp_version").and_then(Value::as_str), Some("1.0"));
        assert!(bundle.get("label").is_some_and(Value::is_null));
        assert!(bundle.get("absent").is_none());
        let messages = bundle.get_mut("messages").map(Value::take).unwrap();
        assert_eq!(messages.as_array().map(<[Value]>::len), Some(2));
        assert_eq!(
            bundle.to_json(),
            r#"{"sbp_version":"1.0","label":null,"messages":null,"total_cost_usd":0.25,"step_count":18446744073709551615}"#
        );
    }

    #[test]
    fn a_value_stays_small() {
        // The limit of a bundle is in bytes of text; this is the memory of a one-byte value.
        assert!(size_of::<Value>() <= 32, "{}", size_of::<Value>());
    }
}
