//! The top-level modules ("rooms") of each crate have no cyclic dependencies.

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

/// Which other modules each top-level module of a crate uses.
fn uses_of(src: &Path) -> Uses {
    let mut uses = Uses::new();
    for file in sources(src) {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let room = file.strip_prefix(src).unwrap().iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs").to_owned();
        let used = uses.entry(room.clone()).or_default();
        for line in code {
            for at in line.split("crate::").skip(1) {
                let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let name: String = at.chars().take_while(|c| word(*c)).collect();
                if name != room {
                    used.insert(name);
                }
            }
        }
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
fn a_cycle_is_seen() {
    let uses = |pairs: &[(&str, &[&str])]| -> Uses {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        pairs.iter().map(|(room, used)| (room.to_string(), set(used))).collect()
    };
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), [""; 0]);
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])])), ["a", "b", "c"]);
    assert_eq!(cycles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), ["b", "c"]);
}
