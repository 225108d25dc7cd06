//! The tunnel over bad networks: slow, far, lossy, dead for a while, and a phone that sleeps.
//!
//! Each scenario has three hosts of its own, in network namespaces: a relay, a home and a phone, with real
//! processes and links that are shaped and cut while bytes go both ways. In each, every byte must arrive
//! and no connection be reset. They wait far more than they work, so they run at the same time; only what
//! is measured runs alone.
//!
//! Short by default; `BOWLINE_SOAK=1` has the long times. `BOWLINE_NETWORK=far` runs those whose name
//! begins so. Needs Linux, root, iproute2 and /dev/net/tun; elsewhere it is listed as not run.

#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
pub(crate) mod namespace;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg(target_os = "linux")]
mod transfer;

use crate::not_run::not_run;

const WHAT: &str = "networks that are slow, far, lossy or dead";

#[cfg(target_os = "linux")]
#[test]
fn g2_soak_slow_far_lossy_and_dead_networks_reset_and_lose_nothing() {
    if let Some(missing) = namespace::missing() {
        return not_run(&format!("{WHAT}: they need {missing}"));
    }
    let wanted = std::env::var("BOWLINE_NETWORK").unwrap_or_default();
    let chosen = |scenario: &&scenarios::Scenario| scenario.name.starts_with(&wanted);
    let (alone, together): (Vec<_>, Vec<_>) =
        scenarios::all().into_iter().filter(|one| chosen(&one)).partition(|one| one.alone);
    assert!(!(alone.is_empty() && together.is_empty()), "no scenario is called {wanted}");
    let mut failed: Vec<_> = alone.iter().filter(|one| !one.passes()).map(|one| one.name).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> =
            together.iter().map(|one| (one.name, scope.spawn(|| one.passes()))).collect();
        failed.extend(
            running.into_iter().filter_map(|(name, run)| (!run.join().unwrap()).then_some(name)),
        );
    });
    assert!(failed.is_empty(), "failed: {failed:?}; what happened is above");
}

#[cfg(not(target_os = "linux"))]
#[test]
fn networks_need_linux() {
    not_run(&format!("{WHAT}: they need Linux"));
}
