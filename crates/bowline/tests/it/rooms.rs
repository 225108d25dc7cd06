//! Top-level modules (rooms) of a crate do not use each other in a circle, and ARCHITECTURE.md names
//! files that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The Rust files below a folder, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true if name != "tests" => found.extend(sources(&path)),
            false if name.ends_with(".rs") && name != "tests.rs" => found.push(path),
            _ => {}
        }
    }
    found
}

/// The modules named right after `crate::`: one, or those of a list in braces.
fn used_at(code: &str) -> Vec<String> {
    let word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let first = |text: &str| text.trim_start().chars().take_while(word).collect::<String>();
    let Some(list) = code.strip_prefix('{') else { return vec![first(code)] };
    let (mut names, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first(&list[from..at]));
                from = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

#[test]
fn modules_in_braces_are_seen() {
    assert_eq!(used_at("a::B;"), ["a"]);
    assert_eq!(used_at("{a, b::{self, C},\n    d::E};\nuse x::y;"), ["a", "b", "d"]);
}

/// What each room of a crate uses of the others.
fn uses_of(src: &Path) -> Uses {
    let mut uses = Uses::new();
    for file in sources(src) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let room = file.strip_prefix(src).unwrap().iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs").to_owned();
        let code = code.collect::<Vec<_>>().join("\n");
        let used = code.split("crate::").skip(1).flat_map(used_at).filter(|name| *name != room);
        uses.entry(room.clone()).or_default().extend(used);
    }
    let rooms: BTreeSet<_> = uses.keys().cloned().collect();
    uses.values_mut().for_each(|used| used.retain(|name| rooms.contains(name)));
    uses
}

/// Cyclic dependencies between modules.
fn cycles(uses: &Uses) -> Vec<String> {
    let reaches_itself = |room: &&String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = uses[*room].iter().collect();
        while let Some(at) = next.pop() {
            if seen.insert(at) {
                next.extend(&uses[at]);
            }
        }
        seen.contains(*room)
    };
    uses.keys().filter(reaches_itself).cloned().collect()
}

#[test]
fn rooms_of_a_crate_use_each_other_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut looked_at = 0;
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let uses = uses_of(&path.join("src"));
        looked_at += uses.len();
        assert_eq!(cycles(&uses), [""; 0], "in {}: {uses:#?}", path.display());
    }
    assert!(looked_at > 50, "rooms were looked at: {looked_at}");
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut folders = vec![root.clone()];
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let src = entry.unwrap().path().join("src");
        folders.extend(["", "sqlite", "session", "relay"].map(|below| src.join(below)));
    }
    let is_path = |word: &&str| word.ends_with(".rs") || word.ends_with('/');
    let named: Vec<_> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(named.len() > 30, "{named:?}");
    let missing = |word: &&str| !folders.iter().any(|folder| folder.join(word).exists());
    assert_eq!(named.into_iter().filter(missing).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_cycle_is_seen() {
    let uses = |pairs: &[(&str, &[&str])]| -> Uses {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        pairs.iter().map(|(room, used)| (room.to_string(), set(used))).collect()
    };
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), [""; 0]);
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])])), ["a", "b", "c"]);
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), ["b", "c"]);
}
