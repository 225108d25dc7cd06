//! A text as a QR code of half-block characters.
//!
//! With colours it is black on white, as scanners expect. Without them it is drawn for a dark terminal.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

const BLACK_ON_WHITE: &str = "\x1b[38;5;16;48;5;231m";
const RESET: &str = "\x1b[0m";

/// `None` if the text is too long.
pub(crate) fn code(text: &str, has_colour: bool) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (dark, light) = match has_colour {
        true => (Dense1x2::Dark, Dense1x2::Light),
        false => (Dense1x2::Light, Dense1x2::Dark),
    };
    let drawn = code.render::<Dense1x2>().dark_color(dark).light_color(light).build();
    Some(match has_colour {
        true => drawn.lines().map(|line| format!("{BLACK_ON_WHITE}{line}{RESET}\n")).collect(),
        false => drawn + "\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pairing_text_fits_a_terminal() {
        let text = format!("bowline-pair:{}", "A".repeat(150));
        let code = code(&text, false).unwrap();
        let lines: Vec<_> = code.lines().collect();
        assert!(lines.len() <= 34, "{} lines", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 66));
    }

    #[test]
    fn the_quiet_zone_is_light_with_and_without_colours() {
        let [with, without] = [true, false].map(|colour| code("text", colour).unwrap());
        let first = with.lines().next().unwrap();
        let inside = first.trim_start_matches(BLACK_ON_WHITE).trim_end_matches(RESET);
        assert!(inside.chars().all(|c| c == ' '), "white background: {inside:?}");
        assert!(without.lines().next().unwrap().chars().all(|c| c == '█'));
    }
}
