//! The members of a JSON object, in their original order.
//!
//! Order does not affect the content id, but people read bundles, and a forwarded message should
//! look like the received one. Lookups are linear: objects here have few members.

use super::{Text, Value};

/// An object: no two members have the same key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object<'t>(Vec<(Text<'t>, Value<'t>)>);

impl<'t> Object<'t> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Value<'t>> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value<'t>> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets a member and returns its previous value. To fill a large object, collect into it.
    pub fn insert(
        &mut self,
        key: impl Into<Text<'t>>,
        value: impl Into<Value<'t>>,
    ) -> Option<Value<'t>> {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => Some(std::mem::replace(old, value)),
            None => {
                self.0.push((key, value));
                None
            }
        }
    }

    /// Removes a member; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value<'t>> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Text<'t>, &Value<'t>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The same object, without borrowing from the document.
    pub fn into_owned(self) -> Object<'static> {
        let owned = |(key, value): (Text, Value)| (key.into_owned(), value.into_owned());
        Object(self.0.into_iter().map(owned).collect())
    }

    /// Of members with the same key the last value counts, at the position of the first: as in a
    /// Python dictionary.
    pub(super) fn from_members(mut members: Vec<(Text<'t>, Value<'t>)>) -> Self {
        if has_duplicates(&members) {
            members = last_wins(members);
        }
        Self(members)
    }
}

impl<'t> IntoIterator for Object<'t> {
    type Item = (Text<'t>, Value<'t>);
    type IntoIter = std::vec::IntoIter<(Text<'t>, Value<'t>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'t, K: Into<Text<'t>>, V: Into<Value<'t>>> FromIterator<(K, V)> for Object<'t> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Self {
        let members = members.into_iter().map(|(key, value)| (key.into(), value.into()));
        Self::from_members(members.collect())
    }
}

fn has_duplicates(members: &[(Text, Value)]) -> bool {
    if members.len() <= COMPARE_ALL {
        return members
            .iter()
            .enumerate()
            .any(|(at, (key, _))| members[..at].iter().any(|(earlier, _)| earlier == key));
    }
    let mut keys: Vec<&[u8]> = members.iter().map(|(key, _)| key.as_wtf8()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

fn last_wins<'t>(members: Vec<(Text<'t>, Value<'t>)>) -> Vec<(Text<'t>, Value<'t>)> {
    let mut ordered: Vec<(usize, _)> = members.into_iter().enumerate().collect();
    // Stable: members with the same key stay in the order in which they were written.
    ordered.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
    ordered.dedup_by(|later, first| {
        let same = later.1.0 == first.1.0;
        if same {
            first.1.1 = later.1.1.take();
        }
        same
    });
    ordered.sort_unstable_by_key(|(place, _)| *place);
    ordered.into_iter().map(|(_, member)| member).collect()
}

/// Up to this many members, comparing each with each beats sorting.
const COMPARE_ALL: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn object(members: impl IntoIterator<Item = (String, i64)>) -> Object<'static> {
        members.into_iter().collect()
    }

    #[test]
    fn sbp_l3_04_the_last_of_equal_keys_wins_at_the_place_of_the_first() {
        for size in [3, COMPARE_ALL as i64, 1000] {
            let key = |n: i64| format!("k{}", n % (size - 1));
            let object = object((0..size).map(|n| (key(n), n)));
            assert_eq!(object.len() as i64, size - 1);
            let first = object.iter().next().unwrap();
            assert_eq!((first.0.as_str(), first.1.as_i64()), (Some("k0"), Some(size - 1)));
            assert_eq!(object.get("k1").and_then(Value::as_i64), Some(1));
        }
    }

    #[test]
    fn members_are_set_and_taken_in_place() {
        let mut object = object([("a".into(), 1), ("b".into(), 2), ("c".into(), 3)]);
        assert_eq!(object.insert("b", 5i64), Some(Value::from(2i64)));
        assert_eq!(object.insert("d", Value::Null), None);
        assert_eq!(object.remove("a"), Some(Value::from(1i64)));
        assert_eq!(object.remove("a"), None);
        assert_eq!(Value::from(object).to_json(), r#"{"b":5,"c":3,"d":null}"#);
    }
}
