//! Text tables with aligned columns.

/// A table with headings.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    aligned(Some(headings), rows)
}

/// A table without headings.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    aligned(None, rows)
}

/// Each column is as wide as its longest cell; a column of numbers is aligned to the right.
fn aligned<const N: usize>(headings: Option<[&str; N]>, rows: &[[String; N]]) -> String {
    let rows: Vec<[&str; N]> = rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
    let is_number = |cell: &str| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
    let lines: Vec<[&str; N]> = headings.into_iter().chain(rows.iter().copied()).collect();
    let columns: [(usize, bool); N] = std::array::from_fn(|column| {
        let width = lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let numeric = !rows.is_empty() && rows.iter().all(|row| is_number(row[column]));
        (width, numeric)
    });
    let line = |cells: &[&str; N]| {
        let cell = |(cell, (width, numeric)): (&&str, (usize, bool))| match numeric {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        };
        let cells: Vec<_> = cells.iter().zip(columns).map(cell).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_have_to_be_and_numbers_stand_on_the_right() {
        let rows = [["ä".to_owned(), "9".to_owned()], ["long name".to_owned(), "10".to_owned()]];
        assert_eq!(table(["NAME", "N"], &rows), "NAME        N\nä           9\nlong name  10\n");
        assert_eq!(columns(&rows), "ä           9\nlong name  10\n");
        assert_eq!(table(["NAME", "N"], &[]), "NAME  N\n");
    }
}
