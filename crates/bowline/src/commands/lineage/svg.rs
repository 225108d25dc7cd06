//! A lineage tree as a picture (SVG), without any program: a box for each session, one below the other.

use std::collections::BTreeSet;

use bowline_sbp::api::{Lineage, LineageEdge};

use super::{children, gateways, how, labelled};
use crate::terminal::printable;

/// Between two rows, and of one step to the right.
const ROW: usize = 44;
const STEP: usize = 32;
const BOX: (usize, usize) = (470, 30);
const MARGIN: usize = 12;

pub(super) fn drawn(lineage: &Lineage) -> String {
    let me = lineage.session_id.to_string();
    let gateways = gateways(lineage);
    let rows = rows(lineage, &me);
    let deepest = rows.iter().map(|row| row.depth).max().unwrap_or_default();
    let (width, height) = (
        2 * MARGIN + deepest * STEP + BOX.0,
        2 * MARGIN + rows.len().saturating_sub(1) * ROW + BOX.1,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"12\">\n"
    );
    for (number, row) in rows.iter().enumerate() {
        let (x, y) = (MARGIN + row.depth * STEP, MARGIN + number * ROW);
        if let Some(above) = row.above {
            let (from_x, from_y) =
                (MARGIN + rows[above].depth * STEP + STEP / 2, MARGIN + above * ROW + BOX.1);
            let to_y = y + BOX.1 / 2;
            out += &format!(
                "  <path d=\"M {from_x} {from_y} V {to_y} H {x}\" fill=\"none\" stroke=\"#888\"/>\n"
            );
        }
        let stroke = if row.session == me { "#06c\" stroke-width=\"2" } else { "#444" };
        let (width, height) = BOX;
        out += &format!(
            "  <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"#fff\" \
             stroke=\"{stroke}\"/>\n"
        );
        let how = row.edge.map(|edge| format!("{} ", how(edge))).unwrap_or_default();
        let text = escaped(&format!("{how}{}", labelled(row.session, &me, &gateways)));
        out += &format!("  <text x=\"{}\" y=\"{}\">{text}</text>\n", x + 8, y + 19);
    }
    out + "</svg>\n"
}

/// One session of the picture.
struct Row<'a> {
    depth: usize,
    session: &'a str,
    /// The row of the session that it was derived from, and how.
    above: Option<usize>,
    edge: Option<&'a LineageEdge>,
}

/// All sessions, each once and below the one that it was derived from.
fn rows<'a>(lineage: &'a Lineage, me: &'a str) -> Vec<Row<'a>> {
    let (children, roots) = children(lineage, me);
    let mut rows: Vec<Row<'a>> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<_> = roots.into_iter().rev().map(|root| (root, None, None)).collect();
    while let Some((session, above, edge)) = waiting.pop() {
        if !seen.insert(session) {
            continue;
        }
        let depth = above.map_or(0, |above: usize| rows[above].depth + 1);
        let number = rows.len();
        rows.push(Row { depth, session, above, edge });
        let below = children.get(session).into_iter().flatten().rev();
        waiting.extend(below.map(|edge| (edge.to_session_id.as_str(), Some(number), Some(*edge))));
    }
    rows
}

/// As text of XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
