//! Tool names that model servers and MCP hosts accept: letters, digits, `_` and `-`, at most 64 of
//! them. A device or an MCP server may name its tools in any way.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// The longest name that model servers accept.
const LONGEST: usize = 64;
/// `_` and eight hex digits, appended to a name that would be too long or not unique.
const TAIL: usize = 9;

/// Names for these tools, in order, `<prefix>_<tool>` where possible. A tool whose name is valid
/// keeps it; others get a valid name that is not taken. A name depends only on the tools with
/// colliding names, so it is the same after a restart.
pub(crate) fn named<'a>(prefix: &str, tools: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let plain = |tool: &str| format!("{prefix}_{tool}");
    let fits = |name: &str| name.len() <= LONGEST && name.chars().all(usable);
    let mut taken: HashSet<String> = tools.clone().map(plain).filter(|name| fits(name)).collect();
    let mut name = |tool: &str| {
        let plain = plain(tool);
        if fits(&plain) {
            return plain;
        }
        let bent: String = plain.chars().map(|c| if usable(c) { c } else { '_' }).collect();
        if bent.len() <= LONGEST && taken.insert(bent.clone()) {
            return bent;
        }
        let tail: String =
            Sha256::digest(tool).iter().take(4).map(|b| format!("{b:02x}")).collect();
        format!("{}_{tail}", &bent[..bent.len().min(LONGEST - TAIL)])
    };
    tools.map(&mut name).collect()
}

fn usable(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_kept_bent_and_told_apart() {
        let names = named("mcp_fs", ["a.b", "a_b", "a b", "read"].into_iter());
        assert_eq!(names[1], "mcp_fs_a_b", "the one that needs no change keeps its name");
        assert_eq!(names[3], "mcp_fs_read");
        assert!(names[0].starts_with("mcp_fs_a_b_") && names[2].starts_with("mcp_fs_a_b_"));
        assert_ne!(names[0], names[2]);
        assert_eq!(named("mcp_fs", ["files.read"].into_iter()), ["mcp_fs_files_read"]);
        let long = "x".repeat(80);
        assert_eq!(named("mcp_fs", [long.as_str()].into_iter())[0].len(), 64);
    }

    proptest! {
        #[test]
        fn any_names_become_usable_ones_that_differ(
            tools in prop::collection::hash_set("[a-c./_é]{0,4}|[a-b]{60,70}", 0..12),
        ) {
            let names = named("mcp_s", tools.iter().map(String::as_str));
            for name in &names {
                prop_assert!(name.len() <= LONGEST && name.chars().all(usable), "{}", name);
            }
            let different: HashSet<_> = names.iter().collect();
            prop_assert_eq!(different.len(), tools.len());
        }
    }
}
