//! `bowline bench` prints every figure that it announces; the values are not checked.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Process, bowline};

/// Runs `bowline bench` and returns its JSON.
fn bench(args: &[&str]) -> Value {
    let run = bowline().arg("bench").args(args).arg("--json").output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    serde_json::from_slice(&run.stdout).unwrap()
}

fn names(report: &Value, part: &str) -> Vec<String> {
    report[part].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_access_bench_prints_every_figure_that_is_published() {
    let report = bench(&["access", "--seconds", "1"]);
    for (part, name) in [
        ("ratios", "flood_vs_quiet"),
        ("figures", "quiet_turns_per_s"),
        ("figures", "flooded_turns_per_s"),
        ("figures", "keyless_request_us_p50"),
    ] {
        assert!(report[part][name].as_f64().is_some_and(|figure| figure > 0.0), "{name}: {report}");
    }
    // A difference, which can be negative on a busy machine.
    assert!(report["figures"]["auth_added_us_p50"].is_number(), "{report}");
}

#[test]
fn the_federation_bench_prints_every_figure_that_is_published() {
    let report = bench(&["federation", "--seconds", "1"]);
    for (part, name) in [
        ("figures", "import_1000_ms"),
        ("figures", "move_gap_ms"),
        ("figures", "tracker_lookups_per_s"),
        ("figures", "bundle_mb_per_s"),
        ("ratios", "bundle_vs_static"),
    ] {
        assert!(report[part][name].as_f64().is_some_and(|figure| figure > 0.0), "{name}: {report}");
    }
}

#[test]
fn soak_the_gateway_bench_prints_every_figure_that_is_published() {
    let mut parts = vec!["gateway", "--seconds", "1"];
    // The others write 100,000 turns, hold 5,000 sockets or wait until 20,000 sessions are idle.
    if std::env::var_os("BOWLINE_SOAK").is_none() {
        parts.extend(["--only", "ready,http,stream,latency,attach,followers"]);
    }
    let report = bench(&parts);
    let mut expected = vec![
        ("ratios", "new_sessions_vs_direct"),
        ("ratios", "passthrough_vs_direct"),
        ("ratios", "attach_vs_bare_ws"),
        ("ratios", "followers_16_vs_1"),
        ("figures", "first_token_added_ms_p50"),
        ("figures", "turn_direct_ms_p50"),
        ("figures", "attach_per_s"),
        ("figures", "ready_ms_empty"),
        ("figures", "binary_mb"),
    ];
    if std::env::var_os("BOWLINE_SOAK").is_some() {
        expected.extend([
            ("ratios", "drain_vs_memory"),
            ("ratios", "turn_cost_10000_vs_10"),
            ("figures", "drain_1000_ms"),
            ("figures", "drain_100000_ms"),
            ("figures", "idle_surface_kib"),
            ("figures", "idle_sessions_before_mb"),
            ("figures", "idle_sessions_after_mb"),
        ]);
    }
    for (part, name) in expected {
        assert!(report[part][name].as_f64().is_some_and(|figure| figure > 0.0), "{name}: {report}");
    }
    // Differences, which can be negative on a busy machine.
    let mut differences =
        vec!["turn_added_ms_p50", "turn_added_ms_p99", "turn_direct_spread_ms_p99"];
    if std::env::var_os("BOWLINE_SOAK").is_some() {
        differences.push("idle_session_bytes");
    }
    for name in differences {
        assert!(report["figures"][name].is_number(), "{name}: {report}");
    }
}

#[test]
fn soak_the_replicas_bench_prints_every_figure_that_is_published() {
    let is_soak = std::env::var_os("BOWLINE_SOAK").is_some();
    let mut parts = vec!["replicas", "--seconds", "6"];
    // The others wait until leases have expired, and write 100,000 messages.
    if !is_soak {
        parts.extend(["--only", "turns,tokens,tools"]);
    }
    let report = bench(&parts);
    let mut expected = vec![
        ("ratios", "turns_vs_pgbench"),
        ("figures", "replica_turns_per_s"),
        ("figures", "pgbench_per_s"),
        ("figures", "remote_tool_call_p50_ms"),
    ];
    if is_soak {
        let of_soak = ["takeover_ms", "rolling_restart_gap_ms_p50", "copy_rows_per_s"];
        expected.extend(of_soak.map(|name| ("figures", name)));
        assert_eq!(report["figures"]["rolling_restart_lost"], 0.0, "{report}");
    }
    for (part, name) in expected {
        assert!(report[part][name].as_f64().is_some_and(|figure| figure > 0.0), "{name}: {report}");
    }
    // A difference, which can be nothing.
    assert!(report["figures"]["remote_token_added_ms_p50"].is_number(), "{report}");
}

#[tokio::test]
async fn any_server_can_be_compared_by_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let key = "a-key-of-more-than-20-letters";
    let gateway =
        Process::start_at(folder.path(), "127.0.0.1:0", &[("BOWLINE_AUTH_API_KEYS", key)]);
    let url = format!("{}/v1", gateway.url);
    let report = bench(&["compare", "--url", &url, "--seconds", "1", "--key", key]);
    let all = [
        "plain_per_s",
        "new_sessions_per_s",
        "first_token_ms_p50",
        "attach_per_s",
        "drain_1000_ms",
    ];
    assert_eq!(names(&report, "figures"), all);

    // A server without sessions.
    let mut mock = bowline().args(["bench", "mock"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(mock.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let url = format!("http://{}", address.trim());
    let report = bench(&["compare", "--url", &url, "--seconds", "1"]);
    mock.kill().unwrap();
    mock.wait().unwrap();
    assert_eq!(names(&report, "figures"), ["plain_per_s", "first_token_ms_p50"]);
}

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
    // A whole step includes the exchange with the device and two flushes.
    assert!(value("ratios", "tool_call_vs_echo") > 0.0, "{report}");
}
