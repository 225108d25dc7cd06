//! Words that speech adds to an answer, by language.

/// The language of speech. Symbols are spelled out and thousands separators removed only in
/// languages that are listed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    English,
    German,
    /// Any other language: symbols stay, and no words are added.
    Other,
}

impl Language {
    /// The language of a BCP-47 tag; English if there is none.
    pub fn of(locale: Option<&str>) -> Self {
        let primary = locale.and_then(|tag| tag.split(['-', '_']).next());
        match primary.unwrap_or("en").to_ascii_lowercase().as_str() {
            "en" | "" => Language::English,
            "de" => Language::German,
            _ => Language::Other,
        }
    }

    /// The words of this language, if it is listed.
    pub(super) fn words(self) -> Option<&'static Words> {
        match self {
            Language::English => Some(&ENGLISH),
            Language::German => Some(&GERMAN),
            Language::Other => None,
        }
    }
}

/// The word for a symbol, in the singular and the plural.
pub(super) struct Unit {
    pub(super) symbol: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
}

pub(super) struct Words {
    /// Separates groups of three digits.
    pub(super) thousands: u8,
    pub(super) dot: &'static str,
    pub(super) and: &'static str,
    pub(super) to: &'static str,
    pub(super) about: &'static str,
    pub(super) number: &'static str,
    pub(super) yes: &'static str,
    pub(super) no: &'static str,
    pub(super) done: &'static str,
    pub(super) open: &'static str,
    pub(super) footnote: &'static str,
    pub(super) code: &'static str,
    pub(super) code_line: &'static str,
    /// Before and after the number of lines.
    pub(super) code_block: (&'static str, &'static str),
    /// Words that belong to the number before them: 3 million.
    pub(super) scales: &'static [&'static str],
    /// Longer ones first where one begins another.
    pub(super) units: &'static [Unit],
}

const fn unit(symbol: &'static str, one: &'static str, many: &'static str) -> Unit {
    Unit { symbol, one, many }
}

static ENGLISH: Words = Words {
    thousands: b',',
    dot: " dot ",
    and: "and",
    to: " to ",
    about: "about ",
    number: "number ",
    yes: "yes",
    no: "no",
    done: "Done: ",
    open: "Open: ",
    footnote: "Footnote ",
    code: "Code: ",
    code_line: "A line of code is in the written answer.",
    code_block: ("A code block of ", " lines is in the written answer."),
    scales: &["thousand", "million", "billion", "trillion"],
    units: &[
        unit("%", "percent", "percent"),
        unit("€", "euro", "euros"),
        unit("$", "dollar", "dollars"),
        unit("£", "pound", "pounds"),
        unit("¥", "yen", "yen"),
        unit("°C", "degree Celsius", "degrees Celsius"),
        unit("°F", "degree Fahrenheit", "degrees Fahrenheit"),
        unit("°", "degree", "degrees"),
        unit("km/h", "kilometer per hour", "kilometers per hour"),
        unit("mph", "mile per hour", "miles per hour"),
        unit("m/s", "meter per second", "meters per second"),
        unit("km²", "square kilometer", "square kilometers"),
        unit("m²", "square meter", "square meters"),
        unit("m³", "cubic meter", "cubic meters"),
        unit("km", "kilometer", "kilometers"),
        unit("cm", "centimeter", "centimeters"),
        unit("mm", "millimeter", "millimeters"),
        unit("kg", "kilogram", "kilograms"),
        unit("mg", "milligram", "milligrams"),
        unit("ml", "milliliter", "milliliters"),
        unit("kWh", "kilowatt hour", "kilowatt hours"),
        unit("ms", "millisecond", "milliseconds"),
        unit("KB", "kilobyte", "kilobytes"),
        unit("MB", "megabyte", "megabytes"),
        unit("GB", "gigabyte", "gigabytes"),
        unit("TB", "terabyte", "terabytes"),
        unit("MHz", "megahertz", "megahertz"),
        unit("GHz", "gigahertz", "gigahertz"),
    ],
};

static GERMAN: Words = Words {
    thousands: b'.',
    dot: " Punkt ",
    and: "und",
    to: " bis ",
    about: "etwa ",
    number: "Nummer ",
    yes: "ja",
    no: "nein",
    done: "Erledigt: ",
    open: "Offen: ",
    footnote: "Fußnote ",
    code: "Code: ",
    code_line: "Eine Zeile Code steht in der schriftlichen Antwort.",
    code_block: ("Ein Codeblock mit ", " Zeilen steht in der schriftlichen Antwort."),
    scales: &["Tausend", "Million", "Millionen", "Milliarde", "Milliarden", "Billionen"],
    units: &[
        unit("%", "Prozent", "Prozent"),
        unit("€", "Euro", "Euro"),
        unit("$", "Dollar", "Dollar"),
        unit("£", "Pfund", "Pfund"),
        unit("¥", "Yen", "Yen"),
        unit("°C", "Grad Celsius", "Grad Celsius"),
        unit("°F", "Grad Fahrenheit", "Grad Fahrenheit"),
        unit("°", "Grad", "Grad"),
        unit("km/h", "Kilometer pro Stunde", "Kilometer pro Stunde"),
        unit("mph", "Meile pro Stunde", "Meilen pro Stunde"),
        unit("m/s", "Meter pro Sekunde", "Meter pro Sekunde"),
        unit("km²", "Quadratkilometer", "Quadratkilometer"),
        unit("m²", "Quadratmeter", "Quadratmeter"),
        unit("m³", "Kubikmeter", "Kubikmeter"),
        unit("km", "Kilometer", "Kilometer"),
        unit("cm", "Zentimeter", "Zentimeter"),
        unit("mm", "Millimeter", "Millimeter"),
        unit("kg", "Kilogramm", "Kilogramm"),
        unit("mg", "Milligramm", "Milligramm"),
        unit("ml", "Milliliter", "Milliliter"),
        unit("kWh", "Kilowattstunde", "Kilowattstunden"),
        unit("ms", "Millisekunde", "Millisekunden"),
        unit("KB", "Kilobyte", "Kilobyte"),
        unit("MB", "Megabyte", "Megabyte"),
        unit("GB", "Gigabyte", "Gigabyte"),
        unit("TB", "Terabyte", "Terabyte"),
        unit("MHz", "Megahertz", "Megahertz"),
        unit("GHz", "Gigahertz", "Gigahertz"),
    ],
};
