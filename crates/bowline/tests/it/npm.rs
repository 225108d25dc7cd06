//! The npm package `sbp-conformance`: packed, installed from its files without a network, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::{Process, bowline};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// This machine, as npm names it.
fn platform() -> String {
    let os = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    format!("{os}-{cpu}")
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// npm without a network and without the user's files.
fn npm(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env("npm_config_cache", folder.join("cache"))
        .env("npm_config_userconfig", folder.join("no-npmrc"))
        .env("npm_config_offline", "true")
        .env("npm_config_audit", "false")
        .env("npm_config_fund", "false")
        .env("npm_config_update_notifier", "false");
    command
}

/// A folder in which the package is installed, as `npm install` leaves it.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (out, binary) = (folder.path().join("out"), bowline());
    std::fs::create_dir(&out).unwrap();
    let made = folder.path().join("platform");
    let tool = root().join("tools/npm-platform");
    done(Command::new(tool).arg(binary.get_program()).arg(platform()).arg(&made));
    for package in [made, root().join("packages/npm/sbp-conformance")] {
        done(npm(folder.path(), "npm").args(["pack", "--pack-destination"]).arg(&out).arg(package));
    }
    std::fs::write(folder.path().join("package.json"), r#"{"private":true}"#).unwrap();
    let packed = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    done(npm(folder.path(), "npm").arg("install").args(packed));
    folder
}

#[test]
fn sbp_cert_01_npx_checks_a_server_with_the_installed_package() {
    let folder = installed();
    let data = tempfile::tempdir().unwrap();
    let gateway = Process::start(data.path());
    let run = |url: &str| {
        npm(folder.path(), "npx")
            .args(["sbp-conformance", "--url", url, "--level", "L5", "--json"])
            .args(["--only", "SBP-L1-01,SBP-L2-01", "--model", "bowline/offline"])
            .output()
            .unwrap()
    };
    let output = run(&gateway.url);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["counts"]["passed"], &report["counts"]["failed"]), (&3.into(), &0.into()));
    drop(gateway);
    // The exit code is that of the suite.
    assert_eq!(run("http://127.0.0.1:9").status.code(), Some(5));
}

#[test]
fn the_npm_packages_have_the_version_of_the_binary() {
    let file = root().join("packages/npm/sbp-conformance/package.json");
    let package: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(package["version"], version);
    let platforms = package["optionalDependencies"].as_object().unwrap();
    assert!(platforms.len() == 4 && platforms.values().all(|of| of == version), "{platforms:?}");
    assert!(platforms.contains_key(&format!("sbp-conformance-{}", platform())));
}
