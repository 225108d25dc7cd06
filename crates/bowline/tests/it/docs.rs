//! The Markdown of README.md and docs: every table renders, and links to other pages lead somewhere.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md, the other files beside it, and docs/*.md, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    for folder in [root(), root().join("docs")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.push((path, text));
            }
        }
    }
    pages.sort();
    pages
}

/// The lines outside of code blocks, numbered from 1. A line of code is empty here.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let visible = |line| {
        let fence = str::starts_with(str::trim_start(line), "```");
        code ^= fence;
        if code || fence { "" } else { line }
    };
    (1..).zip(text.lines().map(visible)).collect()
}

/// The cells of a table's row. A pipe ends a cell unless it is escaped; code does not protect it.
fn cells(row: &str) -> usize {
    let row = row.trim().replace("\\|", "");
    let row = row.strip_prefix('|').unwrap_or(&row);
    row.strip_suffix('|').unwrap_or(row).split('|').count()
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The line under a table's header: dashes, perhaps with colons.
fn is_rule(line: &str) -> bool {
    is_row(line) && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

/// What is wrong with the tables of a page.
fn faults(text: &str) -> Vec<String> {
    let lines = prose(text);
    let mut faults = Vec::new();
    let mut columns = None;
    for (at, (number, line)) in lines.iter().enumerate() {
        if !is_row(line) {
            columns = None;
            continue;
        }
        let found = cells(line);
        match columns {
            Some(expected) if found != expected => {
                faults.push(format!("line {number}: {found} cells under a header of {expected}"));
            }
            Some(_) => {}
            None => {
                columns = Some(found);
                if at > 0 && !lines[at - 1].1.trim().is_empty() {
                    faults.push(format!("line {number}: a table needs an empty line before it"));
                }
                if !lines.get(at + 1).is_some_and(|(_, next)| is_rule(next)) {
                    faults.push(format!("line {number}: a row without a header"));
                }
            }
        }
    }
    faults
}

#[test]
fn every_table_has_a_header_and_rows_of_its_width() {
    let mut tables = 0;
    for (path, text) in pages() {
        tables += prose(&text).iter().filter(|(_, line)| is_rule(line)).count();
        assert_eq!(faults(&text), [""; 0], "{}", path.display());
    }
    assert!(tables > 40, "tables were looked at: {tables}");
}

#[test]
fn a_broken_table_is_seen() {
    let good = "a\n\n| a | b |\n|---|:-:|\n| `x \\| y` | |\n\n```\n| code |\n```\n";
    assert_eq!(faults(good), [""; 0]);
    let count = |text: &str| faults(text).len();
    assert_eq!(count("a\n| a | b |\n|---|---|\n"), 1, "no empty line");
    assert_eq!(count("| a | b |\n|---|---|\n| x |\n"), 1, "a cell is missing");
    assert_eq!(count("| a | b |\n|---|---|\n| `x | y` | z |\n"), 1, "a pipe in code");
    assert_eq!(count("| a | b |\n|---|---|\n\n| x | y |\n"), 1, "cut in two");
    assert_eq!(count("| a | b |\n|---|\n"), 1, "the rule is too short");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut looked_at = 0;
    for (path, text) in pages() {
        let prose: Vec<_> = prose(&text).into_iter().map(|(_, line)| line).collect();
        let prose = prose.join("\n");
        for link in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if file.is_empty() || link.contains("://") {
                continue;
            }
            looked_at += 1;
            let there = path.parent().unwrap().join(file).exists();
            assert!(there, "{} links to {link}", path.display());
        }
    }
    assert!(looked_at > 40, "links were looked at: {looked_at}");
}

/// L7 (WebRTC) is reserved: neither the program nor a page claims it.
#[test]
fn sbp_l6_07_level_7_is_claimed_nowhere() {
    let level: u8 = bowline_sbp::SBP_LEVEL.trim_start_matches('L').parse().unwrap();
    assert!(level < 7, "{level}");
    let claims = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|word| matches!(*word, "L7" | "WebRTC" | "SBP_L7")).count()
    };
    assert_eq!(claims("Level claimed: L7 (WebRTC)."), 2, "it would be seen");
    for (path, text) in pages() {
        // The requirement itself names it.
        let text = text.lines().filter(|line| !line.contains("SBP-L6-07"));
        assert_eq!(text.map(claims).sum::<usize>(), 0, "{}", path.display());
    }
}
