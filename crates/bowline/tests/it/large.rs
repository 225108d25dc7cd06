//! The start on a large database after kill -9, as `bowline bench` measures it.

use std::process::Stdio;

use serde_json::Value;

use crate::process::bowline;

#[test]
fn g13_soak_a_start_on_1_gb_of_unfinished_work_takes_no_longer_than_promised() {
    let is_soak = std::env::var_os("BOWLINE_SOAK").is_some();
    // The short run only shows that it works: a debug build need not meet the limit.
    let (megabytes, name, limit) =
        if is_soak { ("1000", "ready_ms_1gb", 2_000.0) } else { ("10", "ready_ms_10mb", 10_000.0) };
    let output = bowline()
        .args(["bench", "gateway", "--json", "--only", "ready", "--large", megabytes])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let took = report["figures"][name].as_f64().unwrap();
    eprintln!("{name}: {took} ms, {}", report["figures"]);
    assert!(took <= limit, "{name}: {took} ms");
}
