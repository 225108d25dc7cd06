//! `bowline bench tools` measures what it says; how fast is another matter.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_tool_bench_makes_its_calls_and_names_its_figures() {
    let run = Command::new(env!("CARGO_BIN_EXE_bowline"))
        .args(["bench", "tools", "--json", "--seconds", "1", "--sessions", "5", "--rate", "20"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let value = |part: &str, name: &str| {
        report[part][name].as_f64().unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    for name in ["tool_call_p50_ms", "tool_call_p99_ms", "fsync_p50_ms", "adapt_mb_per_s"] {
        assert!(value("figures", name) > 0.0, "{name}: {report}");
    }
    assert_eq!(value("figures", "tool_calls_per_s"), 20.0);
    assert!(value("figures", "tool_call_p50_ms") <= value("figures", "tool_call_p99_ms"));
    // Whatever it takes, it holds an exchange with the device and two flushes.
    assert!(value("ratios", "tool_call_vs_echo") > 0.0, "{report}");
}
