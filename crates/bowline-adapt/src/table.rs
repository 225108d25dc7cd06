//! A table on its way to being rows of text, each value with the name of its column.
//!
//! The cells are written straight into the text; this only puts the names and marks between.

#[derive(Debug)]
pub(super) struct Table {
    /// Between a column's name and the value.
    naming: &'static str,
    /// Between one value and the next.
    between: &'static str,
    columns: Vec<String>,
    in_head: bool,
    column: usize,
    /// Where the row, the cell with its name, and the cell's value begin.
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

    /// Whether it had no row so far.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// What was written into the cell.
    pub(super) fn value<'a>(&self, out: &'a str) -> &'a str {
        out[self.value..].trim()
    }

    pub(super) fn replace_value(&self, value: &str, out: &mut String) {
        out.truncate(self.value);
        out.push_str(value);
    }

    /// A cell without text takes its name back.
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

    /// A table without rows says at least what its columns are.
    pub(super) fn finish(self, out: &mut String) {
        if self.rows == 0 {
            out.push_str(&self.columns.join(self.between));
        }
    }
}
