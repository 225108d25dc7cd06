//! Floating-point numbers as Python parses and formats them.
//!
//! Python's `repr` uses the shortest digits that parse to the same number, of these the nearest,
//! and of two equally near ones the even one. So does `zmij`; the standard library lacks the last
//! rule. Only the layout is done here.

use std::io::Write as _;

/// Appends `repr(value)`: exponents below 1e-4 and from 1e16 on, always a point or an exponent.
pub(super) fn write(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let value = value.abs();
    if value.is_infinite() {
        return out.extend_from_slice(b"Infinity");
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    if value == 0.0 || (1e-4..1e16).contains(&value) {
        // In this range both write `123.456`.
        return out.extend_from_slice(text.as_bytes());
    }
    with_exponent(text, out);
}

/// Rewrites `0.000012` or `1.2e-5` as `1.2e-05`.
fn with_exponent(text: &str, out: &mut Vec<u8>) {
    let (digits, exponent) = match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().expect("an exponent is a small integer");
            (mantissa.replace('.', ""), exponent)
        }
        None => {
            let digits = text.trim_start_matches(['0', '.']);
            (digits.to_owned(), 1 - (text.len() - digits.len()) as i32)
        }
    };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    write!(out, "{first}{point}{rest}e{exponent:+03}").expect("writing to memory cannot fail");
}

/// Parses `-?digits[.digits][e[+-]digits]`; the parser has checked the form.
pub(super) fn read(literal: &str) -> f64 {
    if literal.len() < LONG {
        return number(literal);
    }
    number(&shortened(literal))
}

fn number(literal: &str) -> f64 {
    literal.parse().expect("the parser checked the form of the number")
}

/// The same number with its point moved to the first digit that is not zero.
///
/// Rust caps exponents while it parses them, before it combines them with the digits: with a
/// million zeros in front, `0.00…01e1000000` would give zero, while Python gives 1.0.
fn shortened(literal: &str) -> String {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let skipped = (digits.len() - significant.len()) as i64;
    // An exponent past 64 bits outweighs any number of digits that fits in memory.
    let far = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
    let exponent = exponent.parse().unwrap_or(far).clamp(i64::MIN / 2, i64::MAX / 2);
    let exponent = (exponent + whole.len() as i64 - skipped).clamp(-FAR, FAR);
    format!("{sign}0.{significant}0e{exponent}")
}

/// From this length on, digits could outweigh an exponent that Rust has capped.
const LONG: usize = 10_000;
/// An exponent that makes any digits zero or infinite.
const FAR: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn repr(value: f64) -> String {
        let mut out = Vec::new();
        write(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sbp_l3_04_floats_are_laid_out_like_python() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (123.456, "123.456"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012345"),
            (0.00001, "1e-05"),
            (0.000099, "9.9e-05"),
            (0.000012345, "1.2345e-05"),
            (1.5e-7, "1.5e-07"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.2345678901234568e17, "-1.2345678901234568e+17"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (-f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(repr(value), expected);
        }
    }

    #[test]
    fn sbp_l3_04_of_two_spellings_as_near_the_even_one_is_taken() {
        // 2^-25 is 2.98023223876953125e-08; the standard library's last digit would be 3.
        assert_eq!(repr(2f64.powi(-25)), "2.9802322387695312e-08");
        assert_eq!(repr(2f64.powi(-44)), "5.684341886080802e-14");
        assert_eq!(repr(9007199254740993.0), "9007199254740992.0");
    }

    #[test]
    fn sbp_l3_04_long_literals_weigh_digits_against_the_exponent() {
        let zeros = "0".repeat(700_000);
        assert_eq!(read(&format!("0.{zeros}1e700001")), 1.0);
        assert_eq!(read(&format!("-25{zeros}e-700001")), -2.5);
        assert_eq!(read(&format!("0.{zeros}e99999999999999999999")), 0.0);
        assert_eq!(read(&format!("1{zeros}.0e-99999999999999999999")), 0.0);
        assert_eq!(read(&format!("1{zeros}.5")), f64::INFINITY);
        assert_eq!(read(&format!("0.1{zeros}1e+99999999999999999999")), f64::INFINITY);
    }
}
