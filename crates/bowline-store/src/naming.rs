//! Which sessions a text names: by the beginning of an id, or by a title. The same in every backend.

use bowline_sbp::id::SessionId;

/// The most sessions that one text names: more are of no help to who asked.
pub(crate) const MOST_NAMED: usize = 50;
/// The shortest prefix of an id, in hexadecimal digits.
const SHORTEST_PREFIX: usize = 4;

/// The first and the last id with that prefix; none if it is too short or not hexadecimal.
pub(crate) fn ids_with_prefix(text: &str) -> Option<(SessionId, SessionId)> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = (SHORTEST_PREFIX..32).contains(&digits.len());
    if !fits || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let padded = |with: char| {
        let digits: String = digits.chars().chain(std::iter::repeat(with)).take(32).collect();
        u128::from_str_radix(&digits, 16).ok().map(|id| SessionId::from_bytes(id.to_be_bytes()))
    };
    padded('0').zip(padded('f'))
}

/// A title as it is compared: upper and lower case are the same, and so are all spaces.
pub(crate) fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The sessions whose title is a text, and those whose title begins with it.
#[derive(Debug)]
pub(crate) struct Matches<T> {
    /// Folded, and not empty.
    wanted: String,
    equal: Vec<T>,
    longer: Vec<T>,
}

impl<T> Matches<T> {
    pub(crate) fn new(wanted: String) -> Self {
        Self { wanted, equal: Vec::new(), longer: Vec::new() }
    }

    /// Looks at one title; the newest session comes first.
    pub(crate) fn see(&mut self, title: &str, session: T) {
        match folded(title).strip_prefix(&self.wanted) {
            Some("") if self.equal.len() < MOST_NAMED => self.equal.push(session),
            Some(_) if self.longer.len() < MOST_NAMED => self.longer.push(session),
            _ => {}
        }
    }

    /// Those with that very title; if there are none, those whose title begins so.
    pub(crate) fn best(self) -> Vec<T> {
        if self.equal.is_empty() { self.longer } else { self.equal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_an_id_is_at_least_four_hexadecimal_digits() {
        let id = |text: &str| text.parse::<SessionId>().unwrap();
        let range = (
            id("0191f2c0-3000-0000-0000-000000000000"),
            id("0191f2c0-3fff-ffff-ffff-ffffffffffff"),
        );
        for text in ["0191f2c0-3", "0191F2C03"] {
            assert_eq!(ids_with_prefix(text), Some(range), "{text}");
        }
        for text in ["", "019", "01-9", "last", "0191g", &"0".repeat(32)] {
            assert_eq!(ids_with_prefix(text), None, "{text}");
        }
    }
}
