//! Random JSON documents: every spelling that the grammar allows, and near misses.
//!
//! Text rather than values, because most errors are about spelling.

use std::fmt::Write as _;

/// A small generator (SplitMix64): the same seed gives the same documents.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A valid document.
    pub(crate) fn document(&mut self) -> String {
        let mut out = String::new();
        self.space(&mut out);
        self.value(4, &mut out);
        self.space(&mut out);
        out
    }

    /// A document with a few characters put in, taken out or doubled: usually not valid.
    pub(crate) fn near_miss(&mut self) -> String {
        let mut chars: Vec<char> = self.document().chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(chars.len() + 1);
            match self.below(3) {
                0 if at < chars.len() => drop(chars.remove(at)),
                1 if at < chars.len() => chars.insert(at, chars[at]),
                _ => chars.insert(at, self.pick(&LIKELY_TO_BREAK)),
            }
        }
        chars.into_iter().collect()
    }

    fn value(&mut self, depth: usize, out: &mut String) {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 | 1 => self.string(out),
            2 => self.int(out),
            3 | 4 => self.float(out),
            5 => {
                out.push_str(self.pick(&["null", "true", "false", "NaN", "Infinity", "-Infinity"]))
            }
            6 => self.list('[', ']', out, |dice, out| dice.value(depth - 1, out)),
            _ => self.list('{', '}', out, |dice, out| {
                dice.string(out);
                dice.space(out);
                out.push(':');
                dice.space(out);
                dice.value(depth - 1, out);
            }),
        }
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        out: &mut String,
        part: impl Fn(&mut Self, &mut String),
    ) {
        out.push(open);
        self.space(out);
        for index in 0..self.below(6) {
            if index > 0 {
                out.push(',');
                self.space(out);
            }
            part(self, out);
            self.space(out);
        }
        out.push(close);
    }

    fn space(&mut self, out: &mut String) {
        if self.below(4) == 0 {
            out.push(self.pick(&[' ', '\t', '\n', '\r']));
        }
    }

    fn int(&mut self, out: &mut String) {
        self.sign(out);
        let digits = self.pick(&[1, 2, 18, 19, 20, 60]);
        self.whole(digits, out);
    }

    fn float(&mut self, out: &mut String) {
        match self.below(4) {
            // Random bits; Rust prints them without an exponent, up to 330 digits.
            0 => {
                let value = f64::from_bits(self.next());
                let value = if value.is_finite() { value } else { 0.5 };
                write!(out, "{value:?}").expect("memory takes all");
            }
            // Around the values where Python switches to an exponent, and exact halves.
            1 => {
                let (base, power) = (self.pick(&[2f64, 10.0]), self.below(40) as i32 - 20);
                let value = base.powi(power) * self.pick(&[1.0, 0.5, 3.0, 0.999_999_999_999_999_9]);
                write!(out, "{value:e}").expect("memory takes all");
            }
            _ => {
                self.int(out);
                let form = self.below(3);
                if form < 2 {
                    out.push('.');
                    let digits = 1 + self.below(20);
                    self.digits(digits, out);
                }
                if form > 0 {
                    out.push_str(self.pick(&["e", "E", "e+", "E-", "e-", "e0"]));
                    let digits = 1 + self.below(3);
                    self.digits(digits, out);
                }
            }
        }
    }

    fn sign(&mut self, out: &mut String) {
        if self.below(3) == 0 {
            out.push('-');
        }
    }

    fn whole(&mut self, digits: usize, out: &mut String) {
        match self.below(10) {
            0 => out.push('0'),
            first => {
                out.push_str(&first.to_string());
                self.digits(digits - 1, out);
            }
        }
    }

    fn digits(&mut self, count: usize, out: &mut String) {
        out.extend((0..count).map(|_| char::from(b'0' + self.below(10) as u8)));
    }

    fn string(&mut self, out: &mut String) {
        out.push('"');
        for _ in 0..self.pick(&[0, 1, 1, 2, 7, 30]) {
            match self.below(10) {
                0 => out.push_str(self.pick(&ESCAPES)),
                1 => {
                    let unit =
                        self.pick(&[0, 0x20, 0x7f, 0xff, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0xe000]);
                    let unit = unit + self.below(3);
                    let upper = self.below(2) == 0;
                    let spelled =
                        if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                    out.push_str(&spelled);
                }
                2 => out.push(self.any_char()),
                _ => out.push(self.pick(&['a', 'b', 'A', '~', ' ', '\x7f', 'é', '世', '～', '😀'])),
            }
        }
        out.push('"');
    }

    /// Any character that may stand in a string as itself.
    fn any_char(&mut self) -> char {
        let limit = self.pick(&[0x80, 0x800, 0x1_0000, 0x11_0000]);
        match char::from_u32(self.below(limit) as u32) {
            None | Some('\0'..' ' | '"' | '\\') => '?',
            Some(char) => char,
        }
    }
}

const ESCAPES: [&str; 9] =
    [r"\n", r"\t", r"\r", r"\b", r"\f", r#"\""#, r"\\", r"\/", r"\ud83d\ude00"];
const LIKELY_TO_BREAK: [char; 28] = [
    '"', '\\', ',', ':', '[', ']', '{', '}', '-', '+', '.', 'e', 'E', '0', '1', 'u', 'd', '8', 'N',
    'I', 'n', '/', ' ', '\n', '\0', '\u{a0}', '\u{feff}', '\u{2028}',
];
