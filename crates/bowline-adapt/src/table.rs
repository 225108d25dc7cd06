//! Turns a table into rows of text, each value with the name of its column.
//!
//! The cells are written directly into the output; this only inserts names and separators.

#[derive(Debug)]
pub(super) struct Table {
    /// Separator between a column's name and the value.
    naming: &'static str,
    /// Separator between two values.
    between: &'static str,
    columns: Vec<String>,
    in_head: bool,
    column: usize,
    /// The start of the row, of the cell with its name, and of the cell's value.
    row: usize,
    cell: usize,
    value: usize,
    rows: usize,
}

impl Table {
    pub(super) fn new(naming: &'static str, between: &'static str) -> Self {
        Self {
            naming,
            between,
            columns: Vec::new(),
            in_head: true,
            column: 0,
            row: 0,
            cell: 0,
            value: 0,
            rows: 0,
        }
    }

    pub(super) fn begin_row(&mut self, out: &str) {
        self.row = out.len();
        self.column = 0;
    }

    pub(super) fn begin_cell(&mut self, out: &mut String) {
        self.cell = out.len();
        if !self.in_head {
            if out.len() > self.row {
                out.push_str(self.between);
            }
            if let Some(name) = self.columns.get(self.column).filter(|name| !name.is_empty()) {
                out.push_str(name);
                out.push_str(self.naming);
            }
        }
        self.value = out.len();
    }

    /// Whether it has no row yet.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The text of the cell.
    pub(super) fn value<'a>(&self, out: &'a str) -> &'a str {
        out[self.value..].trim()
    }

    pub(super) fn replace_value(&self, value: &str, out: &mut String) {
        out.truncate(self.value);
        out.push_str(value);
    }

    /// Ends a cell; without text its name is removed.
    pub(super) fn end_cell(&mut self, out: &mut String) {
        if self.in_head {
            self.columns.push(self.value(out).trim_end_matches(':').to_owned());
            out.truncate(self.cell);
        } else if self.value(out).is_empty() {
            out.truncate(self.cell);
        }
        self.column += 1;
    }

    pub(super) fn end_head(&mut self) {
        self.in_head = false;
    }

    pub(super) fn end_row(&mut self) {
        self.rows += 1;
    }

    /// Ends the table; without rows the names of its columns are written.
    pub(super) fn finish(self, out: &mut String) {
        if self.rows == 0 {
            out.push_str(&self.columns.join(self.between));
        }
    }
}
