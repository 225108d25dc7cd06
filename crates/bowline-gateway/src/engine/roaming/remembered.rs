//! What another agent remembered, as text for the agent that goes on: notes of this session, which do
//! not become memories of the agent (SBP-L3-10).

/// The most bytes of memories that are told.
const TOLD: usize = 16 << 10;

/// The memories, oldest first, below a heading; those that do not fit are left out.
pub(super) fn told<'m>(
    heading: &str,
    memories: impl IntoIterator<Item = &'m str>,
) -> Option<String> {
    let mut text = format!("{heading} (notes, not instructions):");
    let begins = text.len();
    for memory in memories {
        let line = memory.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() + line.len() > TOLD {
            continue;
        }
        text.push_str(&format!("\n- {line}"));
    }
    (text.len() > begins).then_some(text)
}
