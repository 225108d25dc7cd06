//! The report: figures and ratios, as a table and as JSON.

use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Report {
    note: fn(&str),
    figures: Vec<(String, Option<f64>)>,
    ratios: Vec<(String, Option<f64>)>,
}

impl Report {
    /// `note` prints progress and warnings.
    pub fn new(note: fn(&str)) -> Self {
        Self { note, figures: Vec::new(), ratios: Vec::new() }
    }

    /// Prints what is being measured.
    pub(crate) fn doing(&self, what: &str) {
        (self.note)(&format!("measuring {what} …"));
    }

    /// Prints a warning: something was skipped, or is less accurate.
    pub(crate) fn note(&self, what: &str) {
        (self.note)(what);
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), Some(value)));
    }

    pub(crate) fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.push((name.to_owned(), Some(value)));
    }

    /// A ratio that may be missing, because a program is not installed.
    pub(crate) fn ratio_if(&mut self, name: &str, value: Option<f64>) {
        self.ratios.push((name.to_owned(), value));
    }

    /// As JSON, for scripts.
    pub fn to_json(&self) -> Value {
        let object = |pairs: &[(String, Option<f64>)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), shown(*value)));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        json!({ "ratios": object(&self.ratios), "figures": object(&self.figures) })
    }

    /// As a table, for people.
    pub fn to_table(&self) -> String {
        let mut table = String::new();
        for (title, pairs) in [("ratios", &self.ratios), ("figures", &self.figures)] {
            if !pairs.is_empty() {
                table += &format!("{title}\n");
            }
            for (name, value) in pairs {
                table += &format!("  {name:28} {:>12}\n", shown(*value).to_string());
            }
        }
        table
    }
}

fn shown(value: Option<f64>) -> Value {
    value.map_or(Value::Null, rounded)
}

/// Rounded to three significant digits: a run is not more accurate.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(value);
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    json!((value * scale).round() / scale)
}
