//! Figures and ratios, for people and for scripts.

use crate::terminal::{note, say};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    figures: Vec<(String, Option<f64>)>,
    ratios: Vec<(String, Option<f64>)>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, figures: Vec::new(), ratios: Vec::new() }
    }

    /// Long work shows what it is at.
    pub(super) fn doing(&self, what: &str) {
        note!("measuring {what} …");
    }

    pub(super) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), Some(value)));
    }

    pub(super) fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.push((name.to_owned(), Some(value)));
    }

    /// A ratio to something that may be missing on this machine.
    pub(super) fn ratio_if(&mut self, name: &str, value: Option<f64>) {
        self.ratios.push((name.to_owned(), value));
    }

    pub(super) fn print(&self) {
        if self.json {
            let object = |pairs: &[(String, Option<f64>)]| {
                let pairs = pairs.iter().map(|(name, value)| (name.clone(), shown(*value)));
                Value::Object(pairs.collect::<Map<_, _>>())
            };
            say!("{}", json!({ "ratios": object(&self.ratios), "figures": object(&self.figures) }));
            return;
        }
        for (title, pairs) in [("ratios", &self.ratios), ("figures", &self.figures)] {
            if !pairs.is_empty() {
                say!("{title}");
                for (name, value) in pairs {
                    say!("  {name:28} {:>12}", shown(*value).to_string());
                }
            }
        }
    }
}

fn shown(value: Option<f64>) -> Value {
    value.map_or(Value::Null, rounded)
}

/// Three significant digits are all that a run is worth.
fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(value);
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    json!((value * scale).round() / scale)
}
