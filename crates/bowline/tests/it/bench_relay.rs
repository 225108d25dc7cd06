//! A short run of `bowline bench relay`: all figures are printed. Those of a debug build are not
//! meaningful.

use std::process::Stdio;

use serde_json::Value;

use crate::not_run::not_run;
use crate::process::bowline;

#[test]
fn the_relay_is_measured_beside_a_forwarder() {
    let output = bowline()
        .args(["bench", "relay", "--json", "--only", "frames", "--seconds", "1"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["frames_64_vs_tcp", "bytes_16k_vs_tcp"] {
        assert!(report["ratios"][name].as_f64().unwrap() > 0.0, "{report}");
    }
    let ratios = report["ratios"].as_object().unwrap();
    let nginx = &ratios["frames_64_vs_nginx"];
    assert!(nginx.is_null() || nginx.as_f64().unwrap() > 0.0, "{report}");
    assert!(report["figures"]["frames_64_relay_cpu_ns"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_gateway_through_a_relay_is_measured_beside_itself() {
    let output = bowline()
        .args(["bench", "relay", "--json", "--only", "reach", "--seconds", "1"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["sbp_request_vs_direct", "sbp_read_vs_direct"] {
        assert!(report["ratios"][name].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["figures"]["turn_via_relay_added_ms_p50"].is_f64(), "{report}");
    assert!(report["figures"]["resume_ms_p50"].as_f64().unwrap() > 0.0, "{report}");
}

/// 4,000 daemons with a client each, in a relay that is a process of its own.
#[test]
fn g11_a_relays_memory_is_bounded_and_returns_after_its_pairs_left() {
    let files = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = files.lines().find(|line| line.starts_with("Max open files"));
    let most = files.and_then(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok());
    if most.is_none_or(|most| most < 11_000) {
        return not_run("memory of 4,000 pairs: it needs Linux and 11,000 open files");
    }
    let output = bowline()
        .args(["bench", "relay", "--json", "--only", "idle"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |name: &str| report["figures"][name].as_f64().unwrap();
    assert!(figure("relay_pair_kib") <= 14.0, "{report}");
    // 1.7 and more if nothing asks the allocator to return it.
    assert!(figure("relay_pair_left_kib") <= 1.0, "{report}");
}

#[test]
fn an_unknown_part_of_the_bench_is_named() {
    let output = bowline().args(["bench", "relay", "--only", "speed"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no part `speed`"), "{said}");
}

#[test]
fn a_tunnel_is_measured_beside_a_forwarder_and_from_far_away() {
    let output = bowline()
        .args(["bench", "relay", "--json", "--only", "tunnel", "--seconds", "1"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["ratios"]["tunnel_vs_tcp"].as_f64().unwrap() > 0.0, "{report}");
    for least in ["hops_vs_tcp", "tunnel_vs_hops"] {
        assert!(report["ratios"][least].as_f64().unwrap() > 0.0, "{report}");
    }
    let ssh = &report["ratios"]["tunnel_vs_ssh"];
    assert!(ssh.is_null() || ssh.as_f64().unwrap() > 0.0, "{report}");
    assert!(report["figures"]["tunnel_100ms_mb_per_s"].as_f64().unwrap() > 0.0, "{report}");
}
