//! Writes values as `json.dumps` does.
//!
//! The text is written in pieces of bounded size: the canonical form of a large bundle is hashed
//! without being held in memory.

use std::io::Write as _;

use super::{Object, Value, float, scan};

/// `json.dumps(value, sort_keys=True)`, without the top-level member `without`.
pub(super) fn canonical(value: &Value, without: Option<&str>, sink: &mut dyn FnMut(&[u8])) {
    let mut writer = JsonWriter::new(", ", ": ", true, sink);
    match (value, without) {
        (Value::Object(object), Some(key)) => writer.object(object, Some(key)),
        _ => writer.value(value),
    }
    writer.flush();
}

/// Like [`canonical`], but without spaces and with members in their original order.
pub(super) fn compact(value: &Value, sink: &mut dyn FnMut(&[u8])) {
    let mut writer = JsonWriter::new(",", ":", false, sink);
    writer.value(value);
    writer.flush();
}

struct JsonWriter<'v, 's> {
    comma: &'static str,
    colon: &'static str,
    sorted: bool,
    /// Members of the objects being written, outermost first; each object sorts its own tail.
    members: Vec<(&'v [u8], &'v Value<'v>)>,
    buffer: Vec<u8>,
    sink: &'s mut dyn FnMut(&[u8]),
}

impl<'v, 's> JsonWriter<'v, 's> {
    fn new(
        comma: &'static str,
        colon: &'static str,
        sorted: bool,
        sink: &'s mut dyn FnMut(&[u8]),
    ) -> Self {
        let buffer = Vec::with_capacity(2 * PIECE);
        Self { comma, colon, sorted, members: Vec::new(), buffer, sink }
    }

    fn value(&mut self, value: &'v Value<'v>) {
        match value {
            Value::Null => self.put(b"null"),
            Value::Bool(true) => self.put(b"true"),
            Value::Bool(false) => self.put(b"false"),
            Value::Int(int) => {
                write!(self.buffer, "{int}").expect("writing to memory cannot fail");
            }
            Value::Float(float) => float::write(*float, &mut self.buffer),
            Value::String(text) => self.string(text.as_wtf8()),
            Value::Array(items) => self.array(items),
            Value::Object(object) => self.object(object, None),
        }
    }

    fn array(&mut self, items: &'v [Value<'v>]) {
        self.put(b"[");
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.put(self.comma.as_bytes());
            }
            self.value(item);
        }
        self.put(b"]");
    }

    fn object(&mut self, object: &'v Object<'v>, without: Option<&str>) {
        let start = self.members.len();
        let members = object.iter().map(|(key, value)| (key.as_wtf8(), value));
        self.members.extend(members.filter(|(key, _)| without.map(str::as_bytes) != Some(key)));
        if self.sorted {
            self.members[start..].sort_unstable_by_key(|(key, _)| *key);
        }
        self.put(b"{");
        for index in start..self.members.len() {
            if index > start {
                self.put(self.comma.as_bytes());
            }
            let (key, value) = self.members[index];
            self.string(key);
            self.put(self.colon.as_bytes());
            self.value(value);
        }
        self.members.truncate(start);
        self.put(b"}");
    }

    fn string(&mut self, mut rest: &[u8]) {
        self.buffer.push(b'"');
        loop {
            let (plain, special) = rest.split_at(scan::writable(rest));
            self.put(plain);
            let Some((first, _)) = special.split_first() else { break };
            let length = match first {
                b'"' => self.escape(*b"\\\""),
                b'\\' => self.escape(*b"\\\\"),
                b'\n' => self.escape(*b"\\n"),
                b'\r' => self.escape(*b"\\r"),
                b'\t' => self.escape(*b"\\t"),
                0x08 => self.escape(*b"\\b"),
                0x0c => self.escape(*b"\\f"),
                _ => self.code_points(special),
            };
            rest = &special[length..];
        }
        self.put(b"\"");
    }

    fn escape(&mut self, spelling: [u8; 2]) -> usize {
        self.put(&spelling);
        1
    }

    /// Writes the code point at the start and the non-ASCII ones that follow; returns the number of
    /// bytes read.
    fn code_points(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let (code, length) = decode(&bytes[at..]);
            at += length;
            match u16::try_from(code) {
                Ok(unit) => self.put(&hex_escape(unit)),
                Err(_) => {
                    let above = code - 0x1_0000;
                    self.put(&hex_escape(0xd800 | (above >> 10) as u16));
                    self.put(&hex_escape(0xdc00 | (above & 0x3ff) as u16));
                }
            }
            if bytes.get(at).is_none_or(u8::is_ascii) {
                return at;
            }
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > PIECE {
            self.flush();
            if bytes.len() > PIECE {
                return (self.sink)(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        (self.sink)(&self.buffer);
        self.buffer.clear();
    }
}

fn hex_escape(unit: u16) -> [u8; 6] {
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
    [b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]
}

/// The first code point of WTF-8 and its length in bytes.
fn decode(bytes: &[u8]) -> (u32, usize) {
    let low = |byte: u8| u32::from(byte & 0x3f);
    match *bytes {
        [a, ..] if a < 0x80 => (a.into(), 1),
        [a, b, ..] if a < 0xe0 => (u32::from(a & 0x1f) << 6 | low(b), 2),
        [a, b, c, ..] if a < 0xf0 => (u32::from(a & 0xf) << 12 | low(b) << 6 | low(c), 3),
        [a, b, c, d, ..] => (u32::from(a & 7) << 18 | low(b) << 12 | low(c) << 6 | low(d), 4),
        _ => unreachable!("a text holds whole code points"),
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Large enough for a hash to run at full speed, small enough for the L1 cache.
const PIECE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(value: &Value) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        canonical(value, None, &mut |piece| pieces.push(piece.to_vec()));
        pieces
    }

    #[test]
    fn sbp_l3_04_separators_order_and_escapes_are_pythons() {
        let text = r#"{"b":[1,2.50,null,true,false],"～":{},"😀":"é\u007f/\u001f","a":"\ud800"}"#;
        let value = Value::parse(text).unwrap();
        assert_eq!(
            value.to_canonical(),
            r#"{"a": "\ud800", "b": [1, 2.5, null, true, false], "\uff5e": {}, "\ud83d\ude00": "\u00e9\u007f/\u001f"}"#
        );
        assert_eq!(
            value.to_json(),
            r#"{"b":[1,2.5,null,true,false],"\uff5e":{},"\ud83d\ude00":"\u00e9\u007f/\u001f","a":"\ud800"}"#
        );
    }

    #[test]
    fn the_text_leaves_in_pieces_of_bounded_size() {
        let long = "x".repeat(3 * PIECE);
        let digits = "7".repeat(4300);
        let parts = [format!("\"{long}\""), digits, "\"世\\n\"".into(), "0.1".into()];
        let text = format!("[{}]", vec![parts.join(","); 100].join(","));
        let value = Value::parse(&text).unwrap();
        let pieces = pieces(&value);
        // A long run is passed on uncopied; the buffer exceeds its size by at most an integer.
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * PIECE || *piece == long.as_bytes()));
        assert_eq!(String::from_utf8(pieces.concat()).unwrap(), value.to_canonical());
    }
}
