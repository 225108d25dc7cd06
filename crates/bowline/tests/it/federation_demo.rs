//! `make demo-federation`, with the binary of this test.

use std::path::Path;
use std::process::Command;

#[test]
fn sbp_l6_05_one_session_goes_round_three_gateways_while_it_is_talked_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("tools/demo-federation")
        .arg(env!("CARGO_BIN_EXE_bowline"))
        .env("TMPDIR", folder.path())
        .current_dir(&root)
        .output()
        .unwrap();
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{failed}");
    for words in
        ["the tracker knows who has its bundle", "round 2: at amsterdam", "◀ this one", "done"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    // It cleans up after itself.
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
