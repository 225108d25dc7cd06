//! `bowline-sbrp` can be built for browsers: without C, without a runtime, without the system's clock and
//! randomness.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::not_run::not_run;

const TARGET: &str = "wasm32-unknown-unknown";
const FEATURES: [&str; 5] = [
    "--package=bowline-sbrp",
    "--no-default-features",
    "--features=rustcrypto",
    "--locked",
    "--offline",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(root()).arg(command).args(FEATURES);
    cargo
}

/// What the crate needs for a target, by name.
fn dependencies(target: &str) -> Vec<String> {
    let output = cargo("tree")
        .args(["--edges=normal,build", "--prefix=none", "--format={p}", "--target", target])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_protocol_needs_no_c_no_runtime_and_nothing_of_the_system() {
    for target in [TARGET, "x86_64-unknown-linux-gnu"] {
        let needed = dependencies(target);
        for expected in ["bowline-sbrp", "chacha20", "curve25519-dalek", "ed25519-dalek"] {
            assert!(needed.iter().any(|one| one == expected), "{target}: {expected} in {needed:?}");
        }
        for banned in
            ["aws-lc-rs", "aws-lc-sys", "ring", "cc", "cmake", "tokio", "getrandom", "jsonwebtoken"]
        {
            assert!(!needed.iter().any(|one| one == banned), "{target}: {banned} in {needed:?}");
        }
    }
}

#[test]
fn the_protocol_builds_for_browsers() {
    let sysroot = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim());
    if !sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
        return not_run("bowline-sbrp for browsers: needs the Rust target wasm32-unknown-unknown");
    }
    // Its own folder: the one of this build is in use.
    let status = cargo("check")
        .args(["--target", TARGET, "--target-dir"])
        .arg(root().join("target/browser"))
        .status()
        .unwrap();
    assert!(status.success());
}
